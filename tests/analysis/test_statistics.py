"""Means, medians, percentiles and their intervals, against figures worked out by hand."""

import random

import pytest

from edgeprof.analysis.statistics import (
    bootstrap_interval,
    grid_sums,
    mean_of,
    median_of,
    percentile,
    ratio_of_medians,
    standard_deviation,
    student_t_95,
)


def test_mean_carries_students_interval() -> None:
    mean = mean_of([9.0, 10.0, 11.0], source="here")
    assert mean is not None and mean.low is not None and mean.high is not None
    assert (mean.value, mean.n) == (10.0, 3)
    # sd 1, two degrees of freedom: 4.303 x 1 / sqrt(3) = 2.484
    assert mean.low == pytest.approx(10 - 2.484, abs=0.001)
    assert mean.high == pytest.approx(10 + 2.484, abs=0.001)


def test_p05_one_value_has_no_spread_and_none_has_no_mean() -> None:
    one = mean_of([5.0], source="here")
    assert one is not None
    assert (one.value, one.low, one.high, one.n) == (5.0, None, None, 1)
    assert standard_deviation([5.0]) is None
    assert mean_of([], source="here") is None
    assert median_of([], source="here") is None


def test_a_rate_is_never_below_zero() -> None:
    mean = mean_of([1.0, 9.0], source="here")  # sd 5.66, half width 12.706 x 4 = 50.8
    assert mean is not None and mean.low == 0.0


@pytest.mark.parametrize(
    ("degrees", "point"), [(1, 12.706), (2, 4.303), (20, 2.086), (30, 2.042), (120, 1.980)]
)
def test_students_t_as_in_printed_tables(degrees: int, point: float) -> None:
    assert student_t_95(degrees) == pytest.approx(point, abs=0.003)


def test_percentile_is_linear_between_ranks() -> None:
    values = [40.0, 10.0, 20.0, 30.0]
    assert percentile(values, 0.5) == 25.0
    assert percentile(values, 0.9) == pytest.approx(37.0)  # rank 2.7: 30 + 0.7 x 10
    assert percentile([7.0], 0.99) == 7.0


def test_ratio_of_medians_and_its_band() -> None:
    ratio = ratio_of_medians([17.0, 18.0, 19.0], [9.0, 10.0, 11.0], source="here")
    assert ratio is not None and ratio.low is not None and ratio.high is not None
    assert ratio.value == pytest.approx(1.8)
    assert 17 / 11 <= ratio.low < 1.8 < ratio.high <= 19 / 9
    assert ratio_of_medians([1.0], [], source="here") is None


def test_the_same_data_give_the_same_interval() -> None:
    first = median_of([1.0, 2.0, 3.0, 4.0], source="here")
    assert first == median_of([1.0, 2.0, 3.0, 4.0], source="here")


def test_bootstrap_of_one_observation_has_no_band() -> None:
    assert bootstrap_interval(1, lambda rng: 1.0) == (None, None)


def test_whole_rows_and_columns_are_drawn() -> None:
    values = {("a", 1): 1.0, ("a", 2): 100.0, ("b", 1): 10_000.0, ("b", 2): 1e6}
    sums = grid_sums({cell: [(value,)] for cell, value in values.items()})
    draws = {sums(random.Random(seed))[0] for seed in range(200)}  # type: ignore[index]
    # Two rows of aa, ab, bb cross two columns of 11, 12, 22: nine draws, no other.
    assert draws == {
        sum(values[row, column] for row in rows for column in columns)
        for rows in ("aa", "ab", "bb")
        for columns in ((1, 1), (1, 2), (2, 2))
    }


def test_sums_are_place_by_place_over_all_of_a_cell() -> None:
    sums = grid_sums({("a", 1): [(1.0, 10.0), (2.0, 20.0)]})
    assert sums(random.Random(0)) == [3.0, 30.0]


def test_a_draw_that_hits_no_cell_says_nothing() -> None:
    sums = grid_sums({("a", 1): [(1.0,)], ("b", 2): [(1.0,)]})
    draws = [sums(random.Random(seed)) for seed in range(50)]
    assert None in draws
    # aa or bb with 11 or 22 is 4 or nothing, all else hits two
    assert {draw[0] for draw in draws if draw is not None} == {2.0, 4.0}
