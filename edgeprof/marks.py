"""Phases of a program, announced to the edgeprof that watches it; without one nothing happens.

Needs the standard library only, never waits and never raises, whatever becomes of edgeprof.
In any language it is two lines: one datagram to the Unix socket that $EDGEPROF_MARKS names, with
the text

    NAME [key=value ...]    phase NAME begins now; the one before it ends
    end                     the phase ends, and none begins

A process has one phase at a time, and so has each thread that says ``thread=``. What a shell sends
comes from a new process every time: there ``stream=`` says what belongs together. Keys:

    t_ns=      when it was, in nanoseconds of CLOCK_MONOTONIC; without it, when it arrives
    tokens=    how many tokens go into this pass of a model
    context=   how many are cached before it
    model=     which model runs it
    stream=    which of several streams of work it belongs to: a number from 0
    thread=    the thread's number, where it is not the main one
    lost=      how many datagrams before this one could not be sent

A phase named prefill, decode, draft or verify with tokens and context is a pass of a model. NAME
has at most 64 characters, no blank and no =, a datagram at most 512 bytes; others are counted and
begin nothing. The program's end ends its phases. In Python:

    edgeprof.mark("verify", tokens=5, context=128)      # until the next mark
    with edgeprof.mark("draft", tokens=1, context=131): ...
"""

import os
import time
from _thread import get_native_id  # threading itself would be one more thing to load
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType

VARIABLE = "EDGEPROF_MARKS"
END = "end"
LONGEST_NAME = 64
LARGEST_DATAGRAM_BYTES = 512


class Phase:
    """A phase that has begun; as a context manager it ends with the block."""

    def __init__(self, stream: int | None) -> None:
        self._stream = stream

    def __enter__(self) -> "Phase":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        mark(END, stream=self._stream)


def mark(
    name: str,
    *,
    tokens: int | None = None,
    context: int | None = None,
    model: str | None = None,
    stream: int | None = None,
) -> Phase:
    """Begin the phase ``name`` of this thread; it ends at the thread's next mark, or with a block.

    Phases do not nest: one that begins inside another ends it.
    """
    path = os.environ.get(VARIABLE)
    if path:
        keys = {"tokens": tokens, "context": context, "model": model, "stream": stream}
        with suppress(Exception):  # no program comes to harm because it is watched
            _sender.send(path, name, keys)
    return Phase(stream)


class _Sender:
    """Sends marks, and counts those that could not be sent."""

    def __init__(self) -> None:
        self._lost = 0

    def send(self, path: str, name: str, keys: Mapping[str, object]) -> None:
        import socket  # only for programs that are watched

        words = [_word(name)[:LONGEST_NAME], f"t_ns={time.monotonic_ns()}"]
        words += [f"{key}={_word(value)}" for key, value in keys.items() if value is not None]
        if (thread := _thread()) is not None:
            words.append(f"thread={thread}")
        if self._lost:
            words.append(f"lost={self._lost}")
        datagram = " ".join(words).encode(errors="replace")[:LARGEST_DATAGRAM_BYTES]
        # A socket of its own for each costs microseconds, and leaves nothing open in the program.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            try:
                out.sendto(datagram, socket.MSG_DONTWAIT, path)
            except BlockingIOError:  # edgeprof does not keep up; what it is told later says so
                self._lost += 1
            else:
                self._lost = 0


def _word(value: object) -> str:
    """Without the blanks that would end it."""
    return "_".join(str(value).split())


def _thread() -> int | None:
    """The number of this thread; None for the main one, whose phases are the process's."""
    number = get_native_id()
    return None if number == os.getpid() else number


_sender = _Sender()
