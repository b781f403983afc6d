"""What takes from a decoding model the things it needs: memory traffic, or nothing but a core."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_PASS_BYTES = 16 << 20  # some milliseconds: short beside a target's passes, long beside a stamp
_SPIN_BYTES = 16 << 10  # fits into any first-level cache
_SPIN_ROUNDS = 1000


class Work(NamedTuple):
    """One pass of it, and the bytes that a pass asks of memory; None where that is nothing."""

    run: Callable[[], object]
    pass_bytes: int | None


def streaming_read(buffer_bytes: int) -> Work:
    """Reads piece after piece of a buffer that no cache holds, in a ring.

    The largest of the float32 numbers is looked for, which numpy does faster than memory delivers.
    """
    pieces = _Ring(_buffer(buffer_bytes))
    return Work(lambda: pieces.next().max(), _PASS_BYTES)


def streaming_copy(buffer_bytes: int) -> Work:
    """Copies piece after piece into a second buffer; the bytes are those read and those written."""
    source, target = _Ring(_buffer(buffer_bytes)), _Ring(_buffer(buffer_bytes))
    return Work(lambda: np.copyto(target.next(), source.next()), 2 * _PASS_BYTES)


def spin() -> Work:
    """Does with a core what ``streaming_read`` does, on numbers that never leave its own cache."""
    numbers = _buffer(_SPIN_BYTES)

    def run() -> None:
        for _ in range(_SPIN_ROUNDS):
            numbers.max()

    return Work(run, None)


class _Ring:
    """The pieces of a buffer, one after the other, again and again."""

    def __init__(self, buffer: "np.ndarray[tuple[int], np.dtype[np.float32]]") -> None:
        length = _PASS_BYTES // buffer.itemsize
        ends = range(length, len(buffer) + 1, length)
        self._pieces = [buffer[end - length : end] for end in ends]
        self._place = 0

    def next(self) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
        piece = self._pieces[self._place]
        self._place = (self._place + 1) % len(self._pieces)
        return piece


def _buffer(size_bytes: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    """Written to, so that every page of it is memory of its own."""
    return np.ones(max(size_bytes, 4) // 4, np.float32)
