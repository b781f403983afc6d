"""How a counter of memory traffic averages, and what its unit is, from a load of known size. Pure.

The counter's number is idle + (bytes a second, averaged over its window) / scale. The load is known
to the byte, the window and the scale are not: for each kind and width of window the rest follows by
least squares, and the width that leaves least unexplained is the window.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple

from msgspec import Struct

Kind = Literal["boxcar", "exponential", "instantaneous", "unknown"]

_STEP_S = 0.01  # of the grid that the load is put on
_SHORTEST_S, _LONGEST_S = 0.03, 5.0
_WIDTHS = 48
_NARROWINGS = 24
_GOLDEN = (math.sqrt(5) - 1) / 2
# A kind is told from the other where that leaves a tenth more unexplained.
_APART = 1.1


class Chunk(NamedTuple):
    """So many bytes were read between two times, in seconds."""

    t0_s: float
    t1_s: float
    bytes: int


class Reading(NamedTuple):
    """What the counter said."""

    t_s: float
    raw: float


class WindowFit(Struct, frozen=True, kw_only=True):
    """What explains the readings best. ``explained_share`` is 1 where nothing is left.

    ``window_s`` is the time constant of an exponential average or the width of a boxcar; None where
    it is too short to be seen, or where the kinds cannot be told apart. ``shape`` is the kind and
    width that explained most, told apart or not.
    """

    kind: Kind
    window_s: float | None
    bytes_per_s_per_unit: float
    idle_raw: float
    explained_share: float
    shape: tuple[Kind, float]


def fit_window(readings: Sequence[Reading], chunks: Sequence[Chunk]) -> WindowFit | None:
    """None where the readings do not rise with the load at all."""
    load = _Load(chunks, readings[0].t_s, readings[-1].t_s)
    fits = {
        "boxcar": _best_width(load.boxcar, readings),
        "exponential": _best_width(load.exponential, readings),
    }
    kinds: list[Kind] = ["boxcar", "exponential"]
    best, other = sorted(kinds, key=lambda kind: fits[kind].unexplained)
    found = fits[best]
    if found.slope <= 0:
        return None
    kind: Kind = best
    if found.width_s <= 1.05 * _SHORTEST_S:
        kind = "instantaneous"
    elif fits[other].unexplained < _APART * found.unexplained:
        kind = "unknown"
    return WindowFit(
        kind=kind,
        window_s=found.width_s if kind == best else None,
        bytes_per_s_per_unit=1 / found.slope,
        idle_raw=found.idle,
        explained_share=max(1 - found.unexplained / found.total, 0.0) if found.total else 0.0,
        shape=(best, found.width_s),
    )


def scale_at(
    shape: tuple[Kind, float], readings: Sequence[Reading], chunks: Sequence[Chunk]
) -> float | None:
    """Bytes a second a unit with the window given; None where the readings do not rise."""
    load = _Load(chunks, readings[0].t_s, readings[-1].t_s)
    kind, width_s = shape
    average = load.boxcar(width_s) if kind == "boxcar" else load.exponential(width_s)
    slope = _line(width_s, average, readings).slope
    return 1 / slope if slope > 0 else None


class _Line(NamedTuple):
    """raw = idle + slope x averaged load, and the squares that this leaves of the total."""

    width_s: float
    idle: float
    slope: float
    unexplained: float
    total: float


class _Load:
    """Bytes a second on a grid, and its averages."""

    def __init__(self, chunks: Sequence[Chunk], start_s: float, end_s: float) -> None:
        self._start_s = start_s
        times, done = _cumulative(chunks, start_s)
        steps = int((end_s - start_s) / _STEP_S) + 2
        self._done = [_at(times, done, start_s + step * _STEP_S) for step in range(steps + 1)]
        rates = zip(self._done, self._done[1:], strict=False)
        self._rates = [(after - before) / _STEP_S for before, after in rates]

    def boxcar(self, width_s: float) -> Callable[[float], float]:
        def average(t_s: float) -> float:
            return (self._until(t_s) - self._until(t_s - width_s)) / width_s

        return average

    def exponential(self, constant_s: float) -> Callable[[float], float]:
        """avg += (x - avg) (1 - e^(-step / constant)), exact for a load that is constant a step."""
        kept = math.exp(-_STEP_S / constant_s)
        moved = accumulate(self._rates, lambda avg, x: x + (avg - x) * kept, initial=0.0)
        values = [*moved]

        def average(t_s: float) -> float:
            place = (t_s - self._start_s) / _STEP_S
            step = min(max(int(place), 0), len(values) - 2)
            return values[step] + (place - step) * (values[step + 1] - values[step])

        return average

    def _until(self, t_s: float) -> float:
        place = (t_s - self._start_s) / _STEP_S
        if place <= 0:
            return self._done[0]
        step = min(int(place), len(self._done) - 2)
        return self._done[step] + (place - step) * (self._done[step + 1] - self._done[step])


def _cumulative(chunks: Sequence[Chunk], start_s: float) -> tuple[list[float], list[float]]:
    """Bytes read until each time, constant between chunks."""
    times, done = [start_s], [0.0]
    for chunk in chunks:
        times += [chunk.t0_s, chunk.t1_s]
        done += [done[-1], done[-1] + chunk.bytes]
    return times, done


def _at(times: Sequence[float], done: Sequence[float], t_s: float) -> float:
    place = bisect_right(times, t_s)
    if place in (0, len(times)):
        return done[0] if place == 0 else done[-1]
    before, after = times[place - 1], times[place]
    share = (t_s - before) / (after - before) if after > before else 1.0
    return done[place - 1] + share * (done[place] - done[place - 1])


def _best_width(
    averages: Callable[[float], Callable[[float], float]], readings: Sequence[Reading]
) -> _Line:
    """From widths evenly spread over their logarithm, then narrowed down around the best."""

    def line(log_s: float) -> _Line:
        return _line(math.exp(log_s), averages(math.exp(log_s)), readings)

    low, high = math.log(_SHORTEST_S), math.log(_LONGEST_S)
    spacing = (high - low) / (_WIDTHS - 1)
    start = min(range(_WIDTHS), key=lambda step: line(low + step * spacing).unexplained)
    left = max(low + (start - 1) * spacing, low)
    right = min(low + (start + 1) * spacing, high)
    for _ in range(_NARROWINGS):
        inner, outer = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        if line(inner).unexplained < line(outer).unexplained:
            right = outer
        else:
            left = inner
    return line((left + right) / 2)


def _line(width_s: float, average: Callable[[float], float], readings: Sequence[Reading]) -> _Line:
    """The straight line through (averaged load, reading) with the least squares."""
    loads = [average(reading.t_s) for reading in readings]
    raws = [reading.raw for reading in readings]
    mean_load, mean_raw = math.fsum(loads) / len(loads), math.fsum(raws) / len(raws)
    spread = math.fsum((load - mean_load) ** 2 for load in loads)
    both = math.fsum(
        (load - mean_load) * (raw - mean_raw) for load, raw in zip(loads, raws, strict=True)
    )
    total = math.fsum((raw - mean_raw) ** 2 for raw in raws)
    slope = both / spread if spread else 0.0
    return _Line(
        width_s=width_s,
        idle=mean_raw - slope * mean_load,
        slope=slope,
        unexplained=max(total - slope * both, 0.0),
        total=total,
    )
