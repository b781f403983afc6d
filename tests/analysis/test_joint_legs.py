"""Which passes of a joint leg count, and what a pass moves, from records made by hand.

In ms: the target's passes take 100 alone and 125 beside the antagonist, whose passes take 10.
"""

from typing import Any

import msgspec
import pytest

from edgeprof.analysis.contention import Contended
from edgeprof.analysis.disturbance import is_disturbed
from edgeprof.analysis.summary import summarise
from edgeprof.quantity import Quantity
from edgeprof.session.records import Pass

MS = 1_000_000
S = 1000 * MS


class Bench:
    """Appends contention legs to a session."""

    def __init__(self, maker: Any) -> None:
        self.maker = maker
        self.maker.info = msgspec.structs.replace(maker.info, kind="contend")

    def leg(
        self,
        repeat: int,
        *,
        target_ms: float | None,
        passes: int = 0,
        stream_ms: float | None = None,
        streams: int = 0,
        ahead_ms: float = 0.0,
        workers: int = 1,
        **attrs: Any,
    ) -> int:
        """Back to back passes of the target; the antagonist's begin ``ahead_ms`` before them."""
        leg_id: int = self.maker.leg("contend", "fp32", repeat=repeat, attrs={"seed": 3, **attrs})
        start_ns = self.maker.now
        ends = [start_ns]
        for worker in range(1, workers + 1) if stream_ms is not None else ():
            t_ns = start_ns
            for _ in range(streams):
                t_ns = self._pass(leg_id, t_ns, stream_ms or 0, worker)
            ends.append(t_ns)
        t_ns = start_ns + round(ahead_ms * MS)
        for _ in range(passes):
            t_ns = self._pass(leg_id, t_ns, target_ms or 0, 0)
        self.maker.now = max(*ends, t_ns)
        self.maker.end_leg()
        self.maker.now += 50 * MS
        return leg_id

    def _pass(self, leg_id: int, t0_ns: int, ms: float, stream: int) -> int:
        t1_ns = t0_ns + round(ms * MS)
        antagonist = stream > 0
        self.maker.passes.append(
            Pass(
                id=len(self.maker.passes) + 1, leg_id=leg_id, request_id=None, round_id=None,
                phase="antagonist" if antagonist else "decode",
                model="read" if antagonist else "fp32", provider="cpu", stream=stream,
                tokens=0 if antagonist else 1, context_tokens=0 if antagonist else 99,
                t0_ns=t0_ns, t1_ns=t1_ns,
            )
        )  # fmt: skip
        return t1_ns

    def alone(self, repeat: int) -> None:
        self.leg(repeat, target_ms=100, passes=30)

    def solo(self, repeat: int, **attrs: Any) -> None:
        self.leg(
            repeat, target_ms=None, stream_ms=10, streams=300,
            **{**READ, "runs": "antagonist", **attrs},
        )  # fmt: skip

    def found(self) -> Contended:
        targets = summarise(self.maker.session()).contention.targets
        assert len(targets) == 1
        return targets[0]


READ: dict[str, Any] = {
    "antagonist": "read", "antagonist_kind": "read", "dose": 1.0, "runs": "both",
    "pass_bytes": 50_000_000, "competes_for": ["bus"], "core_share": 1.0,
}  # fmt: skip


def value(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.value is not None
    return quantity.value


@pytest.fixture
def bench(maker: Any) -> Bench:
    return Bench(maker)


def test_only_the_time_in_which_both_ran_counts(bench: Bench) -> None:
    """The read runs from 0 to 1 s, the target from 0.5 to 1.75 s: 0.5 s in which both did. The
    first four of its passes lie within, the fifth is cut; 50 of the read's are."""
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=10, stream_ms=10, streams=100, ahead_ms=500, **READ)
    regime = bench.found().regimes[0]
    assert regime.overlap_s == pytest.approx(0.5)
    assert value(regime.pass_s) == pytest.approx(0.125)
    assert value(regime.antagonist_passes_per_s) == pytest.approx(100)
    assert value(regime.antagonist_bandwidth_bytes_per_s) == pytest.approx(100 * 50e6)


def test_a_pass_that_an_end_cuts_counts_by_its_part(bench: Bench) -> None:
    """The target begins in the middle of the first of ten passes of 100 ms: nine and a half."""
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=20, stream_ms=100, streams=10, ahead_ms=50, **READ)
    regime = bench.found().regimes[0]
    assert regime.overlap_s == pytest.approx(0.95)
    assert value(regime.antagonist_passes_per_s) == pytest.approx(9.5 / 0.95)


def test_workers_add_up(bench: Bench) -> None:
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=8, stream_ms=10, streams=100, workers=3, **READ)
    assert value(bench.found().regimes[0].antagonist_passes_per_s) == pytest.approx(300)


def test_bytes_without_a_counter_are_modelled(bench: Bench) -> None:
    """500 MB of weights and 100 tokens of 50 kB; a read's are what it asks for."""
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=8, stream_ms=10, streams=100, **READ)
    found = bench.found()
    assert found.pass_bytes is not None and found.pass_bytes.kind == "modelled"
    assert found.pass_bytes.value == 505_000_000
    curve = found.curves[0]
    assert curve.pass_bytes is not None and curve.pass_bytes.kind == "modelled"
    assert curve.pass_bytes.value == 50_000_000


def test_a_model_under_twice_the_last_level_cache_has_no_modelled_bytes(bench: Bench) -> None:
    environment = {**bench.maker.info.environment, "last_level_cache_bytes": 260_000_000}
    bench.maker.info = msgspec.structs.replace(bench.maker.info, environment=environment)
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=8, stream_ms=10, streams=100, **READ)
    found = bench.found()
    assert found.pass_bytes is None
    assert found.curves[0].reason == "the bytes of a target pass are not known"
    assert found.regimes[0].total_bandwidth_bytes_per_s is None


def test_bytes_with_a_counter_are_measured(bench: Bench) -> None:
    """1 GB/s idle. Alone the counter shows 6.05 GB/s: 5.05 x 0.1 s a pass; the read alone 9 GB/s:
    8 x 10 ms. Both figures replace those of the model and of the program."""
    maker = bench.maker
    levels: list[tuple[int, float]] = [(maker.now, 1e9)]
    maker.leg("idle", "idle")
    maker.now += 3 * S
    maker.end_leg()
    for repeat in (1, 2):
        levels.append((maker.now, 6.05e9))
        bench.alone(repeat)
        levels.append((maker.now, 9e9))
        bench.solo(repeat)
        levels.append((maker.now, 12e9))
        bench.leg(repeat, target_ms=125, passes=24, stream_ms=10, streams=300, **READ)
    times = range(levels[0][0], maker.now, 10 * MS)
    samples = [(t, [rate for since, rate in levels if since <= t][-1]) for t in times]
    maker.signal("dram_bandwidth_bytes_per_s", "B/s", samples)
    found = bench.found()
    assert found.pass_bytes is not None and found.pass_bytes.kind == "measured"
    assert found.pass_bytes.value == pytest.approx(0.505e9, rel=0.01)
    read = found.curves[0].pass_bytes
    assert read is not None and read.kind == "measured"
    assert read.value == pytest.approx(80e6, rel=0.01)
    total = found.regimes[0].total_bandwidth_bytes_per_s
    assert total is not None and total.kind == "measured"
    assert total.value == pytest.approx(12e9, rel=0.01)


def test_passes_that_the_counter_does_not_see_have_no_bytes(bench: Bench) -> None:
    """Whatever runs, it shows about 20 GB/s: no bytes are taken from the model's file in place of
    that, and kappa is not told."""
    maker = bench.maker
    start_ns = maker.now
    maker.leg("idle", "idle")
    maker.now += 3 * S
    maker.end_leg()
    for repeat in (1, 2, 3):
        bench.alone(repeat)
        bench.solo(repeat)
        bench.leg(repeat, target_ms=125, passes=24, stream_ms=10, streams=300, **READ)
    times = range(start_ns, maker.now, 10 * MS)
    noisy = [(t, 20e9 + 1e6 * (i * 7919 % 101 - 50)) for i, t in enumerate(times)]
    maker.signal("dram_bandwidth_bytes_per_s", "B/s", noisy)
    found = bench.found()
    assert found.pass_bytes is None
    (curve,) = found.curves
    assert curve.pass_bytes is None and curve.kappa is None
    assert curve.reason == "the bytes of a target pass are not known"


def test_a_clock_that_changed_is_the_reason_for_no_comparison(bench: Bench) -> None:
    maker = bench.maker
    start_ns = maker.now
    bench.alone(1)
    changed_ns = maker.now
    bench.leg(1, target_ms=125, passes=24, stream_ms=10, streams=300, **READ)
    times = range(start_ns, maker.now, 20 * MS)
    clock = [(t, 3199e6 if t < changed_ns else 2133e6) for t in times]
    maker.signal("emc_clock_hz", "Hz", clock)
    regime = bench.found().regimes[0]
    assert regime.target_retained is None
    assert (
        regime.not_compared is not None and "emc_clock_hz was 33.3 % lower" in regime.not_compared
    )
    assert value(regime.pass_s) == pytest.approx(0.125)


def test_an_antagonist_that_ran_alone_at_another_clock_is_no_measure_for_it(bench: Bench) -> None:
    """What it keeps is over its rate alone; the joint leg and the target's own agree."""
    maker = bench.maker
    start_ns = maker.now
    bench.alone(1)
    solo_ns = maker.now
    bench.solo(1)
    joint_ns = maker.now
    bench.leg(1, target_ms=125, passes=24, stream_ms=10, streams=300, **READ)
    times = range(start_ns, maker.now, 20 * MS)
    clock = [(t, 2133e6 if solo_ns <= t < joint_ns else 3199e6) for t in times]
    maker.signal("emc_clock_hz", "Hz", clock)
    found = bench.found()
    regime = found.regimes[0]
    assert regime.antagonist_retained is None and regime.concurrency_efficiency is None
    assert regime.not_compared is not None and "33.3 % lower" in regime.not_compared
    assert found.curves[0].reason == "clocks differed between the legs"


def test_a_spinner_at_another_clock_is_no_control(bench: Bench) -> None:
    spin: dict[str, Any] = {**READ, "antagonist": "spin", "antagonist_kind": "spin"}
    spin["competes_for"] = ["cores"]
    maker = bench.maker
    start_ns = maker.now
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=24, stream_ms=10, streams=300,
              **{**READ, "competes_for": ["bus", "cores"]})  # fmt: skip
    spin_ns = maker.now
    bench.leg(1, target_ms=150, passes=24, stream_ms=10, streams=300, **spin)
    times = range(start_ns, maker.now, 20 * MS)
    maker.signal("cpu_clock_hz", "Hz", [(t, 1e9 if t >= spin_ns else 1.5e9) for t in times])
    read = next(curve for curve in bench.found().curves if curve.antagonist == "read")
    assert read.reason == "both share cores, and no spinner ran at these clocks as control"


def test_shares_of_peak_are_at_the_clock_that_ran(bench: Bench) -> None:
    """32 bytes a clock at 2133 MHz, of which 0.8 are sustained."""
    maker = bench.maker
    device = {"name": "a board", "kind": "board", "bytes_per_emc_clock": 32.0,
              "sustained_share": 0.8}  # fmt: skip
    maker.info = msgspec.structs.replace(maker.info, device=device)
    start_ns = maker.now
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=24, stream_ms=10, streams=300, **READ)
    times = range(start_ns, maker.now, 20 * MS)
    maker.signal("emc_clock_hz", "Hz", [(t, 2133e6) for t in times])
    regime = bench.found().regimes[0]
    total = value(regime.total_bandwidth_bytes_per_s)
    assert total == pytest.approx(0.505e9 / 0.125 + 5e9)
    assert value(regime.peak_share) == pytest.approx(total / (32 * 2133e6))
    assert value(regime.sustained_share) == pytest.approx(total / (0.8 * 32 * 2133e6))


def test_warm_up_and_legs_cut_short_are_left_out(bench: Bench) -> None:
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=8, stream_ms=10, streams=100, **READ)
    bench.leg(1, target_ms=999, passes=8, stream_ms=10, streams=100, **READ)
    legs = bench.maker.legs
    legs[-1] = msgspec.structs.replace(legs[-1], status="interrupted")
    bench.leg(0, target_ms=999, passes=8, stream_ms=10, streams=100, **READ)
    legs[-1] = msgspec.structs.replace(legs[-1], warmup=True)
    regime = bench.found().regimes[0]
    assert regime.legs == 1 and value(regime.pass_s) == pytest.approx(0.125)


@pytest.mark.parametrize(
    "odd",
    [
        {"antagonist_kind": "magnet"},
        {"antagonist": 7},
        {"dose": "all"},
        {"competes_for": "bus"},
        {"competes_for": ["bus", 3, "moon"]},
        {"pass_bytes": "many"},
        {"core_share": [1]},
        {"seed": "x"},
    ],
)
def test_free_attributes_of_another_kind_are_unknown_and_break_nothing(
    bench: Bench, odd: dict[str, Any]
) -> None:
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=8, stream_ms=10, streams=100, **{**READ, **odd})
    assert value(bench.found().alone_s) == pytest.approx(0.1)


def test_a_leg_without_any_overlap_is_no_leg(bench: Bench) -> None:
    bench.alone(1)
    bench.leg(1, target_ms=125, passes=8, stream_ms=10, streams=10, ahead_ms=200, **READ)
    assert bench.found().regimes == []


@pytest.mark.parametrize(
    ("others_s", "stolen_s", "cpu_s", "disturbed"),
    [
        (0.95, 0.0, 0.9, False),  # the antagonist's own, and a little
        (0.95, 0.0, 0.7, True),
        (0.1, 0.0, 0.0, False),
        (0.0, 0.2, 0.0, True),
        (None, None, 0.9, False),  # a system that does not tell
    ],
)
def test_a_leg_is_disturbed_by_what_neither_of_both_took(
    others_s: float | None, stolen_s: float | None, cpu_s: float, disturbed: bool
) -> None:
    processor = {"own_s": 0.9, "others_s": others_s, "stolen_s": stolen_s, "wall_s": 1.0}
    attrs = {"processor": processor, "antagonist_cpu_s": cpu_s}
    assert is_disturbed(attrs) is disturbed
    assert not is_disturbed({}) and not is_disturbed({"processor": {"wall_s": "long"}})
