"""A recipe in, a Session out: the recorder and its two children."""
