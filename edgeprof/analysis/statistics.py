"""Figures with their 95 % intervals, but for grids from the standard library alone.

Means carry Student's t interval, which stays honest at three repeats; medians and ratios a
percentile bootstrap. Resampling is seeded: the same session always gives the same report.
"""

import math
import random
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from edgeprof.quantity import Quantity

_DRAWS = 1000
_SEED = 0

# Two-sided 95 % points of Student's t for 1, 2, ... degrees of freedom.
_T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)

T = TypeVar("T")
Row = TypeVar("Row", bound=Hashable)
Column = TypeVar("Column", bound=Hashable)


def student_t_95(degrees: int) -> float:
    """The two-sided 95 % point; beyond the table the normal point and its first correction,
    1.96 + (1.96^3 + 1.96) / (4 degrees), right to 0.003 there."""
    if degrees <= len(_T_95):
        return _T_95[degrees - 1]
    return 1.96 + (1.96**3 + 1.96) / (4 * degrees)


def standard_deviation(values: Sequence[float]) -> float | None:
    """Of the sample (n - 1); None for a single value, which has no spread."""
    return statistics.stdev(values) if len(values) > 1 else None


def mean_of(values: Sequence[float], *, source: str) -> Quantity | None:
    """The mean of measurements that cannot be negative; None without values, no band for one."""
    if not values:
        return None
    mean = statistics.fmean(values)
    deviation = standard_deviation(values)
    if deviation is None:
        return Quantity(value=mean, n=1, kind="measured", source=source)
    half = student_t_95(len(values) - 1) * deviation / math.sqrt(len(values))
    return Quantity(
        value=mean,
        low=max(mean - half, 0.0),
        high=mean + half,
        n=len(values),
        kind="measured",
        source=source,
    )


def percentile(values: Sequence[float], fraction: float) -> float:
    """Linear between the two nearest ranks, as numpy's default does."""
    ordered = sorted(values)
    rank = fraction * (len(ordered) - 1)
    below = math.floor(rank)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (rank - below) * (ordered[above] - ordered[below])


def median_of(values: Sequence[float], *, source: str) -> Quantity | None:
    """The median as a measured figure; None without values."""
    if not values:
        return None
    low, high = bootstrap_interval(
        len(values), lambda rng: statistics.median(resampled(values, rng))
    )
    return Quantity(
        value=statistics.median(values),
        low=low,
        high=high,
        n=len(values),
        kind="measured",
        source=source,
    )


def ratio_of_medians(
    values: Sequence[float], base: Sequence[float], *, source: str
) -> Quantity | None:
    """median(values) / median(base), both resampled; ``n`` is the smaller of the two counts."""
    if not values or not base:
        return None
    n = min(len(values), len(base))

    def draw(rng: random.Random) -> float:
        return statistics.median(resampled(values, rng)) / statistics.median(resampled(base, rng))

    low, high = bootstrap_interval(n, draw)
    return Quantity(
        value=statistics.median(values) / statistics.median(base),
        low=low,
        high=high,
        n=n,
        kind="measured",
        source=source,
    )


def resampled(values: Sequence[T], rng: random.Random) -> list[T]:
    """As many values, drawn with replacement."""
    return rng.choices(values, k=len(values))


def grid_sums(
    cells: Mapping[tuple[Row, Column], Sequence[Sequence[float]]],
) -> Callable[[random.Random], list[float] | None]:
    """Draws rows and columns with replacement, and adds up what lies where they cross.

    Answers to one prompt have much in common, and so have the answers of one repeat, which ran one
    after the other; drawing whole rows and columns keeps both in the interval. Every cell holds
    tuples of one length; what comes back are their sums, place by place, or None where a draw hit
    no cell. Sums of products, for there may be thousands of cells and a thousand draws.
    """
    import numpy as np

    rows = {row: place for place, row in enumerate(dict.fromkeys(row for row, _ in cells))}
    columns = {name: place for place, name in enumerate(dict.fromkeys(name for _, name in cells))}
    width = max((len(one) for same in cells.values() for one in same), default=0)
    table = np.zeros((width + 1, len(rows), len(columns)))  # the last layer counts
    for (row, column), same in cells.items():
        for one in same:
            table[:, rows[row], columns[column]] += (*one, 1.0)

    def draw(rng: random.Random) -> list[float] | None:
        by_row, by_column = (
            np.bincount(rng.choices(range(count), k=count), minlength=count)
            for count in (len(rows), len(columns))
        )
        *sums, hit = (by_row @ table @ by_column).tolist()
        return sums if hit else None

    return draw


def bootstrap_interval(
    n: int, draw: Callable[[random.Random], float]
) -> tuple[float | None, float | None]:
    """2.5 % and 97.5 % points over resamples; (None, None) for one observation."""
    if n < 2:
        return None, None
    rng = random.Random(_SEED)
    draws = [draw(rng) for _ in range(_DRAWS)]
    return percentile(draws, 0.025), percentile(draws, 0.975)


def widening_for(n: int) -> float:
    """By what a percentile bootstrap over ``n`` blocks, two or more, is too narrow."""
    return student_t_95(n - 1) / 1.96 * math.sqrt(n / (n - 1))


def block_interval(
    blocks: Sequence[T], figure: Callable[[Sequence[T]], float | None]
) -> tuple[float | None, float | None]:
    """A 95 % interval of ``figure`` over blocks drawn whole with replacement.

    Few blocks make percentiles too narrow: a mean of n draws varies by sqrt((n - 1) / n) too little
    and knows nothing of Student's t. Both are put back in, as distances from the figure (expanded
    percentile interval, T. Hesterberg 2015). (None, None) for fewer than two blocks.
    """
    value = figure(blocks)
    if len(blocks) < 2 or value is None:
        return None, None
    rng = random.Random(_SEED)
    drawn = (figure(resampled(blocks, rng)) for _ in range(_DRAWS))
    draws = [one for one in drawn if one is not None]
    if len(draws) < _DRAWS / 2:
        return None, None
    widening = widening_for(len(blocks))
    low, high = percentile(draws, 0.025), percentile(draws, 0.975)
    return value - widening * (value - low), value + widening * (high - value)
