"""Series thinned for drawing, against values worked out by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from edgeprof.analysis.thinning import thinned


def test_a_short_series_stays_whole() -> None:
    times = np.array([0.0, 1.0, 2.0, 3.0])
    assert thinned(times, np.array([5.0, 1.0, 9.0, 2.0]), 4).tolist() == [0, 1, 2, 3]
    assert thinned(np.array([]), np.array([]), 4).tolist() == []


def test_p15_first_last_lowest_and_highest_of_every_stretch_stay() -> None:
    # ten seconds, two stretches: 0 to 4 (lowest at 1, highest at 3), 5 to 9 (lowest 7, highest 6)
    times = np.arange(10.0)
    values = np.array([5.0, 1.0, 4.0, 9.0, 5.0, 5.0, 8.0, 0.0, 3.0, 5.0])
    assert thinned(times, values, 8).tolist() == [0, 1, 3, 4, 5, 6, 7, 9]


def test_stretches_are_of_time_not_of_points() -> None:
    # one stretch to 50 s holds nine points, the next only the last one
    times = np.array([0.0, 1, 2, 3, 4, 5, 6, 7, 8, 100])
    values = np.array([1.0, 2, 3, 4, 9, 0, 4, 5, 6, 7])
    assert thinned(times, values, 8).tolist() == [0, 4, 5, 8, 9]


def test_points_of_one_moment_are_one_stretch() -> None:
    times = np.zeros(9)
    values = np.array([4.0, 5, 9, 5, 0, 5, 5, 5, 4])
    assert thinned(times, values, 8).tolist() == [0, 2, 4, 8]


@given(
    points=st.lists(st.tuples(st.floats(0, 1e6), st.floats(-1e9, 1e9)), min_size=1, max_size=300),
    most=st.integers(4, 60),
)
def test_p15_no_extreme_is_lost_and_no_more_than_asked_stay(
    points: list[tuple[float, float]], most: int
) -> None:
    points = sorted(points)
    times = np.array([t for t, _ in points])
    values = np.array([v for _, v in points])
    kept = thinned(times, values, most)
    assert len(kept) <= most
    assert kept.tolist() == sorted(set(kept.tolist()))
    assert {0, len(points) - 1} <= set(kept.tolist())
    assert values[kept].min() == values.min() and values[kept].max() == values.max()
