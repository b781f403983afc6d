"""What options make of a recipe."""

import pytest

from edgeprof.errors import FileFault, UsageFault
from edgeprof.profiling.selection import select
from edgeprof.recipe import Recipe, Sampling, Variant, override


def names(recipe: Recipe) -> list[str]:
    return [variant.name for variant in recipe.variants]


def test_nothing_asked_changes_nothing(recipe: Recipe) -> None:
    assert select(recipe) == recipe


def test_a_draft_length_holds_for_all_and_doubles_are_run_once(recipe: Recipe) -> None:
    both = [*recipe.variants, Variant(target="t", drafter="d", draft_tokens=5)]
    chosen = select(override(recipe, variants=both), draft_tokens=4)
    assert names(chosen) == ["t+d k=4", "t", "t+ngram k=4"]


def test_r30_draft_length_0_is_plain_decoding_without_the_draft_loaded(recipe: Recipe) -> None:
    chosen = select(recipe, draft_tokens=0)
    assert names(chosen) == ["t"] and chosen.drafters == {}
    with pytest.raises(UsageFault, match="no plain variant is left"):
        select(recipe, variants=["t+d"], draft_tokens=0)


@pytest.mark.parametrize("name", ["t+d", "t+d k=2"])
def test_variants_are_named_with_or_without_k(recipe: Recipe, name: str) -> None:
    chosen = select(recipe, variants=[name])
    assert names(chosen) == ["t+d k=2"] and list(chosen.drafters) == ["d"]


def test_an_unknown_variant_is_answered_with_the_nearest(recipe: Recipe) -> None:
    with pytest.raises(UsageFault, match=r"no variant named 't\+ngam'; did you mean 't\+ngram'"):
        select(recipe, variants=["t+ngam"])


def test_numbers_prompts_and_threads_are_replaced(recipe: Recipe) -> None:
    chosen = select(recipe, prompts=["hi"], new_tokens=5, repeats=1, threads=3)
    assert [prompt.text for prompt in chosen.prompts] == ["hi"]
    assert (chosen.new_tokens, chosen.repeats, chosen.targets["t"].threads) == (5, 1, 3)


def test_sampling_is_changed_key_by_key(recipe: Recipe) -> None:
    hot = override(recipe, sampling=Sampling(temperature=0.7, top_k=20))
    chosen = select(hot, temperature=None, top_k=0, top_p=0.5, min_p=None, seed=3)
    assert chosen.sampling == Sampling(temperature=0.7, top_k=0, top_p=0.5)
    assert chosen.seed == 3
    with pytest.raises(FileFault, match="top_p is nan, allowed is above 0 and up to 1"):
        select(recipe, top_p=float("nan"))
