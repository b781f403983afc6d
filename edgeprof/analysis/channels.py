"""What each channel of a session delivered: its mean and spread, its rate, and whether to believe
it. Unknown stays unknown, and a channel that is suspect gives no figure.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from edgeprof.naming import numeric_order
from edgeprof.quantity import Quantity
from edgeprof.session.columns import QUALITIES, Samples
from edgeprof.session.records import (
    Event,
    Quality,
    Session,
    Signal,
    WindowBasis,
    WindowKind,
)

# Of two sources of a signal the one named first is believed.
SOURCE_ORDER = ("sysfs", "tegrastats", "jtop", "host", "replay")
SHORTER = "the run was shorter than the sampling interval"

# What matters most comes first; families end in a dot.
_ORDER = (
    "dram_bandwidth_bytes_per_s", "emc_busy_frac", "emc_clock_hz", "gpu_busy_frac", "gpu_clock_hz",
    "cpu_busy_frac", "cpu_clock_hz", "cpu_online", "power_w.total", "power_w.", "temp_c.",
    "ram_used_bytes", "ram_total_bytes", "swap_used_bytes", "throttle_events.", "cooling_state.",
)  # fmt: skip

_GAP = 3.0  # times the usual time between two readings: nothing is known of what lies between
_ENOUGH_COVERAGE = 0.5  # of what the source that covers most has
_LATCHED_SAMPLES = 5
_BUSY_EMC = 0.3
_LONGEST_TEXT = 300


class Span(NamedTuple):
    """The time that a session's figures are about."""

    t0_ns: int
    t1_ns: int

    @property
    def seconds(self) -> float:
        return (self.t1_ns - self.t0_ns) / 1e9


class Channel(Struct, frozen=True, kw_only=True, eq=False):
    """A signal from one source and its samples in the span; ``suspect`` says why not to believe it.

    ``times_ns`` and ``values`` hold the readings that are known, each at the middle of its read;
    ``held`` says of each but the last whether nothing is missing between it and the next;
    ``held_interval_s`` is the usual time between two that are held so, found where it is not given.
    """

    signal: Signal
    times_ns: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    held: npt.NDArray[np.bool_]
    qualities: dict[Quality, int]
    suspect: str | None
    held_interval_s: float | None = None

    def __post_init__(self) -> None:
        """Once, for it is asked for every answer: what usually lies between two readings."""
        if self.held_interval_s is None:
            intervals_s, middle = self.intervals_s, int(self.held.sum()) // 2
            usual_s = float(np.partition(intervals_s, middle)[middle]) if len(intervals_s) else 0.0
            force_setattr(self, "held_interval_s", usual_s)

    @property
    def n(self) -> int:
        """How many readings are known."""
        return len(self.values)

    @property
    def intervals_s(self) -> npt.NDArray[np.float64]:
        """Between the readings that are held together."""
        return np.diff(self.times_ns)[self.held] / 1e9

    @property
    def usual_s(self) -> float:
        """For how long a reading usually stands; of a single one, what was asked for."""
        asked_hz = self.signal.asked_hz
        return self.held_interval_s or (1 / asked_hz if asked_hz else 0.0)

    @property
    def covered_s(self) -> float:
        return float(self.intervals_s.sum())

    def mean(self) -> float | None:
        """Over the time that is covered, each pair of readings held together by a straight line."""
        if not self.n:
            return None
        seconds = self.intervals_s
        area = ((self.values[:-1] + self.values[1:])[self.held] / 2 * seconds).sum()
        covered_s = seconds.sum()
        return float(area / covered_s if covered_s > 0 else self.values.mean())

    def between(self, t0_ns: int, t1_ns: int) -> list[float]:
        """The values read in that time."""
        first = np.searchsorted(self.times_ns, t0_ns)
        last = np.searchsorted(self.times_ns, t1_ns, side="right")
        found: list[float] = self.values[first:last].tolist()
        return found


class SignalFigures(Struct, frozen=True, kw_only=True):
    """A channel in figures. ``mean`` and percentiles are None where ``reason`` says why.

    ``chosen`` marks the source that stands for the signal; ``samples`` counts by quality,
    ``unknown`` those without a value. ``coverage_frac`` is the share of the run between readings.
    """

    name: str
    unit: str
    source: str
    chosen: bool
    mean: Quantity | None
    p5: float | None
    p50: float | None
    p95: float | None
    n: int
    unknown: int
    samples: dict[Quality, int]
    coverage_frac: float | None
    window_s: float | None
    window_kind: WindowKind
    window_basis: WindowBasis | None
    asked_hz: float | None
    delivered_hz: float | None
    jitter_s: float | None
    read_latency_s: float | None
    node: str | None
    note: str | None
    suspect: bool
    reason: str | None


class AbsentSignal(Struct, frozen=True, kw_only=True):
    """A signal, or a family such as ``power_w``, that a source could not give; what mends it."""

    signal: str
    source: str
    reason: str
    fix: str | None


def span_of(session: Session) -> Span:
    """From the start to the end of the command or the legs; without any, of the samples."""
    commands = [leg for leg in session.legs if leg.kind == "command"]
    legs = commands or session.legs
    samples = session.samples
    starts = [leg.t0_ns for leg in legs]
    if not starts and len(samples):
        starts = [int(samples.t0_ns.min())]
    ends = [leg.t1_ns for leg in legs if leg.t1_ns is not None]
    if not ends or len(ends) < len(legs):  # nobody wrote down how it ended
        ends += [int(samples.t1_ns.max())] if len(samples) else []
        ends += [leg.t0_ns for leg in legs]
    t0_ns = min(starts, default=0)
    return Span(t0_ns, max(max(ends, default=t0_ns), t0_ns))


def channels_of(session: Session) -> list[Channel]:
    """One entry a signal and source, in the order of their weight, numbers in their order."""
    span = span_of(session)
    signals: dict[tuple[str, str], list[Signal]] = defaultdict(list)
    for signal in session.signals:
        signals[signal.name, signal.source].append(signal)
    suspicions = _suspicions(session.events)
    channels = [
        _channel(
            same[-1],
            [session.samples.of_signal(one.id) for one in same],
            span,
            suspicions.get(key),
        )
        for key, same in signals.items()
    ]
    return sorted(_without_latched(channels, session), key=lambda channel: _rank(channel.signal))


def chosen_channels(channels: Iterable[Channel]) -> dict[str, Channel]:
    """By name the channel that stands for it: one that is not suspect, covers about as much of the
    run as any, and comes from the best source."""
    by_name: dict[str, list[Channel]] = defaultdict(list)
    for channel in channels:
        if channel.n and channel.suspect is None:
            by_name[channel.signal.name].append(channel)
    found = {}
    for name, rivals in by_name.items():
        most_s = max(rival.covered_s for rival in rivals)
        fair = [rival for rival in rivals if rival.covered_s >= _ENOUGH_COVERAGE * most_s]
        found[name] = min(fair, key=lambda rival: source_rank(rival.signal.source))
    return found


def signal_figures(channels: Sequence[Channel], span: Span) -> list[SignalFigures]:
    """In the order of the channels."""
    chosen = {id(channel) for channel in chosen_channels(channels).values()}
    return [_figures(channel, span, id(channel) in chosen) for channel in channels]


def absences(session: Session, channels: Iterable[Channel]) -> list[AbsentSignal]:
    """What the sources said they could not give, less what another source gave after all."""
    given = {channel.signal.name for channel in channels if channel.n}
    families = {name.partition(".")[0] for name in given}
    found: dict[tuple[str, str], AbsentSignal] = {}
    for event in session.events:
        signal, source = _text(event, "signal"), _text(event, "source")
        if event.kind == "absent" and signal and signal not in given | families:
            found.setdefault(
                (signal, source or ""),
                AbsentSignal(
                    signal=signal,
                    source=source or "not recorded",
                    reason=_text(event, "reason") or "reason not recorded",
                    fix=_text(event, "fix"),
                ),
            )
    return sorted(found.values(), key=lambda absent: _order(absent.signal))


def source_rank(source: str) -> int:
    """The place of a source in the order of belief; one that is not known comes last."""
    return SOURCE_ORDER.index(source) if source in SOURCE_ORDER else len(SOURCE_ORDER)


def _channel(
    signal: Signal, parts: Sequence[Samples], span: Span, suspicion: str | None
) -> Channel:
    times_ns = _joined([part.t0_ns + (part.t1_ns - part.t0_ns) // 2 for part in parts])
    values, codes = (
        _joined([part.column(name) for part in parts]) for name in ("value", "quality")
    )
    if len(times_ns) and not (
        span.t0_ns <= times_ns[0] and times_ns[-1] <= span.t1_ns and (np.diff(times_ns) >= 0).all()
    ):
        inside = np.flatnonzero((span.t0_ns <= times_ns) & (times_ns <= span.t1_ns))
        order = inside[np.argsort(times_ns[inside], kind="stable")]
        times_ns, values, codes = times_ns[order], values[order], codes[order]
    counts = np.bincount(codes, minlength=len(QUALITIES)).tolist()
    qualities = {name: n for name, n in zip(QUALITIES, counts, strict=True) if n}
    if suspicion is None and "suspect" in qualities:
        suspicion = f"{qualities['suspect']} of {len(values)} samples are suspect"
    usual_ns = float(np.median(np.diff(times_ns))) if len(times_ns) > 1 else 0.0
    known = np.flatnonzero(~np.isnan(values))
    if len(known) < len(values):
        times_ns, values = times_ns[known], values[known]
    return Channel(
        signal=signal,
        times_ns=times_ns,
        values=values,
        held=(np.diff(known) == 1) & (np.diff(times_ns) <= _GAP * usual_ns),
        qualities=qualities,
        suspect=suspicion,
    )


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """One after the other; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _without_latched(channels: list[Channel], session: Session) -> list[Channel]:
    """A GPU load that is 0 from end to end, while the GPU must have worked, is not believed."""
    emc = chosen_channels(channels).get("emc_busy_frac")
    emc_busy = float(emc.values.mean()) if emc is not None else 0.0
    on_gpu = any(
        word in pass_.provider.lower() for pass_ in session.passes for word in ("cuda", "tensorrt")
    )
    return [
        _with_suspicion(channel, _latched(channel, on_gpu=on_gpu, emc_busy=emc_busy))
        for channel in channels
    ]


def _latched(channel: Channel, *, on_gpu: bool, emc_busy: float) -> str | None:
    if channel.signal.name != "gpu_busy_frac" or channel.n < _LATCHED_SAMPLES:
        return None
    if channel.values.any():
        return None
    if on_gpu:
        what = "though the model ran on it"
    elif channel.signal.source == "jtop" and emc_busy >= _BUSY_EMC:
        what = f"while the memory was {100 * emc_busy:.0f} % busy"
    else:
        return None
    return (
        f"the GPU's load was 0 in all {channel.n} samples {what}: restart jtop.service "
        "(sudo systemctl restart jtop.service)"
    )


def _with_suspicion(channel: Channel, reason: str | None) -> Channel:
    if reason is None or channel.suspect is not None:
        return channel
    return replace(channel, suspect=reason)


def _figures(channel: Channel, span: Span, chosen: bool) -> SignalFigures:
    signal, n = channel.signal, channel.n
    reason = channel.suspect if n else _why_nothing(channel, span)
    believed = reason is None
    spread = np.quantile(channel.values, (0.05, 0.5, 0.95)).tolist() if believed else [None] * 3
    mean = channel.mean() if believed else None
    return SignalFigures(
        name=signal.name,
        unit=signal.unit,
        source=signal.source,
        chosen=chosen,
        mean=None
        if mean is None
        else Quantity(
            value=mean,
            n=n,
            kind="calibrated" if signal.calibrated else "measured",
            source=f"{signal.source}, time-weighted mean of the samples",
            window_s=signal.window_s,
        ),
        p5=spread[0],
        p50=spread[1],
        p95=spread[2],
        n=n,
        unknown=sum(channel.qualities.values()) - n,
        samples=channel.qualities,
        coverage_frac=min(channel.covered_s / span.seconds, 1.0) if span.seconds > 0 else None,
        window_s=signal.window_s,
        window_kind=signal.window_kind,
        window_basis=signal.window_basis,
        asked_hz=signal.asked_hz,
        delivered_hz=_delivered_hz(channel),
        jitter_s=signal.jitter_s
        if signal.jitter_s is not None
        else _standard_deviation(channel.intervals_s),
        read_latency_s=signal.read_latency_s,
        node=signal.node,
        note=signal.note,
        suspect=channel.suspect is not None,
        reason=reason,
    )


def _standard_deviation(values: npt.NDArray[np.float64]) -> float | None:
    """Of the sample (n - 1); None for a single value, which has no spread."""
    return float(values.std(ddof=1)) if len(values) > 1 else None


def _delivered_hz(channel: Channel) -> float | None:
    """As the sampler counted it; of a session that was cut short, from the samples."""
    if channel.signal.delivered_hz is not None:
        return channel.signal.delivered_hz
    intervals_s = channel.intervals_s
    seconds = float(intervals_s.sum())
    return len(intervals_s) / seconds if seconds > 0 else None


def _why_nothing(channel: Channel, span: Span) -> str:
    if channel.suspect is not None:
        return channel.suspect
    if channel.qualities:
        return "no reading had a value"
    asked_hz = channel.signal.asked_hz
    interval_s = 1 / asked_hz if asked_hz else channel.signal.window_s or 1.0
    return SHORTER if span.seconds < 2 * interval_s else "no sample came"


def _suspicions(events: Iterable[Event]) -> dict[tuple[str, str], str]:
    """Why a channel is suspect, by signal and source; the first reason of each."""
    found: dict[tuple[str, str], str] = {}
    for event in events:
        signal, source = _text(event, "signal"), _text(event, "source")
        if event.kind == "suspect" and signal and source:
            found.setdefault((signal, source), _text(event, "reason") or "reason not recorded")
    return found


def _text(event: Event, key: str) -> str | None:
    """Details are free JSON: what is not text there is not known here."""
    value = event.detail.get(key)
    return value[:_LONGEST_TEXT] if isinstance(value, str) and value else None


def _rank(signal: Signal) -> tuple[int, list[tuple[int, str]], int]:
    return (*_order(signal.name), source_rank(signal.source))


def _order(name: str) -> tuple[int, list[tuple[int, str]]]:
    """By weight, then by name, numbers by their value."""
    family = name.partition(".")[0] + "."
    place = next((i for i, known in enumerate(_ORDER) if known in (name, family)), len(_ORDER))
    return place, numeric_order(name)
