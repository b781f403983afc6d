"""Contention from legs whose figures are worked out on paper.

The target moves 10 GB a pass. Alone, where the bus gives 20 GB/s, that takes 0.5 s.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from edgeprof.analysis.contention import (
    Antagonist,
    AntagonistKind,
    Contended,
    Curve,
    JointLeg,
    Regime,
    Resource,
    Setting,
)
from edgeprof.analysis.contention_curve import contended, fit_ceiling, two_speeds
from edgeprof.quantity import Quantity

GB = 1e9
BYTES = Quantity(value=10 * GB, kind="modelled", source="by hand")
ALONE_S = 0.5
Slowed = Callable[[float], float]


def alone(repeat: int, seconds: float = ALONE_S) -> JointLeg:
    return JointLeg(
        repeat=repeat, antagonist=None, dose=0.0, overlap_s=3.0, pass_s=seconds,
        pass_p50_s=seconds, pass_p99_s=2 * seconds,
    )  # fmt: skip


def joint(
    name: str, repeat: int, dose: float, seconds: float, moved: float | None, **fields: Any
) -> JointLeg:
    values: dict[str, Any] = {"core_share": dose, "antagonist_passes_per_s": 100 * dose, **fields}
    return JointLeg(
        repeat=repeat, antagonist=name, dose=dose, overlap_s=2.0, pass_s=seconds,
        pass_p50_s=seconds, pass_p99_s=3 * seconds, antagonist_bytes_per_s=moved, **values,
    )  # fmt: skip


def solo(name: str, repeat: int, moved: float | None) -> JointLeg:
    return JointLeg(
        repeat=repeat, antagonist=name, dose=1.0, overlap_s=3.0, antagonist_passes_per_s=100.0,
        antagonist_bytes_per_s=moved,
    )  # fmt: skip


def measured(
    legs: Sequence[JointLeg],
    *,
    pass_bytes: Quantity | None = BYTES,
    shares: Sequence[Resource] = ("bus",),
    **setting: Any,
) -> Contended:
    kinds: dict[str, AntagonistKind] = {
        "read": "read", "copy": "copy", "spin": "spin", "draft": "model",
    }  # fmt: skip
    names = {leg.antagonist for leg in legs} - {None}
    antagonists = {
        name: Antagonist(
            kind=kind,
            competes_for=[one for one in shares if kind != "spin" or one != "bus"],
        )
        for name, kind in kinds.items()
        if name in names
    }
    return contended(
        legs,
        Setting(target="t", pass_bytes=pass_bytes, antagonists=antagonists, seed=7, **setting),
    )


def doses(
    name: str, full: float, slowed: Slowed, repeats: Sequence[int] = (1, 2)
) -> list[JointLeg]:
    """An antagonist of ``full`` bytes/s at four doses; ``slowed`` gives the target's seconds."""
    return [
        *[solo(name, repeat, full) for repeat in repeats],
        *[
            joint(name, repeat, dose, slowed(dose * full), dose * full)
            for repeat in repeats
            for dose in (0.25, 0.5, 0.75, 1.0)
        ],
    ]


def curve_of(found: Contended, name: str) -> Curve:
    return next(curve for curve in found.curves if curve.antagonist == name)


def regime_of(found: Contended, name: str, dose: float) -> Regime:
    return next(one for one in found.regimes if (one.antagonist, one.dose) == (name, dose))


def value(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.value is not None
    return quantity.value


@pytest.mark.parametrize(
    ("points", "alone_rate", "ceiling"),
    [
        # 5 and 10 GB/s beside cost nothing; from 20 on both share 30: 20 + 10 and 25 + 5.
        ([(5.0, 20.0), (10.0, 20.0), (20.0, 10.0), (25.0, 5.0)], 20.0, 30.0),
        # Nothing costs anything: no ceiling is seen.
        ([(5.0, 20.0), (10.0, 20.0)], 20.0, None),
        # Alone the target takes 20; together both get 16 at every dose: the mean of the sums.
        ([(4.0, 12.0), (8.0, 8.0), (12.0, 4.0)], 20.0, 16.0),
        # 15 + 10 and 20 + 6 lie about the falling line B_c - b with B_c = 25.5.
        ([(15.0, 10.0), (20.0, 6.0)], 20.0, 25.5),
        ([], 20.0, None),
    ],
)
def test_the_ceiling_is_where_target_and_antagonist_add_up(
    points: list[tuple[float, float]], alone_rate: float, ceiling: float | None
) -> None:
    fitted = fit_ceiling(points, alone_rate)
    assert fitted is None if ceiling is None else fitted == pytest.approx(ceiling)


def test_a_bus_with_slack_has_a_knee_and_kappa_below_one() -> None:
    # B_c 30 GB/s, target 20: the knee is at 10. A read of 20 GB/s at 25, 50, 75 and 100 % moves 5,
    # 10, 15, 20, and the target's passes take 0.5, 0.5, 10/15 and 10/10 s.
    legs = [
        alone(1),
        alone(2),
        *doses("read", 20 * GB, lambda b: max(0.5, 10 * GB / (30 * GB - b))),
    ]
    found = measured(legs)
    curve = curve_of(found, "read")
    assert value(curve.ceiling_bytes_per_s) == pytest.approx(30 * GB)
    assert curve.ceiling_reached is True
    assert value(curve.knee_bytes_per_s) == pytest.approx(10 * GB)
    # 75 %: (2/3 - 1/2) x 30 / (15 x 2/3) = 0.5; 100 %: (1 - 1/2) x 30 / 20 = 0.75
    assert value(regime_of(found, "read", 0.75).kappa) == pytest.approx(0.5)
    assert value(regime_of(found, "read", 1.0).kappa) == pytest.approx(0.75)
    # all doses: (0 + 0 + 1/6 + 1/2) x 30 / (2.5 + 5 + 10 + 20)
    assert value(curve.kappa) == pytest.approx((1 / 6 + 1 / 2) * 30 / 37.5)
    assert value(curve.alone_bandwidth_bytes_per_s) == pytest.approx(20 * GB)


def test_pure_sharing_is_kappa_one_at_every_dose() -> None:
    legs = [alone(1), alone(2), *doses("read", 15 * GB, lambda b: 10 * GB / (20 * GB - b))]
    found = measured(legs)
    for regime in found.regimes:
        assert value(regime.kappa) == pytest.approx(1.0)
        assert value(regime.total_bandwidth_bytes_per_s) == pytest.approx(20 * GB)
    assert value(curve_of(found, "read").knee_bytes_per_s) == pytest.approx(0.0)


def test_a_bus_that_gets_worse_by_sharing_is_above_one() -> None:
    # Alone 20 GB/s, together 16: at b = 8 a pass takes 10/8 s, and (1.25 - 0.5) x 16 / (8 x 1.25).
    legs = [alone(1), alone(2), *doses("read", 8 * GB, lambda b: 10 * GB / (16 * GB - b))]
    found = measured(legs)
    assert value(curve_of(found, "read").ceiling_bytes_per_s) == pytest.approx(16 * GB)
    assert value(regime_of(found, "read", 1.0).kappa) == pytest.approx(1.2)
    assert value(curve_of(found, "read").kappa) > 1


def test_what_the_spinner_costs_is_no_bus_contention() -> None:
    """A slowdown that the spinner has as well is the cores', to the last part of it."""

    def spun(share: float) -> float:
        return 0.5 + 0.4 * share

    legs = [alone(1), alone(2)]
    for repeat in (1, 2):
        legs += [solo("read", repeat, 8 * GB), solo("spin", repeat, None)]
        for dose in (0.25, 0.5, 0.75, 1.0):
            legs.append(joint("read", repeat, dose, spun(dose), 8 * GB * dose))
            legs.append(joint("spin", repeat, dose, spun(dose), None))
    found = measured(legs, shares=("bus", "cores"))
    last = regime_of(found, "read", 1.0)
    assert value(last.core_s) == pytest.approx(0.4)
    assert value(last.bus_s) == pytest.approx(0.0)
    assert value(last.target_retained) == pytest.approx(0.5 / 0.9)
    curve = curve_of(found, "read")
    assert value(curve.kappa) == pytest.approx(0.0)
    assert curve.ceiling_reached is False and curve.knee_bytes_per_s is None
    # With nothing of it the bus's, target and read could have moved 20 + 8 together, and more.
    assert value(curve.ceiling_bytes_per_s) == pytest.approx(28 * GB)
    spin = curve_of(found, "spin")
    assert spin.kappa is None and spin.reason is not None and "control" in spin.reason


def test_the_spinner_is_taken_at_the_same_share_of_cores() -> None:
    """A read that takes 0.6 of a core costs what the spinner costs between 0.5 and 0.75."""
    legs = [alone(1), alone(2)]
    for repeat in (1, 2):
        legs.append(joint("spin", repeat, 0.5, 0.7, None, core_share=0.5))
        legs.append(joint("spin", repeat, 1.0, 1.1, None, core_share=0.75))
        legs.append(joint("read", repeat, 1.0, 1.0, 6 * GB, core_share=0.6))
    found = measured(legs, shares=("bus", "cores"))
    # from 0.2 at 0.5 to 0.6 at 0.75: 0.2 + 0.4 x 0.1 / 0.25 = 0.36
    assert value(regime_of(found, "read", 1.0).core_s) == pytest.approx(0.36)
    assert value(regime_of(found, "read", 1.0).bus_s) == pytest.approx(0.14)


def test_shared_cores_without_a_spinner_have_no_kappa() -> None:
    legs = [alone(1), alone(2), *doses("read", 15 * GB, lambda b: 10 * GB / (20 * GB - b))]
    found = measured(legs, shares=("bus", "cores"))
    curve = curve_of(found, "read")
    assert curve.kappa is None and curve.ceiling_bytes_per_s is None
    assert curve.reason == "both share cores, and no spinner ran at these clocks as control"
    assert all(regime.bus_s is None for regime in found.regimes)


def test_two_sessions_on_one_gpu_are_no_bus_contention() -> None:
    legs = [alone(1), alone(2), *doses("draft", 15 * GB, lambda b: 10 * GB / (20 * GB - b))]
    found = measured(legs, shares=("gpu",))
    curve = curve_of(found, "draft")
    assert curve.reason is not None and "SMs and time slices" in curve.reason
    assert "bus" not in curve.reason
    assert curve.kappa is None and curve.ceiling_bytes_per_s is None
    assert all(regime.kappa is None for regime in found.regimes)
    assert value(regime_of(found, "draft", 1.0).target_retained) == pytest.approx(0.25)


def test_the_draft_is_one_more_antagonist_on_the_curve_of_the_read() -> None:
    """Its kappa is by the ceiling that the streaming read found, not by its own few bytes."""
    legs = [
        alone(1), alone(2),
        *doses("read", 15 * GB, lambda b: 10 * GB / (20 * GB - b)),
        *doses("draft", 4 * GB, lambda b: 10 * GB / (18 * GB - b)),
    ]  # fmt: skip
    found = measured(legs)
    curve = curve_of(found, "draft")
    assert curve.ceiling_from == "read"
    assert value(curve.ceiling_bytes_per_s) == pytest.approx(18 * GB)
    # at b = 4: t = 10/14, (10/14 - 1/2) x 20 / (4 x 10/14) = 1.5
    assert value(regime_of(found, "draft", 1.0).kappa) == pytest.approx(1.5)


def test_bytes_that_are_not_known_give_no_curve_and_rates_all_the_same() -> None:
    legs = [alone(1), alone(2), *doses("read", 15 * GB, lambda b: 10 * GB / (20 * GB - b))]
    found = measured(legs, pass_bytes=None)
    curve = curve_of(found, "read")
    assert curve.reason == "the bytes of a target pass are not known"
    assert value(regime_of(found, "read", 1.0).target_retained) == pytest.approx(0.25)
    unknown = [alone(1), alone(2), joint("draft", 1, 1.0, 1.0, None)]
    found = measured(unknown)
    assert curve_of(found, "draft").reason == "the bytes of an antagonist's pass are not known"


def test_where_clocks_differ_nothing_is_compared() -> None:
    why = "emc_clock_hz was 5.0 % lower than in the baseline's legs"
    legs = [alone(1), alone(2)]
    legs += [joint("read", repeat, 1.0, 1.0, 10 * GB, differs=why) for repeat in (1, 2)]
    found = measured(legs)
    regime = regime_of(found, "read", 1.0)
    assert regime.not_compared == why
    assert regime.target_retained is None and regime.kappa is None
    assert regime.latency_inflation is None and regime.concurrency_efficiency is None
    assert value(regime.pass_s) == 1.0  # what was measured stays
    assert curve_of(found, "read").kappa is None


def test_what_people_know_beside_it() -> None:
    legs = [alone(1), alone(2)]
    for repeat in (1, 2):
        legs.append(solo("read", repeat, 16 * GB))
        legs.append(
            joint("read", repeat, 0.5, 0.8, 6 * GB, antagonist_passes_per_s=40.0, power_w=7.5)
        )
    found = measured(legs, peak_bytes_per_s=40 * GB, sustained_bytes_per_s=25 * GB)
    regime = regime_of(found, "read", 0.5)
    assert value(regime.target_tokens_per_s) == pytest.approx(1.25)
    assert value(found.alone_tokens_per_s) == pytest.approx(2.0)
    assert value(regime.target_retained) == pytest.approx(0.625)
    assert value(regime.antagonist_retained) == pytest.approx(0.8)  # 40 of the 50 asked for
    assert value(regime.concurrency_efficiency) == pytest.approx(1.425)
    assert regime.latency_inflation is not None
    assert value(regime.latency_inflation.p50) == pytest.approx(1.6)
    assert value(regime.latency_inflation.p99) == pytest.approx(2.4)  # 3 x 0.8 over 2 x 0.5
    assert value(regime.total_bandwidth_bytes_per_s) == pytest.approx(18.5 * GB)  # 10 / 0.8 + 6
    assert value(regime.peak_share) == pytest.approx(18.5 / 40)
    assert value(regime.sustained_share) == pytest.approx(18.5 / 25)
    assert value(regime.power_w) == pytest.approx(7.5)
    assert regime.legs == 2 and regime.overlap_s == 4.0
    assert found.seed == 7


def test_a_counter_takes_the_place_of_the_sum_of_bytes() -> None:
    legs = [alone(1), alone(2)]
    legs += [joint("read", r, 1.0, 1.0, 8 * GB, dram_bytes_per_s=19 * GB) for r in (1, 2)]
    counted = regime_of(measured(legs), "read", 1.0).total_bandwidth_bytes_per_s
    assert counted is not None and counted.kind == "measured"
    assert counted.value == pytest.approx(19 * GB)


def test_a_figure_is_as_modelled_as_its_bytes() -> None:
    legs = [alone(1), alone(2), *doses("read", 15 * GB, lambda b: 10 * GB / (20 * GB - b))]
    for kind in ("modelled", "measured"):
        bytes_ = Quantity(value=10 * GB, kind=kind, source="by hand")
        found = measured(legs, pass_bytes=bytes_)
        kappa = curve_of(found, "read").kappa
        assert kappa is not None and kappa.kind == kind
        retained = regime_of(found, "read", 1.0).target_retained
        assert retained is not None and retained.kind == "measured"


def test_intervals_are_over_repeats() -> None:
    """Two repeats with t 1.0 and 1.2: the band is wide; one repeat alone has none."""
    legs = [alone(1), alone(2), joint("read", 1, 1.0, 1.0, GB), joint("read", 2, 1.0, 1.2, GB)]
    wide = regime_of(measured(legs), "read", 1.0).pass_s
    assert wide is not None and wide.n == 2 and wide.low is not None and wide.high is not None
    # the mean of two is 1.1 +- 0.1 at most; widened by t(1) / 1.96 x sqrt(2) = 9.17
    assert wide.value == pytest.approx(1.1)
    assert wide.high - 1.1 == pytest.approx(0.1 * 12.706 / 1.96 * 2**0.5)
    assert 1.1 - wide.low == pytest.approx(0.1 * 12.706 / 1.96 * 2**0.5)
    single = regime_of(measured([alone(1), joint("read", 1, 1.0, 1.0, GB)]), "read", 1.0).pass_s
    assert single is not None and single.low is None and single.high is None


def test_legs_that_others_disturbed_are_left_out_and_counted() -> None:
    """Two of three are quiet; of the dose of a half there is none that is, and it stays."""
    legs = [alone(1), alone(2), alone(3)]
    legs += [joint("read", repeat, 1.0, 0.6, GB) for repeat in (1, 2)]
    legs.append(joint("read", 3, 1.0, 6.0, GB, disturbed=True))
    legs.append(joint("read", 3, 0.5, 0.7, GB, disturbed=True))
    found = measured(legs)
    whole, half = regime_of(found, "read", 1.0), regime_of(found, "read", 0.5)
    assert (whole.legs, whole.disturbed) == (2, 1) and value(whole.pass_s) == pytest.approx(0.6)
    assert (half.legs, half.disturbed) == (1, 1) and value(half.pass_s) == pytest.approx(0.7)


def test_a_repeat_that_was_cut_short_is_missing_and_nothing_more() -> None:
    legs = [alone(1), alone(2), alone(3), joint("read", 1, 1.0, 1.0, GB)]
    regime = regime_of(measured(legs), "read", 1.0)
    assert value(regime.pass_s) == 1.0 and regime.legs == 1
    assert measured([joint("read", 1, 1.0, 1.0, GB)]).alone_s is None


@pytest.mark.parametrize(
    ("passes_ms", "found"),
    [
        ([18.6, 26.2, 25.5, 18.8, 18.9], (18.7667, 3, 25.85, 2)),
        ([20.1, 26.6, 27.3], (20.1, 1, 26.95, 2)),
        ([19.9, 20.5, 20.2, 19.9, 20.4], None),  # one speed
        ([18.0, 20.0, 22.0, 24.0, 29.0], None),  # a spread, not two levels
        ([18.6, 27.0], None),  # two legs are no groups
        ([], None),
    ],
)
def test_legs_of_one_regime_at_two_speeds(
    passes_ms: list[float], found: tuple[float, int, float, int] | None
) -> None:
    """Recorded on two virtual cores: 18.8 or 26 ms beside one and the same read."""
    told = two_speeds([ms / 1e3 for ms in passes_ms])
    if found is None:
        assert told is None
        return
    fast_ms, fast_legs, slow_ms, slow_legs = found
    assert told is not None
    assert (told.fast_legs, told.slow_legs) == (fast_legs, slow_legs)
    assert told.fast_s == pytest.approx(fast_ms / 1e3, abs=1e-7)
    assert told.slow_s == pytest.approx(slow_ms / 1e3, abs=1e-7)
