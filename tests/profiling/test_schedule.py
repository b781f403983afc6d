"""The order of the legs, and their number."""

from msgspec.structs import replace

from edgeprof.profiling.schedule import (
    leg_count,
    model_drafters,
    order_of_tests,
    variant_order,
)
from edgeprof.recipe import Recipe, SyntheticTest


def test_plain_comes_first_then_the_order_turns(recipe: Recipe) -> None:
    names = [[v.name for v in variant_order(recipe.variants, turn)] for turn in (0, 1, 2, 3)]
    assert names[0] == ["t", "t+d k=2", "t+ngram k=3"]
    assert names[1] == ["t+d k=2", "t+ngram k=3", "t"]
    assert names[2] == ["t+ngram k=3", "t", "t+d k=2"]
    assert names[3] == names[0]


def test_legs_are_counted_by_hand(recipe: Recipe) -> None:
    # a check and a held leg of the target and of the draft; three variants x
    # (a warm-up + two repeats of two prompts)
    assert model_drafters(recipe) == ["d"]
    assert leg_count(recipe) == 2 + 2 + 3 * (1 + 4)
    assert leg_count(replace(recipe, verify_tokens=[], warmup_requests=0)) == 2 + 3 * 4


def test_tests_are_legs_of_every_target_and_no_prompt_no_warm_up_of_variants(
    recipe: Recipe,
) -> None:
    pp, tg = SyntheticTest(prompt_tokens=8), SyntheticTest(new_tokens=4)
    two = replace(recipe, targets={"t": recipe.targets["t"], "u": recipe.targets["t"]})
    tested = replace(two, prompts=[], tests=[pp, tg], verify_tokens=[])
    # a check of t, u and d; two tests x two targets x (a warm-up + two repeats)
    assert leg_count(tested) == 3 + 2 * 2 * (1 + 2)
    assert leg_count(replace(tested, warmup_requests=0)) == 3 + 2 * 2 * 2


def test_tests_turn_with_every_repeat(recipe: Recipe) -> None:
    tests = [SyntheticTest(prompt_tokens=8), SyntheticTest(new_tokens=4)]
    tested = replace(recipe, tests=tests)
    names = [[test.name for test, _ in order_of_tests(tested, repeat)] for repeat in range(4)]
    assert names == [["pp8", "tg4"], ["pp8", "tg4"], ["tg4", "pp8"], ["pp8", "tg4"]]
    assert order_of_tests(recipe, 3) == []
