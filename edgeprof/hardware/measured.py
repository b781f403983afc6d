"""What a machine was measured to reach: the profile that ``edgeprof probe`` writes, and reading it.

Apart from a board's datasheet profile: every figure is a median of runs with its spread, and a
lower bound of the hardware. A profile says of which machine it is, when and under what conditions
it was made, and whether it is whole.
"""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from edgeprof.errors import FileFault
from edgeprof.tomlfile import convert, read_toml

SCHEMA = "edgeprof.probe/1"
UNKNOWN_PROCESSOR = "unknown processor"
# Far beyond any machine; sums and products of such numbers stay finite. Not a number is below no
# bound and above none, so each has both.
Amount = Annotated[float, Meta(ge=1e-12, le=1e24)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=1, le=1 << 50)]
Rows = Annotated[int, Meta(ge=1, le=1 << 16)]
Text = Annotated[str, Meta(min_length=1, max_length=400)]


class _Part(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of the file; what is not known is left out."""


class Figure(_Part, frozen=True, kw_only=True):
    """The median of ``n`` runs, with the ends of their middle half as its band. ``unstable`` says
    that they differ by more than a tenth or drifted."""

    value: Amount
    low: Amount
    high: Amount
    n: Count
    unstable: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"needs low <= value <= high, got {self.low}, {self.value}, ...")


class Machine(_Part, frozen=True, kw_only=True):
    """The machine that was measured; ``profile``, ``l4t`` and what follows are a board's."""

    name: Text
    kind: Literal["board", "host"]
    architecture: Text
    cores: Count
    memory_bytes: Count
    last_level_cache_bytes: Count | None = None
    profile: Text | None = None
    l4t: Text | None = None
    jetpack: Text | None = None
    power_mode: Text | None = None
    clocks: Text | None = None


class Range(_Part, frozen=True, kw_only=True):
    """The least and the most of a signal while the probe ran."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not -1e24 < self.low <= self.high < 1e24:
            raise ValueError(f"needs low <= high, got {self.low}, {self.high}")


class Conditions(_Part, frozen=True, kw_only=True):
    """What the machine did meanwhile.

    ``others_cpu_share_before`` and ``others_cpu_share`` are what other programs took of all cores,
    in a second before and during; ``stolen_cpu_share`` is what a hypervisor took away. ``signals``
    are the board's, by name; ``events`` what was told of throttling, clocks and swap.
    """

    load_average_before: float | None = None
    available_memory_bytes: Count | None = None
    others_cpu_share_before: Share | None = None
    others_cpu_share: Share | None = None
    stolen_cpu_share: Share | None = None
    cpu_clock_hz: Range | None = None
    signals: Annotated[dict[Text, Range], Meta(max_length=256)] = {}
    events: Annotated[dict[Text, Count], Meta(max_length=64)] = {}


class MeasuredStream(_Part, frozen=True, kw_only=True):
    """Memory read, or copied: bytes read plus bytes written, as programs see them."""

    kind: Literal["read", "copy"]
    size_bytes: Count
    bandwidth_bytes_per_s: Figure


class PassCost(_Part, frozen=True, kw_only=True):
    """A pass over ``tokens`` rows: its time, and ``cost``, v(n): over the time of one row."""

    tokens: Rows
    time_s: Figure
    cost: Figure


class MeasuredKernel(_Part, frozen=True, kw_only=True):
    """A large product with weights in one format.

    ``bandwidth_bytes_per_s`` is what one row streams of the weights; ``flop_per_s`` the best rate
    at any number of rows. ``ridge_rows`` is their quotient in rows: from there on arithmetic is the
    wall.
    """

    weights: Literal["fp32", "fp16", "int8", "int4"]
    accuracy_level: Annotated[int, Meta(ge=0, le=4)] | None = None
    operator: Text
    weight_bytes: Count
    flop_per_row: Count
    bandwidth_bytes_per_s: Figure
    flop_per_s: Figure
    passes: Annotated[list[PassCost], Meta(min_length=1, max_length=64)] = field(name="pass")

    @property
    def label(self) -> str:
        """``int4:4``: the format and the accuracy level."""
        level = "" if self.accuracy_level is None else f":{self.accuracy_level}"
        return f"{self.weights}{level}"

    @property
    def ridge_rows(self) -> float:
        """Rows at which the weights take as long to read as to compute with."""
        read_s = self.weight_bytes / self.bandwidth_bytes_per_s.value
        return read_s * self.flop_per_s.value / self.flop_per_row


class BestLength(_Part, frozen=True, kw_only=True):
    """The draft length that pays most at an acceptance and a cost of a draft pass, with the
    measured v(n); 0 where none pays."""

    acceptance: Share
    draft_cost: Annotated[float, Meta(ge=0, le=1e6)]
    draft_length: Annotated[int, Meta(ge=0, le=1 << 10)]
    speedup: Amount


class MeasuredModel(_Part, frozen=True, kw_only=True):
    """A stack of a model's layers with synthetic weights.

    ``layers_measured`` of ``layers`` were in memory; where that is fewer, times are those of the
    stack, scaled by the bytes of the layers (``kind`` modelled). ``weight_bytes`` is what a pass
    reads as the runtime stores the weights, of the whole model.
    """

    name: Text
    title: Text
    kind: Literal["measured", "modelled"]
    layers: Count
    layers_measured: Count
    context_tokens: Annotated[int, Meta(ge=0, le=1 << 24)]
    weight_bytes: Count
    flop_per_token: Count
    kv_bytes_per_token: Count
    decode_tokens_per_s: Figure
    passes: Annotated[list[PassCost], Meta(min_length=1, max_length=64)] = field(name="pass")
    best: Annotated[list[BestLength], Meta(max_length=64)] = []


class EmcCalibration(_Part, frozen=True, kw_only=True):
    """What a counter of memory traffic says, by a known number of bytes.

    For one ``board`` (the name of its device tree), one ``l4t`` and one ``node``.
    ``bytes_per_s_per_unit`` turns its raw number into traffic; ``idle_raw`` is what it said with
    the load off. The window is exponential (``window_s`` its time constant) or a boxcar.
    ``emc_clock_hz`` is the memory clock that it was found at.
    """

    board: Text
    l4t: Text
    node: Text
    window_kind: Literal["boxcar", "exponential", "instantaneous", "unknown"]
    window_s: Amount | None = None
    bytes_per_s_per_unit: Figure
    idle_raw: float
    emc_clock_hz: Amount | None = None
    explained_share: Share


class Missing(_Part, frozen=True, kw_only=True):
    """A part that gave nothing or not all, and why; ``lost`` where that is not as it should be."""

    part: Text
    cause: Text
    lost: bool = True


class MeasuredProfile(_Part, frozen=True, kw_only=True):
    """Everything that a probe found. Not ``complete``: it was ended before it was through."""

    schema: Literal["edgeprof.probe/1"]
    created_utc: Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")]
    edgeprof_version: Text
    complete: bool
    ended_reason: Text | None = None
    duration_s: Annotated[float, Meta(ge=0, le=1e9)]
    provider: Literal["cpu", "cuda", "tensorrt"]
    threads: Count
    disturbed: Annotated[list[Text], Meta(max_length=64)] = []
    machine: Machine
    versions: Annotated[dict[Text, Text], Meta(max_length=64)] = {}
    conditions: Conditions = Conditions()
    streams: Annotated[list[MeasuredStream], Meta(max_length=8)] = field(name="stream", default=[])
    kernels: Annotated[list[MeasuredKernel], Meta(max_length=32)] = field(name="kernel", default=[])
    models: Annotated[list[MeasuredModel], Meta(max_length=32)] = field(name="model", default=[])
    emc: Annotated[list[EmcCalibration], Meta(max_length=8)] = []
    missing: Annotated[list[Missing], Meta(max_length=64)] = []

    @property
    def lost(self) -> list[Missing]:
        """What should have been measured and was not."""
        return [one for one in self.missing if one.lost]

    @property
    def best_bandwidth_bytes_per_s(self) -> float | None:
        """The most that anything was seen to read: a lower bound of what the memory gives."""
        reads = [one.bandwidth_bytes_per_s.value for one in self.streams if one.kind == "read"]
        reads += [one.bandwidth_bytes_per_s.value for one in self.kernels]
        return max(reads, default=None)

    def rates_flop_per_s(self) -> dict[str, float]:
        """The best rate of each weight format, by the format's name."""
        rates: dict[str, float] = {}
        for kernel in self.kernels:
            rate = kernel.flop_per_s.value
            rates[kernel.weights] = max(rates.get(kernel.weights, 0.0), rate)
        return rates


class MeasuredMode(Struct, frozen=True, kw_only=True):
    """The state that a machine without power modes was measured in."""

    name: str = "measured"


class MeasuredMachine(Struct, frozen=True, kw_only=True):
    """A machine of which no datasheet is known: its roof is what was measured.

    Stands where a board's profile does. Its rates are reached ones, by weight format.
    """

    measured: MeasuredProfile
    name: str = "here"
    gpu: None = None

    @property
    def title(self) -> str:
        return self.measured.machine.name

    @property
    def dram_bytes(self) -> int:
        return self.measured.machine.memory_bytes

    @property
    def visible_dram_bytes(self) -> int:
        return self.measured.machine.memory_bytes


def read_measured(path: Path) -> MeasuredProfile:
    """The profile in a TOML file, every figure within bounds; FileFault names what is not."""
    content = read_toml(path)
    if content.get("schema") != SCHEMA:
        raise FileFault(f"{path}: not a profile that `edgeprof probe` wrote ({SCHEMA})")
    return convert(content, MeasuredProfile, path)


def as_toml(profile: MeasuredProfile) -> str:
    """The profile as its file holds it."""
    import tomli_w  # needed for writing only

    return tomli_w.dumps(_rounded({"schema": SCHEMA, **msgspec.to_builtins(profile)}))


def _rounded(content: Any) -> Any:
    """Floats to seven digits: no machine holds still for more."""
    if isinstance(content, dict):
        return {key: _rounded(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_rounded(value) for value in content]
    return float(f"{content:.7g}") if isinstance(content, float) else content


def profiles_folder() -> Path:
    """Where profiles are kept unless a path is given; EDGEPROF_DATA overrides the user's folder."""
    import platformdirs  # most commands read no such profile

    if chosen := os.environ.get("EDGEPROF_DATA"):
        return Path(chosen).absolute() / "probes"
    return platformdirs.user_data_path("edgeprof") / "probes"
