"""Cuts a recipe to what was asked for: some variants, another draft length, one's own prompts,
synthetic tests."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from edgeprof.errors import UsageFault
from edgeprof.naming import unknown_name
from edgeprof.recipe import (
    ModelDrafter,
    NgramDrafter,
    Prompt,
    Recipe,
    Sampling,
    SyntheticTest,
    Variant,
    override,
)


def select(
    recipe: Recipe,
    *,
    variants: Sequence[str] = (),
    draft_tokens: Sequence[int] = (),
    adaptive: bool = False,
    draft_context: int | None = None,
    draft_confidence: float | None = None,
    prompts: Sequence[Prompt] = (),
    tests: Sequence[SyntheticTest] = (),
    chat: bool = False,
    new_tokens: int | None = None,
    repeats: int | None = None,
    threads: int | None = None,
    prefill_tokens: int | None = None,
    seed: int | None = None,
    **sampling: float | None,
) -> Recipe:
    """The recipe with these changes, and with only the models that its variants need.

    ``variants`` are named as in reports, with or without their ``k=``. ``draft_tokens`` sets the
    draft length of all, 0 leaves those with a drafter out; of several each is a variant of its own,
    and passes are held for all of them. ``adaptive`` makes it the longest.
    ``draft_context`` and ``draft_confidence`` limit all drafters. ``prompts`` and ``tests`` take
    the place of the recipe's own, of both; tests alone measure the targets and nothing else.
    ``threads`` are those of the targets; ``sampling`` takes keys of the recipe's table of that
    name.
    """
    if chat:
        recipe = replace(recipe, chat=True, template="{prompt}")
    chosen = _with_draft_tokens(_named(recipe.variants, variants), draft_tokens, adaptive)
    if not chosen:
        raise UsageFault("draft length 0 leaves plain decoding only, and no plain variant is left")
    if prompts or tests:
        recipe = _answering(recipe, prompts, tests)
    if tests and not prompts:
        chosen = [Variant(target=key) for key in dict.fromkeys(v.target for v in chosen)]
    if len(draft_tokens) > 1 and recipe.verify_tokens:
        sizes = {*recipe.verify_tokens, *(length + 1 for length in draft_tokens)}
        recipe = replace(recipe, verify_tokens=sorted(sizes))
    targets = {key: recipe.targets[key] for key in recipe.targets if _uses(chosen, key)}
    if threads is not None:
        targets = {key: replace(use, threads=threads) for key, use in targets.items()}
    return override(
        recipe,
        variants=chosen,
        targets=targets,
        drafters={
            key: _limited(drafter, draft_context, draft_confidence)
            for key, drafter in recipe.drafters.items()
            if _uses(chosen, key)
        },
        new_tokens=new_tokens,
        repeats=repeats,
        prefill_tokens=prefill_tokens,
        sampling=_with(recipe.sampling, sampling),
        seed=seed,
    )


def synthetic_tests(
    prompt_tokens: Sequence[int], new_tokens: Sequence[int], depth_tokens: Sequence[int]
) -> list[SyntheticTest]:
    """Every size at every depth, prompts first, as llama-bench combines ``-p``, ``-n`` and ``-d``.
    A size of 0 is no test."""
    if not any([*prompt_tokens, *new_tokens]):
        raise UsageFault("no test is left: give -p or -n a number of tokens above 0")
    return [
        SyntheticTest(**{kind: size}, depth_tokens=depth)
        for depth in depth_tokens or [0]
        for kind, sizes in (("prompt_tokens", prompt_tokens), ("new_tokens", new_tokens))
        for size in sizes
        if size
    ]


def _answering(recipe: Recipe, prompts: Sequence[Prompt], tests: Sequence[SyntheticTest]) -> Recipe:
    """With these prompts and tests, and a cache that takes the largest of the tests. Without
    prompts what serves to explain drafting is not measured."""
    needed = max((test.cached_tokens for test in tests), default=0)
    recipe = replace(
        recipe,
        prompts=list(prompts),
        tests=list(tests),
        context_tokens=max(recipe.context_tokens, needed),
    )
    return recipe if prompts else replace(recipe, verify_tokens=[], measure_ceiling=False)


def _limited(
    drafter: ModelDrafter | NgramDrafter, context_tokens: int | None, confidence: float | None
) -> ModelDrafter | NgramDrafter:
    given = {"context_tokens": context_tokens, "least_confidence": confidence}
    return replace(drafter, **{name: value for name, value in given.items() if value is not None})


def _with(sampling: Sampling, changes: Mapping[str, float | None]) -> dict[str, Any]:
    """The table of the recipe with what was given; ``override`` checks it."""
    given = {key: value for key, value in changes.items() if value is not None}
    return {**to_builtins(sampling), **given}


def _named(variants: Sequence[Variant], names: Sequence[str]) -> list[Variant]:
    if not names:
        return list(variants)
    known = {variant.name for variant in variants} | {_stem(variant) for variant in variants}
    for name in names:
        if name not in known:
            raise UsageFault(unknown_name("variant", name, sorted(known)))
    return [variant for variant in variants if {variant.name, _stem(variant)} & set(names)]


def _stem(variant: Variant) -> str:
    """The variant's name without its draft length."""
    return variant.target if variant.drafter is None else f"{variant.target}+{variant.drafter}"


def _with_draft_tokens(
    variants: Sequence[Variant], draft_tokens: Sequence[int], adaptive: bool
) -> list[Variant]:
    """Variants that become alike are run once."""

    def changed(variant: Variant) -> list[Variant]:
        if variant.drafter is None:
            return [variant]
        lengths = draft_tokens or [variant.draft_tokens or 0]
        adapts = adaptive or variant.adaptive
        return [replace(variant, draft_tokens=n, adaptive=adapts) for n in lengths if n]

    return list(dict.fromkeys(one for variant in variants for one in changed(variant)))


def _uses(variants: Sequence[Variant], key: str) -> bool:
    return any(key in (variant.target, variant.drafter) for variant in variants)
