"""What a board is: memory, arithmetic units and power modes, each figure with its source.

A profile is data (one TOML file a board, units in the keys). Peaks are derived here, by one
formula each; what a board sustains is kept apart from them. A board whose figures are not published
is an ``AnnouncedBoard``, from which nothing can be derived. Knows nothing of models.
"""

from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from edgeprof.errors import EdgeprofError, FileFault, UsageFault
from edgeprof.naming import name_key, unknown_name
from edgeprof.tomlfile import convert, read_toml

Status = Literal["measured", "documented", "in code", "inferred", "assumed", "unverified"]
DataType = Literal["fp16", "bf16", "fp32", "int8", "int4", "fp8", "fp4"]
Positive = Annotated[float, Meta(ge=1e-3, lt=1e9)]  # finite, and so is what follows from it
Count = Annotated[int, Meta(gt=0, le=1_000_000)]
Share = Annotated[float, Meta(gt=0, le=1)]
Text = Annotated[str, Meta(min_length=1)]

# Of the memory on the module, what Linux sees where nobody has looked (carve-outs of firmware and
# display take the rest): 7620 of 8192 MiB on an Orin Nano.
VISIBLE_SHARE = 0.93


class Dram(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The memory that CPU and GPU share.

    ``emc_counter_established`` is False for a board of which nobody knows what its counter of
    memory traffic counts.
    """

    type: Text
    size_gib: Positive
    bus_width_bits: Count
    emc_max_mhz: Positive
    emc_counter_established: bool = True
    visible_mib: Positive | None = None
    visible_source: Text | None = None


class Gpu(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The GPU. ``flop_per_clock_per_sm`` holds dense rates; a multiply-add counts as two.

    A data type that the GPU has no unit for, or whose rate is not published, is left out.
    """

    architecture: Text
    compute_capability: Text
    sms: Count
    l2_mib: Positive | None = None
    flop_per_clock_per_sm: dict[DataType, Positive]
    rates_source: Text
    rates_status: Status


class Sustained(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The share of peak bandwidth that real work reaches, with its band."""

    fraction: Share
    low: Share
    high: Share
    method: Text
    source: Text
    status: Status

    def __post_init__(self) -> None:
        if not self.low <= self.fraction <= self.high:
            raise ValueError(f"needs low <= fraction <= high, got {self.low}, {self.fraction}, ...")


class Power(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Disjoint rails whose sum stands for a board that has no total rail; ``scope`` says for what
    of it. It is never what the wall gives."""

    module_rails: Annotated[list[Text], Meta(min_length=2)]
    scope: Text
    source: Text

    def __post_init__(self) -> None:
        if len(set(self.module_rails)) < len(self.module_rails):
            raise ValueError("module_rails names a rail twice, whose power would count twice")


class PowerMode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One nvpmodel mode: the clocks and units that it leaves on. Unknown is left out.

    ``source`` and ``status`` are those of the profile where a mode does not give its own. A board
    without nvpmodel has one mode, named ``default``, and no id.
    """

    name: Text
    id: Annotated[int, Meta(ge=0)] | None = None
    emc_mhz: Positive
    sms: Count | None = None
    gpu_mhz: Positive | None = None
    cpu_cores: Count | None = None
    cpu_mhz: Positive | None = None
    power_w: Positive | None = None
    notes: Text | None = None
    source: Text | None = None
    status: Status | None = None


class AnnouncedBoard(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A board that is announced, but without the figures that a roof is drawn from."""

    name: Text
    title: Text
    announced: Text
    not_published: Annotated[list[Text], Meta(min_length=1)]
    soc: Text
    notes: Text | None = None
    source: Text
    status: Status

    @property
    def missing(self) -> str:
        """The one line that says why nothing can be computed."""
        return (
            f"{self.title} ({self.name}) is announced {self.announced};"
            f" not published: {', '.join(self.not_published)}"
        )


class DeviceProfile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A board with all its power modes.

    ``super_firmware`` tells apart two profiles of one part number; ``boot_spec`` is the part of a
    TNSPEC that names the board where its part number is not known.
    """

    name: Text
    title: Text
    default_mode: Text
    part_numbers: list[Text]
    device_tree_models: list[Text]
    super_firmware: bool = False
    boot_spec: Text | None = None
    soc: Text
    cpu: Text
    notes: Text | None = None
    source: Text
    status: Status
    dram: Dram
    gpu: Gpu | None = None
    sustained: Sustained | None = None
    power: Power | None = None
    modes: Annotated[list[PowerMode], Meta(min_length=1)] = field(name="mode")

    def __post_init__(self) -> None:
        names = [mode.name for mode in self.modes]
        if len({_mode_key(name) for name in names}) < len(names):
            raise ValueError("two modes have the same name")
        if self.default_mode not in names:
            raise ValueError(f"default_mode '{self.default_mode}' is not among {', '.join(names)}")
        sms = 0 if self.gpu is None else self.gpu.sms
        for mode in self.modes:
            if mode.sms is not None and mode.sms > sms:
                raise ValueError(f"mode {mode.name} has {mode.sms} SMs on of {sms}")
            if mode.emc_mhz > self.dram.emc_max_mhz:
                raise ValueError(
                    f"mode {mode.name} has emc_mhz {mode.emc_mhz:g},"
                    f" above dram.emc_max_mhz {self.dram.emc_max_mhz:g}"
                )

    @property
    def dram_bytes(self) -> int:
        """The memory on the module."""
        return round(self.dram.size_gib * 2**30)

    @property
    def visible_dram_bytes(self) -> int:
        """What is left for Linux and everything that runs on it."""
        if self.dram.visible_mib is not None:
            return round(self.dram.visible_mib * 2**20)
        return round(VISIBLE_SHARE * self.dram_bytes)

    def mode(self, name: str | None = None) -> PowerMode:
        """A mode by its name in any spelling, never by its id: ids differ between boards."""
        wanted = self.default_mode if name is None else name
        found = self.find_mode(wanted)
        if found is not None:
            return found
        names = [mode.name for mode in self.modes]
        raise UsageFault(unknown_name(f"power mode of {self.name}", wanted, names))

    def find_mode(self, name: str) -> PowerMode | None:
        """As ``mode``, with None for a name not known; either half names ``MAXN/10W``."""
        wanted = _mode_key(name)
        whole = [mode for mode in self.modes if _mode_key(mode.name) == wanted]
        halves = [m for m in self.modes if wanted in map(_mode_key, m.name.split("/"))]
        return next(iter(whole + halves), None)

    def peak_bandwidth_bytes_per_s(self, mode: PowerMode) -> float:
        """EMC clock x 2 transfers a clock x bus width: nothing moves bytes faster."""
        return mode.emc_mhz * 1e6 * 2 * self.dram.bus_width_bits / 8

    def sustained_bandwidth_bytes_per_s(self, mode: PowerMode) -> float | None:
        """What real work reaches, where anybody has measured it."""
        if self.sustained is None:
            return None
        return self.peak_bandwidth_bytes_per_s(mode) * self.sustained.fraction

    def peak_flop_per_s(self, mode: PowerMode) -> dict[str, float | None]:
        """SMs on x GPU clock x dense rate, a data type; None where the clock is not published."""
        if self.gpu is None:
            return {}
        rates = self.gpu.flop_per_clock_per_sm
        if mode.sms is None or mode.gpu_mhz is None:
            return dict.fromkeys(rates)
        return {dtype: mode.sms * mode.gpu_mhz * 1e6 * rate for dtype, rate in rates.items()}


def load_profile(path: Path) -> DeviceProfile:
    """The profile in a TOML file; a board that is only announced has none."""
    board = load_board(path)
    if isinstance(board, AnnouncedBoard):
        raise EdgeprofError(board.missing)
    return board


def load_board(path: Path) -> DeviceProfile | AnnouncedBoard:
    """What a TOML file says of a board; its name is that of the file."""
    content = read_toml(path)
    board: DeviceProfile | AnnouncedBoard
    if "announced" in content:
        board = convert(content, AnnouncedBoard, path)
    else:
        board = convert(content, DeviceProfile, path)
    if board.name != path.stem:
        raise FileFault(f"{path}: name is '{board.name}', but the file is named '{path.stem}'")
    return board


def _mode_key(name: str) -> str:
    """``MODE_30W`` and ``30w`` are one mode."""
    return name_key(name).removeprefix("mode")
