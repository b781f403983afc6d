"""The live view of a board: what it shows now, as a block for a terminal, a line, or a document.

Takes records as they come; knows nothing of where they come from, of clocks and of terminals.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from edgeprof.analysis.channels import source_rank
from edgeprof.analysis.statistics import standard_deviation
from edgeprof.hardware.board_files import printable
from edgeprof.naming import numeric_order
from edgeprof.report.signal_words import label, label_absent, shown
from edgeprof.report.table import fold
from edgeprof.session.records import Event, Quality, Sample, Signal, WindowKind
from edgeprof.units import significant

SCHEMA = "edgeprof.watch/1"

_REPLAY = "replay"
_ALL_SIGNALS = "*"  # of an absence that is the whole source's
_RATE_READINGS = 200  # the latest ones tell how often a signal comes
_STALE_INTERVALS = 3.0
_STALE_S = 3.0
_LEAST_WIDTH = 20

_SINGLE = (
    "dram_bandwidth_bytes_per_s", "emc_busy_frac", "emc_clock_hz", "gpu_busy_frac", "gpu_clock_hz",
    "cpu_busy_frac", "cpu_clock_hz", "cpu_online", "ram_used_bytes", "ram_total_bytes",
    "swap_used_bytes",
)  # fmt: skip
_FAMILIES = ("power_w", "temp_c", "cooling_state", "throttle_events")
_RATED = ("dram_bandwidth_bytes_per_s", "emc_busy_frac", "gpu_busy_frac", "power_w.total",
          "cpu_busy_frac", "ram_used_bytes")  # fmt: skip
_EXPECTED = ("dram_bandwidth_bytes_per_s", "gpu_busy_frac", "power_w", "temp_c")


class LiveSignal(Struct, frozen=True, kw_only=True):
    """A signal now: ``value`` is the mean of what came since the frame before, or the last reading.

    ``suspect`` says why the value is not to be believed.
    """

    source: str
    value: float | None
    quality: Quality
    suspect: str | None
    window_s: float | None
    window_kind: WindowKind
    delivered_hz: float | None
    jitter_s: float | None


class Frame(Struct, frozen=True, kw_only=True):
    """Everything at one moment, ``t_s`` after the start. Names are in numeric order."""

    t_s: float
    device: dict[str, Any]
    signals: dict[str, LiveSignal]
    absent: list[dict[str, Any]]
    suspect: list[dict[str, Any]]

    def value(self, name: str) -> float | None:
        """To be believed; None where suspect or unknown."""
        signal = self.signals.get(name)
        return None if signal is None or signal.suspect is not None else signal.value

    def members(self, family: str) -> dict[str, float | None]:
        """The signals of a family by the name of rail, zone or counter."""
        start = f"{family}."
        return {
            name.removeprefix(start): self.value(name)
            for name in self.signals
            if name.startswith(start)
        }

    @property
    def stamps(self) -> list[Quality]:
        """What must stand over all figures; what is simulated may be replayed as well."""
        seen: set[str] = {signal.quality for signal in self.signals.values()}
        if any(signal.source == _REPLAY for signal in self.signals.values()):
            seen.add("replayed")
        return [quality for quality in ("simulated", "replayed") if quality in seen]


class Live:
    """What has come so far; ``frame`` gives the picture of now."""

    def __init__(self, device: Mapping[str, Any], start_ns: int) -> None:
        self.started = False
        self._device = dict(device)
        self._start_ns = start_ns
        self._channels: dict[int, _Channel] = {}
        self._absent: dict[tuple[str, str], dict[str, Any]] = {}
        self._suspect: dict[tuple[str, str], str] = {}

    def take(self, record: Signal | Sample | Event) -> None:
        if isinstance(record, Signal):
            known = self._channels.get(record.id)
            if known is None:
                self._channels[record.id] = _Channel(record)
            else:
                known.signal = record
        elif isinstance(record, Sample):
            self.started = True
            if (channel := self._channels.get(record.signal_id)) is not None:
                channel.take(record)
        elif record.kind in ("absent", "suspect", "gap"):
            self._note(record)

    def frame(self, now_ns: int, interval_s: float) -> Frame:
        """The picture since the last one; readings much older than ``interval_s`` are no more."""
        stale_s = max(_STALE_INTERVALS * interval_s, _STALE_S)
        best: dict[str, tuple[int, LiveSignal]] = {}
        for channel in self._channels.values():
            signal = channel.signal
            live = channel.now(now_ns, stale_s, self._suspect.get((signal.name, signal.source)))
            if live is None:
                continue
            rank = source_rank(signal.source) + 100 * (live.suspect is not None)
            if signal.name not in best or rank < best[signal.name][0]:
                best[signal.name] = (rank, live)
        signals = {name: best[name][1] for name in sorted(best, key=numeric_order)}
        return Frame(
            t_s=(now_ns - self._start_ns) / 1e9,
            device=self._device,
            signals=signals,
            absent=list(self._missing(signals, now_ns, stale_s)),
            suspect=[
                {"signal": name, "source": source, "reason": reason}
                for (name, source), reason in self._suspicions(signals).items()
            ],
        )

    def _note(self, event: Event) -> None:
        detail = {
            key: value if isinstance(value := event.detail.get(key), str) else None
            for key in ("signal", "source", "reason", "fix")
        }
        key = (detail["signal"] or "", detail["source"] or "")
        if event.kind == "suspect":
            self._suspect.setdefault(key, detail["reason"] or "reason not recorded")
        elif event.kind == "absent" or detail["signal"] is not None:  # else a gap of a whole source
            self._absent[key] = detail

    def _suspicions(self, signals: Mapping[str, LiveSignal]) -> dict[tuple[str, str], str]:
        """Those that were told of, and those that readings themselves came with."""
        marked = {
            (name, signal.source): signal.suspect
            for name, signal in signals.items()
            if signal.suspect is not None
        }
        return {**self._suspect, **marked}

    def _missing(
        self, signals: Mapping[str, LiveSignal], now_ns: int, stale_s: float
    ) -> Iterator[dict[str, Any]]:
        """What sources said they cannot give and no other gave; then what came and comes no more;
        then what nobody spoke of."""
        given = _with_families(signals)
        missing = [detail for detail in self._absent.values() if detail["signal"] not in given]
        explained = {detail["signal"] for detail in missing}
        ended = {detail["source"] for detail in missing if detail["signal"] == _ALL_SIGNALS}
        for channel in self._channels.values():
            signal = channel.signal
            reason = channel.silence(now_ns, self._start_ns, stale_s)
            if reason is None or signal.source in ended or signal.name in given | explained:
                continue
            explained.add(signal.name)
            missing.append(
                {"signal": signal.name, "source": signal.source, "reason": reason, "fix": None}
            )
        yield from missing
        promised = _with_families(channel.signal.name for channel in self._channels.values())
        told = _with_families(str(detail["signal"]) for detail in missing)
        for name in _EXPECTED:
            if self.started and name not in promised | told:
                reason = "no source gives it on this machine"
                yield {"signal": name, "source": None, "reason": reason, "fix": None}


def _with_families(names: Iterable[str]) -> set[str]:
    """The names and, of ``temp_c.gpu``, ``temp_c`` as well."""
    return {part for name in names for part in (name, name.partition(".")[0])}


class _Channel:
    """One signal of one source: the readings since the last frame, and the times of the latest."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self._known_ns: int | None = None  # the last reading with a value
        self._new: list[float] = []
        self._last: Sample | None = None
        self._times_ns: deque[int] = deque(maxlen=_RATE_READINGS)

    def take(self, sample: Sample) -> None:
        self._times_ns.append(sample.t0_ns)
        self._last = sample
        if sample.value is not None:
            self._known_ns = sample.t1_ns
            self._new.append(sample.value)

    def silence(self, now_ns: int, start_ns: int, stale_s: float) -> str | None:
        """Why it has no value, where it had none for long; the same words as long as that lasts."""
        since_ns = start_ns if self._known_ns is None else self._known_ns
        if (now_ns - since_ns) / 1e9 <= stale_s:
            return None
        what = "nothing" if self._last is None or self._last.t1_ns == self._known_ns else "no value"
        if self._known_ns is None:
            return f"{what} has come yet"
        return f"{what} has come since {(since_ns - start_ns) / 1e9:.1f} s"

    def now(self, now_ns: int, stale_s: float, suspicion: str | None) -> LiveSignal | None:
        """None where nothing came lately."""
        last, new = self._last, self._new
        self._new = []
        if last is None or (now_ns - last.t1_ns) / 1e9 > stale_s:
            return None
        value = statistics.fmean(new) if new else last.value
        if value is None:
            return None
        if suspicion is None and last.quality == "suspect":
            suspicion = "its source marked the reading as suspect"
        intervals = [
            (later - earlier) / 1e9
            for earlier, later in zip(self._times_ns, list(self._times_ns)[1:], strict=False)
        ]
        mean_s = statistics.fmean(intervals) if intervals else 0.0
        return LiveSignal(
            source=self.signal.source,
            value=value,
            quality=last.quality,
            suspect=suspicion,
            window_s=self.signal.window_s,
            window_kind=self.signal.window_kind,
            delivered_hz=1 / mean_s if mean_s > 0 else None,
            jitter_s=standard_deviation(intervals),
        )


def live_document(frame: Frame) -> dict[str, Any]:
    """``edgeprof.watch/1``: SI units in the keys, unknown and suspect are null; what a suspect
    channel showed stands under ``signals``."""
    device = frame.device
    return {
        "schema": SCHEMA,
        "t_s": round(frame.t_s, 3),
        "simulated": "simulated" in frame.stamps,
        "replayed": "replayed" in frame.stamps,
        "device": {
            key: device.get(key)
            for key in (
                "name", "profile", "power_mode", "peak_bandwidth_bytes_per_s",
                "sustained_bandwidth_bytes_per_s",
            )
        },
        **{name: frame.value(name) for name in _SINGLE},
        **{family: frame.members(family) for family in _FAMILIES},
        "signals": frame.signals,
        "absent": frame.absent,
        "suspect": frame.suspect,
    }  # fmt: skip


def live_line(frame: Frame) -> str:
    """One line, the same fields in the same order every time; ``-`` is unknown."""
    hottest = _hottest(frame)
    fields = [
        f"{frame.t_s:.1f} s",
        f"DRAM {_bandwidth(frame)}",
        f"EMC {_busy(frame, 'emc')}",
        f"GPU {_busy(frame, 'gpu')}",
        f"CPU {_now(frame, 'cpu_busy_frac')}",
        f"power {_power(frame)}",
        f"temp {hottest}",
        f"RAM {_now(frame, 'ram_used_bytes')}",
        *(stamp.upper() for stamp in frame.stamps),
    ]
    return printable_line("  ".join(fields))


def live_block(frame: Frame, width: int) -> list[str]:
    """Lines that fit the width: what board, its figures, the rates, and what is missing."""
    rows = [
        ("", _title(frame)),
        ("memory", f"{_bandwidth(frame)}, EMC {_busy(frame, 'emc')}"),
        ("GPU", _busy(frame, "gpu")),
        ("CPU", f"{_now(frame, 'cpu_busy_frac')}, {_cores(frame)}"),
        ("power", _rails(frame)),
        ("temp", _temperatures(frame)),
        ("RAM", _ram(frame)),
        ("rates", _rates(frame)),
        *(("suspect", line) for line in suspect_now(frame)),
        *(("not measured", line) for line in absent_now(frame)),
    ]
    text = "\n".join(f"{name:<7} {words}".strip() for name, words in rows if words)
    return [printable_line(line) for line in fold(text, max(width, _LEAST_WIDTH)).split("\n")]


def absent_now(frame: Frame) -> list[str]:
    """What is not measured and why, those with one reason together."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for absent in frame.absent:
        why = (absent["reason"] or "reason not recorded", absent["fix"] or "")
        name = label_absent(absent["signal"] or "?", absent["source"])
        reasons.setdefault(why, []).append(name)
    return [
        f"{', '.join(dict.fromkeys(names))}: {reason}" + (f"; {fix}" if fix else "")
        for (reason, fix), names in reasons.items()
    ]


def suspect_now(frame: Frame) -> list[str]:
    """What is not believed and why; with what it shows, where it shows anything."""
    return [
        f"{label(one['signal'])} ({one['source']}){_seen(frame, **one)}: {one['reason']}"
        for one in frame.suspect
    ]


def reasons_now(frame: Frame) -> list[str]:
    """Why figures are missing, a line each; the same words as long as that lasts."""
    return [
        *(
            f"suspect: {label(one['signal'])} ({one['source']}): {one['reason']}"
            for one in frame.suspect
        ),
        *(f"not measured: {line}" for line in absent_now(frame)),
    ]


def printable_line(line: str) -> str:
    """Names come from files and programs: nothing in them steers the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in line)


def _title(frame: Frame) -> str:
    device = frame.device
    board = printable(str(device.get("name") or "unknown board"))
    mode = f", {printable(str(device['power_mode']))}" if device.get("power_mode") else ""
    stamps = "".join(f"  {stamp.upper()}" for stamp in frame.stamps)
    return f"{board}{mode}{stamps}  {frame.t_s:.1f} s"


def _bandwidth(frame: Frame) -> str:
    value = frame.value("dram_bandwidth_bytes_per_s")
    shares = []
    for key in ("peak", "sustained"):
        most = frame.device.get(f"{key}_bandwidth_bytes_per_s")
        if value is not None and isinstance(most, int | float) and most > 0:
            shares.append(f"{100 * value / most:.0f} % of {key} {most / 1e9:.1f}")
    return shown("dram_bandwidth_bytes_per_s", value) + (f" ({', '.join(shares)})" * bool(shares))


def _busy(frame: Frame, unit: str) -> str:
    share, clock = (_now(frame, f"{unit}_{what}") for what in ("busy_frac", "clock_hz"))
    return share if clock == "-" else f"{share} of {clock}"


def _now(frame: Frame, name: str) -> str:
    return shown(name, frame.value(name))


def _power(frame: Frame) -> str:
    """The total, or the sum that a profile declares where a board has no total."""
    rails = frame.members("power_w")
    total = rails.get("total")
    return shown("power_w.", total if total is not None else rails.get("module_sum"))


def _rails(frame: Frame) -> str:
    rails = frame.members("power_w")
    named = [f"{name} {shown('power_w.', value)}" for name, value in rails.items()]
    return ", ".join(sorted(named, key=lambda text: not text.startswith("total ")))


def _hottest(frame: Frame) -> str:
    known = {zone: value for zone, value in frame.members("temp_c").items() if value is not None}
    if not known:
        return "-"
    zone = max(known, key=lambda name: known[name])
    return f"{shown('temp_c.', known[zone])} {zone}"


def _temperatures(frame: Frame) -> str:
    return ", ".join(
        f"{zone} {shown('temp_c.', value)}" for zone, value in frame.members("temp_c").items()
    )


def _cores(frame: Frame) -> str:
    cores = frame.value("cpu_online")
    return "cores not known" if cores is None else f"{cores:.0f} cores on"


def _ram(frame: Frame) -> str:
    used, total, swap = (
        _now(frame, f"{name}_bytes") for name in ("ram_used", "ram_total", "swap_used")
    )
    return f"{used} of {total}, swap {swap}"


def _rates(frame: Frame) -> str:
    """How often the main signals really come."""
    told = []
    for name in _RATED:
        signal = frame.signals.get(name)
        if signal is not None and signal.delivered_hz is not None:
            told.append(f"{label(name)} {significant(signal.delivered_hz)} Hz ({signal.source})")
    return ", ".join(told)


def _seen(frame: Frame, signal: str, source: str, reason: str) -> str:
    live = frame.signals.get(signal)
    if live is None or live.source != source:
        return ""
    return f" shows {shown(signal, live.value)}"
