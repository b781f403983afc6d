"""What the recorder and its children say to each other, besides the records themselves."""

from typing import Literal

from msgspec import Struct

from edgeprof.models.spec import ModelSpec
from edgeprof.provider_settings import ProviderSettings
from edgeprof.recipe import Recipe
from edgeprof.session.records import (
    Event,
    Leg,
    ModelRecord,
    Pass,
    Request,
    Round,
    Sample,
    Signal,
    Token,
)
from edgeprof.telemetry.source import BoardFigures


class PreparedModel(Struct, frozen=True, kw_only=True):
    """A model of the recipe, with what its recipe left open settled."""

    role: Literal["target", "draft"]
    folder: str
    source: str
    weights: str
    provider: str
    threads: int
    provider_settings: ProviderSettings = ProviderSettings()


class DecodeJob(Struct, frozen=True, kw_only=True, tag=True):
    """What the decoder is to do; ``prompts`` holds the tokens of every prompt, by target.

    ``held_leg_s`` is for how long each kind of pass is held for its bytes; None: not at all.
    """

    recipe: Recipe
    models: dict[str, PreparedModel]
    prompts: dict[str, list[list[int]]]
    held_leg_s: float | None = None


class ContendJob(Struct, frozen=True, kw_only=True, tag=True):
    """What the contender is to do: the recipe's ``contention`` and ``sustained``, whose target and
    antagonists are named. ``buffer_bytes`` is what one worker streams over, again and again."""

    recipe: Recipe
    models: dict[str, PreparedModel]
    buffer_bytes: int


class AntagonistJob(Struct, frozen=True, kw_only=True, tag=True):
    """What an antagonist does when it is told to go: a stream, a spin, or passes of ``model``."""

    kind: Literal["read", "copy", "spin", "model"]
    cores: list[int]
    buffer_bytes: int = 0
    model: PreparedModel | None = None
    capacity: int = 0
    context_tokens: int = 0
    seed: int = 0


class Go(Struct, frozen=True, kw_only=True, tag=True):
    """Work until ``Rest``; a pass begins every ``period_s``, None: at once after the one before."""

    period_s: float | None = None


class Rest(Struct, frozen=True, kw_only=True, tag=True):
    """Pause after the pass in hand, and tell what was done."""


class SampleJob(Struct, frozen=True, kw_only=True, tag=True):
    """The board to read, and the sources that are to give all they can; None takes per signal the
    first source that works.

    ``interval_s`` is the time between two readings that is asked of every source; None leaves each
    its own. ``replay`` is the recording that source ``replay`` repeats. ``left_out`` names what
    hung before, as ``Stuck`` did.
    """

    board: BoardFigures = BoardFigures()
    sources: list[str] | None = None
    interval_s: float | None = None
    replay: str | None = None
    left_out: tuple[str, ...] = ()


class ProbeJob(Struct, frozen=True, kw_only=True, tag=True):
    """One part of a probe: what to time, on what.

    ``part`` is ``read`` or ``copy`` (a pass over memory), ``load`` (reading on and on until the
    order to stop), ``product`` (one kernel at growing numbers of rows) or ``model`` (a stack of
    the layers of ``model``). ``budget_s`` is the time that may be spent on repeating, once all was
    warm for ``warm_s``.
    """

    part: Literal["read", "copy", "load", "product", "model"]
    provider: str
    threads: int
    size_bytes: int
    sizes: list[int] = []
    weights: str = ""
    accuracy_level: int | None = None
    model: ModelSpec | None = None
    layers: int = 0
    warm_s: float = 1.0
    budget_s: float = 5.0
    rounds: tuple[int, int] = (5, 15)


class ProbeRun(Struct, frozen=True, kw_only=True, tag=True):
    """One run of what a probe times. ``what`` tells kinds of runs of one part apart, ``size`` is a
    number of rows or tokens, or of bytes."""

    what: str
    size: int
    t0_ns: int
    t1_ns: int


class ProbeFacts(Struct, frozen=True, kw_only=True, tag=True):
    """What the figures of a part are worked out with: bytes, operations, layers."""

    facts: dict[str, int]


class Stop(Struct, frozen=True, kw_only=True, tag=True):
    """End after the pass or the read in hand."""


class Plan(Struct, frozen=True, kw_only=True, tag=True):
    """How many legs there will be."""

    legs: int


class ModelReady(Struct, frozen=True, kw_only=True, tag=True):
    """A model is loaded, or more is known of it; ``key`` is its name in the recipe."""

    key: str
    model: ModelRecord


class Ready(Struct, frozen=True, kw_only=True, tag=True):
    """An antagonist can go. ``pass_bytes`` is what one of its streaming passes asks for; ``model``
    is what it has loaded."""

    pass_bytes: int | None = None
    model: ModelRecord | None = None


class Began(Struct, frozen=True, kw_only=True, tag=True):
    """An antagonist has done its first pass since it was told to go."""


class Ran(Struct, frozen=True, kw_only=True, tag=True):
    """What an antagonist did: start and end of each pass, and the processor time of its process in
    the seconds that it took, of all its threads together."""

    stamps_ns: list[tuple[int, int]]
    cpu_s: float
    wall_s: float


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """The child gave up for a reason that its message explains; ``kind`` names the exception."""

    kind: str
    message: str


class Alive(Struct, frozen=True, kw_only=True, tag=True):
    """The sampler goes on, whether there is something to tell or not. ``settled`` says that it has
    told of all that it can give from the start, which may be nothing."""

    settled: bool = False


class Stuck(Struct, frozen=True, kw_only=True, tag=True):
    """One step of the sampler does not return; ``what`` names it: ``sysfs: EMC activity``."""

    what: str


class Ended(Struct, frozen=True, kw_only=True, tag=True):
    """The child's last word."""

    interrupted: bool = False


Order = DecodeJob | ContendJob | AntagonistJob | SampleJob | ProbeJob | Go | Rest | Stop
Message = (
    Leg
    | Request
    | Round
    | Pass
    | Token
    | Signal
    | Sample
    | Event
    | Plan
    | ModelReady
    | Ready
    | Began
    | Ran
    | Failed
    | Alive
    | Stuck
    | ProbeRun
    | ProbeFacts
    | Ended
)
