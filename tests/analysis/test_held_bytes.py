"""The identity of held legs, on readings that a counter would give exactly."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.held_bytes import (
    Delay,
    PhaseKey,
    fit_delay,
    held_seconds,
    held_value,
    hold,
    settled,
    slope_and_intercept,
    stretches_of,
    stuck_reason,
    trace_of,
    widening,
)
from edgeprof.session.records import Leg, Signal, WindowKind

RATE_HZ = 20
LEG_S = 10.0
LEVELS = [2e9, 40e9, 2e9, 20e9, 40e9, 20e9]  # of the legs, one after the other
KEYS = {
    2e9: PhaseKey("idle", "idle", 0, 0),
    40e9: PhaseKey("decode", "t", 1, 256),
    20e9: PhaseKey("draft", "d", 1, 256),
}
PERIOD_S = {2e9: 0.0, 40e9: 0.05, 20e9: 0.01}


def exponential(tau_s: float) -> Callable[[float], float]:
    """The average of the levels, in closed form leg by leg."""
    starts = [LEVELS[0]]
    for level in LEVELS:
        starts.append(level + (starts[-1] - level) * math.exp(-LEG_S / tau_s))

    def shown(t_s: float) -> float:
        leg = min(max(int(t_s // LEG_S), 0), len(LEVELS) - 1)
        return LEVELS[leg] + (starts[leg] - LEVELS[leg]) * math.exp(-(t_s - leg * LEG_S) / tau_s)

    return shown


def boxcar(width_s: float) -> Callable[[float], float]:
    def shown(t_s: float) -> float:
        leg = min(max(int(t_s // LEG_S), 0), len(LEVELS) - 1)
        new = min((t_s - leg * LEG_S) / width_s, 1.0)
        before = LEVELS[max(leg - 1, 0)]
        return before + new * (LEVELS[leg] - before)

    return shown


def channel_of(
    shown: Callable[[float], float], *, late_s: float = 0.0, missing: range = range(0)
) -> Channel:
    steps = [i for i in range(int(len(LEVELS) * LEG_S * RATE_HZ)) if i not in missing]
    times = [round(i / RATE_HZ * 1e9) for i in steps]
    signal = Signal(id=1, name="dram_bandwidth_bytes_per_s", unit="B/s", source="sysfs")
    return Channel(
        signal=signal,
        times_ns=np.array(times),
        values=np.array([shown(t / 1e9 - late_s) for t in times]),
        held=np.diff(steps) <= 3,
        qualities={"simulated": len(times)},
        suspect=None,
    )


def legs() -> list[tuple[PhaseKey, Leg, float]]:
    found = []
    for i, level in enumerate(LEVELS):
        t0_ns, t1_ns = (round(t * LEG_S * 1e9) for t in (i, i + 1))
        leg = Leg(id=i + 1, name=f"leg {i}", kind="held", variant="t", repeat=1, warmup=False,
                  t0_ns=t0_ns, t1_ns=t1_ns, status="complete")  # fmt: skip
        found.append((KEYS[level], leg, PERIOD_S[level]))
    return found


@pytest.mark.parametrize("tau_s", [0.3, 0.9, 1.5])
@pytest.mark.parametrize("late_s", [-0.05, 0.0, 0.05])
def test_an_exponential_counter_is_seen_through(tau_s: float, late_s: float) -> None:
    stretches, delay = settled(legs(), channel_of(exponential(tau_s), late_s=late_s))
    # Of a clock that is early, what moved before the edge is not seen as lacking.
    assert delay is not None and delay.seconds == pytest.approx(tau_s + late_s, abs=0.06)
    held = hold(stretches, delay).estimate
    # (40 - 2) GB/s x 50 ms and (20 - 2) GB/s x 10 ms
    assert held.bytes_per_pass[KEYS[40e9]] == pytest.approx(1.9e9, rel=0.01)
    assert held.bytes_per_pass[KEYS[20e9]] == pytest.approx(0.18e9, rel=0.01)


@pytest.mark.parametrize("width_s", [0.3, 0.9, 1.5])
def test_a_boxcar_lags_by_half_its_width(width_s: float) -> None:
    stretches, delay = settled(legs(), channel_of(boxcar(width_s)))
    assert delay is not None and delay.seconds == pytest.approx(width_s / 2, abs=0.02)
    held = hold(stretches, delay).estimate
    assert held.bytes_per_pass[KEYS[40e9]] == pytest.approx(1.9e9, rel=0.002)
    assert held.idle_bytes_per_s == pytest.approx(2e9, rel=0.002)


def test_the_identity_holds_before_a_counter_has_settled() -> None:
    """A tau of 3 s: after 10 s 4 % of the step is still missing from the reading."""
    channel = channel_of(exponential(3.0))
    trace = trace_of(channel, round(10.5e9), round(19.9e9))
    assert trace is not None
    assert trace.level(3.0) == pytest.approx(40e9, rel=0.002)
    assert trace.mean < 0.77 * 40e9  # what the mean alone would say


def test_a_leg_that_the_counter_missed_is_left_out() -> None:
    """Readings 300 to 379 of the second leg's 200 to 399 are missing: 4 of its 10 s."""
    channel = channel_of(exponential(0.5), missing=range(300, 380))
    found = stretches_of(legs(), channel, 0.5)
    assert [one.key for one in found] == [KEYS[level] for i, level in enumerate(LEVELS) if i != 1]


def test_without_edges_there_is_no_delay() -> None:
    stretches, _ = settled(legs(), channel_of(exponential(0.5)))
    assert fit_delay(stretches[:2]) is None
    assert fit_delay([]) is None


def test_a_slow_source_tells_an_edge_less_exactly() -> None:
    """Five readings a second, as tegrastats gives: an edge is known to 0.2 s."""
    fast = channel_of(exponential(0.9))
    times_ns, values = fast.times_ns[::4], fast.values[::4]
    slow = replace(fast, times_ns=times_ns, values=values, held=np.diff(times_ns) > 0)
    stretches, delay = settled(legs(), slow)
    assert delay is not None and delay.edges == 5 and delay.edge_s == pytest.approx(0.2)
    held = hold(stretches, delay).estimate
    assert held.bytes_per_pass[KEYS[40e9]] == pytest.approx(1.9e9, rel=0.01)


def test_few_legs_are_less_sure_than_their_percentiles() -> None:
    assert widening(1) == 1.0
    # t of 3 degrees 2.353, normal point 1.645, sqrt(4 / 3)
    assert widening(4) == pytest.approx(2.353 / 1.645 * math.sqrt(4 / 3))
    assert widening(1000) == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize(
    ("kind", "window_s", "seconds"),
    [
        ("exponential", 0.896, 6 * 0.896 * 1.1),
        ("exponential", None, 6 * 1.5 * 1.1),
        ("unknown", None, 9.9),
        ("boxcar", 0.02, 2.0),
        ("instantaneous", None, 2.0),
    ],
)
def test_legs_last_for_six_windows(
    kind: WindowKind, window_s: float | None, seconds: float
) -> None:
    signal = Signal(id=1, name="x", unit="B/s", source="s", window_s=window_s, window_kind=kind)
    assert held_seconds(signal) == pytest.approx(seconds)


def test_a_reading_that_never_moves_is_stuck() -> None:
    """A counter that is stuck, and one whose phases are alike: only idleness tells them apart."""
    both = [(key, leg) for key, leg, _ in legs()]
    reason = stuck_reason(channel_of(lambda _: 7e9), both)
    assert reason is not None and "the same reading for 10.0 s, from idle to decode of t" in reason
    alike = channel_of(lambda t: 2e9 if LEVELS[min(int(t // LEG_S), 5)] == 2e9 else 40e9)
    assert stuck_reason(alike, both) is None


def test_a_size_between_two_that_were_held() -> None:
    held = {
        PhaseKey("decode", "t", 1, 256): 100.0,
        PhaseKey("verify", "t", 5, 256): 140.0,
        PhaseKey("draft", "d", 1, 256): 7.0,
    }
    assert held_value(held, "verify", "t", 2) == 110.0
    assert held_value(held, "verify", "t", 9) == 140.0  # nothing larger is known
    assert held_value(held, "draft", "d", 2) == 7.0
    assert held_value(held, "draft", "t", 1) is None
    assert held_value(held, "prefill", "x", 1) is None


def test_the_line_of_the_duty_blocks() -> None:
    assert slope_and_intercept([(0, 5.0), (3, 11.0), (9, 23.0)]) == pytest.approx((2.0, 5.0))
    assert slope_and_intercept([(3, 1.0), (3, 2.0)]) is None


def test_bands_hold_the_estimate_and_are_not_points() -> None:
    channel = channel_of(exponential(0.7))
    noisy = channel.values * (1 + 0.02 * (-1.0) ** (np.arange(channel.n) // 7))
    stretches = stretches_of(legs(), replace(channel, values=noisy), 0.7)
    held = hold(stretches, Delay(0.7, 5))
    values = [draw.bytes_per_pass[KEYS[40e9]] for draw in held.draws]
    low, high = held.band(values)
    assert low < held.estimate.bytes_per_pass[KEYS[40e9]] < high
