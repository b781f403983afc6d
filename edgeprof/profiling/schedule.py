"""In which order the legs are run, and how many there are."""

from collections.abc import Sequence

from edgeprof.recipe import ModelDrafter, Recipe, Variant


def variant_order(variants: Sequence[Variant], repeat: int) -> list[Variant]:
    """The variants in the order of this repeat, counted from 1.

    The plain ones come first in the first repeat; each later repeat starts one further on, so that
    a drift of the machine does not fall on the same variant every time.
    """
    first = sorted(variants, key=lambda variant: variant.drafter is not None)
    shift = (repeat - 1) % len(first)
    return first[shift:] + first[:shift]


def model_drafters(recipe: Recipe) -> list[str]:
    """The drafters of the recipe that are models."""
    return [key for key, drafter in recipe.drafters.items() if isinstance(drafter, ModelDrafter)]


def leg_count(recipe: Recipe) -> int:
    """All legs but those of the ceilings, whose number the runtime knows."""
    checks = len(recipe.targets)
    held = len(recipe.targets) + len(model_drafters(recipe)) if recipe.verify_tokens else 0
    passes_over_variants = recipe.repeats + (recipe.warmup_requests > 0)
    return checks + held + passes_over_variants * len(recipe.variants)
