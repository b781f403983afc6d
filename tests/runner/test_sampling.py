"""Shaping, drawing and what is left after a draft: against sums done by hand and done slowly."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgeprof.errors import FileFault
from edgeprof.recipe import Sampling
from edgeprof.runner.sampling import (
    Dice,
    Distribution,
    Sampler,
    kept_columns,
    largest,
    point_mass,
    residual,
)

PROBABILITIES = [0.1, 0.4, 0.05, 0.2, 0.25]  # of tokens 0 to 4
LOGITS = np.log(np.array(PROBABILITIES)).astype(np.float32) + np.float32(3)


def sampler(model: Any, vocabulary: int, **rule: float) -> Sampler:
    rules: dict[str, Any] = {"temperature": 1.0, **rule}
    dice = Dice(np.random.default_rng(0))
    return Sampler(model, Sampling(**rules), dice, vocabulary=vocabulary, name="models/t: t")


def shaped(rule_model: Any, logits: Any, **rule: float) -> dict[int, float]:
    """Probabilities by token, to six digits: float32 holds seven."""
    model = rule_model(lambda text: 0, vocab_size=len(logits))
    found = sampler(model, len(logits), **rule).distribution(np.asarray(logits, np.float32))
    assert found.probabilities.sum() == pytest.approx(1, abs=1e-14)
    pairs = zip(found.tokens, found.probabilities, strict=True)
    return {int(token): round(float(share), 6) for token, share in pairs}


def test_temperature_1_is_softmax(rule_model: Any) -> None:
    assert shaped(rule_model, LOGITS) == dict(enumerate(PROBABILITIES))


def test_temperature_raises_probabilities_to_its_inverse(rule_model: Any) -> None:
    # at 0.5 they are squared: 100 1600 25 400 625 of 2750
    found = shaped(rule_model, LOGITS, temperature=0.5)
    assert found == {0: 0.036364, 1: 0.581818, 2: 0.009091, 3: 0.145455, 4: 0.227273}


def test_top_k_keeps_the_most_probable(rule_model: Any) -> None:
    assert shaped(rule_model, LOGITS, top_k=2) == {1: 0.615385, 4: 0.384615}  # 40 and 25 of 65
    assert len(shaped(rule_model, LOGITS, top_k=5)) == 5 == len(shaped(rule_model, LOGITS, top_k=9))


def test_top_p_keeps_the_fewest_that_hold_the_share(rule_model: Any) -> None:
    assert set(shaped(rule_model, LOGITS, top_p=0.64)) == {1, 4}  # 0.40 + 0.25 reaches it
    assert set(shaped(rule_model, LOGITS, top_p=0.66)) == {1, 3, 4}
    assert set(shaped(rule_model, LOGITS, top_p=1e-9)) == {1}  # never none
    assert len(shaped(rule_model, LOGITS, top_p=1)) == 5


def test_min_p_is_a_share_of_the_most_probable(rule_model: Any) -> None:
    assert set(shaped(rule_model, LOGITS, min_p=0.49)) == {1, 3, 4}  # 0.4 * 0.49 = 0.196
    assert set(shaped(rule_model, LOGITS, min_p=0.51)) == {1, 4}
    assert set(shaped(rule_model, LOGITS, min_p=0.999)) == {1}


def test_top_p_counts_within_top_k(rule_model: Any) -> None:
    # of the three kept 40 : 25 : 20, the first holds 0.47 and two hold 0.76
    assert set(shaped(rule_model, LOGITS, top_k=3, top_p=0.7)) == {1, 4}
    assert set(shaped(rule_model, LOGITS, top_k=3, top_p=0.46)) == {1}
    assert set(shaped(rule_model, LOGITS, top_p=0.46)) == {1, 4}


def test_the_temperature_comes_last_and_does_not_change_what_is_kept(rule_model: Any) -> None:
    # at temperature 4 first, 0.64 would take three tokens; min-p 0.51 would keep four
    for rule in ({"top_p": 0.64}, {"min_p": 0.51}):
        found = shaped(rule_model, LOGITS, temperature=4, **rule)
        assert set(found) == {1, 4}
        # (40 / 25) ** (1 / 4) = 1.124683
        assert found[1] / found[4] == pytest.approx(1.124683, rel=1e-5)


def test_top_k_breaks_ties_as_greedy_decoding_does(rule_model: Any) -> None:
    assert shaped(rule_model, [1, 2, 2, 2], top_k=2) == {1: 0.5, 2: 0.5}
    assert shaped(rule_model, [5, 5, 5], top_k=1) == {0: 1.0}


def test_a_temperature_next_to_0_takes_the_largest_without_a_warning(rule_model: Any) -> None:
    found = shaped(rule_model, [1.0, 1.000001, -3e38], temperature=1e-300)
    assert found == {0: 0.0, 1: 1.0, 2: 0.0}


def slowly(logits: NDArray[np.float32], rule: Sampling) -> list[float]:
    """The same rule over Python numbers, one step after the other; exponentials are float32's."""
    weights = np.exp(logits - logits.max()).tolist()
    order = sorted(range(len(weights)), key=lambda column: (-weights[column], column))
    if rule.top_k:
        order = order[: rule.top_k]
    if rule.top_p < 1:
        whole, mass, count = sum(weights[column] for column in order), 0.0, 0
        while mass < rule.top_p * whole and count < len(order):
            mass += weights[order[count]]
            count += 1
        order = order[:count]
    order = [column for column in order if weights[column] >= rule.min_p]
    hot = {column: weights[column] ** (1 / rule.temperature) for column in order}
    return [hot.get(column, 0.0) / sum(hot.values()) for column in range(len(weights))]


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([1, 2, 5, 64, 300, 5000]),
    spread=st.sampled_from([0.1, 1.0, 4.0]),
    temperature=st.sampled_from([0.3, 0.8, 1.0, 2.5]),
    top_k=st.sampled_from([0, 1, 3, 40, 2000]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.01]),
    min_p=st.sampled_from([0.0, 0.05, 0.6]),
)
def test_shaping_is_the_slow_way_done_fast(
    rule_model: Any, seed: int, size: int, spread: float, **rule: Any
) -> None:
    # quarters: many ties, and no difference that float32 would have to round
    logits = (np.random.default_rng(seed).normal(0, 4 * spread, size).round() / 4).astype("f4")
    model = rule_model(lambda text: 0, vocab_size=size)
    found = sampler(model, size, **rule).distribution(logits)
    dense = np.zeros(size)
    dense[found.tokens] = found.probabilities
    np.testing.assert_allclose(dense, slowly(logits, Sampling(**rule)), atol=1e-6)


@settings(max_examples=100)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 2000), count=st.integers(1, 2100))
def test_the_largest_are_those_of_a_full_sort(seed: int, size: int, count: int) -> None:
    logits = np.random.default_rng(seed).integers(0, 50, size).astype(np.float32)
    in_order = np.argsort(-logits, kind="stable").tolist()
    assert largest(logits, count).tolist() == sorted(in_order[:count])


def test_a_nucleus_of_a_flat_vocabulary_is_its_share() -> None:
    flat = np.zeros(49_152, np.float32)
    assert len(kept_columns(flat, Sampling(temperature=1, top_p=0.5))) == 24_576


@pytest.mark.parametrize("padding", [np.nan, np.inf, 1e30])
def test_r11_columns_beyond_the_vocabulary_are_never_looked_at(
    rule_model: Any, padding: float
) -> None:
    model = rule_model(lambda text: 0, vocab_size=8)
    logits = np.append(LOGITS, [padding] * 3).astype(np.float32)
    found = sampler(model, 5, top_k=4).distribution(logits)
    assert found.tokens.tolist() == [0, 1, 3, 4]


def test_a_cut_head_gives_distributions_over_tokens(rule_model: Any) -> None:
    class Cut(rule_model):  # type: ignore[misc]
        def token_ids(self, columns: Any) -> Any:
            return np.array([70, 5, 900, 12])[columns]

    model = Cut(lambda text: 0, vocab_size=1000)
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125])).astype(np.float32)
    found = sampler(model, 1000).distribution(logits)
    assert found.tokens.tolist() == [5, 12, 70, 900]
    assert found.probabilities == pytest.approx([0.25, 0.125, 0.5, 0.125], abs=1e-6)
    assert found.probability(70) == pytest.approx(0.5) and found.probability(71) == 0
    assert found.probability(901) == 0
    assert sampler(model, 100).distribution(logits).tokens.tolist() == [5, 12, 70]


@pytest.mark.parametrize("bad", [[1, np.nan, 2], [1, np.inf, 2], [-np.inf] * 3])
def test_logits_that_are_no_numbers_name_the_model(rule_model: Any, bad: list[float]) -> None:
    with pytest.raises(FileFault, match=r"^models/t: t gives logits that are no numbers"):
        shaped(rule_model, bad)


def test_a_logit_of_minus_infinity_excludes_its_token(rule_model: Any) -> None:
    assert shaped(rule_model, [-np.inf, 0, 0]) == {0: 0, 1: 0.5, 2: 0.5}
    assert shaped(rule_model, [-np.inf, 0, 0], top_k=3, top_p=0.9, min_p=0.1) == {1: 0.5, 2: 0.5}


def test_half_precision_logits_are_shaped_in_float32(rule_model: Any) -> None:
    model = rule_model(lambda text: 0, vocab_size=2)
    # exp(-12) is no number of float16 any more
    found = sampler(model, 2).distribution(np.array([0, -12], np.float16))
    assert found.probabilities[1] == pytest.approx(6.144137e-06, rel=1e-5)


def test_a_draw_falls_where_the_probabilities_say() -> None:
    held = Distribution(np.array([3, 7, 8, 9]), np.array([0.25, 0.0, 0.5, 0.25]))
    at = {0.0: 3, 0.2499999: 3, 0.25: 8, 0.7499999: 8, 0.75: 9, math.nextafter(1, 0): 9}
    assert {uniform: held.draw(uniform) for uniform in at} == at


def test_a_draw_never_gives_what_has_no_probability() -> None:
    tail = Distribution(np.arange(1000), np.r_[np.zeros(300), np.full(7, 1 / 7), np.zeros(693)])
    found = {tail.draw(uniform) for uniform in [0.0, *np.linspace(0, 1, 99)[:-1]]}
    assert found == set(range(300, 307))
    assert tail.draw(math.nextafter(1, 0)) == 306


def test_a_draw_over_a_large_vocabulary_gives_each_token_its_length() -> None:
    """Where one token ends the next begins: 5 000 tokens whose ends are known exactly."""
    counts = np.random.default_rng(1).integers(1, 8, 5000)
    total = 1 << 15
    counts[-1] += total - counts.sum()
    held = Distribution(np.arange(5000), counts / total)  # sums of these are exact
    ends = np.cumsum(counts)
    for token in range(0, 5000, 7):
        assert held.draw((ends[token] - counts[token]) / total) == token
        assert held.draw((ends[token] - 0.001) / total) == token


def test_the_residual_by_hand() -> None:
    p = Distribution(np.array([1, 2, 3]), np.array([0.5, 0.25, 0.25]))
    q = Distribution(np.array([1, 2, 3]), np.array([0.125, 0.75, 0.125]))
    # 3/8, nothing and 1/8
    assert residual(p, q).probabilities.tolist() == [0.75, 0.0, 0.25]
    assert p.probabilities.tolist() == [0.5, 0.25, 0.25]  # left as it was
    other = Distribution(np.array([0, 3, 9]), np.array([0.5, 0.25, 0.25]))
    found = residual(p, other)
    assert found.tokens.tolist() == [1, 2, 3]
    assert found.probabilities.tolist() == pytest.approx([2 / 3, 1 / 3, 0])
    assert residual(p, point_mass(1)).probabilities.tolist() == [0.0, 0.5, 0.5]
    assert residual(p, point_mass(4)).probabilities.tolist() == [0.5, 0.25, 0.25]


def test_a_residual_that_rounds_to_nothing_is_the_target() -> None:
    p = Distribution(np.array([1, 2]), np.array([0.5, 0.5]))
    q = Distribution(np.array([1, 2]), np.array([0.5, math.nextafter(0.5, 1)]))
    assert residual(p, q) is p


def test_dice_use_one_number_a_decision_in_the_order_asked() -> None:
    numbers = np.random.default_rng(7).random(4)
    dice = Dice(np.random.default_rng(7))
    halves = Distribution(np.array([0, 1]), np.array([0.5, 0.5]))
    found = [dice.happens(0.5), dice.pick(halves), dice.happens(1.0), dice.pick(halves)]
    assert found == [numbers[0] < 0.5, int(numbers[1] >= 0.5), True, int(numbers[3] >= 0.5)]
    assert not any(dice.happens(0.0) for _ in range(20))
