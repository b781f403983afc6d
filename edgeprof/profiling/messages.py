"""What the recorder and its children say to each other, besides the records themselves."""

from typing import Literal

from msgspec import Struct

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


class Stop(Struct, frozen=True, kw_only=True, tag=True):
    """End after the pass or the read in hand."""


class Plan(Struct, frozen=True, kw_only=True, tag=True):
    """How many legs there will be."""

    legs: int


class ModelReady(Struct, frozen=True, kw_only=True, tag=True):
    """A model is loaded, or more is known of it; ``key`` is its name in the recipe."""

    key: str
    model: ModelRecord


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


Order = DecodeJob | SampleJob | Stop
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
    | Failed
    | Alive
    | Stuck
    | Ended
)
