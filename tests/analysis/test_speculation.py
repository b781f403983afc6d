"""The formulas of speculative decoding, against tables and by hand."""

import csv
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeprof.analysis.speculation import (
    LONGEST_DRAFT,
    best_draft_length,
    break_even_acceptance,
    ceiling,
    expected_tokens,
    speedup,
)
from edgeprof.errors import UsageFault

DATA = Path(__file__).parent.parent / "data"
with (DATA / "spec_vectors.csv").open() as file:
    VECTORS = list(csv.DictReader(file))
with (DATA / "best_draft_lengths.csv").open() as file:
    BEST = list(csv.DictReader(file))


def rounding(printed: str) -> float:
    """Half a unit of the last printed digit, and what floating point takes."""
    return 0.5 * 10.0 ** -len(printed.partition(".")[2]) + 1e-9


@pytest.mark.parametrize("row", VECTORS, ids=lambda row: f"{row['source']} {row['alpha']}")
def test_vectors(row: dict[str, str]) -> None:
    alpha, length = float(row["alpha"]), int(row["draft_length"])
    # an acceptance that was solved from a printed speed-up has three digits itself
    loose = 0.0015 if row["source"].endswith("alpha solved") else 0.0
    tokens = expected_tokens(alpha, length)
    printed = row["expected_tokens"]
    assert tokens == pytest.approx(float(printed), rel=loose, abs=rounding(printed))
    if row["speedup"]:
        gain = speedup(tokens, length, float(row["draft_cost"]))
        printed = row["speedup"]
        assert gain == pytest.approx(float(printed), rel=loose, abs=rounding(printed))


@pytest.mark.parametrize("row", BEST, ids=lambda row: f"{row['alpha']} {row['draft_cost']}")
def test_best_lengths_up_to_64(row: dict[str, str]) -> None:
    """Costs of 0 have no optimum but the cap (or where floating point has reached the ceiling)."""
    best = best_draft_length(float(row["alpha"]), float(row["draft_cost"]))
    assert best.draft_length == int(row["draft_length"])
    assert best.speedup == pytest.approx(float(row["speedup"]), abs=rounding(row["speedup"]))
    tokens = expected_tokens(float(row["alpha"]), best.draft_length)
    assert tokens == pytest.approx(
        float(row["expected_tokens"]), abs=rounding(row["expected_tokens"])
    )


@pytest.mark.parametrize(("v5", "gain"), [(2.039, 1.501), (0.957, 2.905)])
def test_the_kernel_decides_what_verifying_costs(v5: float, gain: float) -> None:
    # 3.3616 / (4 x 0.05 + v(5)); v below 1 is real and not clamped
    assert speedup(expected_tokens(0.8, 4), 4, 0.05, v5) == pytest.approx(gain, abs=5e-4)


@pytest.mark.parametrize(
    ("cost", "alpha", "length", "gain"),
    [
        (0.05, 0.5, 3, 1.630), (0.05, 0.6, 4, 1.921), (0.05, 0.7, 6, 2.353),
        (0.05, 0.8, 8, 3.092), (0.05, 0.9, 13, 4.674),
        (0.1, 0.5, 2, None), (0.1, 0.6, 3, None), (0.1, 0.7, 4, None), (0.1, 0.8, 6, None),
        (0.1, 0.9, 10, None), (0.2, 0.5, 1, None), (0.2, 0.6, 2, None), (0.2, 0.7, 3, None),
        (0.2, 0.8, 4, None), (0.2, 0.9, 7, None),
        (0.1202, 0.5, 2, 1.41), (0.1202, 0.6, 3, 1.60), (0.1202, 0.7, 4, 1.87),
        (0.1202, 0.8, 5, 2.30), (0.1202, 0.9, 9, 3.13),
    ],
)  # fmt: skip
def test_best_draft_length(cost: float, alpha: float, length: int, gain: float | None) -> None:
    best = best_draft_length(alpha, cost)
    assert best.draft_length == length
    if gain is not None:
        assert best.speedup == pytest.approx(gain, abs=0.006)


@pytest.mark.parametrize(
    ("length", "gain"),
    [(1, 1.52), (2, 1.77), (3, 1.86), (4, 1.87), (5, 1.84), (8, 1.63), (12, 1.35)],
)
def test_eight_tokens_are_too_many_at_this_cost(length: int, gain: float) -> None:
    """Qwen2.5-0.5B Q8_0 (0.525 GB) for Qwen2.5-7B Q4_K_M (4.370 GB), acceptance 0.7."""
    cost = 0.525 / 4.370
    assert speedup(expected_tokens(0.7, length), length, cost) == pytest.approx(gain, abs=0.006)


def test_best_length_with_a_measured_verify_curve() -> None:
    """Orin Nano, Qwen3.5-4B, acceptance 0.8, c 0.12: the kernel decides."""
    vector = [1, 1.36, 1.48, 1.86, 2.04, 2.30, 2.80, 3.09]
    matrix = [1, 0.93, 0.94, 0.95, 0.96, 0.97, 0.98, 0.99]
    slow = best_draft_length(0.8, 0.12, lambda n: vector[n - 1], longest=7)
    fast = best_draft_length(0.8, 0.12, lambda n: matrix[n - 1], longest=7)
    assert (slow.draft_length, round(slow.speedup, 2)) == (2, 1.42)
    assert (fast.draft_length, round(fast.speedup, 2)) == (5, 2.35)  # 3.68928 / (0.6 + 0.97)


def test_drafting_that_cannot_pay_is_not_advised() -> None:
    assert best_draft_length(0.1, 0.5).draft_length == 0
    assert best_draft_length(0.1, 0.5).speedup == 1.0


def test_a_free_draft_stops_at_the_longest() -> None:
    assert best_draft_length(0.99, 0.0).draft_length == LONGEST_DRAFT


@pytest.mark.parametrize(
    ("length", "cost", "verify", "alpha"),
    [(4, 0.05, 1.0, 0.167), (4, 0.12, 2.039, 0.649), (8, 0.12, 3.2, 0.788)],
)
def test_break_even(length: int, cost: float, verify: float, alpha: float) -> None:
    found = break_even_acceptance(length, cost, verify)
    assert found is not None
    assert found == pytest.approx(alpha, abs=5e-4)
    assert speedup(expected_tokens(found, length), length, cost, verify) == pytest.approx(1.0)


def test_no_break_even_where_even_full_acceptance_loses() -> None:
    assert break_even_acceptance(2, 0.9, 2.0) is None  # 1.8 + 2.0 > 3


def test_the_three_numbers_called_acceptance() -> None:
    """alpha 0.7, K 8: accepted 0.7 (1 - 0.7^8) / 0.3 = 2.199, so accepted/drafted is 0.275."""
    accepted = expected_tokens(0.7, 8) - 1
    assert accepted == pytest.approx(2.199, abs=5e-4)
    assert accepted / 8 == pytest.approx(0.275, abs=5e-4)
    # taking 0.275 for alpha is off by 2.3
    assert expected_tokens(0.275, 8) == pytest.approx(1.38, abs=5e-3)


def test_ceiling() -> None:
    assert ceiling(0.8) == pytest.approx(5.0)
    assert ceiling(1.0) is None


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan")])
def test_nonsense_is_refused(alpha: float) -> None:
    with pytest.raises(UsageFault, match="between 0 and 1"):
        expected_tokens(alpha, 4)
    with pytest.raises(UsageFault, match="0 or more"):
        expected_tokens(0.5, -1)
    with pytest.raises(UsageFault, match="above 0"):
        speedup(1.0, 1, 0.1, 0.0)
    with pytest.raises(UsageFault, match="0 or more"):
        speedup(1.0, 1, float("nan"))


@given(alpha=st.floats(0, 1), length=st.integers(0, 40))
def test_the_closed_form_is_the_sum_of_survivals(alpha: float, length: int) -> None:
    closed = expected_tokens(alpha, length)
    assert closed == pytest.approx(sum(alpha**i for i in range(length + 1)), rel=1e-9)
    assert 1 <= closed <= length + 1 + 1e-9


@given(alpha=st.floats(0, 1), cost=st.floats(0, 1))
def test_more_drafting_brings_more_tokens_but_never_beats_the_ceiling(
    alpha: float, cost: float
) -> None:
    tokens = [expected_tokens(alpha, length) for length in range(12)]
    assert all(a <= b + 1e-12 for a, b in pairwise(tokens))
    limit = ceiling(alpha)
    assert limit is None or best_draft_length(alpha, cost).speedup <= limit * (1 + 1e-9)
