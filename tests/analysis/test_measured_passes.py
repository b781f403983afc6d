"""From a probe's times to its figures; every value worked out by hand."""

import pytest

from edgeprof.analysis.measured_passes import (
    best_lengths,
    figure,
    layers_that_fit,
    pass_costs,
    rate,
    roofline_cost,
    whole_model,
)
from edgeprof.catalog import find_model


def test_a_figure_is_the_median_with_the_ends_of_its_middle_half() -> None:
    found = figure([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.value, found.low, found.high, found.n) == (3.0, 2.0, 4.0, 5)


def test_a_rate_is_amount_over_time_of_each_run() -> None:
    assert rate(100.0, [2.0, 4.0, 5.0]).value == 25.0


@pytest.mark.parametrize(
    ("values", "unstable"),
    [
        ([10.0, 10.1, 9.9, 10.0, 10.0, 10.1], False),
        ([10.0, 13.0, 10.0, 13.0, 10.0, 13.0], True),  # the middle half is wider than a tenth
        ([10.0, 10.0, 10.0, 11.2, 11.2, 11.2], True),  # it drifted
        ([10.0, 20.0, 30.0], False),  # too few to judge by
    ],
)
def test_what_does_not_hold_still_is_unstable(values: list[float], unstable: bool) -> None:
    assert figure(values).unstable is unstable


def test_v_is_the_time_over_that_of_one() -> None:
    one, four = pass_costs({4: [0.03, 0.03, 0.03], 1: [0.02, 0.02, 0.02]})
    assert (one.tokens, one.cost.value, one.time_s.value) == (1, 1.0, 0.02)
    assert four.tokens == 4
    assert four.cost.value == pytest.approx(1.5)


def test_no_v_without_passes_of_one() -> None:
    assert pass_costs({2: [0.1], 4: [0.2]}) == []


def test_the_layers_that_were_not_there_take_what_those_that_were_took() -> None:
    """A quarter of the layers: 10 ms with the head, 8 without; four quarters and one head."""
    whole = {1: [0.010], 2: [0.014]}
    headless = {1: [0.008, 0.008, 0.008], 2: [0.011]}
    found = whole_model(whole, headless, 0.25)
    assert found[1] == [pytest.approx(4 * 0.008 + 0.002)]
    assert found[2] == [pytest.approx(4 * 0.011 + 0.003)]
    assert whole_model(whole, {}, 1.0) == whole


def test_a_size_without_its_headless_pass_is_left_out() -> None:
    assert whole_model({1: [0.1], 2: [0.2]}, {1: [0.05]}, 0.5).keys() == {1}


def test_the_best_length_follows_the_measured_costs() -> None:
    """v = 1 for up to 3 tokens and 10 at 4: with a free draft K = 2 brings 1 + a + a^2."""
    found = {(b.acceptance, b.draft_cost): b for b in best_lengths({1: 1.0, 3: 1.0, 4: 10.0})}
    best = found[0.8, 0.0]
    assert best.draft_length == 2
    assert best.speedup == pytest.approx(2.44)
    # with c = 0.1: 2.44 / 1.2 against 1.8 / 1.1
    assert found[0.8, 0.1].speedup == pytest.approx(2.44 / 1.2)


def test_the_roofline_is_flat_up_to_its_ridge_and_rises_behind() -> None:
    """100 bytes at 10 B/s take 10 s; 20 operations a row at 8 a second take 2.5 s: ridge at 4."""
    costs = [roofline_cost(n, 100, 20, 10, 8) for n in (1, 4, 8)]
    assert costs == [1.0, 1.0, 2.0]


def test_as_many_layers_as_there_is_room_for() -> None:
    spec, _ = find_model("qwen2.5-7b:q4_k_m")
    assert layers_that_fit(spec, 100.0, 50.0, 1100.0) == 10
    assert layers_that_fit(spec, 100.0, 50.0, 1e9) == 28
    assert layers_that_fit(spec, 100.0, 50.0, 60.0) == 0
