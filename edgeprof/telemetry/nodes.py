"""Small files of a board that are kept open and read again and again. Knows not what they mean.

Reading neither raises nor waits: what cannot be read is None, and the reason is kept. A file that
went away, or was not there at first, is looked for again, at most once a second.
"""

import errno
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping

from edgeprof.hardware.board_files import BoardFiles, printable

NODE_BYTES = 256
_RETRY_NS = 1_000_000_000
_NUMBER = re.compile(rb"-?[0-9]{1,20}")
# What reading says once the device behind a descriptor is gone; other errors may pass.
_GONE = {errno.ENODEV, errno.EIO, errno.ENXIO, errno.ESTALE}
_CLOSED = -1


class Node:
    """One file, read from its start in one piece.

    ``path`` is that on the board. ``reason`` says why the last reading was None. ``descriptor`` is
    of the file where it is open already, and becomes the node's.
    """

    def __init__(
        self,
        files: BoardFiles,
        path: str,
        descriptor: int = _CLOSED,
        *,
        size: int = NODE_BYTES,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.path = path
        self.reason: str | None = None
        self._files = files
        self._descriptor = descriptor
        self._size = size
        self._clock = clock
        self._retry_ns: int | None = None

    def __del__(self) -> None:
        self._close()

    @property
    def gone(self) -> bool:
        """Whether it has to be opened before it can be read."""
        return self._descriptor == _CLOSED

    def number(self) -> int | None:
        """The whole number that stands in the file, and nothing else."""
        raw = self.read()
        if raw is None:
            return None
        digits = raw.strip()
        if _NUMBER.fullmatch(digits):
            return int(digits)
        self.reason = f"not a number: {printable(digits.decode(errors='replace'))}"
        return None

    def read(self) -> bytes | None:
        """What stands in the file, of which there must be something."""
        try:
            if self._descriptor != _CLOSED and os.fstat(self._descriptor).st_nlink == 0:
                self._close()  # removed or replaced: it would repeat its last for ever
                self.reason = os.strerror(errno.ENOENT).lower()
            if self._descriptor == _CLOSED and not self._open():
                return None
            raw = os.pread(self._descriptor, self._size, 0)
        except OSError as error:
            self.reason = _words(error)
            if error.errno in _GONE:
                self._close()
            return None
        self.reason = None if raw else "empty"
        return raw or None

    def _open(self) -> bool:
        now_ns = self._clock()
        if self._retry_ns is not None and now_ns < self._retry_ns:
            return False
        self._retry_ns = now_ns + _RETRY_NS
        try:
            self._descriptor = self._files.open(self.path)
        except (OSError, ValueError) as error:
            self.reason = _words(error)
            return False
        return True

    def _close(self) -> None:
        if self._descriptor != _CLOSED:
            os.close(self._descriptor)
            self._descriptor = _CLOSED


class Nodes:
    """Opens the nodes of one board.

    For what is not permitted a lender is asked, once: it gives descriptors, to keep, of files by
    their path on the board. ``refused`` are the paths that were not permitted.
    """

    def __init__(self, files: BoardFiles, lent: Callable[[], Mapping[str, int]]) -> None:
        self.files = files
        self.refused: set[str] = set()
        self.lender_gave = False
        self._ask_lender = lent
        self._lent: dict[str, int] | None = None

    def first(self, paths: Iterable[str], *, size: int = NODE_BYTES) -> Node | None:
        """The first of the files that can be opened; else the first of them that is lent."""
        refused = []
        for path in paths:
            try:
                return Node(self.files, path, self.files.open(path), size=size)
            except PermissionError:
                refused.append(path)
            except (OSError, ValueError):
                continue
        self.refused.update(refused)
        for path in refused:
            if (descriptor := self._borrowed().pop(path, None)) is not None:
                return Node(self.files, path, descriptor, size=size)
        return None

    def every(self, paths: Iterable[str]) -> list[Node]:
        """All of the files that can be opened or are lent."""
        return [node for path in paths if (node := self.first([path])) is not None]

    def close_unused(self) -> None:
        """Close what was lent and not asked for."""
        while self._lent:
            os.close(self._lent.popitem()[1])

    def _borrowed(self) -> dict[str, int]:
        if self._lent is None:
            self._lent = dict(self._ask_lender())
            self.lender_gave = bool(self._lent)
        return self._lent


def _words(error: OSError | ValueError) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
