"""A recipe: the experiment to run, parsed from TOML and checked. Knows nothing of how it is run."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from edgeprof.errors import FileFault
from edgeprof.provider_settings import ProviderName, ProviderSettings, check_settings
from edgeprof.tomlfile import load_toml

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
Threads = Annotated[int, Meta(ge=1, le=1024)]
DraftTokens = Annotated[int, Meta(ge=1, le=64)]
Confidence = Annotated[float, Meta(ge=0, le=1)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
Amount = Annotated[int, Meta(ge=0, le=1_000_000)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Text = Annotated[str, Meta(max_length=1 << 20)]
Dose = Annotated[float, Meta(gt=0, le=1)]
Cores = Annotated[list[Annotated[int, Meta(ge=0, le=4095)]], Meta(min_length=1, max_length=256)]

_SHORTEST_S, _LONGEST_S = 3, 86_400


class ModelUse(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model as this experiment uses it.

    ``model`` is a name that ``edgeprof fetch`` knows, a GGUF file, or a folder with an ONNX
    decoder. ``weights``, ``requantise`` and ``head_rows`` say how a GGUF is converted: its own
    blocks or fp32, whether blocks that cannot be kept may be rounded to 8 bits, and the file that
    lists the tokens a cut head keeps. Without ``threads`` the model takes all cores of the machine.
    """

    model: str
    weights: Literal["as-is", "fp32"] = "as-is"
    requantise: bool = False
    head_rows: str | None = None
    provider: ProviderName = "cpu"
    provider_settings: ProviderSettings = ProviderSettings()
    threads: Threads | None = None

    def __post_init__(self) -> None:
        check_settings(self.provider, self.provider_settings)


class ModelDrafter(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="model", tag_field="kind"
):
    """A small model drafts, with two threads by default: what was measured on two cores.

    It drafts no token where its own best one has less than ``least_confidence``, and none once the
    text is as long as ``context_tokens`` (None: as its cache, which is the recipe's context).
    """

    model: str
    weights: Literal["as-is", "fp32"] = "as-is"
    requantise: bool = False
    head_rows: str | None = None
    provider: ProviderName = "cpu"
    provider_settings: ProviderSettings = ProviderSettings()
    threads: Threads = 2
    context_tokens: Count | None = None
    least_confidence: Confidence = 0.0

    def __post_init__(self) -> None:
        check_settings(self.provider, self.provider_settings)

    def use(self) -> ModelUse:
        return ModelUse(
            model=self.model,
            weights=self.weights,
            requantise=self.requantise,
            head_rows=self.head_rows,
            provider=self.provider,
            provider_settings=self.provider_settings,
            threads=self.threads,
        )


class NgramDrafter(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ngram", tag_field="kind"
):
    """Prompt lookup drafts: what followed the last ``longest`` to ``shortest`` tokens before.

    It copies from the last ``context_tokens`` only (None: from all of the text), and drafts no
    token in which it has less than ``least_confidence``.
    """

    longest: Annotated[int, Meta(ge=1, le=16)] = 3
    shortest: Annotated[int, Meta(ge=1, le=16)] = 1
    context_tokens: Count | None = None
    least_confidence: Confidence = 0.0

    def __post_init__(self) -> None:
        if self.shortest > self.longest:
            raise ValueError(f"shortest is {self.shortest}, more than longest, {self.longest}")


class Variant(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way of decoding: a target, and what drafts for it, if anything.

    Each round drafts ``draft_tokens``; where ``adaptive``, as many of them as pay, or none.
    """

    target: Name
    drafter: Name | None = None
    draft_tokens: DraftTokens | None = None
    adaptive: bool = False

    @property
    def name(self) -> str:
        """``fp32``, ``fp32+ngram k=3`` or, adaptive, ``fp32+ngram k=0-8``, as reports print it."""
        if self.drafter is None:
            return self.target
        least = "0-" if self.adaptive else ""
        return f"{self.target}+{self.drafter} k={least}{self.draft_tokens}"


class Prompt(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One prompt: a text, a file that holds one, or token ids as they are.

    ``file`` is a path from the recipe's folder. ``kind`` groups prompts in reports.
    """

    kind: Name
    text: Text | None = None
    file: Annotated[str, Meta(min_length=1, max_length=4096)] | None = None
    ids: Annotated[list[TokenId], Meta(min_length=1, max_length=1 << 20)] | None = None

    def __post_init__(self) -> None:
        if sum(value is not None for value in (self.text, self.file, self.ids)) != 1:
            raise ValueError("a prompt has one of text, file and ids")


class SyntheticTest(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Random tokens through a target, as in llama-bench: no text, no tokenizer, no sampling.

    Measured is how fast ``prompt_tokens`` are taken in or ``new_tokens`` are fed one by one, after
    ``depth_tokens`` that are cached before and not in the figure.
    """

    prompt_tokens: Amount = 0
    new_tokens: Amount = 0
    depth_tokens: Amount = 0

    def __post_init__(self) -> None:
        if bool(self.prompt_tokens) == bool(self.new_tokens):
            raise ValueError("a test has either prompt_tokens or new_tokens, at least 1")

    @property
    def name(self) -> str:
        """``pp512``, ``tg128`` or ``tg128@d4096``, as llama-bench prints it."""
        depth = f"@d{self.depth_tokens}" if self.depth_tokens else ""
        kind = f"pp{self.prompt_tokens}" if self.prompt_tokens else f"tg{self.new_tokens}"
        return kind + depth

    @property
    def measured_tokens(self) -> int:
        return self.prompt_tokens + self.new_tokens

    @property
    def cached_tokens(self) -> int:
        """What the cache must hold."""
        return self.depth_tokens + self.measured_tokens


class Contention(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``edgeprof contend`` does: ``target`` decodes beside each of the antagonists.

    Antagonists are ``read`` and ``copy``, which stream memory, ``spin``, which only computes, and
    model drafters by their name; each works at every one of ``doses``, parts of its own rate.
    ``workers`` is how many processes stream or spin. Without ``antagonists`` there are all of them,
    without ``target`` it is the first. Legs last ``leg_s`` and come ``repeats`` times, in an order
    that the recipe's seed gives. ``target_cores`` and ``antagonist_cores`` pin both; without, they
    share all cores.
    """

    target: Name | None = None
    antagonists: Annotated[list[Name], Meta(max_length=16)] | None = None
    doses: Annotated[list[Dose], Meta(min_length=1, max_length=16)] = field(
        default_factory=lambda: [0.25, 0.5, 0.75, 1.0]
    )
    workers: Annotated[int, Meta(ge=1, le=64)] = 1
    leg_s: Annotated[float, Meta(ge=0.2, le=600)] = 3.0
    repeats: Annotated[int, Meta(ge=1, le=100)] = 5
    target_cores: Cores | None = None
    antagonist_cores: Cores | None = None

    def __post_init__(self) -> None:
        for name in ("doses", "antagonists", "target_cores", "antagonist_cores"):
            values = getattr(self, name) or []
            if len(set(values)) < len(values):
                raise ValueError(f"{name} names one twice: {', '.join(map(str, values))}")


class Sustained(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target of ``contention`` decodes for ``duration`` (``90s``, ``15m``, ``1h``), alone and
    without a pause."""

    duration: Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,5}(s|m|h)$")]

    def __post_init__(self) -> None:
        if not _SHORTEST_S <= self.duration_s <= _LONGEST_S:
            raise ValueError(f"duration is {self.duration}, allowed is from 3s to 24h")

    @property
    def duration_s(self) -> int:
        return int(self.duration[:-1]) * {"s": 1, "m": 60, "h": 3600}[self.duration[-1]]


class Sampling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the next token is chosen, by target and draft alike.

    Temperature 0 takes the most probable one, whatever the rest says. Above it a token is drawn:
    from the ``top_k`` most probable ones (0: from all), of those the fewest that hold ``top_p`` of
    the probability, of those the ones with at least ``min_p`` of the most probable one's, and the
    temperature flattens or sharpens what is left.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        for name, allowed, says in (
            ("temperature", 0 <= self.temperature <= 100, "from 0 to 100"),
            ("top_k", 0 <= self.top_k <= 1_000_000, "from 0, which is off, to 1000000"),
            ("top_p", 0 < self.top_p <= 1, "above 0 and up to 1, which is off"),
            ("min_p", 0 <= self.min_p < 1, "from 0, which is off, to below 1"),
        ):
            if not allowed:  # not a number is in no range
                raise ValueError(f"{name} is {getattr(self, name)}, allowed is {says}")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


class Recipe(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run: variants that answer prompts, synthetic tests of the targets, or both.

    ``template`` wraps a prompt's text at ``{prompt}``. With ``chat`` the model's own chat template
    does: the text is what the user says, after ``system`` where that is given.

    Prompts are taken in by passes of at most ``prefill_tokens``, those of synthetic tests too.
    ``verify_tokens`` lists the pass sizes whose cost is measured on held passes, at
    ``held_context_tokens``, ``held_repeats`` times each; empty: not measured. Where the board's
    bandwidth is read, every kind of pass is also held ``held_legs`` times for ``held_leg_s``
    seconds, for the bytes it moves; without that, for six windows of the counter. ``seed`` fixes
    all that is left to chance: the tokens of probes and held passes, the order of held legs, and
    what is sampled. ``idle_s`` is how long the machine is watched with nothing running, for what it
    draws then. ``contention`` and ``sustained`` are what ``edgeprof contend`` does.
    """

    schema: Literal["edgeprof.recipe/1"]
    name: Name
    question: str
    targets: Annotated[dict[Name, ModelUse], Meta(min_length=1)]
    drafters: dict[Name, ModelDrafter | NgramDrafter] = field(default_factory=dict)
    variants: Annotated[list[Variant], Meta(min_length=1)]
    prompts: list[Prompt] = field(default_factory=list)
    tests: Annotated[list[SyntheticTest], Meta(max_length=1000)] = field(default_factory=list)
    template: str = "{prompt}"
    chat: bool = False
    system: Text | None = None
    new_tokens: Amount = 64
    repeats: Count = 3
    warmup_requests: Annotated[int, Meta(ge=0, le=1000)] = 1
    context_tokens: Count = 1024
    prefill_tokens: Count = 512
    stop_at_end_token: bool = True
    verify_tokens: list[Annotated[int, Meta(ge=1, le=256)]] = field(default_factory=list)
    held_context_tokens: Count = 256
    held_repeats: Count = 9
    held_legs: Annotated[int, Meta(ge=0, le=100)] = 4
    held_leg_s: Annotated[float, Meta(ge=0.1, le=600)] | None = None
    measure_ceiling: bool = True
    idle_s: Annotated[float, Meta(ge=0, le=600)] = 0.0
    contention: Contention | None = None
    sustained: Sustained | None = None
    sampling: Sampling = Sampling()
    seed: Seed = 0

    def __post_init__(self) -> None:
        if not (self.prompts or self.tests or self.contention or self.sustained):
            raise ValueError("there is nothing to run: give prompts or tests")
        if self.chat and self.template != "{prompt}":
            raise ValueError("chat takes the model's own template; leave out template or chat")
        if self.system is not None and not self.chat:
            raise ValueError("system is part of a chat; set chat = true")


def model_uses(recipe: Recipe) -> dict[str, ModelUse]:
    """Every model that the recipe uses, targets first, by its name there."""
    drafts = {
        key: drafter.use()
        for key, drafter in recipe.drafters.items()
        if isinstance(drafter, ModelDrafter)
    }
    return {**recipe.targets, **drafts}


def cache_tokens(recipe: Recipe, key: str) -> int:
    """How many tokens the cache of this model is to hold, as far as its context allows."""
    drafter = recipe.drafters.get(key)
    limit = drafter.context_tokens if isinstance(drafter, ModelDrafter) else None
    return min(recipe.context_tokens, limit or recipe.context_tokens)


def read_recipe(path: Path) -> Recipe:
    """Parse and check one recipe file.

    Raises UsageFault for a file that cannot be read and FileFault, naming file and field, for
    anything that is not a valid recipe.
    """
    recipe = load_toml(path, Recipe)
    _check_names(recipe, str(path))
    return recipe


def override(recipe: Recipe, **changes: Any) -> Recipe:
    """The recipe with the given fields replaced, checked again. None leaves a field alone."""
    given = {key: value for key, value in changes.items() if value is not None}
    changed = msgspec.structs.replace(recipe, **given)
    try:
        return msgspec.convert(msgspec.to_builtins(changed), Recipe)
    except msgspec.ValidationError as error:
        raise FileFault(f"recipe {recipe.name}: {error}") from error


def _check_names(recipe: Recipe, origin: str) -> None:
    """Every variant names a target and a drafter that the recipe defines, and no two are alike."""
    for index, variant in enumerate(recipe.variants):
        where = f"{origin}: variants[{index}]"
        if variant.target not in recipe.targets:
            raise FileFault(
                f"{where}.target {variant.target!r} is not one of the targets "
                f"({', '.join(recipe.targets)})"
            )
        if variant.drafter is not None and variant.drafter not in recipe.drafters:
            known = ", ".join(recipe.drafters) or "none"
            raise FileFault(f"{where}.drafter {variant.drafter!r} is not defined (known: {known})")
        if (variant.drafter is None) != (variant.draft_tokens is None):
            raise FileFault(f"{where}: drafter and draft_tokens go together")
        if variant.adaptive and variant.drafter is None:
            raise FileFault(f"{where}: adaptive says how to draft, and there is no drafter")
    names = [variant.name for variant in recipe.variants]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FileFault(f"{origin}: variants listed twice: {', '.join(twice)}")
    if "{prompt}" not in recipe.template:
        raise FileFault(f"{origin}: template has no {{prompt}} in it")
