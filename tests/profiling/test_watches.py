"""What the recorder keeps an eye on."""

import os
import signal
from typing import Any

from edgeprof.profiling.watches import StopWatch, SwapWatch, stop_wishes
from edgeprof.session.records import Sample, Signal

S = 1_000_000_000


class FakeChild:
    """Remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def stop(self) -> None:
        self.asked.append("stop")

    def kill(self) -> None:
        self.asked.append("kill")


def swapping(*values: float | None) -> SwapWatch:
    watch = SwapWatch()
    watch.signal(Signal(id=3, name="swap_used_bytes", unit="B", source="host"))
    watch.signal(Signal(id=4, name="ram_used_bytes", unit="B", source="host"))
    for value in values:
        watch.sample(Sample(signal_id=3, t0_ns=0, t1_ns=0, value=value))
        watch.sample(Sample(signal_id=4, t0_ns=0, t1_ns=0, value=9e9))
    return watch


def test_r09_growth_of_swap_is_noted_not_swap_that_was_there() -> None:
    assert swapping().verdict(1) is None
    assert swapping(2e9, None, 2e9).verdict(1) is None
    event = swapping(1e9, 2.2e9, 1.1e9).verdict(1)
    assert event is not None and event.kind == "swap"
    assert event.detail == {"growth_bytes": 1_200_000_000}


def test_the_first_wish_asks_the_second_kills() -> None:
    child: Any = FakeChild()
    wishes = 0
    watch = StopWatch(child, lambda: wishes)
    watch.look(0)
    assert (child.asked, watch.asked) == ([], False)
    wishes = 1
    watch.look(1 * S)
    watch.look(2 * S)
    assert (child.asked, watch.asked) == (["stop"], True)
    wishes = 2
    watch.look(3 * S)
    assert child.asked == ["stop", "kill"]


def test_a_decoder_that_does_not_stop_is_killed_in_the_end() -> None:
    child: Any = FakeChild()
    watch = StopWatch(child, lambda: 1)
    watch.look(0)
    watch.look(30 * S)
    assert child.asked == ["stop"]
    watch.look(31 * S)
    assert child.asked == ["stop", "kill"]


def test_ctrl_c_is_counted_inside_the_block_and_an_exception_again_outside() -> None:
    before = signal.getsignal(signal.SIGINT)
    with stop_wishes() as wishes:
        assert wishes() == 0
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert wishes() == 2
    assert signal.getsignal(signal.SIGINT) is before
