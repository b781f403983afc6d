import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from edgeprof.runner.decode import FirstToken, RoundDone, Step, decode
from edgeprof.runner.draft_length import AdaptiveLength, DraftSteps, PassCost, RoundCost
from edgeprof.runner.drafters import Drafter, ModelDrafter, NgramDrafter

# v(n) of the timed model below: 1, 1.2, 1.4, ... plain passes of 10 ms.
PLAIN_S = 0.010
SLOPE = 0.2


def cost_of(tokens: int) -> float:
    return 1 + SLOPE * (tokens - 1)


def measured(*sizes: int) -> PassCost:
    return PassCost({n: PLAIN_S * cost_of(n) for n in sizes})


def plain_round() -> RoundCost:
    return RoundCost(draft_s=[], verify_tokens=1, verify_s=PLAIN_S)


def verified(tokens: int, *draft_passes: float) -> RoundCost:
    """``draft_passes``: what each draft step took, in plain passes."""
    drafts_s = [PLAIN_S * step for step in draft_passes]
    return RoundCost(drafts_s, tokens, PLAIN_S * cost_of(tokens))


def test_a_pass_costs_what_was_measured_and_lies_on_a_line_between() -> None:
    cost = PassCost({1: 0.010, 2: 0.012, 4: 0.020})
    assert cost(1) == 1
    assert cost(2) == pytest.approx(1.2)
    assert cost(3) == pytest.approx(1.6)
    assert cost(4) == pytest.approx(2.0)
    assert cost(7) == pytest.approx(3.0)  # a third of a pass a token, as from 1 to 4


def test_without_measurements_a_token_more_costs_a_little() -> None:
    cost = PassCost()
    assert cost.plain_s is None
    assert [cost(n) for n in (1, 2, 5)] == pytest.approx([1, 1.15, 1.6])


def test_a_slower_machine_changes_the_level_and_not_the_shape() -> None:
    cost = measured(1, 4)
    for _ in range(40):
        cost.learn(1, 2 * PLAIN_S)
    assert cost.plain_s == pytest.approx(2 * PLAIN_S, rel=1e-3)
    assert cost(4) == pytest.approx(cost_of(4))


def test_a_costlier_size_of_pass_changes_the_shape() -> None:
    cost = measured(1, 4)
    for _ in range(200):
        cost.learn(1, PLAIN_S)
        cost.learn(1, PLAIN_S)
        cost.learn(4, 3 * PLAIN_S)
    assert cost(4) == pytest.approx(3, rel=0.1)
    assert cost.plain_s == pytest.approx(PLAIN_S, rel=0.1)


def test_one_pass_that_was_held_up_says_little() -> None:
    cost = measured(1)
    cost.learn(1, 1000 * PLAIN_S)
    # It counts as twice the expected, and one pass moves the level by two fifths.
    assert cost.plain_s == pytest.approx(1.4 * PLAIN_S)


def test_a_clock_that_stands_still_teaches_nothing() -> None:
    cost = PassCost()
    cost.learn(3, 0.0)
    assert cost.plain_s is None


def test_drafted_tokens_are_kept_as_long_as_each_brings_more_than_it_costs() -> None:
    # The k-th token brings 0.95^k and costs 0.2: 0.95^31 = 0.204, 0.95^32 = 0.194.
    assert AdaptiveLength(measured(1, 8)).keep([0.95] * 40) == 31
    # A bin stands for its middle: 0.55 + 0.55^2 = 0.85 for 0.4; 0.55^3 = 0.166 is too little.
    assert AdaptiveLength(measured(1, 8)).keep([0.5] * 9) == 2
    assert AdaptiveLength(measured(1, 8)).keep([0.1] * 9) == 0
    assert AdaptiveLength(measured(1, 8)).keep([]) == 0


def test_a_jump_in_the_cost_is_seen_across() -> None:
    # 0.95 for 1.15 does not pay; 0.95 + 0.9025 for 1.4, and 2.71 for 1.55, do.
    jump = PassCost({1: 1.0, 2: 2.15, 3: 2.4, 4: 2.55})
    assert AdaptiveLength(jump).keep([0.95]) == 0
    assert AdaptiveLength(jump).keep([0.95] * 2) == 2
    assert AdaptiveLength(jump).keep([0.95] * 3) == 3


def test_what_a_degree_of_confidence_is_worth_is_learnt() -> None:
    length = AdaptiveLength(measured(1, 8))
    for _ in range(60):
        length.learn([(0.95, False)], 1, plain_round())
        length.learn([(0.15, True)], 1, plain_round())
    assert length.keep([0.95]) == 0
    assert length.keep([0.15]) == 1
    assert length.keep([0.55]) == 1  # another degree: nothing was said about it


def test_time_is_worth_more_where_rounds_bring_more() -> None:
    length = AdaptiveLength(measured(1, 8))
    assert length.rate == 1
    assert length.keep([0.35]) == 1  # 0.35 for 0.2
    for _ in range(200):
        length.learn([], 3, verified(3))  # 3 tokens in 1.4 passes
    assert length.rate == pytest.approx(3 / 1.4, rel=1e-3)
    assert length.keep([0.35]) == 0  # 0.2 passes bring 0.43 elsewhere


def test_a_draft_step_must_pay_too() -> None:
    length = AdaptiveLength(measured(1, 8))
    assert length.goes_on([], 4)
    for _ in range(40):
        length.learn([], 1, verified(2, 0.4))
    # 0.2 for verifying and 0.4 for drafting, and the mean token stands half of the time.
    assert not length.goes_on([], 4)
    assert length.keep([0.55]) == 1  # drafted already: only verifying is still to be paid


def test_the_first_draft_step_of_a_round_costs_what_it_does() -> None:
    """0.6 plain passes for the first step and 0.1 for each later one: where three tokens of four
    stand, one brings 0.75 for 0.8 and four 2.05 for 0.9 + 0.8; after them the first is paid."""
    length = AdaptiveLength(measured(1, 8))
    assert length.goes_on([], 1)
    for _ in range(200):
        stood = [(0.75, place % 4 > 0) for place in range(4)]
        length.learn(stood, 1, verified(3, 0.6, 0.1))
    length.learn([], 1, plain_round())
    assert not length.goes_on([], 1)
    assert length.goes_on([], 4)
    assert length.goes_on([0.75], 2)


def test_a_draft_step_that_was_held_up_says_little_and_is_forgotten() -> None:
    steps = DraftSteps()
    assert steps(0, 3) == 0  # nothing is known
    steps.learn([0.2, 0.1])
    assert steps(0, 3) == pytest.approx(0.4) and steps(1, 3) == pytest.approx(0.2)
    steps.learn([50.0])
    # It counts as twice the expected, and one step moves the level by two fifths.
    assert steps(0, 1) == pytest.approx(0.28) and steps(1, 2) == pytest.approx(0.1)
    for _ in range(35):
        steps.forget_a_little()
    assert steps(0, 1) < 0.28 / 2


def test_who_found_drafting_too_dear_tries_again() -> None:
    """Steps of a plain pass each bring nothing; some rounds later they may cost less."""
    length = AdaptiveLength(measured(1, 8))
    for _ in range(40):
        length.learn([], 1, verified(2, 1.0))
    assert not length.goes_on([], 4)
    for _ in range(100):
        length.learn([], 1, plain_round())
    assert length.goes_on([], 4)


def test_a_plain_pass_comes_once_in_a_while_so_that_costs_stay_comparable() -> None:
    length = AdaptiveLength(measured(1, 8))
    for _ in range(64):
        assert length.goes_on([], 2)
        length.learn([(0.95, True)], 2, verified(2))
    assert not length.goes_on([], 2)
    length.learn([], 1, plain_round())
    assert length.goes_on([], 2)


def test_who_stopped_drafting_tries_again() -> None:
    length = AdaptiveLength(measured(1, 8))
    for _ in range(100):
        length.learn([(0.55, False)], 1, verified(2))
    assert not length.goes_on([], 1)
    for _ in range(100):
        length.learn([], 1, plain_round())
    assert length.goes_on([], 1)


class TimedModel:
    """A model whose next token is told by the text so far, and whose passes take a known time."""

    def __init__(self, text: Sequence[int], step_s: float = PLAIN_S, slope: float = SLOPE) -> None:
        self.text, self.step_s, self.slope = text, step_s, slope
        self.vocab_size, self.capacity, self.length = 1000, 4096, 0
        self.stamps_ns = (0, 0)
        self.elapsed: list[float] = [0.0]  # shared by models that run one after the other
        self._next: list[int] = []

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> Any:
        self.length += len(tokens)
        t0_s = self.elapsed[0]
        self.elapsed[0] += self.step_s * (1 + self.slope * (len(tokens) - 1))
        self.stamps_ns = (round(t0_s * 1e9), round(self.elapsed[0] * 1e9))
        shown = len(tokens) if rows is None else rows
        self._next = [self.text[self.length - shown + 1 + row] for row in range(shown)]
        return np.zeros((shown, 1), np.float32)

    def rewind(self, length: int) -> None:
        self.length = length

    def token_ids(self, columns: Any) -> Any:
        return np.array(self._next)

    def clock(self) -> int:
        return round(self.elapsed[0] * 1e9)


def copied(index: int) -> list[int]:
    """Twelve tokens over and over: whatever is looked up stands."""
    return [100 * index + place % 12 for place in range(400)]


def thrown(index: int) -> list[int]:
    """Dice with twenty sides: all was seen before, and what followed it says nothing."""
    chooser = random.Random(index)
    return [chooser.randrange(20) for _ in range(400)]


TEXTS = [*map(copied, range(3)), *map(thrown, range(3))]


def tokens_per_pass(drafter: Drafter, draft_tokens: int, adaptive: bool) -> list[float]:
    """The rate in each text, in tokens a plain pass's time."""
    length = AdaptiveLength(measured(1, 2, 4, 8)) if adaptive else None
    rates = []
    for text in TEXTS:
        model = TimedModel(text)
        choices: dict[str, Any] = {"drafter": drafter, "draft_tokens": draft_tokens}
        steps = decode(
            model, text[:30], new_tokens=200, clock=model.clock, draft_length=length, **choices
        )
        t0_s = None
        for step in steps:
            if isinstance(step, FirstToken):
                t0_s = model.elapsed[0]
        assert t0_s is not None
        rates.append(199 * PLAIN_S / (model.elapsed[0] - t0_s))
    return rates


def test_adaptive_beats_every_fixed_length_over_mixed_texts() -> None:
    adaptive = tokens_per_pass(NgramDrafter(), 8, adaptive=True)
    assert min(adaptive) > 0.98  # where no draft pays it is plain decoding
    # 9 tokens in 1 + 8 x 0.2 passes
    assert adaptive[0] == pytest.approx(9 / 2.6, rel=0.1)
    mean = float(np.exp(np.log(adaptive).mean()))
    for draft_tokens in range(1, 9):
        fixed = tokens_per_pass(NgramDrafter(), draft_tokens, adaptive=False)
        assert mean > 1.05 * float(np.exp(np.log(fixed).mean()))


def test_a_model_that_drafts_gets_as_long_a_draft_as_pays() -> None:
    """A draft that is right and sure of it drafts as much as it may; one that never is, hardly."""
    text = thrown(0)
    for stands, expected in ((True, 6.0), (False, 0.0)):
        target = TimedModel(text)
        draft = TimedModel(text if stands else [0] * len(text), step_s=0.1 * PLAIN_S)
        draft.elapsed = target.elapsed
        steps: list[Step] = list(
            decode(
                target,
                text[:30],
                new_tokens=300,
                clock=target.clock,
                drafter=ModelDrafter(draft),
                draft_tokens=6,
                draft_length=AdaptiveLength(measured(1, 2, 4, 8)),
            )
        )
        rounds = [step for step in steps if isinstance(step, RoundDone)]
        later = rounds[len(rounds) // 2 :]
        mean = sum(step.drafted for step in later) / len(later)
        assert mean == pytest.approx(expected, abs=0.5)
