"""In which order the legs are run, and how many there are."""

from collections.abc import Sequence

from edgeprof.recipe import ModelDrafter, Recipe, SyntheticTest, Variant, model_uses
from edgeprof.runner.agreement import LONGEST_PROBE


def variant_order(variants: Sequence[Variant], turn: int) -> list[Variant]:
    """The variants in the order in which they answer a prompt; ``turn`` counts prompts from 0.

    All variants answer a prompt one after the other, so that a drift of the machine falls on all
    alike. The plain ones come first in the first turn; each later one starts one further on.
    """
    first = sorted(variants, key=lambda variant: variant.drafter is not None)
    shift = turn % len(first)
    return first[shift:] + first[:shift]


def order_of_tests(recipe: Recipe, repeat: int) -> list[tuple[SyntheticTest, str]]:
    """Every synthetic test on every target, one after the other; each repeat starts one further on,
    so that a drift of the machine falls on all alike. ``repeat`` counts from 1, 0 is the warm-up.
    """
    pairs = [(test, target) for test in recipe.tests for target in recipe.targets]
    shift = max(repeat - 1, 0) % max(len(pairs), 1)
    return pairs[shift:] + pairs[:shift]


def _warm_up_legs(recipe: Recipe) -> int:
    """One a variant that answers prompts and one a test of a target."""
    if not recipe.warmup_requests:
        return 0
    variants = len(recipe.variants) if recipe.prompts else 0
    return variants + len(recipe.tests) * len(recipe.targets)


def model_drafters(recipe: Recipe) -> list[str]:
    """The drafters of the recipe that are models."""
    return [key for key, drafter in recipe.drafters.items() if isinstance(drafter, ModelDrafter)]


def longest_pass(recipe: Recipe) -> int:
    """No pass of the run takes more tokens than this."""
    drafted = [variant.draft_tokens or 0 for variant in recipe.variants]
    return max(
        recipe.prefill_tokens, LONGEST_PROBE, 1 + max(drafted), *(recipe.verify_tokens or [1])
    )


def leg_count(recipe: Recipe) -> int:
    """All legs but those of the ceilings, whose number the runtime knows."""
    checks = len(model_uses(recipe))
    held = checks if recipe.verify_tokens else 0
    answers = recipe.repeats * len(recipe.prompts) * len(recipe.variants)
    tests = recipe.repeats * len(recipe.tests) * len(recipe.targets)
    return checks + held + _warm_up_legs(recipe) + answers + tests
