from typing import Any

import numpy as np
import pytest

from edgeprof.recipe import Sampling
from edgeprof.runner.drafters import ModelDrafter, NgramDrafter, ngram_confidence
from edgeprof.runner.sampling import Dice, Sampler


def test_ngram_proposes_what_followed_the_longest_repeated_ending() -> None:
    drafter = NgramDrafter(longest=3, shortest=1)
    drafter.start([])
    # ... 1 2 3 was followed by 4 5; the shorter ending 2 3 was last followed by 9.
    text = [1, 2, 3, 4, 5, 7, 2, 3, 9, 1, 2, 3]
    assert drafter.propose(text, 2).tokens == [4, 5]


def test_ngram_takes_the_last_occurrence() -> None:
    drafter = NgramDrafter(longest=2, shortest=2)
    drafter.start([])
    assert drafter.propose([1, 2, 3, 1, 2, 4, 1, 2], 1).tokens == [4]


def test_ngram_of_one_token_proposes_one_token_only() -> None:
    drafter = NgramDrafter(longest=3, shortest=1)
    drafter.start([])
    assert drafter.propose([5, 6, 7, 8, 5], 4).tokens == [6]


def test_ngram_without_a_match_proposes_nothing() -> None:
    drafter = NgramDrafter(longest=3, shortest=2)
    drafter.start([])
    assert drafter.propose([1, 2, 3], 4).tokens == []


def test_ngram_index_grows_with_the_text_and_forgets_at_a_new_prompt() -> None:
    drafter = NgramDrafter(longest=2, shortest=2)
    drafter.start([])
    assert drafter.propose([1, 2, 3], 4).tokens == []
    assert drafter.propose([1, 2, 3, 1, 2], 3).tokens == [3, 1, 2]
    drafter.start([])
    assert drafter.propose([1, 2], 4).tokens == []


def test_ngram_looks_up_again_where_the_text_it_copies_ends() -> None:
    drafter = NgramDrafter(longest=2, shortest=2)
    drafter.start([])
    # 1 2 was followed by 3 1 2, where the text ends; with them behind it 1 2 is looked up again.
    assert drafter.propose([1, 2, 3, 1, 2], 8).tokens == [3, 1, 2, 3, 1, 2, 3, 1]


def test_ngram_is_surer_of_longer_matches_and_of_what_came_more_often() -> None:
    assert ngram_confidence(1, 1) < ngram_confidence(2, 1) < ngram_confidence(4, 1)
    assert ngram_confidence(2, 1) < ngram_confidence(2, 2) < ngram_confidence(2, 5) < 1
    assert ngram_confidence(8, 1) == ngram_confidence(800, 1)
    drafter = NgramDrafter(longest=2, shortest=1)
    drafter.start([])
    # 2 followed 1 twice in a row; 1 2 was followed by 3, then by 4.
    proposal = drafter.propose([1, 2, 3, 1, 2, 4, 1], 8)
    assert proposal.tokens == [2]
    assert proposal.confidence == [ngram_confidence(1, 2)]
    # 9 8 7 1 2 matches five tokens long though only two are looked up, and one more each time.
    drafter.start([])
    proposal = drafter.propose([9, 8, 7, 1, 2, 5, 6, 9, 8, 7, 1, 2], 2)
    assert proposal.tokens == [5, 6]
    assert proposal.confidence == [ngram_confidence(5, 1), ngram_confidence(6, 1)]


def test_ngram_limits_by_context_and_confidence() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    near = NgramDrafter(longest=2, shortest=2, context_tokens=7)
    near.start([])
    assert near.propose(text, 2).tokens == []  # the 3 stands 8 back from the end
    far = NgramDrafter(longest=2, shortest=2, context_tokens=8)
    far.start([])
    assert far.propose(text, 2).tokens == [3, 4]
    careful = NgramDrafter(least_confidence=ngram_confidence(2, 1) + 0.01)
    careful.start([])
    assert careful.propose(text, 2).tokens == []


def test_ngram_lengths_are_checked() -> None:
    with pytest.raises(ValueError, match="shortest"):
        NgramDrafter(longest=1, shortest=2)


def test_model_drafter_feeds_what_it_has_not_seen_and_drafts_greedily(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    prefill = drafter.start([3, 4])
    assert [(run.tokens, run.context_tokens) for run in prefill] == [(2, 0)]
    drafted, runs, *_ = drafter.propose([3, 4, 7], 3)
    assert drafted == [8, 9, 10]
    assert [(run.tokens, run.context_tokens) for run in runs] == [(1, 2), (1, 3), (1, 4)]
    assert model.cached == [3, 4, 7, 8, 9]  # the last proposal was never fed


def test_model_drafter_cuts_back_rejected_tokens(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    drafter.start([3])
    drafter.propose([3, 7], 3)  # 8 9 10
    drafted, runs, *_ = drafter.propose([3, 7, 8, 2], 2)  # 8 stood, 9 became 2
    assert drafted == [3, 4]
    assert [(run.tokens, run.context_tokens) for run in runs] == [(1, 3), (1, 4)]
    assert model.cached == [3, 7, 8, 2, 3]


def test_model_drafter_feeds_two_tokens_after_a_round_that_accepted_all(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    drafter.start([3])
    drafter.propose([3, 7], 2)  # 8 9, of which 9 was not fed
    _, runs, *_ = drafter.propose([3, 7, 8, 9, 10], 1)
    assert [(run.tokens, run.context_tokens) for run in runs] == [(2, 3)]


def test_a_token_that_agrees_again_behind_a_rejected_one_is_not_kept(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    drafter.start([3])
    drafter.propose([3, 7], 4)  # cached: 3 7 8 9 10
    drafter.propose([3, 7, 5, 9, 10, 11], 1)  # the text took another way at position 2
    assert model.cached == [3, 7, 5, 9, 10, 11]


def test_R17_a_draft_with_a_shorter_context_stops_drafting(rule_model: Any) -> None:
    drafter = ModelDrafter(rule_model(lambda text: text[-1] + 1, capacity=4))
    drafter.start([1, 2])
    drafted, *_ = drafter.propose([1, 2, 3], 8)
    assert drafted == [4, 5]  # fed 3 and 4: four tokens fill the cache
    assert drafter.propose([1, 2, 3, 4, 5, 6], 8).tokens == []


def test_r17_a_text_that_fills_the_draft_s_cache_is_not_even_read(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1, capacity=4)
    drafter = ModelDrafter(model)
    assert drafter.start([1, 2, 3, 4]) == []
    assert drafter.propose([1, 2, 3, 4, 5], 8).tokens == []
    assert model.passes == []
    drafter.start([1, 2, 3])
    assert drafter.propose([1, 2, 3, 4], 8).tokens == [5]


class TwoTokens:
    """Says token 5 with probability ``sure`` after an odd number of cached tokens, else with 0.5,
    and token 6 otherwise."""

    vocab_size, capacity, stamps_ns = 16, 64, (0, 0)

    def __init__(self, sure: float) -> None:
        self.sure = sure
        self.length = 0

    def extend(self, tokens: Any, rows: Any = None) -> Any:
        self.length += len(tokens)
        share = self.sure if self.length % 2 else 0.5
        return np.log(np.array([[share, 1 - share]], np.float32))

    def rewind(self, length: int) -> None:
        self.length = length

    def token_ids(self, columns: Any) -> Any:
        return columns + 5


@pytest.mark.parametrize("drawn", [False, True])
def test_a_model_drafts_no_token_of_which_it_is_not_sure(drawn: bool) -> None:
    model = TwoTokens(0.9)
    dice = Dice(np.random.default_rng(0))
    sampler = Sampler(model, Sampling(temperature=1), dice, vocabulary=16, name="draft")
    for least, expected in ((0.95, 0), (0.6, 1), (0.4, 4)):
        drafter = ModelDrafter(model, sampler if drawn else None, least_confidence=least)
        drafter.start([1, 1])
        proposal = drafter.propose([1, 1, 1], 4)
        assert len(proposal.tokens) == expected
        assert len(proposal.drawn_from) == (expected if drawn else 0)
        # The step that found out is one that was run.
        assert len(proposal.runs) == min(expected + 1, 4)
        assert proposal.confidence == pytest.approx([0.9, 0.5, 0.9, 0.5][:expected])


def test_a_model_is_asked_before_every_step_whether_it_pays() -> None:
    drafter = ModelDrafter(TwoTokens(0.9))
    drafter.start([1, 1])
    asked: list[list[float]] = []

    def goes_on(confidence: Any) -> bool:
        asked.append(list(confidence))
        return len(confidence) < 2

    assert len(drafter.propose([1, 1, 1], 4, goes_on).tokens) == 2
    assert asked == [[], pytest.approx([0.9]), pytest.approx([0.9, 0.5])]
    assert drafter.propose([1, 1, 1], 4, lambda confidence: False).tokens == []


def test_confidence_is_not_worked_out_where_nobody_asks() -> None:
    drafter = ModelDrafter(TwoTokens(0.9))
    drafter.start([1, 1])
    assert drafter.propose([1, 1, 1], 4).confidence == []
