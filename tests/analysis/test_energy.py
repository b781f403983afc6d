"""Joules a token from power levels that are set, so that every figure is known on paper.

Everything of the session made by hand is stretched a hundred times: an answer has 5 s of prefill,
then 16 s of plain decoding (8 rounds of 2 s) or 12 s with the draft (4 rounds of 3 s), 8 tokens
either way. Plain draws 10 W, with the draft 12 W, idle 4 W.
"""

from typing import Any

import pytest

from edgeprof.analysis.phase_shares import PhaseShares
from edgeprof.analysis.summary import Summary, VariantFigures, summarise
from edgeprof.quantity import Quantity
from edgeprof.report.energy import energy_notes, energy_table
from edgeprof.report.markdown import markdown
from edgeprof.session.records import Event

MS = 1_000_000
S = 1000 * MS
PLAIN_W, DRAFT_W, IDLE_W = 10.0, 12.0, 4.0


class Run:
    """Two repeats of both variants and an idle leg, with the power at every moment."""

    def __init__(self, maker: Any, *, idle: bool = True) -> None:
        self.maker = maker
        self._levels: list[tuple[int, float]] = []
        if idle:
            self._levels.append((maker.now, IDLE_W))
            maker.leg("idle", "idle")
            maker.now += 20 * S
            maker.end_leg()
        for repeat in (0, 1):
            for variant, watts in (("fp32", PLAIN_W), ("fp32+draft k=2", DRAFT_W)):
                self._levels.append((maker.now + S, watts))  # within the prefill
                maker.decode_leg(variant, repeat=repeat, slower=100.0)

    def read(self, name: str = "power_w.total", *, every_s: float = 0.5, **fields: Any) -> None:
        """The level of each moment, read on a grid."""
        start_ns = self.maker.legs[0].t0_ns
        count = round((self.maker.now - start_ns) / S / every_s)
        times = [start_ns + round(i * every_s * S) for i in range(count + 1)]
        values = [(t, self._level(t)) for t in times]
        self.maker.signal(name, "W", values, **fields)

    def _level(self, t_ns: int) -> float:
        return [watts for since, watts in self._levels if since <= t_ns or since == self._first][-1]

    @property
    def _first(self) -> int:
        return self._levels[0][0]

    def summary(self) -> Summary:
        return summarise(self.maker.session())


def leg_of(summary: Summary, variant: str) -> VariantFigures:
    return next(leg for leg in summary.legs if leg.variant == variant)


def value(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.value is not None
    return quantity.value


def test_joules_a_token_plain_and_speculative(maker: Any) -> None:
    run = Run(maker)
    run.read()
    summary = run.summary()
    plain, draft = leg_of(summary, "fp32"), leg_of(summary, "fp32+draft k=2")
    assert plain.energy is not None and draft.energy is not None
    assert value(plain.power_w) == pytest.approx(10)
    assert value(draft.power_w) == pytest.approx(12)
    assert value(plain.energy_per_token_j) == pytest.approx(16 * 10 / 8)
    assert value(draft.energy_per_token_j) == pytest.approx(12 * 12 / 8)
    # of 8 drafted tokens an answer, 2 + 1 + 0 + 1 are accepted
    assert value(draft.energy.per_accepted_token_j) == pytest.approx(12 * 12 / 4)
    assert plain.energy.per_accepted_token_j is None
    assert (plain.energy.answers, plain.energy.left_out) == (4, 0)
    comparison = next(one for one in summary.comparisons if one.variant == "fp32+draft k=2")
    assert value(comparison.energy_ratio) == pytest.approx(18 / 20)


def test_idle_is_measured_and_shown_apart(maker: Any) -> None:
    run = Run(maker)
    run.read()
    summary = run.summary()
    assert summary.idle is not None
    assert summary.idle.duration_s == 20
    assert value(summary.idle.power_w) == pytest.approx(4)
    idle_w = value(summary.idle.power_w)
    for variant, joules, seconds in (("fp32", 160, 16), ("fp32+draft k=2", 144, 12)):
        energy = leg_of(summary, variant).energy
        assert energy is not None
        above = (joules - idle_w * seconds) / 8
        assert value(energy.above_idle_per_token_j) == pytest.approx(above)
        assert value(energy.per_token_j) == pytest.approx(joules / 8)  # idle stays in it


def test_without_an_idle_leg_there_is_no_idle(maker: Any) -> None:
    run = Run(maker, idle=False)
    run.read()
    summary = run.summary()
    energy = leg_of(summary, "fp32").energy
    assert summary.idle is None
    assert energy is not None and energy.above_idle_per_token_j is None
    assert value(energy.per_token_j) == pytest.approx(20)


def test_an_interval_covers_what_answers_differ_by(maker: Any) -> None:
    run = Run(maker)
    run.read()
    energy = leg_of(run.summary(), "fp32").energy
    assert energy is not None and energy.per_token_j is not None
    assert energy.per_token_j.n == 4
    assert energy.per_token_j.low == pytest.approx(20)
    assert energy.per_token_j.high == pytest.approx(20)


def test_the_declared_sum_is_named_as_what_it_is(maker: Any) -> None:
    run = Run(maker)
    run.read("power_w.module_sum")
    energy = leg_of(run.summary(), "fp32").energy
    assert energy is not None and energy.scope is not None
    assert energy.scope.startswith("sum of rails, not wall power")
    assert value(energy.per_token_j) == pytest.approx(20)


def test_the_total_rail_is_taken_before_a_sum(maker: Any) -> None:
    run = Run(maker)
    run.read("power_w.module_sum")
    maker.signal("power_w.total", "W", [(maker.legs[0].t0_ns + i * S, 7.0) for i in range(200)])
    energy = leg_of(run.summary(), "fp32").energy
    assert energy is not None and energy.scope is not None
    assert energy.scope.startswith("total rail")
    assert value(energy.power_w) == pytest.approx(7)


def test_single_rails_are_not_summed_by_guess(maker: Any) -> None:
    run = Run(maker)
    run.read("power_w.VDD_GPU")
    energy = leg_of(run.summary(), "fp32").energy
    assert energy is not None and energy.per_token_j is None
    assert energy.reason == "only VDD_GPU were read: no total, and no sum is declared"


def test_without_a_rail_the_reason_is_what_the_source_said(maker: Any) -> None:
    run = Run(maker)
    maker.events.append(
        Event(
            leg_id=None, t_ns=maker.now, kind="absent", severity="info",
            detail={"signal": "power_w", "source": "sysfs", "reason": "there is no power sensor"},
        )
    )  # fmt: skip
    plain = leg_of(run.summary(), "fp32")
    assert plain.power_w is None and plain.energy_per_token_j is None
    assert plain.energy is not None and plain.energy.reason == "there is no power sensor"


def test_answers_shorter_than_three_readings_have_no_energy(maker: Any) -> None:
    run = Run(maker)
    run.read(every_s=8.0)
    plain = leg_of(run.summary(), "fp32")
    assert plain.energy is not None and plain.energy.per_token_j is None
    assert plain.energy.reason is not None and "24 s" in plain.energy.reason
    assert plain.energy.left_out == 4


def test_idle_power_is_shown_where_answers_are_too_short(maker: Any) -> None:
    """18 s are needed: the idle leg has them, answers of 16 s do not. From 18 to 24 s a line rises
    from 4 to 10 W, by which the 20 s of idleness hold (18 x 4 + 2 x 5) J."""
    run = Run(maker)
    run.read(every_s=6.0)
    summary = run.summary()
    assert energy_table(summary).rows == []
    assert energy_notes(summary) == ["Idle, models loaded and nothing running: 4.10 W."]


def test_a_rail_that_is_suspect_gives_no_energy(maker: Any) -> None:
    run = Run(maker)
    run.read(quality="suspect")
    plain = leg_of(run.summary(), "fp32")
    assert plain.energy is not None and plain.energy.per_token_j is None
    assert plain.energy.reason is not None


def test_the_load_of_a_gpu_is_a_mean_over_the_decode_phases(maker: Any) -> None:
    run = Run(maker)
    run.read("gpu_busy_frac")  # its values do not matter, only whose time they are from
    assert value(leg_of(run.summary(), "fp32").gpu_busy_frac) == pytest.approx(10)


def test_a_synthetic_test_has_an_energy_too(maker: Any) -> None:
    """Twenty passes of 1 s at 6 W, after 10 s of taking in what is cached before."""
    start_ns = maker.now
    leg_id = maker.leg("decode", "fp32", repeat=1, attrs={"test": "tg20@d512", "depth_tokens": 512})
    maker.run_pass(leg_id, "prefill", "fp32", 10_000, tokens=512, context_tokens=0)
    for i in range(20):
        maker.run_pass(leg_id, "decode", "fp32", 1000, context_tokens=512 + i)
    maker.end_leg()
    times = range(start_ns, maker.now + S, S // 2)
    watts = [(t, 3.0 if t < start_ns + 9 * S else 6.0) for t in times]
    maker.signal("power_w.total", "W", watts)
    (test,) = summarise(maker.session()).legs
    assert value(test.energy_per_token_j) == pytest.approx(6)
    assert value(test.power_w) == pytest.approx(6)
    assert test.energy is not None and test.energy.per_accepted_token_j is None


def parts(shares: PhaseShares | None) -> list[float]:
    assert shares is not None and shares.reason is None
    return [value(one) for one in (shares.draft, shares.verify, shares.decode, shares.other)]


def hold(run: Run, phase: Any, model: str, tokens: int, watts: float, seconds: float) -> None:
    """Passes for ``seconds`` at one power, which begins before and ends after them, as that
    before it ends later than its work."""
    maker = run.maker
    maker.now += 2 * S
    run._levels.append((maker.now, watts))
    attrs = {"held": "bytes", "phase": phase, "tokens": tokens, "context_tokens": 9}
    leg_id = maker.leg("held", model, attrs=attrs)
    maker.now += 2 * S
    for _ in range(10):
        maker.run_pass(leg_id, phase, model, seconds * 100, tokens=tokens)
    maker.now += 2 * S
    maker.end_leg()


def test_energy_is_power_of_held_passes_by_their_time(maker: Any) -> None:
    """With the draft an answer takes 12 s at 12 W: 2.4 s of draft passes, 8 s of verify passes.
    Plain it takes 16 s at 10 W, all of it passes."""
    run = Run(maker)
    hold(run, "draft", "draft", 1, 6.0, 10)
    hold(run, "verify", "fp32", 3, 15.0, 10)
    hold(run, "decode", "fp32", 1, 9.0, 10)
    run.read()
    summary = run.summary()
    joules = 12 * DRAFT_W
    expected = [2.4 * 6 / joules, 8 * 15 / joules, 0.0, 1 - (2.4 * 6 + 8 * 15) / joules]
    assert parts(leg_of(summary, "fp32+draft k=2").energy_share) == pytest.approx(expected)
    plain = parts(leg_of(summary, "fp32").energy_share)
    assert plain == pytest.approx([0.0, 0.0, 0.9, 0.1])
    rows = [line.strip("| ").split(" | ") for line in markdown(summary).splitlines()]
    told = [[cell.strip() for cell in row] for row in rows if len(row) == 7]
    assert ["fp32", "energy", "1.00", "0 %", "0 %", "90 %", "10 %"] in told


def test_without_energy_there_is_a_reason(maker: Any) -> None:
    run = Run(maker)
    run.read()
    shares = leg_of(run.summary(), "fp32").energy_share
    assert shares == PhaseShares(reason="no kind of pass was held")
    assert "No shares of the energy: no kind" in markdown(run.summary())


def test_a_kind_of_pass_that_was_not_held_is_named(maker: Any) -> None:
    run = Run(maker)
    hold(run, "decode", "fp32", 1, 9.0, 10)
    run.read()
    shares = leg_of(run.summary(), "fp32+draft k=2").energy_share
    assert shares == PhaseShares(reason="no draft pass of draft was held long enough")


def test_passes_held_too_short_for_the_rail_have_no_power(maker: Any) -> None:
    run = Run(maker)
    hold(run, "decode", "fp32", 1, 9.0, 1)
    run.read()
    shares = leg_of(run.summary(), "fp32").energy_share
    assert shares is not None and "not held long enough for the rail" in str(shares.reason)


def test_without_a_rail_the_reason_is_the_rails(maker: Any) -> None:
    run = Run(maker)
    hold(run, "decode", "fp32", 1, 9.0, 10)
    shares = leg_of(run.summary(), "fp32").energy_share
    assert shares == PhaseShares(reason="no power rail was read in this session")
