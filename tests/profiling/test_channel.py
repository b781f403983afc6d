"""Frames over a pipe: whole whatever the pieces, and sent before a kill could take them."""

import os
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeprof.profiling.channel import (
    Frames,
    Outbox,
    read_messages,
    read_orders,
    send_order,
)
from edgeprof.profiling.messages import Ended, Failed, Message, SampleJob, Stop
from edgeprof.session.records import Event, Sample


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "little") + payload


@given(st.lists(st.binary(max_size=40), max_size=8), st.integers(1, 7))
def test_frames_come_out_whole_whatever_the_pieces(payloads: list[bytes], size: int) -> None:
    stream = b"".join(framed(payload) for payload in payloads)
    frames = Frames()
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert [frame for piece in pieces for frame in frames.feed(piece)] == payloads


def test_a_frame_cut_off_by_a_kill_is_left_out() -> None:
    frames = Frames()
    assert list(frames.feed(framed(b"whole") + framed(b"cut off")[:-1])) == [b"whole"]


def test_a_length_that_no_child_writes_is_an_error() -> None:
    with pytest.raises(ValueError, match="frame of"):
        list(Frames().feed(b"\xff\xff\xff\xff"))


def test_orders_arrive_and_end_with_the_pipe() -> None:
    reading, writing = os.pipe()
    send_order(writing, SampleJob(sources=["host"]))
    send_order(writing, Stop())
    os.close(writing)
    assert list(read_orders(reading)) == [SampleJob(sources=["host"]), Stop()]
    os.close(reading)


def test_what_waits_is_sent_within_a_fifth_of_a_second_without_another_put() -> None:
    """As in the middle of a long pass, when nothing new comes."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    message: Message = Sample(signal_id=1, t0_ns=1, t1_ns=2, value=None)
    Outbox(writing).put(message)
    with pytest.raises(BlockingIOError):
        os.read(reading, 100)
    time.sleep(0.35)
    assert list(read_messages(Frames(), os.read(reading, 1000))) == [message]


def test_messages_of_one_flush_travel_in_one_frame_and_in_order() -> None:
    reading, writing = os.pipe()
    outbox = Outbox(writing)
    messages: list[Message] = [
        Event(leg_id=None, t_ns=1, kind="gap", severity="info"),
        Failed(kind="FileFault", message="x"),
        Ended(interrupted=True),
    ]
    for message in messages:
        outbox.put(message)
    outbox.flush()
    piece = os.read(reading, 4096)
    assert int.from_bytes(piece[:4], "little") == len(piece) - 4
    assert msgspec.msgpack.decode(piece[4:], type=list[Message]) == messages
