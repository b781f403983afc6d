"""Reads the small text files of a board below a root folder, which may hold anything at all.

Links are followed below the root only, as the board itself would; devices and pipes are not opened,
large files not read to their end. What cannot be read is None, and the reason is kept.
"""

import errno
import os
import re
import stat
from itertools import islice
from pathlib import Path, PurePosixPath

LARGEST_FILE_BYTES = 256 << 10
_MOST_LINKS = 40
_MOST_NAMES = 4096
_SHOWN_CHARACTERS = 120
_DIGITS = re.compile(r"(\d+)", re.ASCII)


class BoardFiles:
    """The files of one board, by the path that they have on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.unread: dict[str, str] = {}

    def read(self, path: str) -> str | None:
        """The text of a file, or None; why is then in ``unread``, unless it just is not there."""
        try:
            raw = _read_and_close(self.open(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.unread[path] = getattr(error, "strerror", None) or str(error)
            return None
        if len(raw) > LARGEST_FILE_BYTES:
            self.unread[path] = f"larger than {LARGEST_FILE_BYTES >> 10} KiB"
            return None
        return raw.decode("utf-8-sig", errors="replace")

    def read_line(self, path: str) -> str | None:
        """The first line of a file without blanks and zero bytes; None where there is none."""
        text = self.read(path)
        return None if text is None else text.split("\n")[0].strip("\0 \t\r") or None

    def read_count(self, path: str) -> int | None:
        """A whole number."""
        line = self.read_line(path)
        if line is None:
            return None
        if not line.lstrip("-").isdecimal() or not line.isascii() or len(line) > 20:
            self.unread[path] = f"not a number: {printable(line)}"
            return None
        return int(line)

    def open(self, path: str) -> int:
        """A descriptor of a file, for the caller to close.

        Raises OSError where it cannot be opened, ValueError where it is not a regular file.
        """
        # A pipe would be waited for without O_NONBLOCK.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(self._below_root(path), flags)
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            os.close(descriptor)
            if stat.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            raise ValueError("not a regular file")
        return descriptor

    def names(self, folder: str) -> list[str]:
        """What lies in a folder, by the numbers in the names: zone2 before zone10. Empty where the
        folder cannot be listed."""
        try:
            with os.scandir(self._below_root(folder)) as entries:
                return sorted(
                    (entry.name for entry in islice(entries, _MOST_NAMES)), key=_by_number
                )
        except (OSError, ValueError):
            return []

    def where(self, path: str) -> str | None:
        """The path on the board without links: one thing has one. None where links go in circles or
        cannot be followed."""
        try:
            return str("/" / self._below_root(path).relative_to(self.root))
        except (OSError, ValueError):
            return None

    def link_name(self, path: str) -> str | None:
        """The name of the file that a link leads to."""
        try:
            return PurePosixPath(os.readlink(self._below_root(path, follow_last=False))).name
        except (OSError, ValueError):
            return None

    def _below_root(self, path: str, *, follow_last: bool = True) -> Path:
        """Where ``path`` lies once every link on the way is followed without leaving the root."""
        todo, done, links = [*PurePosixPath(path).parts[::-1]], Path(), 0
        while todo:
            step = todo.pop()
            if step == "/":
                done = Path()
            elif step == "..":
                done = done.parent
            elif (self.root / done / step).is_symlink() and (todo or follow_last):
                links += 1
                if links > _MOST_LINKS:
                    raise ValueError("too many links")
                todo += PurePosixPath(os.readlink(self.root / done / step)).parts[::-1]
            else:
                done /= step
        return self.root / done


def printable(text: str) -> str:
    """``text`` fit for a terminal: one line, no control characters, not too long."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    clean = " ".join(clean.split())
    return clean if len(clean) <= _SHOWN_CHARACTERS else clean[: _SHOWN_CHARACTERS - 3] + "..."


def _by_number(name: str) -> list[tuple[int, str]]:
    parts = _DIGITS.split(name)  # text and digits take turns
    return [(int(part[:20]), part) if i % 2 else (0, part) for i, part in enumerate(parts)]


def _read_and_close(descriptor: int) -> bytes:
    """The content, or a little more of it than a board's file may have."""
    pieces, left = [], LARGEST_FILE_BYTES + 1
    try:
        while left and (piece := os.read(descriptor, left)):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces)
