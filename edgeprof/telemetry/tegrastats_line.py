"""Reads one line of tegrastats, of any release from JetPack 3 to 7, and says which readings it
holds. Knows nothing of clocks, processes and boards.

A line is read field by field: what has no known form is skipped and kept in ``unread``, and costs
no other field. A number with a decimal comma is such a field; it is never guessed at.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from msgspec import Struct

from edgeprof.hardware.board_files import printable
from edgeprof.telemetry.emc import from_busy
from edgeprof.telemetry.signals import MODULE_SUM, rail_signal, zone_signal
from edgeprof.telemetry.source import Reading

LONGEST_LINE = 1 << 16  # characters
_SWITCHED_OFF_DEG_C = -256.0

_PLAUSIBLE_DEG_C = (-40.0, 150.0)
_GPU_CLOCK_HZ = (10e6, 10e9)
_EMC_CLOCK_HZ = (40e6, 10e9)  # a TX2 at rest runs at 40.8 MHz, which is printed as 40
_LARGEST_POWER_W = 1000.0
_LARGEST_MEMORY_BYTES = 2.0**50
_OVERSHOOT = 1.05  # two counters read one after the other give a little more than 100 %
_MEMORIES = ("RAM", "SWAP", "IRAM")
_MOST_REMEMBERED = 1024  # what comes again in line after line
_BYTES = {"k": 2.0**10, "m": 2.0**20, "g": 2.0**30, "t": 2.0**40}


class Load(Struct, frozen=True, kw_only=True):
    """An engine: the share of time or of clocks that it was busy, and the highest of its clocks.

    A clock of 0 is that of an engine without power: None.
    """

    busy_frac: float | None
    clock_hz: float | None
    raw: str


class Core(Struct, frozen=True, kw_only=True):
    """A processor core; ``on`` is None where the line holds a placeholder."""

    on: bool | None
    busy_frac: float | None = None
    clock_hz: float | None = None


class Memory(Struct, frozen=True, kw_only=True):
    """RAM or swap; ``raw`` also tells the largest free blocks."""

    used_bytes: float
    total_bytes: float
    raw: str


class Rail(Struct, frozen=True, kw_only=True):
    """A power rail now. The average and highest value behind it stay in ``raw``."""

    power_w: float | None
    raw: str


class TegrastatsLine(Struct, frozen=True, kw_only=True):
    """What one line says, in SI units; None is what it does not say.

    ``stamp`` is the printed local time in steps of a second: a label. Zones and rails go by the
    names that are printed, cores by their number. ``unread`` holds what was skipped.
    """

    stamp: datetime | None
    ram: Memory | None
    swap: Memory | None
    cores: tuple[Core, ...] | None
    cores_raw: str | None
    emc: Load | None
    gpu: Load | None
    temps_c: Mapping[str, float]
    rails: Mapping[str, Rail]
    unread: tuple[str, ...]


def parse_line(text: str) -> TegrastatsLine | None:
    """None for what is no line of tegrastats, and for one that was torn: with a bracket that does
    not close, two run together, or a memory without its unit at the end."""
    if len(text) > LONGEST_LINE:
        return None
    text = " ".join(_CONTROLS.sub(" ", text).split()).replace("[N/A]", "N/A")
    if text.count("[") != text.count("]") or text.count("(") != text.count(")"):
        return None
    findings = _Findings(text)
    for match in _FIELD.finditer(text):
        if not _TAKE[match.lastgroup or ""](findings, match):
            findings.skip(match)
    return findings.line()


def begins_whole(text: str) -> bool:
    """Whether it begins as whole lines do: with a stamp, or with RAM."""
    return _BEGINNING.match(text) is not None


def readings(
    line: TegrastatsLine, bytes_per_clock: float | None, *, module_rails: Sequence[str] = ()
) -> Mapping[str, Reading]:
    """The signals that the line tells of, by name; no entry is unknown too.

    What lies outside its range is suspect and kept. ``module_rails`` are summed where the board
    has no total rail and the line holds them all.
    """
    return {
        **_emc_readings(line.emc, bytes_per_clock),
        **_gpu_readings(line.gpu),
        **_core_readings(line.cores, line.cores_raw),
        **_memory_readings(line.ram, line.swap),
        **_power_readings(line.rails, module_rails),
        **_temperature_readings(line.temps_c),
    }


_CONTROLS = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\[\]()])?|[\x00-\x1f\x7f-\x9f]")
_NAME = r"(?P<name>[A-Z][\w.-]{0,63})"
_NUMBER = r"\d{1,15}(?:\.\d{1,9})?"
_NOTHING = r"(?:off|n/a|none|nan|unknown|--?)"
_CLOCK = rf"(?:{_NUMBER}|{_NOTHING})"
_CLOCKS = rf"(?P<clocks>{_CLOCK}|\[{_CLOCK}(?:, ?{_CLOCK})*\])(?:MHz)?"
_POWER = rf"(?:-?{_NUMBER}|{_NOTHING})(?:m?W)?"
_NUMBERS = re.compile(_NUMBER, re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_BEGINNING = re.compile(r"\s*(?:\d\d-\d\d-\d{4} |RAM )", re.ASCII)
_CORE = re.compile(
    rf"(?P<busy>-?{_NUMBER})%(?:@(?P<clock>{_NUMBER})(?:MHz)?)?|(?P<off>off)|{_NOTHING}",
    re.ASCII | re.IGNORECASE,
)
# What no other program would print for a rail without a unit.
_SURE_RAIL = re.compile(r"VDD|POM|VIN")


class _Findings:
    """What was found in a line so far. Each ``take`` says whether it made sense of its field."""

    def __init__(self, text: str) -> None:
        self._stamp: datetime | None = None
        self._memory: dict[str, Memory] = {}
        self._cores: tuple[Core, ...] | None = None
        self._cores_raw: str | None = None
        self._loads: dict[str, list[Load]] = {"emc": [], "gpu": []}
        self._temps_c: dict[str, float] = {}
        self._rails: dict[str, Rail] = {}
        self._unread: list[tuple[int, int]] = []
        self._text = text
        self._sure = False  # that this is tegrastats
        self._torn = False

    def line(self) -> TegrastatsLine | None:
        """The whole; None for what is torn or of another program."""
        if self._torn or not self._sure:
            return None
        return TegrastatsLine(
            stamp=self._stamp,
            ram=self._memory.get("RAM"),
            swap=self._memory.get("SWAP"),
            cores=self._cores,
            cores_raw=self._cores_raw,
            emc=_joined(self._loads["emc"]),
            gpu=_joined(self._loads["gpu"]),
            temps_c=self._temps_c,
            rails=self._rails,
            unread=tuple(printable(self._text[start:end]) for start, end in self._unread),
        )

    def skip(self, match: re.Match[str]) -> None:
        """Words without a form that follow each other count as one field."""
        start = match.start()
        if self._unread and self._unread[-1][1] + 1 == start:
            start = self._unread.pop()[0]
        self._unread.append((start, match.end()))

    def take_stamp(self, match: re.Match[str]) -> bool:
        # A second stamp, or one behind a field, begins another line.
        self._torn |= self._sure or self._stamp is not None
        month, day, year, hour, minute, second = map(int, _DIGITS.findall(match["moment"]))
        try:
            self._stamp = datetime(year, month, day, hour, minute, second)
        except ValueError:
            return False
        return True

    def take_memory(self, match: re.Match[str]) -> bool:
        name, unit_bytes = match["name"].upper(), _BYTES[match["total_unit"].lower()]
        used_unit = match["used_unit"]
        used_bytes = float(match["used"]) * (_BYTES[used_unit.lower()] if used_unit else unit_bytes)
        self._torn |= name in self._memory
        self._memory[name] = Memory(
            used_bytes=used_bytes, total_bytes=float(match["total"]) * unit_bytes, raw=match[0]
        )
        self._sure |= name in ("RAM", "SWAP")
        return True

    def take_cores(self, match: re.Match[str]) -> bool:
        cores = [_core(item.strip(), match["shared"]) for item in match["items"].split(",")]
        known = tuple(core for core in cores if core is not None)
        self._torn |= self._cores_raw is not None
        self._cores_raw = match[0]
        self._sure = True
        if len(known) < len(cores):
            return False  # a decimal comma, or a form nobody has seen
        self._cores = known
        return True

    def take_load(self, match: re.Match[str]) -> bool:
        busy = match["busy"]
        self._add_load(match, None if busy is None else float(busy) / 100, match["clocks"])
        return True

    def take_number(self, match: re.Match[str]) -> bool:
        """A number alone is a clock where it says so; else it may be what is left of a share."""
        if self._is_memory(match):
            return False
        self._add_load(match, None, match["clock"] if match["unit"] else None)
        return True

    def take_threads(self, match: re.Match[str]) -> bool:
        return True  # share of time of the code translator: no signal

    def take_word(self, match: re.Match[str]) -> bool:
        return False

    def take_zone(self, match: re.Match[str]) -> bool:
        self._temps_c.setdefault(match["name"], float(match["temp"]))
        self._sure = True
        return True

    def take_rail(self, match: re.Match[str]) -> bool:
        if self._is_memory(match):
            return False
        name, has_unit = match["name"], match[0].upper().endswith("W")
        if not has_unit and not name.isupper():
            return False  # `page 3/5`
        self._rails.setdefault(name, Rail(power_w=_power_w(match["now"]), raw=match[0]))
        self._sure |= has_unit or _SURE_RAIL.match(name) is not None
        return True

    def _add_load(
        self, match: re.Match[str], busy_frac: float | None, clocks_mhz: str | None
    ) -> None:
        """The load of any other engine is no signal."""
        kind = _engine(match["name"])
        if kind is not None:
            load = Load(busy_frac=busy_frac, clock_hz=_highest_hz(clocks_mhz), raw=match[0])
            self._loads[kind].append(load)
            self._sure = True

    def _is_memory(self, match: re.Match[str]) -> bool:
        """Whether it is a memory's name before a figure without its unit; at the end it was cut."""
        if match["name"].upper() not in _MEMORIES:
            return False
        self._torn |= match.end() == len(self._text)
        return True


def _pattern(form: str) -> re.Pattern[str]:
    """A field ends where a word ends."""
    return re.compile(rf"{form}(?= |$)", re.ASCII | re.IGNORECASE)


_ENGINES = _pattern(r"(?:(?P<emc>EMC)|GR3D\d?)(?:_FREQ|_LOAD)?")

# No text has two of these forms but that of a word. The last group to close names the form.
_FIELD = _pattern(
    rf"(?:{_NAME}(?:"
    rf"(?P<zone>@(?P<temp>-?{_NUMBER})C(?:/-?{_NUMBER}C)?)"
    rf"|(?P<load> (?=[^ ])(?:(?P<busy>-?{_NUMBER})%|{_NOTHING}%?)?(?:@{_CLOCKS})?)"
    rf"|(?P<rail> (?P<now>{_POWER})(?:(?:/{_POWER}){{1,2}}|(?<=\dW)|(?<=\dmW)))"
    rf"|(?P<number> (?P<clock>{_NUMBER})(?P<unit>MHz)?)"
    rf"|(?P<memory> (?P<used>{_NUMBER})(?:(?P<used_unit>[kMGT])i?B)?"
    rf"/(?P<total>{_NUMBER})(?P<total_unit>[kMGT])i?B(?: ?\([^()]*\))*))"
    rf"|(?P<cores>CPU ?\[(?P<items>[^\[\]]*)\](?:@(?P<shared>{_NUMBER})(?:MHz)?)?)"
    rf"|(?P<threads>MTS fg {_NUMBER}% bg {_NUMBER}%)"
    r"|(?P<stamp>(?P<moment>\d\d-\d\d-\d{4} \d\d:\d\d:\d\d)(?:\.\d{1,9})?)"
    r"|(?P<word>[^ ]+))"
)
_TAKE: Mapping[str, Callable[[_Findings, re.Match[str]], bool]] = {
    "zone": _Findings.take_zone,
    "load": _Findings.take_load,
    "rail": _Findings.take_rail,
    "number": _Findings.take_number,
    "memory": _Findings.take_memory,
    "cores": _Findings.take_cores,
    "threads": _Findings.take_threads,
    "stamp": _Findings.take_stamp,
    "word": _Findings.take_word,
}


@lru_cache(_MOST_REMEMBERED)
def _engine(name: str) -> str | None:
    """``emc``, ``gpu``, or None for any other."""
    match = _ENGINES.fullmatch(name)
    return None if match is None else "emc" if match["emc"] else "gpu"


@lru_cache(_MOST_REMEMBERED)
def _core(item: str, shared_mhz: str | None) -> Core | None:
    """None for an item without a known form. One clock behind the list is that of all."""
    match = _CORE.fullmatch(item)
    if match is None:
        return None
    if match["off"]:
        return Core(on=False)
    if match["busy"] is None:
        return Core(on=None)
    return Core(
        on=True,
        busy_frac=float(match["busy"]) / 100,
        clock_hz=_highest_hz(match["clock"] or shared_mhz),
    )


@lru_cache(_MOST_REMEMBERED)
def _power_w(text: str) -> float | None:
    """mW, also without a unit."""
    number = _NUMBERS.search(text)
    if number is None:
        return None
    in_watts = text.lower().endswith("w") and not text.lower().endswith("mw")
    return float(number[0]) / (1 if in_watts else 1000) * (-1 if text.startswith("-") else 1)


def _highest_hz(clocks_mhz: str | None) -> float | None:
    """The highest of one clock or a list of them; 0 is no clock."""
    numbers = _NUMBERS.findall(clocks_mhz or "")
    return max((float(number) * 1e6 for number in numbers), default=0.0) or None


def _joined(loads: Sequence[Load]) -> Load | None:
    """``GR3D_FREQ`` and ``GR3D2_FREQ`` are the two clocks of one GPU."""
    if not loads:
        return None
    busy = [load.busy_frac for load in loads if load.busy_frac is not None]
    clocks = [load.clock_hz for load in loads if load.clock_hz is not None]
    return Load(
        busy_frac=max(busy, default=None),
        clock_hz=max(clocks, default=None),
        raw=" ".join(load.raw for load in loads),
    )


def _emc_readings(emc: Load | None, bytes_per_clock: float | None) -> Mapping[str, Reading]:
    if emc is None:
        return {}
    clock = _within(emc.clock_hz, *_EMC_CLOCK_HZ, emc.raw)
    # `0%` alone is what a user without root is shown: not a zero that was measured.
    unknown = emc.busy_frac == 0 and emc.clock_hz is None
    busy = _share(None if unknown else emc.busy_frac, emc.raw)
    derived = from_busy(busy.value, clock.value, bytes_per_clock, raw=emc.raw)
    bandwidth = derived["dram_bandwidth_bytes_per_s"]
    if clock.quality == "suspect" and busy.value is not None:
        busy = busy._replace(quality="suspect")  # it is a share of that clock
    if busy.quality == "suspect" and bandwidth.value is not None:
        bandwidth = bandwidth._replace(quality="suspect")
    return {
        "emc_clock_hz": clock,
        "emc_busy_frac": busy,
        "dram_bandwidth_bytes_per_s": bandwidth,
    }


def _gpu_readings(gpu: Load | None) -> Mapping[str, Reading]:
    if gpu is None:
        return {}
    return {
        "gpu_busy_frac": _share(gpu.busy_frac, gpu.raw),
        "gpu_clock_hz": _within(gpu.clock_hz, *_GPU_CLOCK_HZ, gpu.raw),
    }


def _core_readings(cores: Sequence[Core] | None, raw: str | None) -> Mapping[str, Reading]:
    """The mean over the cores that are on."""
    if cores is None:
        return {} if raw is None else {"cpu_busy_frac": Reading(None, raw)}
    shares = [_share(core.busy_frac, None) for core in cores if core.busy_frac is not None]
    values = [share.value for share in shares if share.value is not None]
    mean = Reading(sum(values) / len(values) if values else None, raw)
    if any(share.quality == "suspect" for share in shares):
        mean = mean._replace(quality="suspect")
    online = None if any(core.on is None for core in cores) else sum(bool(c.on) for c in cores)
    return {"cpu_busy_frac": mean, "cpu_online": Reading(online)}


def _memory_readings(ram: Memory | None, swap: Memory | None) -> Mapping[str, Reading]:
    found: dict[str, Reading] = {}
    if ram is not None:
        most = min(ram.total_bytes, _LARGEST_MEMORY_BYTES)
        found["ram_used_bytes"] = _within(ram.used_bytes, 0.0, most, ram.raw)
        found["ram_total_bytes"] = _within(ram.total_bytes, 1.0, _LARGEST_MEMORY_BYTES, ram.raw)
    if swap is not None:
        most = min(swap.total_bytes, _LARGEST_MEMORY_BYTES)
        found["swap_used_bytes"] = _within(swap.used_bytes, 0.0, most, swap.raw)
    return found


def _power_readings(
    rails: Mapping[str, Rail], module_rails: Sequence[str]
) -> Mapping[str, Reading]:
    found: dict[str, Reading] = {}
    for name, rail in rails.items():
        signal = _rail_signal(name)
        if signal is not None and signal not in found:
            found[signal] = _power(rail.power_w, rail.raw)
    parts = [found.get(_rail_signal(rail) or "", Reading(None)) for rail in module_rails]
    values = [part.value for part in parts if part.value is not None]
    if values and len(values) == len(parts) and "power_w.total" not in found:
        suspect = any(part.quality == "suspect" for part in parts)
        found[MODULE_SUM] = Reading(sum(values), None, "suspect" if suspect else "ok")
    return found


def _temperature_readings(temps_c: Mapping[str, float]) -> Mapping[str, Reading]:
    found: dict[str, Reading] = {}
    for zone, temp_c in temps_c.items():
        signal = _zone_signal(zone)
        if signal is not None and signal not in found:
            found[signal] = _temperature(zone, temp_c)
    return found


@lru_cache(_MOST_REMEMBERED)
def _power(power_w: float | None, raw: str) -> Reading:
    return _within(power_w, 0.0, _LARGEST_POWER_W, raw)


@lru_cache(_MOST_REMEMBERED)
def _temperature(zone: str, temp_c: float) -> Reading:
    known = None if temp_c == _SWITCHED_OFF_DEG_C else temp_c
    return _within(known, *_PLAUSIBLE_DEG_C, f"{zone}@{temp_c:g}C")


_rail_signal = lru_cache(_MOST_REMEMBERED)(rail_signal)
_zone_signal = lru_cache(_MOST_REMEMBERED)(zone_signal)


def _share(share: float | None, raw: str | None) -> Reading:
    if share is not None and 1 < share <= _OVERSHOOT:
        return Reading(1.0, raw)
    return _within(share, 0.0, 1.0, raw)


def _within(value: float | None, low: float, high: float, raw: str | None) -> Reading:
    """Outside the range a value is kept and not believed."""
    believed = value is None or low <= value <= high
    return Reading(value, raw, "ok" if believed else "suspect")
