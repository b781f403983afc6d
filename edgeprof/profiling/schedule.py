"""In which order the legs are run, and how many there are."""

import random
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

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


_MOST_SIZES = 3  # of verify passes that are held for their bytes; others lie between
_DUTY_REPEATS = 2


class HeldPhase(NamedTuple):
    """What a leg holds for its bytes: one kind of pass, or nothing at all. With a ``drafter`` it is
    a duty block: each pass of the target is followed by ``draft_passes`` that are thrown away."""

    phase: Literal["decode", "verify", "draft", "idle"]
    model: str
    tokens: int = 1
    drafter: str | None = None
    draft_passes: int = 0

    @property
    def name(self) -> str:
        if self.phase == "idle":
            return "held idle"
        if self.drafter is not None:
            return f"{self.model} duty {self.draft_passes} {self.drafter}"
        size = f" {self.tokens}" if self.phase == "verify" else ""
        return f"{self.model} held {self.phase}{size} for bytes"


def held_phases(recipe: Recipe) -> list[HeldPhase]:
    """Every kind of pass that the variants run, and idleness."""
    found = [HeldPhase("idle", "idle", 0)]
    for target in recipe.targets:
        found.append(HeldPhase("decode", target))
        sizes = {
            v.draft_tokens + 1 for v in recipe.variants if v.target == target and v.draft_tokens
        }
        found += [HeldPhase("verify", target, tokens) for tokens in _few(sorted(sizes))]
    return [*found, *(HeldPhase("draft", key) for key in model_drafters(recipe))]


def held_order(recipe: Recipe) -> Iterator[tuple[int, HeldPhase]]:
    """Each phase once a repeat, each repeat shuffled by the recipe's seed; then the duty blocks."""
    rng = random.Random(recipe.seed)
    phases = held_phases(recipe)
    for repeat in range(1, recipe.held_legs + 1):
        yield from ((repeat, phase) for phase in rng.sample(phases, len(phases)))
    blocks = _duty_blocks(recipe)
    for repeat in range(1, min(_DUTY_REPEATS, recipe.held_legs) + 1):
        yield from ((repeat, block) for block in rng.sample(blocks, len(blocks)))


def _duty_blocks(recipe: Recipe) -> list[HeldPhase]:
    """0, K and 3 K draft passes a verify pass, for the shortest draft of each pair of models."""
    shortest: dict[tuple[str, str], int] = {}
    for variant in recipe.variants:
        if variant.drafter in model_drafters(recipe) and variant.draft_tokens:
            pair = variant.target, variant.drafter
            shortest[pair] = min(variant.draft_tokens, shortest.get(pair, variant.draft_tokens))
    return [
        HeldPhase("verify", target, length + 1, drafter, times * length)
        for (target, drafter), length in shortest.items()
        for times in (0, 1, 3)
    ]


def _few(sizes: list[int]) -> list[int]:
    """All of them, or the ends and the middle."""
    if len(sizes) <= _MOST_SIZES:
        return sizes
    return [sizes[0], sizes[len(sizes) // 2], sizes[-1]]


def leg_count(recipe: Recipe, *, held_for_bytes: bool = False) -> int:
    """All legs but those of the ceilings, whose number the runtime knows."""
    checks = len(model_uses(recipe))
    held = checks if recipe.verify_tokens else 0
    answers = recipe.repeats * len(recipe.prompts) * len(recipe.variants)
    tests = recipe.repeats * len(recipe.tests) * len(recipe.targets)
    for_bytes = len(list(held_order(recipe))) if held_for_bytes else 0
    idle = 1 if recipe.idle_s else 0
    return checks + held + for_bytes + idle + _warm_up_legs(recipe) + answers + tests
