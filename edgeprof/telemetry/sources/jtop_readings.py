"""From one update of the jtop client to readings, and whether its EMC percentage may be believed.

Knows no process. A key that is missing, renamed or of another kind costs its own signal and no
other: releases of jetson-stats differ.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from msgspec import Struct

from edgeprof.session.records import Quality
from edgeprof.telemetry.emc import from_busy
from edgeprof.telemetry.signals import MODULE_SUM, rail_signal, zone_signal
from edgeprof.telemetry.source import BoardFigures, Reading, SourceName

GPU_OFF = "the GPU is switched off"

_KIB = 1024
_LARGEST = 1e15
_SHOWN_CHARACTERS = 40
_OFF_BELOW_DEG_C = -200.0  # -256 stands for a block that is off

# The service starts from 1 kHz where it cannot read the EMC clock.
_UNKNOWN_EMC_CLOCK_KHZ = 1000.0
# Some readings overshoot; those far above are no percentages: a raw counter, a memory size.
_HIGHEST_PERCENT = 105.0
# Clocks are in kHz, those from NVML (Thor) in MHz. No GPU clock lies below 10 MHz or above 10 GHz.
_NVML_MHZ_BELOW = 10_000.0

_CHECKED_UPDATES = 10
_PAIRS_NEEDED = 3
_BUSY_ENOUGH_FRAC = 0.05
_TOLERANCE_FRAC = 0.02
_TOLERANCE_SHARE = 0.10

_Named = Iterator[tuple[str, Reading]]


class Update(Struct, frozen=True, kw_only=True, tag_field="kind", tag="update"):
    """What the client tells at once: the service's dictionaries as they are, in its units.

    ``uptime_s`` is when the service began to read, in seconds since boot with time asleep counted;
    ``boottime_offset_ns`` is what that clock is ahead of the monotonic one.
    """

    heard_ns: int
    boottime_offset_ns: int
    uptime_s: float | None = None
    memory: dict[str, Any] | None = None
    gpu: dict[str, Any] | None = None
    power: dict[str, Any] | None = None
    temperature: dict[str, Any] | None = None
    cores_online: list[Any] | None = None
    power_mode: str | None = None
    jetson_clocks: Any = None


def readings(update: Update, board: BoardFigures, *, believe_emc: bool) -> dict[str, Reading]:
    """Every signal that the update has a place for, unknown ones included."""
    return {
        **_memory(update.memory),
        **_emc(update.memory, board, believe_emc),
        **dict(_gpu(update.gpu or {})),
        **_power(update.power, board.module_rails),
        **dict(_temperatures(update.temperature or {})),
        **_cores(update.cores_online),
    }


def emc_percent(memory: Any) -> float | None:
    """What stands in the place of the EMC percentage."""
    percent = _number(memory, "EMC", "val")
    return _number(memory, "EMC") if percent is None else percent


def is_percentage(number: float) -> bool:
    return 0 <= number <= _HIGHEST_PERCENT


class Truth(NamedTuple):
    """A true busy share of the EMC, and the source that tells it."""

    source: SourceName
    busy_frac: float


class EmcCheck:
    """Compares the service's EMC percentage with a true busy share of the same board.

    Released versions divide two numbers of one unit without the factor 100 and cut the rest off,
    so that nothing is left to repair: without agreement the percentage is never used. All pairs
    are ``against`` one source of the truth.
    """

    def __init__(self, truth: Callable[[], Truth | None]) -> None:
        self.agreed = False
        self.against: SourceName | None = None
        self._truth = truth
        self._updates = 0
        self._is_told = False  # by the service
        self._before: Truth | None = None
        self._pairs: list[list[float]] = []

    def look(self, percent: float | None) -> dict[str, Any] | None:
        """Take one update; after the last one needed, the outcome with its grounds, once."""
        if self._updates == _CHECKED_UPDATES:
            return None
        self._updates += 1
        self._is_told |= percent is not None
        if truth := self._truth():
            self._compare(percent, truth)
        self._before = truth
        return self._conclude() if self._updates == _CHECKED_UPDATES else None

    def cut_short(self) -> dict[str, Any] | None:
        """The outcome where no update comes any more, if the check was at work."""
        return self._conclude() if 0 < self._updates < _CHECKED_UPDATES else None

    def _compare(self, percent: float | None, truth: Truth) -> None:
        if truth.source != self.against:
            self.against, self._before, self._pairs = truth.source, None, []
        steady = self._before is not None and _near(self._before.busy_frac, truth.busy_frac)
        if percent is not None and steady and truth.busy_frac >= _BUSY_ENOUGH_FRAC:
            self._pairs.append([percent / 100, truth.busy_frac])

    def _conclude(self) -> dict[str, Any]:
        speaks_against = self._why_not_compared() or self._disagreement()
        self.agreed = speaks_against is None
        return {
            "agreed": self.agreed,
            "against": self.against,
            "pairs": self._pairs,
            "reason": speaks_against or "every pair agrees",
        }

    def _why_not_compared(self) -> str | None:
        if self.against is None:
            return "neither the node nor tegrastats tells it"
        if not self._is_told:
            return "the service tells none"
        if self._updates < _CHECKED_UPDATES:
            return f"the recording ended after {self._updates} of {_CHECKED_UPDATES} updates"
        if len(self._pairs) < _PAIRS_NEEDED:
            return f"fewer than {_PAIRS_NEEDED} readings under a steady load to compare"
        return None

    def _disagreement(self) -> str | None:
        for said, truth in self._pairs:
            if not _near(said, truth):
                return f"said {said:.2%} where {truth:.2%} was true"
        return None


def _near(said: float, truth: float) -> bool:
    return abs(said - truth) <= max(_TOLERANCE_FRAC, _TOLERANCE_SHARE * truth)


def _emc(memory: Any, board: BoardFigures, believe: bool) -> Mapping[str, Reading]:
    khz = _number(memory, "EMC", "cur")
    clock = _reading(khz, times=1000)
    if khz is not None and khz <= _UNKNOWN_EMC_CLOCK_KHZ:
        clock = Reading(None, clock.raw)
    percent = emc_percent(memory)
    if not believe or percent is None:
        return {"emc_clock_hz": clock}
    in_range = is_percentage(percent)
    busy_frac = min(percent / 100, 1.0) if in_range else percent / 100
    derived = from_busy(busy_frac, clock.value, board.bytes_per_emc_clock, raw=str(percent))
    quality: Quality = "ok" if in_range else "suspect"
    marked = {name: reading._replace(quality=quality) for name, reading in derived.items()}
    return {**marked, "emc_clock_hz": clock}


def _gpu(gpus: Mapping[str, Any]) -> _Named:
    """The busiest of the board's own GPUs, and the highest of their clocks."""
    own = [gpu for gpu in gpus.values() if isinstance(gpu, dict) and gpu.get("type") != "discrete"]
    loads = [load for gpu in own if (load := _gpu_load(gpu)) is not None]
    clocks = [clock for gpu in own for clock in _gpu_clocks(gpu)]
    clock = max(clocks, key=lambda clock: clock.value or 0, default=Reading(None))
    unknown = Reading(None, reason=clock.reason)
    yield "gpu_busy_frac", _reading(max(loads), over=100) if loads else unknown
    yield "gpu_clock_hz", clock


def _gpu_load(gpu: Mapping[str, Any]) -> float | None:
    load = _number(gpu, "status", "load")
    # Where NVML gives nothing the service writes 0.0 and takes the clock, in kHz, from elsewhere.
    clock = _number(gpu, "freq", "cur")
    nvml_is_silent = _through_nvml(gpu) and not (clock and clock < _NVML_MHZ_BELOW)
    return None if load == 0 and nvml_is_silent else load


def _gpu_clocks(gpu: Mapping[str, Any]) -> Iterator[Reading]:
    frequencies = gpu.get("freq")
    domains = frequencies.get("GPC") if isinstance(frequencies, dict) else None
    for entry in (_number(gpu, "freq", "cur"), *(domains if isinstance(domains, list) else ())):
        clock = _number(entry)
        if clock is None or (clock == 0 and _through_nvml(gpu)):
            continue  # NVML gives none
        reading = _reading(clock, times=1_000_000 if clock < _NVML_MHZ_BELOW else 1000)
        # A GPU whose power is gated shows 0, which is no clock.
        yield reading if clock else Reading(None, reading.raw, reason=GPU_OFF)


def _through_nvml(gpu: Mapping[str, Any]) -> bool:
    return gpu.get("power_control") == "nvml"


def _power(power: Any, module_rails: tuple[str, ...]) -> Mapping[str, Reading]:
    """Rails by the board's names. A total that the service added up itself has no name and is
    left out: it counts inputs together with what they feed."""
    rails = power.get("rail") if isinstance(power, dict) else None
    total = power.get("tot") if isinstance(power, dict) else None
    entries = dict(rails) if isinstance(rails, dict) else {}
    if isinstance(total, dict) and isinstance(total.get("name"), str):
        entries[total["name"]] = total
    found = {
        signal: _rail(entry) for name, entry in entries.items() if (signal := rail_signal(name))
    }
    parts = [found.get(f"power_w.{rail}") for rail in module_rails]
    if parts:
        found[MODULE_SUM] = _sum(parts)
    return found


def _rail(entry: Any) -> Reading:
    reading = _reading(_number(entry, "power"), over=1000)
    return Reading(None, reading.raw) if _is_off(entry) else reading


def _sum(parts: list[Reading | None]) -> Reading:
    values = [part.value for part in parts if part is not None and part.value is not None]
    if len(values) < len(parts):
        return Reading(None)
    return Reading(sum(values))


def _temperatures(zones: Mapping[str, Any]) -> _Named:
    """The first zone of a name counts."""
    taken = set()
    for zone, entry in zones.items():
        signal = zone_signal(zone)
        if signal is None or signal in taken:
            continue
        taken.add(signal)
        degrees = _number(entry, "temp")
        reading = _reading(degrees)
        is_off = _is_off(entry) or (degrees is not None and degrees < _OFF_BELOW_DEG_C)
        yield signal, Reading(None, reading.raw) if is_off else reading


def _memory(memory: Any) -> Mapping[str, Reading]:
    return {
        "ram_used_bytes": _reading(_number(memory, "RAM", "used"), times=_KIB),
        "ram_total_bytes": _reading(_number(memory, "RAM", "tot") or None, times=_KIB),
        "swap_used_bytes": _reading(_number(memory, "SWAP", "used"), times=_KIB),
    }


def _cores(cores: list[Any] | None) -> Mapping[str, Reading]:
    known = [core for core in cores or () if isinstance(core, bool)]
    return {"cpu_online": Reading(sum(known) if known else None)}


def _is_off(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("online") is False


def _number(holder: Any, *path: str) -> float | None:
    """The number at the end of the path; None where the path or a number is missing."""
    for key in path:
        holder = holder.get(key) if isinstance(holder, dict) else None
    if isinstance(holder, bool) or not isinstance(holder, int | float):
        return None
    return holder if -_LARGEST < holder < _LARGEST else None


def _reading(number: float | None, *, times: int = 1, over: int = 1) -> Reading:
    """``number`` in the unit of the signal, and as it stood there."""
    if number is None:
        return Reading(None)
    return Reading(number * times / over, str(number)[:_SHOWN_CHARACTERS])
