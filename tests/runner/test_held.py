from typing import Any

import pytest

from edgeprof.errors import UsageFault
from edgeprof.runner.held import held_passes


def test_every_size_is_run_as_often_at_the_same_depth(rule_model: Any) -> None:
    model = rule_model(lambda text: 0)
    runs = list(held_passes(model, [1, 2, 4], context_tokens=10, repeats=5))
    sizes = [run.tokens for run in runs]
    assert {size: sizes.count(size) for size in sizes} == {1: 5, 2: 5, 4: 5}
    assert {run.context_tokens for run in runs} == {10}
    # The prefill, two warm-up rounds and five counted ones.
    assert len(model.passes) == 1 + 3 * (2 + 5)
    assert model.length == 0


def test_each_round_runs_each_size_once_and_the_order_follows_the_seed(rule_model: Any) -> None:
    def order(seed: int) -> list[int]:
        model = rule_model(lambda text: 0)
        runs = held_passes(model, [1, 2, 3, 4], context_tokens=4, repeats=6, seed=seed)
        return [run.tokens for run in runs]

    assert all(sorted(order(1)[i : i + 4]) == [1, 2, 3, 4] for i in range(0, 24, 4))
    assert order(1) == order(1)
    assert order(1) != order(2)


def test_a_cache_that_is_too_small_is_named(rule_model: Any) -> None:
    with pytest.raises(UsageFault, match="60 \\+ 8 tokens, the cache has 64"):
        next(held_passes(rule_model(lambda text: 0), [1, 8], context_tokens=60, repeats=1))
