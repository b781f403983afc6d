"""edgeprof: how fast a draft and target pair can go on a board, how fast it goes, and why."""

__version__ = "0.1.0"
