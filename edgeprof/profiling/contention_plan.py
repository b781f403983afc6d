"""What ``edgeprof contend`` does with a recipe: names filled in, checked, and put in an order."""

import random
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.hardware.machine import allowed_cores, last_level_cache_bytes
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.naming import unknown_name
from edgeprof.profiling.checks import plan_job
from edgeprof.profiling.messages import ContendJob, PreparedModel
from edgeprof.profiling.schedule import model_drafters
from edgeprof.recipe import Contention, Recipe, Variant, override

STREAMS: Mapping[str, Literal["read", "copy", "spin"]] = {
    "read": "read", "copy": "copy", "spin": "spin",
}  # fmt: skip
_ALONE_LEGS = 2  # a repeat: everything is compared with them
_CACHE_TIMES = 4
_SMALLEST_BUFFER, _USUAL_BUFFER, _LARGEST_BUFFER = 64 << 20, 256 << 20, 1 << 30
_PIECE = 16 << 20
_BUFFERS = {"read": 1, "copy": 2}


class Regime(NamedTuple):
    """What a leg runs: the target, an antagonist at a dose, both, or nothing at all."""

    target: str | None
    antagonist: str | None = None
    dose: float = 0.0

    @property
    def name(self) -> str:
        if self.antagonist is None:
            return "idle" if self.target is None else f"{self.target} alone"
        if self.target is None:
            return f"{self.antagonist} alone"
        return f"{self.target} + {self.antagonist} {100 * self.dose:g} %"


def contention_recipe(recipe: Recipe) -> Recipe:
    """The recipe cut to what is run, with target and antagonists named.

    Raises UsageFault for a name that is neither a stream nor a model of the recipe.
    """
    contention = recipe.contention or Contention()
    target = _target(recipe, contention.target)
    drafts = model_drafters(recipe)
    for key in drafts:
        if key in STREAMS:
            raise UsageFault(
                f"recipe {recipe.name}: a drafter is named {key!r}, and so is an antagonist that "
                "needs no model; give the drafter another name"
            )
    named = contention.antagonists
    known = [*STREAMS, *drafts]
    antagonists = known if named is None else named
    for name in antagonists:
        if name not in known:
            raise UsageFault(unknown_name("antagonist", name, known))
    return override(
        recipe,
        targets={target: recipe.targets[target]},
        drafters={key: d for key, d in recipe.drafters.items() if key in antagonists},
        variants=[Variant(target=target)],
        prompts=[],
        tests=[],
        verify_tokens=[1],
        measure_ceiling=False,
        contention=replace(contention, target=target, antagonists=antagonists),
    )


def plan_contention(recipe: Recipe, folders: Mapping[str, DecoderFolder]) -> ContendJob:
    """The contender's job, checked; ``recipe`` is one of ``contention_recipe``.

    Raises an EdgeprofError that says what to change.
    """
    contention = _contention(recipe)
    for field in ("target_cores", "antagonist_cores"):
        _check_cores(recipe, field, getattr(contention, field))
    models = plan_job(recipe, folders).models
    buffer_bytes = _buffer_bytes()
    _check_buffers(contention, buffer_bytes)
    pinned = {key: _pinned(model, contention) for key, model in models.items()}
    return ContendJob(recipe=recipe, models=pinned, buffer_bytes=buffer_bytes)


def order_of_legs(recipe: Recipe) -> Iterator[tuple[int, Regime]]:
    """Every regime in every repeat, each repeat shuffled by the recipe's seed. Repeats count from
    1; 0 is the warm-up, in which the antagonists' own rates are seen first."""
    contention = _contention(recipe)
    antagonists = contention.antagonists or []
    solo = [Regime(None, name, 1.0) for name in antagonists]
    alone = Regime(contention.target)
    yield from ((0, regime) for regime in (alone, *solo))
    if not antagonists:
        return
    joint = [Regime(contention.target, name, d) for name in antagonists for d in contention.doses]
    regimes = [Regime(None), *[alone] * _ALONE_LEGS, *solo, *joint]
    rng = random.Random(recipe.seed)
    for repeat in range(1, contention.repeats + 1):
        yield from ((repeat, regime) for regime in rng.sample(regimes, len(regimes)))


def contention_seconds(recipe: Recipe) -> float:
    """How long it all takes, loading apart."""
    contention, sustained = _contention(recipe), recipe.sustained
    legs = sum(1 for _ in order_of_legs(recipe))
    return legs * contention.leg_s + (sustained.duration_s if sustained else 0.0)


def adjusted(
    recipe: Recipe,
    *,
    duration: str | None = None,
    seed: int | None = None,
    threads: int | None = None,
    **changes: Any,
) -> Recipe:
    """The recipe with these changes: ``threads`` of its targets, ``duration`` of a sustained leg,
    and those of its contention. None, or nothing listed, leaves what there is."""
    contention = to_builtins(recipe.contention or Contention())
    given = {key: value for key, value in changes.items() if value not in (None, [])}
    targets = {
        key: replace(use, threads=threads or use.threads) for key, use in recipe.targets.items()
    }
    return override(
        recipe,
        contention={**contention, **given},
        sustained=None if duration is None else {"duration": duration},
        targets=targets,
        seed=seed,
    )


def _target(recipe: Recipe, name: str | None) -> str:
    if name is None:
        return next(iter(recipe.targets))
    if name not in recipe.targets:
        raise UsageFault(unknown_name("target", name, list(recipe.targets)))
    return name


def _contention(recipe: Recipe) -> Contention:
    assert recipe.contention is not None  # contention_recipe sees to it
    return recipe.contention


def _check_cores(recipe: Recipe, field: str, cores: list[int] | None) -> None:
    missing = sorted(set(cores or ()) - allowed_cores())
    if missing:
        usable = ", ".join(map(str, sorted(allowed_cores())))
        raise UsageFault(
            f"recipe {recipe.name}: contention.{field} names core {missing[0]}, and this process "
            f"may use {usable}"
        )


def _pinned(model: PreparedModel, contention: Contention) -> PreparedModel:
    """More threads than the cores it is pinned to would only be in each other's way."""
    on_target = model.role == "target"
    cores = contention.target_cores if on_target else contention.antagonist_cores
    return model if cores is None else replace(model, threads=min(model.threads, len(cores)))


def _buffer_bytes() -> int:
    """Several times what the last-level cache holds, in whole pieces."""
    cache_bytes = last_level_cache_bytes()
    wanted = _USUAL_BUFFER if cache_bytes is None else _CACHE_TIMES * cache_bytes
    return min(max(wanted, _SMALLEST_BUFFER), _LARGEST_BUFFER) // _PIECE * _PIECE


def _check_buffers(contention: Contention, buffer_bytes: int) -> None:
    import psutil

    each = sum(_BUFFERS.get(name, 0) for name in contention.antagonists or ())
    needed = each * contention.workers * buffer_bytes
    available = psutil.virtual_memory().available
    if needed > available:
        raise EnvironmentFault(
            f"{needed / 2**30:.2f} GiB of memory are needed to stream over and "
            f"{available / 2**30:.2f} GiB are available; choose fewer contention.workers"
        )
