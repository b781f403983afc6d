"""Random tokens through a model: exactly as many as asked for, in passes that can be told apart."""

from typing import Any

import pytest

from edgeprof.errors import UsageFault
from edgeprof.runner.synthetic import synthetic_passes


def sizes(model: Any, **asked: int) -> list[tuple[int, int]]:
    """(tokens, context) of every pass."""
    asked = {"prompt_tokens": 0, "new_tokens": 0, "depth_tokens": 0, **asked}
    return [(run.tokens, run.context_tokens) for run in synthetic_passes(model, **asked)]


class Remembering:
    """What a RuleModel was fed, however it was rolled back."""

    def __init__(self, rule_model: Any) -> None:
        self.fed: list[int] = []
        self.model = rule_model(self._rule, vocab_size=1000, capacity=5000)

    def _rule(self, text: tuple[int, ...]) -> int:
        self.fed.append(text[-1])
        return 0


def test_r25_a_prompt_is_as_long_as_asked_in_passes_of_512(rule_model: Any) -> None:
    model = rule_model(lambda text: 0, capacity=5000)
    assert sizes(model, prompt_tokens=512) == [(512, 0)]
    assert sizes(model, prompt_tokens=1) == [(1, 0)]
    assert sizes(model, prompt_tokens=1025) == [(512, 0), (512, 512), (1, 1024)]
    assert model.length == 0


def test_tokens_are_fed_one_by_one_after_the_depth(rule_model: Any) -> None:
    model = rule_model(lambda text: 0, capacity=5000)
    assert sizes(model, new_tokens=3) == [(1, 0), (1, 1), (1, 2)]
    assert sizes(model, new_tokens=2, depth_tokens=600) == [(512, 0), (88, 512), (1, 600), (1, 601)]


def test_the_seed_fixes_the_tokens(rule_model: Any) -> None:
    fed = []
    for seed in (1, 1, 2):
        remembering = Remembering(rule_model)
        sizes(remembering.model, prompt_tokens=20, new_tokens=20, seed=seed)
        fed.append(remembering.fed)
    assert fed[0] == fed[1] != fed[2]
    assert len(set(fed[0])) > 30  # 40 of 1000 at random: fewer than 10 are drawn twice


def test_a_test_may_fill_the_cache_and_no_more(rule_model: Any) -> None:
    model = rule_model(lambda text: 0, capacity=10)
    assert len(sizes(model, new_tokens=4, depth_tokens=6)) == 1 + 4
    with pytest.raises(UsageFault, match="needs room for 11 tokens, the cache has 10"):
        sizes(model, prompt_tokens=5, depth_tokens=6)
