"""Typed messages over a pipe: each frame is its length and a list of messages in MessagePack."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

from edgeprof.profiling.messages import Message, Order

_HEADER_BYTES = 4
_LARGEST_FRAME_BYTES = 1 << 28
_READ_BYTES = 1 << 20
HOLD_S = 0.05

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Message])
_order_decoder = msgspec.msgpack.Decoder(Order)


def widen_pipe(descriptor: int) -> None:
    """Room for a megabyte, so that a busy reader does not hold the writer up."""
    import fcntl

    with suppress(AttributeError, OSError):  # Python 3.10 and up on Linux; a limit may forbid it
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _READ_BYTES)


def _send(descriptor: int, payload: bytes) -> None:
    rest = memoryview(len(payload).to_bytes(_HEADER_BYTES, "little") + payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def send_order(descriptor: int, order: Order) -> None:
    """Tell a child; a child that is gone is not told."""
    with suppress(BrokenPipeError):
        _send(descriptor, _encoder.encode(order))


def read_orders(descriptor: int) -> Iterator[Order]:
    """The orders as they come, until the other side closes or is killed. Blocks."""
    frames = Frames()
    while piece := os.read(descriptor, _READ_BYTES):
        for frame in frames.feed(piece):
            yield _order_decoder.decode(frame)


def read_messages(frames: "Frames", piece: bytes) -> Iterator[Message]:
    """The messages that ``piece`` completes."""
    for frame in frames.feed(piece):
        yield from _decoder.decode(frame)


class Frames:
    """Puts the frames of a byte stream together again."""

    def __init__(self) -> None:
        self._pending = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        self._pending += piece
        while len(self._pending) >= _HEADER_BYTES:
            size = int.from_bytes(self._pending[:_HEADER_BYTES], "little")
            if size > _LARGEST_FRAME_BYTES:
                raise ValueError(f"a frame of {size} bytes")
            if len(self._pending) < _HEADER_BYTES + size:
                return
            frame = bytes(self._pending[_HEADER_BYTES : _HEADER_BYTES + size])
            del self._pending[: _HEADER_BYTES + size]
            yield frame


class Outbox:
    """Collects messages and sends them together.

    ``put`` sends what is older than ``hold_s``. A thread does so while a long pass runs, so that a
    kill in the middle of it takes nothing that was finished before: what is twice as old is sent.
    """

    def __init__(self, descriptor: int, hold_s: float = HOLD_S) -> None:
        self._descriptor = descriptor
        self._hold_s = hold_s
        self._hold_ns = round(hold_s * 1e9)
        self._waiting: list[Message] = []
        self._oldest_ns = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._flush_regularly, daemon=True).start()

    def put(self, message: Message) -> None:
        with self._lock:
            now_ns = time.monotonic_ns()
            if not self._waiting:
                self._oldest_ns = now_ns
            self._waiting.append(message)
            if now_ns - self._oldest_ns >= self._hold_ns:
                self._send_waiting()

    def flush(self) -> None:
        with self._lock:
            self._send_waiting()

    def _send_waiting(self) -> None:
        if self._waiting:
            _send(self._descriptor, _encoder.encode(self._waiting))
            self._waiting = []

    def _flush_regularly(self) -> None:
        while True:
            time.sleep(self._hold_s)
            with self._lock:
                if time.monotonic_ns() - self._oldest_ns >= self._hold_ns:
                    self._send_waiting()
