"""Bytes a pass, told apart by holding one kind of pass for many averaging windows, never by solving
for it inside a blur.

A counter shows an average of the bandwidth B over a time of its own. Where B stood still before a
stretch began and stands still in it, the integral of B is that of the readings plus their rise
times the mean delay of the counter: tau of an exponential average, half the width of a boxcar, and
what its clock is late on top of either. For an exponential the identity holds whatever B does. The
delay is not told: it is fitted on the edges of the legs. What a leg shows before two delays have
passed is left out, by which a boxcar has forgotten what was before. Pure arithmetic.
"""

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.integral import trapezoids
from edgeprof.analysis.statistics import percentile, resampled
from edgeprof.session.records import Leg, Pass, Signal

_Column = npt.NDArray[Any]

IDLE = "idle"
LEAST_DELAYS = 6.0  # six time constants, or three widths of a boxcar
_LONGEST_WINDOW_S = 1.5
_SHORTEST_LEG_S = 2.0
_SPARE = 1.1  # the delay that is fitted then is a little off on either side
_SETTLING = 2.0  # mean delays until a boxcar has forgotten what was before
_MARGIN_S = 0.1  # clocks of counter and passes may differ by that much
_EDGE_S = 0.05  # to which an edge is known at best: passes and counter start and end apart
_END_READINGS = 4  # whose mean is the reading at an end of a stretch
_LEAST_READINGS = 12
_LEAST_COVERAGE = 0.8
_DRAWS = 600
_SEED = 0

# Two-sided 90 % points of Student's t for 1, 2, ... degrees of freedom, and the normal point.
_T_90 = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
)
_Z_90 = 1.645


class PhaseKey(NamedTuple):
    """What a leg held: ``tokens`` a pass after ``context_tokens``; for idle legs nothing."""

    phase: str
    model: str
    tokens: int
    context_tokens: int


class Trace(NamedTuple):
    """The readings in a time: their mean, and how fast they rose from its start to its end.

    It starts and ends at the middle of a few readings, whose mean is the reading there.
    """

    t0_ns: int
    t1_ns: int
    mean: float
    slope: float

    @property
    def seconds(self) -> float:
        return (self.t1_ns - self.t0_ns) / 1e9

    def level(self, delay_s: float) -> float:
        """Mean bandwidth by the identity, in bytes/s."""
        return self.mean + delay_s * self.slope


class Stretch(Struct, frozen=True, kw_only=True):
    """A leg in the figures that its mean bandwidth follows from, once the delay is known.

    ``tail`` is what lies after the settling, ``mean`` that of the whole leg, ``before`` the reading
    at its start (None: not read). ``period_s`` is from pass to pass.
    """

    key: PhaseKey
    seconds: float
    mean: float
    before: float | None
    tail: Trace
    period_s: float

    def level(self, delay_s: float) -> float:
        """Mean bandwidth after the settling, in bytes/s."""
        return self.tail.level(delay_s)


class Delay(NamedTuple):
    """Mean delay of the counter, its clock's lateness included, and how many edges told it; an edge
    is known to ``edge_s``."""

    seconds: float
    edges: int
    edge_s: float = 0.05


class Draw(NamedTuple):
    """One draw of the bootstrap, or the estimate itself: all that closure needs."""

    delay_s: float
    idle_bytes_per_s: float
    bytes_per_pass: Mapping[PhaseKey, float]


class Held(Struct, frozen=True, kw_only=True):
    """What the held legs say: the estimate, and draws that say how sure it is."""

    estimate: Draw
    draws: list[Draw]
    legs: Mapping[PhaseKey, int]
    period_s: Mapping[PhaseKey, float]

    def band(self, values: Sequence[float]) -> tuple[float, float]:
        """The 5 % and 95 % points."""
        return percentile(values, 0.05), percentile(values, 0.95)


def held_seconds(signal: Signal) -> float:
    """For how long a leg is to be held: six averaging windows of the counter, which are taken for
    1.5 s where nobody tells them, the longest of any board's driver."""
    known_s = declared_window_s(signal)
    window_s = _LONGEST_WINDOW_S if known_s is None else known_s
    return max(LEAST_DELAYS * window_s * _SPARE, _SHORTEST_LEG_S)


def declared_window_s(signal: Signal) -> float | None:
    """By its source; None where that does not know."""
    return 0.0 if signal.window_kind == "instantaneous" else signal.window_s


def settled(
    legs: Sequence[tuple[PhaseKey, Leg, float]], channel: Channel
) -> tuple[list[Stretch], Delay | None]:
    """Each leg, with its period, as a stretch, settled by a delay that is fitted on all of them.

    Legs that the counter did not cover are left out; the delay is None where no edge tells it.
    """
    delay = Delay(0.5, 0)
    found: list[Stretch] = []
    for _ in range(6):
        found = stretches_of(legs, channel, delay.seconds)
        fitted = fit_delay(found)
        if fitted is None:
            return found, None
        moved = abs(fitted.seconds - delay.seconds)
        delay = fitted._replace(edge_s=_edge_s(channel))
        if moved < 0.01:
            break
    return found, delay


def _edge_s(channel: Channel) -> float:
    """A reading apart, and what lies between two legs."""
    intervals_s = channel.intervals_s
    return max(_EDGE_S, float(np.median(intervals_s)) if len(intervals_s) else 0.0)


def stretches_of(
    legs: Sequence[tuple[PhaseKey, Leg, float]], channel: Channel, delay_s: float
) -> list[Stretch]:
    """Each leg that the counter covered, settled for so long a delay."""
    found = (_stretch(key, leg, period_s, channel, delay_s) for key, leg, period_s in legs)
    return [stretch for stretch in found if stretch is not None]


def _stretch(
    key: PhaseKey, leg: Leg, period_s: float, channel: Channel, delay_s: float
) -> Stretch | None:
    if leg.t1_ns is None:
        return None
    end_ns = leg.t1_ns - round(_MARGIN_S * 1e9)
    length_s = (end_ns - leg.t0_ns) / 1e9
    settling_s = min(_SETTLING * delay_s + _MARGIN_S, length_s / 2)
    tail = trace_of(channel, leg.t0_ns + round(settling_s * 1e9), end_ns)
    if tail is None or trace_of(channel, leg.t0_ns, end_ns) is None:
        return None
    return Stretch(
        key=key,
        seconds=length_s,
        mean=_mean(channel, leg.t0_ns, end_ns),
        before=_reading_at(channel, leg.t0_ns),
        tail=tail,
        period_s=period_s,
    )


def trace_of(channel: Channel, t0_ns: int, t1_ns: int) -> Trace | None:
    """What a channel read in a time; None where its readings do not cover it.

    Mean and slope stay apart, and many readings make the ends, for the delay is varied afterwards.
    Where a window is declared and a stretch holds but three readings, ``integral`` serves.
    """
    first, last = np.searchsorted(channel.times_ns, (t0_ns, t1_ns))
    times, values = channel.times_ns[first:last], channel.values[first:last]
    if len(times) < _LEAST_READINGS:
        return None
    covered_ns = np.diff(times)[channel.held[first : last - 1]].sum()
    if covered_ns < _LEAST_COVERAGE * (t1_ns - t0_ns):
        return None
    start_ns, end_ns = (round(float(np.mean(some))) for some in _ends(times))
    start, end = (float(np.mean(some)) for some in _ends(values))
    slope = (end - start) / ((end_ns - start_ns) / 1e9)
    return Trace(start_ns, end_ns, _mean(channel, start_ns, end_ns), slope)


def _ends(values: _Column) -> tuple[_Column, _Column]:
    return values[:_END_READINGS], values[-_END_READINGS:]


def _mean(channel: Channel, t0_ns: int, t1_ns: int) -> float:
    """Of the time that is covered; what little is missing is taken to be like the rest."""
    area, covered_s = trapezoids(channel, t0_ns, t1_ns)
    return area / covered_s


def _reading_at(channel: Channel, t_ns: int) -> float | None:
    """Between the readings around a time; None where one is missing there."""
    before = int(np.searchsorted(channel.times_ns, t_ns)) - 1
    if before < 0 or before >= len(channel.held) or not channel.held[before]:
        return None
    return float(np.interp(t_ns, channel.times_ns, channel.values))


def fit_delay(stretches: Sequence[Stretch]) -> Delay | None:
    """The delay that makes up, over all edges, for the area that the readings lack.

    A leg of level L after a reading a lacks delay x (L - a) in all; least squares over the legs.
    """
    edges = [one for one in stretches if one.before is not None]
    if len(edges) < 3:
        return None
    delay_s = 0.5
    for _ in range(20):
        products = squares = 0.0
        for one in edges:
            level = one.level(delay_s)
            step = level - (one.before or 0.0)
            products += (level - one.mean) * one.seconds * step
            squares += step * step
        if squares <= 0:
            return None
        fitted = min(max(products / squares, 0.0), 10.0)
        if abs(fitted - delay_s) < 1e-4:
            break
        delay_s = fitted
    return Delay(delay_s, len(edges))


def hold(stretches: Sequence[Stretch], delay: Delay) -> Held:
    """Bytes a pass of every phase: (mean bandwidth - idle) x period, legs drawn anew for bands."""
    by_key: dict[PhaseKey, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        by_key[stretch.key].append(stretch)
    levels = {key: _levels(same, delay.seconds) for key, same in by_key.items()}
    estimate = _from_levels(by_key, levels, delay.seconds)
    rng = random.Random(_SEED)
    draws = [_redraw(by_key, estimate, delay.edge_s, rng) for _ in range(_DRAWS)]
    return Held(
        estimate=estimate,
        draws=draws,
        legs={key: len(same) for key, same in by_key.items()},
        period_s={
            key: statistics.fmean(one.period_s for one in same) for key, same in by_key.items()
        },
    )


def _levels(stretches: Sequence[Stretch], delay_s: float) -> list[float]:
    return [one.level(delay_s) for one in stretches]


def _from_levels(
    stretches: Mapping[PhaseKey, Sequence[Stretch]],
    levels: Mapping[PhaseKey, Sequence[float]],
    delay_s: float,
) -> Draw:
    idle = [level for key, same in levels.items() if key.phase == IDLE for level in same]
    idle_rate = statistics.fmean(idle) if idle else 0.0
    return Draw(
        delay_s=delay_s,
        idle_bytes_per_s=idle_rate,
        bytes_per_pass={
            key: statistics.fmean(
                (level - idle_rate) * one.period_s
                for level, one in zip(levels[key], same, strict=True)
            )
            for key, same in stretches.items()
            if key.phase != IDLE
        },
    )


def _redraw(
    by_key: Mapping[PhaseKey, Sequence[Stretch]],
    estimate: Draw,
    edge_s: float,
    rng: random.Random,
) -> Draw:
    """Legs of each phase drawn with replacement, the delay fitted anew on what was drawn.

    Few legs make percentiles too narrow; how far a draw lies from the estimate is widened by what
    the mean of n draws varies too little, and by Student's t (expanded percentile interval,
    T. Hesterberg 2015).
    """
    drawn = {key: resampled(same, rng) for key, same in by_key.items()}
    fitted = fit_delay([one for same in drawn.values() for one in same])
    delay_s = estimate.delay_s if fitted is None else fitted.seconds
    delay_s += rng.uniform(-edge_s, edge_s)
    levels = {key: _levels(same, delay_s) for key, same in drawn.items()}
    for key, same in by_key.items():
        middle, wide = statistics.fmean(_levels(same, delay_s)), widening(len(same))
        levels[key] = [middle + wide * (level - middle) for level in levels[key]]
    return _from_levels(drawn, levels, delay_s)


def widening(n: int) -> float:
    """By how much the draws of a mean of ``n`` lie too close; 1 for a single one, which has no
    spread to widen."""
    if n < 2:
        return 1.0
    t = _T_90[n - 2] if n - 2 < len(_T_90) else _Z_90 + (_Z_90**3 + _Z_90) / (4 * (n - 1))
    return t / _Z_90 * math.sqrt(n / (n - 1))


def widened_band(value: float, draws: Sequence[float], n: int) -> tuple[float, float]:
    """The 5 % and 95 % points of draws of a mean of ``n``, as far from it as they should be."""
    wide = widening(n)
    low, high = percentile(draws, 0.05), percentile(draws, 0.95)
    return value + wide * (low - value), value + wide * (high - value)


def stuck_reason(channel: Channel, legs: Sequence[tuple[PhaseKey, Leg]]) -> str | None:
    """A counter that shows one and the same reading from an idle leg into a busy one, or back,
    follows nothing."""
    ordered = sorted(legs, key=lambda pair: pair[1].t0_ns)
    for (before, first), (after, second) in pairwise(ordered):
        if (before.phase == IDLE) == (after.phase == IDLE) or second.t1_ns is None:
            continue
        middle_ns = (second.t0_ns + second.t1_ns) // 2
        start_ns = ((first.t1_ns or first.t0_ns) + first.t0_ns) // 2
        values = channel.between(start_ns, middle_ns)
        if len(values) >= _LEAST_READINGS and len(set(values)) == 1:
            return (
                f"{channel.signal.name} from {channel.signal.source} is stuck: the same reading "
                f"for {(middle_ns - start_ns) / 1e9:.1f} s, from {_named(before)} to "
                f"{_named(after)}"
            )
    return None


def _named(key: PhaseKey) -> str:
    return IDLE if key.phase == IDLE else f"{key.phase} of {key.model}"


def share_inside(one: Pass, t0_ns: int, t1_ns: int) -> float:
    """The part of a pass that lies in a time."""
    inside = min(one.t1_ns, t1_ns) - max(one.t0_ns, t0_ns)
    whole = one.t1_ns - one.t0_ns
    return max(inside, 0) / whole if whole > 0 else 0.0


def held_value(
    per_pass: Mapping[PhaseKey, float], phase: str, model: str, tokens: int
) -> float | None:
    """Of a pass by what was held: at its size, or on the straight line between its neighbours; a
    draft that takes in two tokens at once reads its weights once all the same."""
    roles = ("draft",) if phase == "draft" else ("decode", "verify")
    known = {
        key.tokens: value
        for key, value in per_pass.items()
        if key.model == model and key.phase in roles
    }
    if not known:
        return None
    below = max((size for size in known if size <= tokens), default=min(known))
    above = min((size for size in known if size >= tokens), default=max(known))
    part = (tokens - below) / (above - below) if above > below else 0.0
    return known[below] + part * (known[above] - known[below])


def slope_and_intercept(points: Iterable[tuple[float, float]]) -> tuple[float, float] | None:
    """The straight line of least squares."""
    xs, ys = zip(*points, strict=True)
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    squares = sum((x - mean_x) ** 2 for x in xs)
    if squares == 0:
        return None
    slope = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / squares
    return slope, mean_y - slope * mean_x
