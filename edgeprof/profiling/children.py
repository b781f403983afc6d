"""The recorder's side of a child: starting it, hearing it, and the cause of its death in words."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import edgeprof
from edgeprof.process_end import describe_end, words_file
from edgeprof.profiling.channel import Frames, read_messages, send_order, widen_pipe
from edgeprof.profiling.messages import Message, Order, Stop

_READ_BYTES = 1 << 20
_TAIL_BYTES = 4000
_WAIT_S = 5.0


class Child:
    """A process that runs ``module`` and speaks over two pipes of its own; ends with the block.

    Raises OSError where it cannot be started.
    """

    def __init__(self, name: str, module: str, job: Order) -> None:
        self.name = name
        self.open = True
        self._frames = Frames()
        self._errors = words_file()  # closed in __exit__
        orders_out, self._orders = os.pipe()
        self.descriptor, messages_in = os.pipe()
        widen_pipe(self.descriptor)
        try:
            self._process = _start(module, orders_out, messages_in, self._errors.fileno())
        except OSError:
            self._release()
            raise
        finally:
            os.close(orders_out)
            os.close(messages_in)
        self.pid = self._process.pid
        send_order(self._orders, job)

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self.gone(_WAIT_S)

    def end(self) -> None:
        """Kill it and hear no more of it, without waiting for it to be gone."""
        self.open = False
        self.kill()
        self._release()

    def gone(self, wait_s: float = 0.0) -> bool:
        """Whether the process is no more. One that hangs in the kernel cannot be killed now, and
        is left behind."""
        try:
            self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def receive(self) -> Iterator[Message]:
        """What came since the last call; call when the descriptor is readable.

        ``open`` turns False at the end.
        """
        piece = os.read(self.descriptor, _READ_BYTES)
        self.open = bool(piece)
        return read_messages(self._frames, piece)

    def stop(self) -> None:
        """Ask it to end after what it is at."""
        self.order(Stop())

    def order(self, order: Order) -> None:
        """Tell it something; one that is gone is not told."""
        send_order(self._orders, order)

    def kill(self) -> None:
        self._process.kill()

    def cause_of_end(self, wait_s: float = _WAIT_S) -> str:
        """How the process ended, once it has closed its pipe."""
        if not self.gone(wait_s):
            return "closed its pipe and went on running"
        return describe_end(self._process.returncode, self.last_words())

    def last_words(self) -> str:
        """The end of what it wrote on stderr."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - _TAIL_BYTES, 0))
        return self._errors.read().decode(errors="replace").strip()

    def _release(self) -> None:
        os.close(self._orders)
        os.close(self.descriptor)
        self._errors.close()


def _start(module: str, orders: int, messages: int, errors: int) -> "subprocess.Popen[bytes]":
    """Starts with Ctrl-C blocked, so that none reaches the child before it can look away."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        return subprocess.Popen(
            [sys.executable, "-m", module, str(orders), str(messages)],
            pass_fds=(orders, messages),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=child_environment(),
            cwd="/",  # no module that lies about in the current folder is imported
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def child_environment() -> dict[str, str]:
    """The child finds this very edgeprof, and what the parent's PYTHONPATH names."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    places = [Path(edgeprof.__file__).parent.parent, *(Path(part) for part in given if part)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(place.absolute()) for place in places)}
