"""Reads the small text files of a board below a root folder, which may hold anything at all.

Links are followed below the root only, as the board itself would; devices and pipes are not opened,
large files not read to their end. What cannot be read is None, and the reason is kept.
"""

import os
import stat
from pathlib import Path, PurePosixPath

LARGEST_FILE_BYTES = 256 << 10
_MOST_LINKS = 40
_SHOWN_CHARACTERS = 120


class BoardFiles:
    """The files of one board, by the path that they have on it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.unread: dict[str, str] = {}

    def read(self, path: str) -> str | None:
        """The text of a file, or None; why is then in ``unread``, unless it just is not there."""
        try:
            raw = _read_regular(self._below_root(path))
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


def _read_regular(path: Path) -> bytes:
    # A pipe would be waited for without O_NONBLOCK.
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        return file.read(LARGEST_FILE_BYTES + 1)
