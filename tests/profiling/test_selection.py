"""What options make of a recipe."""

import pytest
from msgspec.structs import replace

from edgeprof.errors import FileFault, UsageFault
from edgeprof.profiling.selection import select, synthetic_tests
from edgeprof.recipe import Prompt, Recipe, Sampling, SyntheticTest, Variant, override


def names(recipe: Recipe) -> list[str]:
    return [variant.name for variant in recipe.variants]


def test_nothing_asked_changes_nothing(recipe: Recipe) -> None:
    assert select(recipe) == recipe


def test_a_draft_length_holds_for_all_and_doubles_are_run_once(recipe: Recipe) -> None:
    both = [*recipe.variants, Variant(target="t", drafter="d", draft_tokens=5)]
    chosen = select(override(recipe, variants=both), draft_tokens=[4])
    assert names(chosen) == ["t+d k=4", "t", "t+ngram k=4"]


def test_r30_draft_length_0_is_plain_decoding_without_the_draft_loaded(recipe: Recipe) -> None:
    chosen = select(recipe, draft_tokens=[0])
    assert names(chosen) == ["t"] and chosen.drafters == {}
    with pytest.raises(UsageFault, match="no plain variant is left"):
        select(recipe, variants=["t+d"], draft_tokens=[0])


def test_several_lengths_are_variants_of_their_own(recipe: Recipe) -> None:
    chosen = select(recipe, draft_tokens=[0, 1, 3])
    assert names(chosen) == ["t+d k=1", "t+d k=3", "t", "t+ngram k=1", "t+ngram k=3"]
    # 1, 2 and 4 were held anyway; three drafted tokens are verified by a pass over four
    assert chosen.verify_tokens == [1, 2, 4]
    assert select(recipe, draft_tokens=[2, 6]).verify_tokens == [1, 2, 3, 4, 7]
    bare = override(recipe, verify_tokens=[])
    assert select(bare, draft_tokens=[2, 6]).verify_tokens == []


def test_a_length_may_be_the_longest_of_those_that_pay(recipe: Recipe) -> None:
    assert names(select(recipe, draft_tokens=[8], adaptive=True)) == [
        "t+d k=0-8", "t", "t+ngram k=0-8",
    ]  # fmt: skip
    assert names(select(recipe, adaptive=True)) == ["t+d k=0-2", "t", "t+ngram k=0-3"]
    assert names(select(recipe, draft_tokens=[0], adaptive=True)) == ["t"]
    already = [replace(variant, adaptive=True) for variant in recipe.variants if variant.drafter]
    assert select(override(recipe, variants=already)).variants == already


def test_limits_of_drafters_hold_for_all_of_them(recipe: Recipe) -> None:
    chosen = select(recipe, draft_context=64, draft_confidence=0.4)
    for key in ("d", "ngram"):
        drafter = chosen.drafters[key]
        assert (drafter.context_tokens, drafter.least_confidence) == (64, 0.4)
    assert select(chosen, draft_confidence=0.0).drafters["d"].least_confidence == 0
    with pytest.raises(FileFault, match="least_confidence"):
        select(recipe, draft_confidence=1.5)


@pytest.mark.parametrize("name", ["t+d", "t+d k=2"])
def test_variants_are_named_with_or_without_k(recipe: Recipe, name: str) -> None:
    chosen = select(recipe, variants=[name])
    assert names(chosen) == ["t+d k=2"] and list(chosen.drafters) == ["d"]


def test_an_unknown_variant_is_answered_with_the_nearest(recipe: Recipe) -> None:
    with pytest.raises(UsageFault, match=r"no variant named 't\+ngam'; did you mean 't\+ngram'"):
        select(recipe, variants=["t+ngam"])


def test_numbers_prompts_and_threads_are_replaced(recipe: Recipe) -> None:
    given = Prompt(kind="given", text="hi")
    chosen = select(recipe, prompts=[given], new_tokens=5, repeats=1, threads=3, prefill_tokens=7)
    assert chosen.prefill_tokens == 7
    assert chosen.prompts == [given] and chosen.tests == []
    assert (chosen.new_tokens, chosen.repeats, chosen.targets["t"].threads) == (5, 1, 3)


def test_sampling_is_changed_key_by_key(recipe: Recipe) -> None:
    hot = override(recipe, sampling=Sampling(temperature=0.7, top_k=20))
    chosen = select(hot, temperature=None, top_k=0, top_p=0.5, min_p=None, seed=3)
    assert chosen.sampling == Sampling(temperature=0.7, top_k=0, top_p=0.5)
    assert chosen.seed == 3
    with pytest.raises(FileFault, match="top_p is nan, allowed is above 0 and up to 1"):
        select(recipe, top_p=float("nan"))


def test_tests_alone_run_the_targets_of_the_variants_and_nothing_else(recipe: Recipe) -> None:
    tests = [SyntheticTest(prompt_tokens=512), SyntheticTest(new_tokens=8, depth_tokens=900)]
    chosen = select(recipe, variants=["t+d"], tests=tests)
    assert names(chosen) == ["t"] and chosen.drafters == {}
    assert (chosen.prompts, chosen.tests) == ([], tests)
    assert chosen.verify_tokens == [] and not chosen.measure_ceiling
    assert chosen.context_tokens == 908  # 900 cached and 8 fed; the recipe has 250


def test_tests_and_prompts_together_keep_the_variants(recipe: Recipe) -> None:
    prompt, test = Prompt(kind="given", ids=[0]), SyntheticTest(prompt_tokens=4)
    chosen = select(recipe, prompts=[prompt], tests=[test])
    assert chosen == replace(recipe, prompts=[prompt], tests=[test])


def test_a_chat_takes_the_place_of_the_template(recipe: Recipe) -> None:
    chosen = select(override(recipe, template="User: {prompt}"), chat=True)
    assert (chosen.chat, chosen.template) == (True, "{prompt}")


def test_every_size_is_tested_at_every_depth() -> None:
    tests = synthetic_tests([512, 0], [128, 64], [0, 4096])
    assert [test.name for test in tests] == [
        "pp512", "tg128", "tg64", "pp512@d4096", "tg128@d4096", "tg64@d4096",
    ]  # fmt: skip
    with pytest.raises(UsageFault, match="no test is left"):
        synthetic_tests([0], [], [4096])
