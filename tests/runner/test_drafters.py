from typing import Any

import pytest

from edgeprof.runner.drafters import ModelDrafter, NgramDrafter, Proposal


def test_ngram_proposes_what_followed_the_longest_repeated_ending() -> None:
    drafter = NgramDrafter(longest=3, shortest=1)
    drafter.start([])
    # ... 1 2 3 was followed by 4 5; the shorter ending 2 3 was last followed by 9.
    text = [1, 2, 3, 4, 5, 7, 2, 3, 9, 1, 2, 3]
    assert drafter.propose(text, 2) == Proposal([4, 5])


def test_ngram_takes_the_last_occurrence() -> None:
    drafter = NgramDrafter(longest=2, shortest=2)
    drafter.start([])
    assert drafter.propose([1, 2, 3, 1, 2, 4, 1, 2], 1) == Proposal([4])


def test_ngram_of_one_token_proposes_one_token_only() -> None:
    drafter = NgramDrafter(longest=3, shortest=1)
    drafter.start([])
    assert drafter.propose([5, 6, 7, 8, 5], 4) == Proposal([6])


def test_ngram_without_a_match_proposes_nothing() -> None:
    drafter = NgramDrafter(longest=3, shortest=2)
    drafter.start([])
    assert drafter.propose([1, 2, 3], 4) == Proposal()


def test_ngram_index_grows_with_the_text_and_forgets_at_a_new_prompt() -> None:
    drafter = NgramDrafter(longest=2, shortest=2)
    drafter.start([])
    assert drafter.propose([1, 2, 3], 4) == Proposal()
    assert drafter.propose([1, 2, 3, 1, 2], 4) == Proposal([3, 1, 2])
    drafter.start([])
    assert drafter.propose([1, 2], 4) == Proposal()


def test_ngram_lengths_are_checked() -> None:
    with pytest.raises(ValueError, match="shortest"):
        NgramDrafter(longest=1, shortest=2)


def test_model_drafter_feeds_what_it_has_not_seen_and_drafts_greedily(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    prefill = drafter.start([3, 4])
    assert [(run.tokens, run.context_tokens) for run in prefill] == [(2, 0)]
    drafted, runs, _ = drafter.propose([3, 4, 7], 3)
    assert drafted == [8, 9, 10]
    assert [(run.tokens, run.context_tokens) for run in runs] == [(1, 2), (1, 3), (1, 4)]
    assert model.cached == [3, 4, 7, 8, 9]  # the last proposal was never fed


def test_model_drafter_cuts_back_rejected_tokens(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    drafter.start([3])
    drafter.propose([3, 7], 3)  # 8 9 10
    drafted, runs, _ = drafter.propose([3, 7, 8, 2], 2)  # 8 stood, 9 became 2
    assert drafted == [3, 4]
    assert [(run.tokens, run.context_tokens) for run in runs] == [(1, 3), (1, 4)]
    assert model.cached == [3, 7, 8, 2, 3]


def test_model_drafter_feeds_two_tokens_after_a_round_that_accepted_all(rule_model: Any) -> None:
    model = rule_model(lambda text: text[-1] + 1)
    drafter = ModelDrafter(model)
    drafter.start([3])
    drafter.propose([3, 7], 2)  # 8 9, of which 9 was not fed
    _, runs, _ = drafter.propose([3, 7, 8, 9, 10], 1)
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
    drafted, _, _ = drafter.propose([1, 2, 3], 8)
    assert drafted == [4, 5]  # fed 3 and 4: four tokens fill the cache
    assert drafter.propose([1, 2, 3, 4, 5, 6], 8).tokens == []
