"""edgeprof: how fast a draft and target pair can go on a board, how fast it goes, and why."""

from edgeprof.marks import mark as mark

__version__ = "0.1.0"
