from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgeprof.errors import UsageFault
from edgeprof.runner.decode import Finished, FirstToken, PassDone, RoundDone, Step, decode
from edgeprof.runner.draft_length import AdaptiveLength, PassCost, RoundCost
from edgeprof.runner.drafters import GoesOn, ModelDrafter, NgramDrafter, Proposal
from edgeprof.runner.token_model import ModelRun


class FixedDrafter:
    """Proposes what the test wrote down, round by round."""

    def __init__(self, proposals: Sequence[Sequence[int]]) -> None:
        self.proposals = list(proposals)
        self.limits: list[int] = []

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        return []

    def propose(self, tokens: Sequence[int], limit: int, goes_on: GoesOn | None = None) -> Proposal:
        self.limits.append(limit)
        drafted = self.proposals.pop(0)[:limit] if self.proposals else []
        return Proposal(drafted, confidence=[0.95] * len(drafted))


def answer(steps: Sequence[Step]) -> list[int]:
    tokens = []
    for step in steps:
        if isinstance(step, FirstToken):
            tokens.append(step.token)
        elif isinstance(step, RoundDone):
            tokens += step.tokens
    return tokens


def rounds(steps: Sequence[Step]) -> list[RoundDone]:
    return [step for step in steps if isinstance(step, RoundDone)]


def stop_reason(steps: Sequence[Step]) -> str:
    assert isinstance(steps[-1], Finished)
    return steps[-1].reason


def count_up(text: tuple[int, ...]) -> int:
    return text[-1] + 1


def test_plain_decoding_step_by_step(rule_model: Any, ticks: Callable[[], int]) -> None:
    model = rule_model(count_up)
    steps = list(decode(model, [1, 2], new_tokens=3, clock=ticks))
    assert answer(steps) == [3, 4, 5]
    assert steps[0] == PassDone("target", "prefill", ModelRun(2, 0, 1, 2))
    assert steps[1] == FirstToken(3, 1)
    assert steps[2] == PassDone("target", "decode", ModelRun(1, 2, 3, 4))
    assert steps[3] == RoundDone(0, 0, 0, [4], ["plain"], 2, 3)
    assert steps[-1] == Finished("new_tokens", 6)
    assert model.passes == [2, 1, 1]


def test_a_long_prompt_goes_in_by_passes_and_the_answer_is_the_same(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    def total(text: tuple[int, ...]) -> int:  # no token of the text may be lost
        return sum((place + 1) * token for place, token in enumerate(text))

    prompt = [3, 1, 4, 1, 5, 9, 2]
    whole = answer(list(decode(rule_model(total), prompt, new_tokens=4, clock=ticks)))
    target, draft = rule_model(total), rule_model(total)
    steps = list(
        decode(
            target,
            prompt,
            new_tokens=4,
            clock=ticks,
            drafter=ModelDrafter(draft, prefill_tokens=3),
            draft_tokens=2,
            prefill_tokens=4,
        )
    )
    prefills = [s for s in steps if isinstance(s, PassDone) and s.phase == "prefill"]
    assert [(s.role, s.run.tokens, s.run.context_tokens) for s in prefills] == [
        ("target", 4, 0), ("target", 3, 4), ("draft", 3, 0), ("draft", 3, 3), ("draft", 1, 6),
    ]  # fmt: skip
    assert isinstance(steps[5], FirstToken)
    assert answer(steps) == whole


def test_a_round_in_which_all_drafted_tokens_stand(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    model = rule_model(count_up)
    drafter = FixedDrafter([[4, 5]])
    steps = list(decode(model, [1, 2], new_tokens=4, clock=ticks, drafter=drafter, draft_tokens=2))
    assert answer(steps) == [3, 4, 5, 6]
    (only,) = rounds(steps)
    assert (only.drafted, only.evaluated, only.accepted) == (2, 2, 2)
    assert only.origins == ["accepted", "accepted", "bonus"]
    assert model.passes == [2, 3]


def test_a_round_with_a_correction_rolls_the_cache_back(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    model = rule_model(count_up)
    drafter = FixedDrafter([[4, 9, 9]])
    steps = list(decode(model, [1, 2], new_tokens=6, clock=ticks, drafter=drafter, draft_tokens=3))
    first = rounds(steps)[0]
    assert (first.drafted, first.evaluated, first.accepted) == (3, 2, 1)
    assert first.tokens == [4, 5]
    assert first.origins == ["accepted", "corrected"]
    assert answer(steps) == [3, 4, 5, 6, 7, 8]
    assert model.cached == [1, 2, 3, 4, 5, 6, 7]  # the last token is never fed


def test_no_proposal_is_a_plain_pass(rule_model: Any, ticks: Callable[[], int]) -> None:
    steps = list(
        decode(
            rule_model(count_up),
            [1],
            new_tokens=2,
            clock=ticks,
            drafter=FixedDrafter([]),
            draft_tokens=4,
        )
    )
    (only,) = rounds(steps)
    assert (only.drafted, only.origins) == (0, ["plain"])
    assert [step.phase for step in steps if isinstance(step, PassDone)] == ["prefill", "decode"]


def test_R18_R30_the_draft_is_clamped_to_the_answer_and_the_cache(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    drafter = FixedDrafter([[3, 4, 5, 6, 7, 8]] * 9)
    model = rule_model(count_up, capacity=6)
    steps = list(decode(model, [1], new_tokens=100, clock=ticks, drafter=drafter, draft_tokens=6))
    # One token cached and 2 known; a pass of 1 + 4 fills the six slots.
    assert drafter.limits == [4]
    assert answer(steps) == [2, 3, 4, 5, 6, 7]
    assert stop_reason(steps) == "context_end"
    short = FixedDrafter([[3, 4, 5, 6]])
    steps = list(
        decode(rule_model(count_up), [1], new_tokens=3, clock=ticks, drafter=short, draft_tokens=4)
    )
    assert short.limits == [1]  # three tokens: the first, one drafted, one of the target's own
    assert answer(steps) == [2, 3, 4]


def test_R20_R21_an_end_token_cuts_an_accepted_run_and_the_counts(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    drafter = FixedDrafter([[3, 4, 5]])
    steps = list(
        decode(
            rule_model(count_up),
            [1],
            new_tokens=10,
            clock=ticks,
            drafter=drafter,
            draft_tokens=3,
            end_tokens=frozenset({4, 12}),
        )
    )
    (only,) = rounds(steps)
    assert only.tokens == [3, 4]
    assert (only.drafted, only.evaluated, only.accepted) == (3, 2, 2)
    assert only.origins == ["accepted", "accepted"]
    assert answer(steps) == [2, 3, 4]
    assert stop_reason(steps) == "end_token"


def test_what_follows_an_end_token_was_never_looked_at(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    # 3 and 4 stand; the 9 behind the end token would have been rejected
    model, drafter = rule_model(count_up), FixedDrafter([[3, 4, 9]])
    ends = frozenset({4})
    choices: dict[str, Any] = {"drafter": drafter, "draft_tokens": 3, "end_tokens": ends}
    (only,) = rounds(list(decode(model, [1], new_tokens=10, clock=ticks, **choices)))
    assert only.tokens == [3, 4]
    assert (only.drafted, only.evaluated, only.accepted) == (3, 2, 2)


def test_an_end_token_as_the_first_token(rule_model: Any, ticks: Callable[[], int]) -> None:
    steps = list(
        decode(rule_model(count_up), [1], new_tokens=9, clock=ticks, end_tokens=frozenset({2}))
    )
    assert answer(steps) == [2]
    assert rounds(steps) == []


def test_R24_an_empty_prompt_is_refused(rule_model: Any, ticks: Callable[[], int]) -> None:
    with pytest.raises(UsageFault, match="no tokens"):
        next(decode(rule_model(count_up), [], new_tokens=1, clock=ticks))


def test_a_prompt_longer_than_the_cache_is_refused(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    with pytest.raises(UsageFault, match="5 tokens, more than the 4"):
        next(decode(rule_model(count_up, capacity=4), [1] * 5, new_tokens=1, clock=ticks))


def test_R26_a_prompt_of_token_0_is_a_prompt(rule_model: Any, ticks: Callable[[], int]) -> None:
    assert answer(list(decode(rule_model(count_up), [0], new_tokens=2, clock=ticks))) == [1, 2]


def test_R41_a_model_that_drafts_for_itself_is_always_right(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    def rule(text: tuple[int, ...]) -> int:
        return sum(text) * 7 + len(text)

    steps = list(
        decode(
            rule_model(rule),
            [3, 1],
            new_tokens=25,
            clock=ticks,
            drafter=ModelDrafter(rule_model(rule)),
            draft_tokens=3,
        )
    )
    assert all(step.accepted == step.drafted == 3 for step in rounds(steps))


class Told(AdaptiveLength):
    """Keeps one token, and what it was told."""

    def __init__(self) -> None:
        super().__init__(PassCost())
        self.heard: list[tuple[list[tuple[float, bool]], int, RoundCost]] = []

    def keep(self, confidence: Sequence[float]) -> int:
        return 1

    def learn(self, stood: Sequence[tuple[float, bool]], emitted: int, cost: RoundCost) -> None:
        self.heard.append((list(stood), emitted, cost))


def test_an_adaptive_length_verifies_what_pays_and_hears_what_became_of_the_rest(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    told = Told()
    # After 1 2 and the first token 3: 4 stands, and 5, not verified, would have stood; then 6 is
    # wrong for 6 7, whose second token nobody can judge; then nothing is drafted.
    drafter = FixedDrafter([[4, 5, 9], [9, 7], []])
    steps = list(
        decode(
            rule_model(count_up),
            [1, 2],
            new_tokens=5,
            clock=ticks,
            drafter=drafter,
            draft_tokens=3,
            draft_length=told,
        )
    )
    assert answer(steps) == [3, 4, 5, 6, 7]
    assert [(step.drafted, step.accepted) for step in rounds(steps)] == [(1, 1), (1, 0), (0, 0)]
    assert [(stood, emitted) for stood, emitted, _ in told.heard] == [
        ([(0.95, True), (0.95, True)], 2),
        ([(0.95, False)], 1),
        ([], 1),
    ]
    assert [cost.verify_tokens for _, _, cost in told.heard] == [2, 2, 1]
    # The clock ticks once a call, at the start and at the end of a round.
    assert [cost.verify_s for _, _, cost in told.heard] == pytest.approx([1e-9] * 3)
    assert all(cost.draft_s == [] for _, _, cost in told.heard)


@settings(max_examples=300)
@given(
    seed=st.integers(0, 1000),
    draft_seed=st.integers(0, 3),
    prompt=st.lists(st.integers(0, 7), min_size=1, max_size=8),
    draft_tokens=st.integers(0, 6),
    new_tokens=st.integers(1, 30),
    capacity=st.integers(8, 40),
    ends=st.frozensets(st.integers(0, 7), max_size=1),
    kind=st.sampled_from(["model", "ngram"]),
    adaptive=st.booleans(),
    pass_ns=st.lists(st.integers(0, 10**9), min_size=1, max_size=8),
)
def test_speculative_greedy_output_is_plain_greedy_output(
    rule_model: Any,
    seed: int,
    draft_seed: int,
    prompt: list[int],
    draft_tokens: int,
    new_tokens: int,
    capacity: int,
    ends: frozenset[int],
    kind: str,
    adaptive: bool,
    pass_ns: list[int],
) -> None:
    """For any target, any draft (often right, often wrong), any limits and whatever passes take;
    same stop, too."""
    now, longer = 0, cycle(pass_ns)

    def clock() -> int:
        nonlocal now
        now += next(longer)
        return now

    def rule(text: tuple[int, ...]) -> int:
        return hash((seed, text[-3:])) % 8

    def draft_rule(text: tuple[int, ...]) -> int:
        return rule(text) if hash((draft_seed, text)) % 3 else 0

    def run(drafter: Any) -> list[Step]:
        return list(
            decode(
                rule_model(rule, vocab_size=8, capacity=capacity),
                prompt,
                new_tokens=new_tokens,
                clock=clock,
                drafter=drafter,
                draft_tokens=draft_tokens,
                draft_length=AdaptiveLength() if adaptive and drafter is not None else None,
                end_tokens=ends,
            )
        )

    draft = rule_model(draft_rule, vocab_size=8, capacity=capacity)
    speculative = run(ModelDrafter(draft) if kind == "model" else NgramDrafter())
    plain = run(None)
    assert answer(speculative) == answer(plain)
    assert stop_reason(speculative) == stop_reason(plain)
    for step in rounds(speculative):
        assert step.accepted <= step.evaluated <= step.drafted <= draft_tokens
        assert len(step.tokens) in (step.accepted, step.accepted + 1)


def test_r40_no_new_tokens_is_an_answer_too(rule_model: Any, ticks: Callable[[], int]) -> None:
    target, draft = rule_model(count_up), rule_model(count_up)
    steps = list(
        decode(
            target, [1, 2], new_tokens=0, clock=ticks, drafter=ModelDrafter(draft), draft_tokens=2
        )
    )
    assert answer(steps) == [] and stop_reason(steps) == "new_tokens"
    assert [(step.role, step.phase) for step in steps if isinstance(step, PassDone)] == [
        ("target", "prefill"), ("draft", "prefill"),
    ]  # fmt: skip


def test_r18_a_draft_of_five_at_4092_of_4096_is_cut_to_what_fits(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    model = rule_model(lambda text: 3, capacity=4096)
    drafter = FixedDrafter([[3] * 5] * 9)
    prompt = [3] * 4092
    steps = list(decode(model, prompt, new_tokens=50, clock=ticks, drafter=drafter, draft_tokens=5))
    # the known token and three drafted fill the cache; the last token is never fed
    assert drafter.limits == [3] and [step.accepted for step in rounds(steps)] == [3]
    assert len(answer(steps)) == 5 and stop_reason(steps) == "context_end"
    assert model.length == 4096


def test_r17_a_draft_that_ends_at_2048_leaves_the_rest_to_the_target(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    target = rule_model(lambda text: 3, capacity=4096)
    draft = rule_model(lambda text: 3, capacity=2048)
    steps = list(
        decode(
            target, [3] * 2040, new_tokens=50, clock=ticks, drafter=ModelDrafter(draft),
            draft_tokens=4,
        )
    )  # fmt: skip
    assert len(answer(steps)) == 50
    drafted = [step.drafted for step in rounds(steps)]
    # It takes in the 2041st token and three of its four, then the 2045th and 2046th (the last of
    # its own and the bonus) and two of its three: 2048.
    assert drafted[:2] == [4, 3] and set(drafted[2:]) == {0}


def test_r20_an_end_token_inside_an_accepted_run_ends_the_answer(
    rule_model: Any, ticks: Callable[[], int]
) -> None:
    follow = {1: 5, 5: 6, 6: 2, 2: 7, 7: 8}  # 2 is the end token
    drafter = FixedDrafter([[6, 2, 7, 8]])
    model = rule_model(lambda text: follow.get(text[-1], 0))
    steps = list(
        decode(
            model, [1], new_tokens=20, clock=ticks, drafter=drafter, draft_tokens=4,
            end_tokens=frozenset({2}),
        )
    )  # fmt: skip
    (only,) = rounds(steps)
    assert answer(steps) == [5, 6, 2] and stop_reason(steps) == "end_token"
    assert (only.accepted, only.evaluated, only.tokens) == (2, 2, [6, 2])
