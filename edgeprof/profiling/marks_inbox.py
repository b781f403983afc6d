"""The socket at which a watched program announces its phases. Knows nothing of what they mean."""

import os
import shutil
import socket
import stat
import struct
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from edgeprof.marks import LARGEST_DATAGRAM_BYTES

_MOST_WAITING = 100_000
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid
_SYSTEM_FOLDER = "/tmp"
_PREFIX, _NAME = "edgeprof-marks-", "marks"


class Datagram(NamedTuple):
    """What came, from which process, and when."""

    text: bytes
    pid: int
    received_ns: int


class MarksInbox:
    """A datagram socket in a private folder; ``path`` is where. Raises OSError where none can be.

    The kernel holds ten datagrams of a sender and refuses more, hence a thread that takes them at
    once. ``dropped`` counts those that came faster than ``take`` was called.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._closing = False
        self._waiting: deque[Datagram] = deque()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        try:
            self.path = _bind(self._socket)
        except OSError:
            self._socket.close()
            raise
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> "MarksInbox":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def take(self) -> Iterator[Datagram]:
        """What came since the last call, in its order."""
        while self._waiting:
            yield self._waiting.popleft()

    def close(self) -> None:
        """Let nothing more in; what had come before can still be taken."""
        if not self._closing:
            self._closing = True
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RD)  # wakes the thread
            self._thread.join(1.0)
            self._socket.close()
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def _listen(self) -> None:
        while (came := self._receive()) is not None:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(came)
            else:
                self.dropped += 1

    def _receive(self) -> Datagram | None:
        """The next one, one byte longer than allowed where it is too long; None at the end."""
        try:
            text, ancillary, _, _ = self._socket.recvmsg(
                LARGEST_DATAGRAM_BYTES + 1, socket.CMSG_SPACE(_CREDENTIALS.size)
            )
        except OSError:
            return None
        if not text and self._closing:
            return None
        return Datagram(text, _sender(ancillary), time.monotonic_ns())


def _bind(listener: socket.socket) -> Path:
    """In the usual folder for such files; in /tmp where its path is too long for a socket."""
    for place in (tempfile.gettempdir(), _SYSTEM_FOLDER):
        _clear_away_dead(Path(place))
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
        try:
            listener.bind(os.fspath(folder / _NAME))
            return folder / _NAME
        except OSError:
            folder.rmdir()
            if place == _SYSTEM_FOLDER:
                raise
    raise AssertionError


def _clear_away_dead(place: Path) -> None:
    """Sockets of this user that nobody listens at any more: their edgeprof was killed."""
    with suppress(OSError):
        for folder in place.glob(f"{_PREFIX}*"):
            found = folder.lstat()
            if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
                _remove_if_dead(folder)


def _remove_if_dead(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as knocking:
        try:
            knocking.connect(os.fspath(folder / _NAME))
        except ConnectionRefusedError:
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            return  # not one, or not yet


def _sender(ancillary: list[tuple[int, int, bytes]]) -> int:
    """The process that the kernel says it came from."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack_from(data)[0]
            return pid
    return 0
