"""The order of the legs, and their number."""

from msgspec.structs import replace

from edgeprof.profiling.schedule import leg_count, model_drafters, variant_order
from edgeprof.recipe import Recipe


def test_plain_comes_first_then_the_order_turns(recipe: Recipe) -> None:
    names = [[v.name for v in variant_order(recipe.variants, turn)] for turn in (0, 1, 2, 3)]
    assert names[0] == ["t", "t+d k=2", "t+ngram k=3"]
    assert names[1] == ["t+d k=2", "t+ngram k=3", "t"]
    assert names[2] == ["t+ngram k=3", "t", "t+d k=2"]
    assert names[3] == names[0]


def test_legs_are_counted_by_hand(recipe: Recipe) -> None:
    # one check; one held leg of the target and one of the draft; three variants x
    # (a warm-up + two repeats of two prompts)
    assert model_drafters(recipe) == ["d"]
    assert leg_count(recipe) == 1 + 2 + 3 * (1 + 4)
    assert leg_count(replace(recipe, verify_tokens=[], warmup_requests=0)) == 1 + 3 * 4
