"""In which order the legs are run, and how many there are."""

from collections.abc import Sequence

from edgeprof.recipe import ModelDrafter, Recipe, Variant


def variant_order(variants: Sequence[Variant], turn: int) -> list[Variant]:
    """The variants in the order in which they answer a prompt; ``turn`` counts prompts from 0.

    All variants answer a prompt one after the other, so that a drift of the machine falls on all
    alike. The plain ones come first in the first turn; each later one starts one further on.
    """
    first = sorted(variants, key=lambda variant: variant.drafter is not None)
    shift = turn % len(first)
    return first[shift:] + first[:shift]


def model_drafters(recipe: Recipe) -> list[str]:
    """The drafters of the recipe that are models."""
    return [key for key, drafter in recipe.drafters.items() if isinstance(drafter, ModelDrafter)]


def leg_count(recipe: Recipe) -> int:
    """All legs but those of the ceilings, whose number the runtime knows."""
    checks = len(recipe.targets)
    held = len(recipe.targets) + len(model_drafters(recipe)) if recipe.verify_tokens else 0
    warm_up = len(recipe.variants) if recipe.warmup_requests else 0
    answers = recipe.repeats * len(recipe.prompts) * len(recipe.variants)
    return checks + held + warm_up + answers
