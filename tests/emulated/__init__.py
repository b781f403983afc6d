"""A Jetson board made of files, for tests: what it says is driven, and so known.

``tree`` builds and drives the files, ``signals`` moves them while somebody reads, ``namespace``
puts them where a board has them, so that the real jetson-stats service and edgeprof run on them;
``recording`` has edgeprof record that.
"""
