"""A child process that prints lines, heard without ever waiting for it. Knows nothing of what the
lines say."""

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from edgeprof.process_end import describe_end, words_file

_READ_BYTES = 1 << 16
_LONGEST_LINE_BYTES = 1 << 16
_TAIL_BYTES = 2000


class LineChild:
    """Runs a command in a session of its own, so that a Ctrl-C at the terminal is not its affair.

    Numbers come in the C locale. ``dropped`` counts lines longer than 64 KiB, and what stood
    unfinished at the end. Raises OSError where the command cannot be started.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        self.open = True
        self.dropped = 0
        self._pending = bytearray()
        self._overlong = False
        self._errors = words_file()  # closed in close
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,  # closing it tells a child that waits for it to end
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "LC_ALL": "C", **(environment or {})},
                cwd="/",
                start_new_session=True,
            )
        except OSError:
            self._errors.close()
            raise
        assert self._process.stdout is not None
        self._descriptor = self._process.stdout.fileno()
        os.set_blocking(self._descriptor, False)
        self.pid = self._process.pid

    def fileno(self) -> int:
        return self._descriptor

    def lines(self) -> Iterator[str]:
        """The lines that were completed since the last call, without their ends."""
        for piece in iter(self._piece, b""):
            *finished, rest = piece.split(b"\n")
            for part in finished:
                yield from self._finish(part)
            self._hold(rest)

    def cause_of_end(self) -> str:
        """How it ended; call once ``open`` is False. Waits a moment for it to be gone."""
        try:
            code = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return "closed its output and went on running"
        return describe_end(code, self.last_words())

    def last_words(self) -> str:
        """The end of what it wrote on stderr."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - _TAIL_BYTES, 0))
        return self._errors.read().decode(errors="replace").strip()

    def close(self) -> None:
        """End it. One that cannot be killed now, for it hangs in the kernel, is left behind."""
        self.open = False
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        try:
            self._process.kill()
            self._process.wait(0.5)
        except (PermissionError, subprocess.TimeoutExpired):
            pass  # a root-owned one under sudo ends by itself when it writes into the closed pipe
        self._errors.close()

    def _piece(self) -> bytes:
        if not self.open:
            return b""
        try:
            piece = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""
        if not piece:
            self.open = False
            self.dropped += bool(self._pending)
        return piece

    def _finish(self, part: bytes) -> Iterator[str]:
        self._hold(part)
        if not self._overlong:
            yield self._pending.decode(errors="replace").rstrip("\r")
        self._pending.clear()
        self._overlong = False

    def _hold(self, part: bytes) -> None:
        self._pending += part
        if len(self._pending) > _LONGEST_LINE_BYTES:
            self.dropped += not self._overlong
            self._overlong = True
            self._pending.clear()
