"""Integrals of channels whose areas can be worked out on paper."""

import math

import numpy as np
import pytest

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.integral import integral, mean_over
from edgeprof.session.records import Signal, WindowKind

S = 1_000_000_000


def channel(
    points: list[tuple[float, float]],
    *,
    gap_after: tuple[float, ...] = (),
    window_s: float | None = None,
    window_kind: WindowKind = "instantaneous",
) -> Channel:
    """Readings at seconds; no line goes from one in ``gap_after`` to the next."""
    times = [t for t, _ in points]
    return Channel(
        signal=Signal(
            id=1, name="power_w.total", unit="W", source="sysfs", window_s=window_s,
            window_kind=window_kind,
        ),
        times_ns=np.array([round(t * S) for t in times], np.int64),
        values=np.array([value for _, value in points], np.float64),
        held=np.array([t not in gap_after for t in times[:-1]], np.bool_),
        qualities={"ok": len(points)},
        suspect=None,
    )  # fmt: skip


def test_trapezoids_with_both_ends_between_readings() -> None:
    # 10 W up to 4 s, a straight line to 20 W at 5 s, 20 W from there on.
    rail = channel([(t, 10.0 if t <= 4 else 20.0) for t in range(11)])
    # from 3.5 to 6.5: 0.5 s of 10, the ramp's 15, 1.5 s of 20
    assert integral(rail, 3_500_000_000, 6_500_000_000) == pytest.approx(5 + 15 + 30)
    # from the middle of the ramp: half a second of it from 15 to 20, then 2.5 s of 20
    assert integral(rail, 4_500_000_000, 7_500_000_000) == pytest.approx(8.75 + 50)
    assert mean_over(rail, 0, 10 * S) == pytest.approx((40 + 15 + 100) / 10)


def test_an_exponential_average_is_undone_exactly() -> None:
    """A step from 0 to 10 W at 0 s, averaged with tau 1 s: A(t) = 10 (1 - exp(-t)). Over 4 s the
    truth is 40 J, the average alone has 10 (4 - 1 + exp(-4)) = 30.2."""
    points = [(t / 100, 10 * (1 - math.exp(-t / 100))) for t in range(501)]
    smeared = channel(points, window_s=1.0, window_kind="exponential")
    assert integral(smeared, 0, 4 * S) == pytest.approx(40, rel=1e-4)
    plain = integral(channel(points), 0, 4 * S)
    assert plain == pytest.approx(30 + 10 * math.exp(-4), rel=1e-4)


def test_a_mean_over_the_last_seconds_belongs_before_its_reading() -> None:
    """Power rises by 1 W a second; a mean over the last 2 s shows at t what was at t - 1."""
    shown = channel([(t / 4, t / 4 - 1) for t in range(81)], window_s=2.0, window_kind="boxcar")
    # the truth over 5 to 12 s: (5 + 12) / 2 x 7
    assert integral(shown, 5 * S, 12 * S) == pytest.approx(59.5)


def test_what_is_too_short_has_no_integral() -> None:
    rail = channel([(float(t), 5.0) for t in range(11)])
    assert integral(rail, 1 * S, 3_900_000_000) is None  # less than three readings
    assert integral(rail, 1 * S, 4 * S) == pytest.approx(15)
    slow = channel([(t / 10, 5.0) for t in range(101)], window_s=2.0, window_kind="exponential")
    assert integral(slow, 1 * S, 6_900_000_000) is None  # less than three windows
    assert integral(slow, 1 * S, 7 * S) == pytest.approx(30)


def test_a_gap_is_not_bridged() -> None:
    rail = channel([(float(t), 5.0) for t in range(21)], gap_after=(8.0,))
    assert integral(rail, 0, 10 * S) is None  # 1 s of 10 is missing
    assert integral(rail, 0, 20 * S) == pytest.approx(100)  # 1 of 20 is taken to be like the rest
    assert integral(rail, 9 * S, 20 * S) == pytest.approx(55)


def test_beyond_the_readings_nothing_is_known() -> None:
    rail = channel([(float(t), 5.0) for t in range(11)])
    assert integral(rail, 5 * S, 15 * S) is None
    assert integral(channel([]), 0, 10 * S) is None
