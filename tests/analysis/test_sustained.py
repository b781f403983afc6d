"""A long leg whose rates, temperatures and clocks are known, and what alternating costs."""

from typing import Any

import msgspec
import pytest

from edgeprof.analysis.summary import summarise
from edgeprof.analysis.sustained import Sustained
from edgeprof.session.records import Event

MS = 1_000_000
S = 1000 * MS


def sustained(maker: Any, stretches: list[tuple[int, float]]) -> None:
    """Passes back to back: so many, each of so many ms."""
    leg_id = maker.leg("sustained", "fp32", repeat=1)
    for count, ms in stretches:
        for _ in range(count):
            maker.run_pass(leg_id, "decode", "fp32", ms)
    maker.end_leg()


def figures(maker: Any) -> Sustained:
    found = summarise(maker.session()).contention.sustained
    assert len(found) == 1
    return found[0]


def test_the_first_minute_against_the_last_third(maker: Any) -> None:
    """60 s of 100 ms a pass, then 240 s of 125: the last 100 s keep 8 of 10 tokens/s."""
    sustained(maker, [(600, 100), (1920, 125)])
    found = figures(maker)
    assert found.duration_s == pytest.approx(300)
    assert found.first_tokens_per_s is not None and found.steady_tokens_per_s is not None
    assert found.first_tokens_per_s.value == pytest.approx(10)
    assert found.steady_tokens_per_s.value == pytest.approx(8)
    assert found.retained == pytest.approx(0.8)
    assert found.settled is True


def test_a_rate_that_still_falls_is_not_settled(maker: Any) -> None:
    sustained(maker, [(900, 100), (200, 125)])
    assert figures(maker).settled is False


def test_temperatures_clocks_and_power_in_both(maker: Any) -> None:
    start_ns = maker.now
    sustained(maker, [(3000, 100)])
    times = range(start_ns, maker.now, S)
    hot = [(t, 50.0 if t < start_ns + 100 * S else 80.0) for t in times]
    maker.signal("temp_c.gpu", "deg C", hot)
    slow = [(t, 900e6 if t < start_ns + 100 * S else 600e6) for t in times]
    maker.signal("gpu_clock_hz", "Hz", slow)
    maker.signal("power_w.total", "W", [(t, 12.0) for t in times])
    for t_ns in (start_ns + S, start_ns + 2 * S, maker.now + S):
        maker.events.append(
            Event(leg_id=None, t_ns=t_ns, kind="throttling", severity="warning", detail={})
        )
    found = figures(maker)
    (hot_gpu,), (clock,) = found.temperatures, found.clocks
    assert (hot_gpu.name, hot_gpu.unit) == ("temp_c.gpu", "deg C")
    assert hot_gpu.first == pytest.approx(50) and hot_gpu.steady == pytest.approx(80)
    assert (clock.name, clock.unit) == ("gpu_clock_hz", "Hz")
    assert clock.first == pytest.approx(9e8) and clock.steady == pytest.approx(6e8)
    assert found.power_w is not None and found.power_w.steady == pytest.approx(12)
    assert found.throttle_events == 2  # the third came after the leg


def test_a_leg_without_passes_has_no_rates(maker: Any) -> None:
    maker.leg("sustained", "fp32")
    maker.now += 10 * S
    maker.end_leg()
    found = figures(maker)
    assert found.first_tokens_per_s is None and found.retained is None and found.settled is None


def test_alternating_costs_what_the_real_run_takes_more_than_held_passes(made_session: Any) -> None:
    """Held: the draft's pass 3 ms, fp32 3 tokens 20, int4 3 tokens 18. In the two repeats drafts
    take 3 and 3.75 ms, verify passes of fp32 20 and 25, of int4 18 and 22.5: medians between."""
    found = {
        (one.variant, one.phase, one.tokens): one
        for one in summarise(made_session).contention.alternation
    }
    draft = found["fp32+draft k=2", "draft", 1]
    assert draft.difference_s is not None
    assert draft.isolated_s.value == pytest.approx(3e-3)
    assert draft.in_situ_s.value == pytest.approx(3.375e-3)
    assert draft.difference_s.value == pytest.approx(0.375e-3)
    verify = found["int4+draft k=2", "verify", 3]
    assert verify.difference_s is not None
    assert verify.difference_s.value == pytest.approx((20.25 - 18) * 1e-3)
    assert verify.isolated_context_tokens == 999 and verify.in_situ_context_tokens == 9
    assert ("fp32+ngram k=3", "verify", 4) not in found  # that size was not held


def test_alternating_is_not_compared_over_a_clock_change(made_session: Any, maker: Any) -> None:
    maker.__dict__.update(
        {name: list(getattr(made_session, name)) for name in
         ("legs", "requests", "rounds", "passes", "tokens", "signals", "samples", "events")}
    )  # fmt: skip
    maker.info = made_session.info
    held_ns = min(leg.t0_ns for leg in made_session.legs if leg.kind == "held")
    start_ns = min(leg.t0_ns for leg in made_session.legs)
    end_ns = max(leg.t1_ns for leg in made_session.legs if leg.t1_ns)
    times = range(start_ns, end_ns, MS)
    maker.signal("gpu_clock_hz", "Hz", [(t, 6e8 if t < held_ns else 9e8) for t in times])
    session = msgspec.structs.replace(maker.session(), info=made_session.info)
    found = summarise(session).contention.alternation
    assert found and all(one.difference_s is None for one in found)
    assert all(one.not_compared and "gpu_clock_hz" in one.not_compared for one in found)
