"""What a session's signals were, in words and rows: for sessions of any kind."""

from collections.abc import Iterable, Iterator, Sequence

from edgeprof.analysis.channels import AbsentSignal, SignalFigures
from edgeprof.analysis.phases import LEAST_WINDOWS, SETTLING_WINDOWS, PhaseFigures
from edgeprof.analysis.summary import Summary
from edgeprof.report.signal_words import label, label_absent, shown
from edgeprof.report.table import Table
from edgeprof.units import show, significant

_NONE = "-"
_MOST_PHASES = 30
_SETTLED_S = 5.0  # what a counter takes whose window is not known
_BANDWIDTH = "dram_bandwidth_bytes_per_s"
_WINDOW_KINDS = {"exponential": "exp.", "boxcar": "mean", "instantaneous": "instant"}


def signal_table(signals: Sequence[SignalFigures]) -> Table:
    """Every channel: what it showed, over which window it averages, and how often it came.

    That samples were simulated or replayed stands over the report; where only some were, here too.
    """
    mixed = len({tuple(_stamps(signal)) for signal in signals}) > 1
    headers = ("signal", "source", "mean", "5 to 95 %", "window", "basis", "Hz", "jitter")
    rows = [
        (
            label(signal.name),
            _source(signal) if mixed else signal.source,
            "suspect" if signal.suspect else shown(signal.name, _mean(signal)),
            _spread(signal),
            _window(signal),
            signal.window_basis or _NONE,
            _NONE if signal.delivered_hz is None else significant(signal.delivered_hz),
            _NONE if signal.jitter_s is None else show(signal.jitter_s, "s", 2),
        )
        for signal in signals
    ]
    return Table(headers, rows, left=2)


def telling(signals: Iterable[SignalFigures]) -> list[SignalFigures]:
    """Those worth a line on a terminal: one a signal, and no counter that stood still."""
    return [
        signal
        for signal in signals
        if (signal.chosen or signal.suspect)
        and not (_is_counter(signal.name) and signal.p5 == signal.p95)
    ]


def phase_table(phases: Sequence[PhaseFigures], duration_s: float) -> Table:
    """What the program announced: those that took most of the time."""
    headers = ("phase", "model", "count", "cut short", "mean", "in all", "of the time", "GB/s")
    longest = sorted(phases, key=lambda phase: phase.total_s, reverse=True)[:_MOST_PHASES]
    rows = [
        (
            phase.name,
            phase.model or _NONE,
            str(phase.count),
            str(phase.interrupted),
            _NONE if phase.duration_s is None else show(phase.duration_s.value, "s"),
            show(phase.total_s, "s"),
            f"{100 * phase.total_s / duration_s:.0f} %" if duration_s > 0 else _NONE,
            _NONE
            if phase.bandwidth_bytes_per_s is None
            else _gigabytes(phase.bandwidth_bytes_per_s.value),
        )
        for phase in longest
    ]
    return Table(headers, rows, left=2)


def phase_notes(summary: Summary) -> Iterator[str]:
    """What the table of phases does not show, and why."""
    left_out = len(summary.phases) - _MOST_PHASES
    if left_out > 0:
        yield f"{left_out} more phases took less time than these."
    counter = _chosen(summary, _BANDWIDTH)
    if not summary.phases or counter is None:
        return
    if all(phase.bandwidth_bytes_per_s is None for phase in summary.phases):
        why = (
            "the averaging window of the memory counter is not known"
            if counter.window_s is None
            else f"none was held for {LEAST_WINDOWS} windows of {show(counter.window_s, 's', 2)}"
            " of the memory counter"
        )
        yield f"No phase has a bandwidth of its own: {why}."


def absent_lines(summary: Summary) -> list[str]:
    """Signals that nothing gave, those with one reason together; and what mends it."""
    reasons: dict[tuple[str, str | None], list[AbsentSignal]] = {}
    for absent in summary.absent:
        reasons.setdefault((absent.reason, absent.fix), []).append(absent)
    lines = []
    for (reason, fix), signals in reasons.items():
        names = dict.fromkeys(label_absent(one.signal, one.source) for one in signals)
        sources = dict.fromkeys(one.source for one in signals if one.source not in names)
        where = f" ({', '.join(sources)})" if sources else ""
        lines.append(f"{', '.join(names)}{where}: {reason}" + (f"; {fix}" if fix else ""))
    silent: dict[tuple[str, str], list[str]] = {}
    for signal in summary.signals:
        if signal.n == 0 and signal.reason is not None and not signal.suspect:
            silent.setdefault((signal.source, signal.reason), []).append(label(signal.name))
    return lines + [
        f"{', '.join(names)} ({source}): {reason}" for (source, reason), names in silent.items()
    ]


def observed(summary: Summary) -> list[str]:
    """What was seen, in a few sentences: the answer of a session that decoded nothing itself."""
    sentences = [_how_long(summary), _what(summary), _why_no_memory(summary)]
    return [sentence for sentence in sentences if sentence]


def _how_long(summary: Summary) -> str:
    seconds, command = show(summary.session.duration_s, "s"), summary.command
    if command is None:
        return f"Samples over {seconds}."
    if command.exit_code is None:
        return f"{command.name}: watched for {seconds}; its end was not seen."
    return f"{command.name} ran for {seconds} and ended with exit code {command.exit_code}."


def _what(summary: Summary) -> str:
    parts = [_memory(summary)]
    for name, words in (("gpu_busy_frac", "GPU"), ("cpu_busy_frac", "CPU")):
        if (signal := _chosen(summary, name)) is not None:
            parts.append(f"{words} {shown(name, _mean(signal))} busy")
    power = _chosen(summary, "power_w.total") or _chosen(summary, "power_w.module_sum")
    if power is not None:
        scope = "" if power.name == "power_w.total" else " (the sum of the module's rails)"
        parts.append(shown(power.name, _mean(power)) + scope)
    if summary.temperatures:
        hottest = max(summary.temperatures, key=lambda zone: zone.highest_c)
        parts.append(f"at most {hottest.highest_c:.1f} °C ({hottest.zone})")
    told = [part for part in parts if part]
    if told:
        return f"On average {', '.join(told)}."
    if _why_no_memory(summary):
        return ""
    reasons = dict.fromkeys(signal.reason for signal in summary.signals if signal.reason)
    return f"No samples: {'; '.join(reasons) or 'no source gave a reading'}."


def _memory(summary: Summary) -> str:
    signal = _chosen(summary, _BANDWIDTH)
    mean = None if signal is None else _mean(signal)
    if mean is None or _why_no_memory(summary):
        return ""
    shares = []
    for key, words in (("peak", "peak"), ("sustained", "that real work sustains")):
        most = summary.device.get(f"{key}_bandwidth_bytes_per_s")
        if isinstance(most, int | float) and most > 0:
            shares.append(f"{100 * mean / most:.0f} % of the {most / 1e9:.1f} GB/s {words}")
    return f"{shown(_BANDWIDTH, mean)} of memory traffic" + (
        f" ({', '.join(shares)})" if shares else ""
    )


def _why_no_memory(summary: Summary) -> str:
    """A running average of the counter's own shows mostly what was before, until it has settled."""
    signal = _chosen(summary, _BANDWIDTH)
    if signal is None or signal.window_kind not in ("exponential", "unknown"):
        return ""
    known = signal.window_s is not None
    least_s = _SETTLED_S if signal.window_s is None else SETTLING_WINDOWS * signal.window_s
    if summary.session.duration_s >= least_s:
        return ""
    length = f"of {show(signal.window_s, 's', 2)}" if known else "whose length is not known"
    return (
        f"No average of the memory traffic: the counter's is a running average {length}, which"
        f" takes {show(least_s, 's')} to forget what was before."
    )


def _chosen(summary: Summary, name: str) -> SignalFigures | None:
    return next((s for s in summary.signals if s.chosen and s.name == name), None)


def _mean(signal: SignalFigures) -> float | None:
    return None if signal.mean is None else signal.mean.value


def _source(signal: SignalFigures) -> str:
    stamps = _stamps(signal)
    return f"{signal.source} ({', '.join(stamps)})" if stamps else signal.source


def _stamps(signal: SignalFigures) -> list[str]:
    return [quality for quality in ("simulated", "replayed") if quality in signal.samples]


def _spread(signal: SignalFigures) -> str:
    if signal.p5 is None or signal.p95 is None:
        return _NONE
    low, high = shown(signal.name, signal.p5), shown(signal.name, signal.p95)
    return f"{low.partition(' ')[0]} to {high}"


def _window(signal: SignalFigures) -> str:
    kind = _WINDOW_KINDS.get(signal.window_kind)
    if signal.window_s is None or kind is None:
        return kind or "not known"
    return f"{show(signal.window_s, 's', 2)} {kind}"


def _gigabytes(value: float | None) -> str:
    return _NONE if value is None else f"{value / 1e9:.1f}"


def _is_counter(name: str) -> bool:
    return name.partition(".")[0] in ("cooling_state", "throttle_events")
