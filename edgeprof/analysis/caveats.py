"""What a reader must know before believing a session's figures: one plain sentence each."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from edgeprof.analysis.board import ClockRange, Temperature
from edgeprof.analysis.channels import SHORTER, SignalFigures, span_of
from edgeprof.analysis.latency import rates_by_repeat, seconds
from edgeprof.analysis.pass_cost import PassPoint, may_be_cached
from edgeprof.analysis.provenance import sample_counts
from edgeprof.analysis.variants import VariantRuns
from edgeprof.session.records import Event, Leg, Session
from edgeprof.units import show

# A rate that falls in every repeat and by this much in all is a trend, not noise.
_TREND = 0.05

# Cache depth and neighbours move a pass by some ten per cent; beyond this the two do not belong
# to the same machine state.
_DISTURBED = 1.5

# Five per cent over a measured ceiling is more than the noise of a median of nine passes.
_ABOVE_CEILING = 1.05

# One file may give several decoders: other weights, another head.
_IDENTITY = ("sha256", "weights", "streamed_weight_bytes")

# Told elsewhere, or in words of their own.
_TOLD_APART = ("divergence", "absent", "suspect", "gap", "marks", "swap", "load", "neighbours")

_LONGEST_REASON = 300

# Sessions that were not measured by decoding: their answer is what was seen.
OBSERVED_KINDS = ("watch", "import")


def caveats(
    session: Session,
    runs: Sequence[VariantRuns],
    points: Sequence[PassPoint],
    temperatures: Sequence[Temperature],
    signals: Sequence[SignalFigures],
    emc_clock: ClockRange | None,
) -> list[str]:
    """In the order of their weight. ``emc_clock`` is given where the memory's clock moved."""
    return [
        *_nothing(session),
        *_incomplete(session, runs),
        *_not_real(session),
        *_no_samples(session, signals),
        *_suspect(signals),
        *_mode_changes(session),
        *_events(session),
        *_swapping(session),
        *_gaps(session),
        *_lost(session, signals),
        *_clock_moved(signals, emc_clock),
        *_marks(session),
        *_single_repeat(runs),
        *_trends(runs, temperatures),
        *_disturbed(runs, points),
        *_passes_differ(session),
        *_self_drafts(session, runs),
        *_requantised(session),
        *_cache(session),
        *_above_ceiling(points),
    ]


def nothing_measured(session: Session) -> str | None:
    """Why a session has no figure at all; None where it may have some."""
    if session.legs:
        return None
    if session.info.kind in OBSERVED_KINDS:
        return None if len(session.samples) else "no source gave a reading"
    return "the session has no legs"


def _nothing(session: Session) -> Iterable[str]:
    if (why := nothing_measured(session)) is not None:
        yield f"nothing was measured: {why}"


def _incomplete(session: Session, runs: Sequence[VariantRuns]) -> Iterable[str]:
    if not session.info.complete:
        reason = session.info.ended_reason or "reason not recorded"
        yield f"the session is incomplete ({reason}); the figures cover what was measured"
    for run in runs:
        if any(leg.status != "complete" for leg in run.legs):
            ended = _counted(len(run.answers), "answer")
            yield f"{run.name}: no leg was completed; its figures come from {ended}"


def _not_real(session: Session) -> Iterable[str]:
    counts = sample_counts(session)
    for quality in ("simulated", "replayed"):
        if counts[quality]:
            amount = _counted(counts[quality], "sample")
            yield f"{quality}, not read from this machine's board: {amount}"
    if counts["suspect"]:
        yield f"left out as suspect: {_counted(counts['suspect'], 'sample')}"


def _no_samples(session: Session, signals: Sequence[SignalFigures]) -> Iterable[str]:
    """A session of nothing but samples, without a single one."""
    if session.info.kind == "run" or any(signal.n for signal in signals):
        return
    if nothing_measured(session) is not None:
        return  # said already
    reasons = {signal.reason for signal in signals}
    yield f"no samples: {SHORTER if reasons == {SHORTER} else 'no source gave a reading'}"


def _suspect(signals: Sequence[SignalFigures]) -> Iterable[str]:
    for signal in signals:
        if signal.suspect:
            yield f"{signal.name} from {signal.source} is suspect and left out: {signal.reason}"


def _gaps(session: Session) -> Iterable[str]:
    """How long nobody read, and the first cause."""
    gaps = [gap for gap in _all_gaps(session) if "signal" not in gap]
    for who in dict.fromkeys(_who(gap) for gap in gaps):
        own = [gap for gap in gaps if _who(gap) == who]
        seconds = [_seconds_between(gap.get("since_ns"), gap.get("until_ns")) for gap in own]
        known = [second for second in seconds if second is not None]
        lasted = f" of {sum(known):.1f} s in all" if known else ""
        cause = own[0].get("cause") or own[0].get("reason")
        why = f": {cause}" if isinstance(cause, str) else ""
        yield f"{_counted(len(own), 'gap')}{lasted} in the readings of {who}{why}"


def _lost(session: Session, signals: Sequence[SignalFigures]) -> Iterable[str]:
    """Signals that a source gave for a part of the run only: when, why, and what is left."""
    gaps: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for gap in _all_gaps(session):
        if isinstance(gap.get("signal"), str):
            gaps.setdefault((gap["signal"], _who(gap)), []).append(gap)
    told: dict[tuple[str, str, str], list[str]] = {}
    for (name, source), own in gaps.items():
        kept = _kept(name, source, signals)
        told.setdefault((source, _losses(own, span_of(session).t0_ns), kept), []).append(name)
    for (source, losses, kept), names in told.items():
        yield f"{', '.join(names)} from {source}: no value {losses}{kept}"


def _losses(gaps: Sequence[dict[str, Any]], start_ns: int) -> str:
    """``from 4.0 to 6.0 s (no such file)``, or how often and how long in all."""
    reason = gaps[0].get("reason")
    why = f" ({reason[:_LONGEST_REASON]})" if isinstance(reason, str) and reason else ""
    since_ns, until_ns = gaps[0].get("since_ns"), gaps[0].get("until_ns")
    if len(gaps) > 1:
        times = sum(_number(gap.get("losses")) or 1 for gap in gaps)
        return f"{times:.0f} times, for {sum(map(_length_s, gaps)):.1f} s in all{why}"
    if not (isinstance(since_ns, int) and isinstance(until_ns, int)):
        return f"for a time that is not recorded{why}"
    start_s, end_s = (since_ns - start_ns) / 1e9, (until_ns - start_ns) / 1e9
    return f"from {start_s:.1f} to {end_s:.1f} s{why}"


def _length_s(gap: dict[str, Any]) -> float:
    """Of one gap, or of the several that it stands for."""
    between_s = _seconds_between(gap.get("since_ns"), gap.get("until_ns"))
    return _number(gap.get("lost_s")) or between_s or 0.0


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _kept(name: str, source: str, signals: Sequence[SignalFigures]) -> str:
    """Which part of the run the mean covers, and which other source stands for the signal."""
    told = ""
    for signal in signals:
        if signal.name != name or signal.mean is None or signal.coverage_frac is None:
            continue
        share = f"{100 * signal.coverage_frac:.0f} % of the run"
        if signal.source == source:
            told = f"; the mean covers {share}{told}"
        elif signal.chosen:
            told += f"; {signal.source}, which covers {share}, stands for it"
    return told


def _clock_moved(signals: Sequence[SignalFigures], emc_clock: ClockRange | None) -> Iterable[str]:
    chosen = {signal.name for signal in signals if signal.chosen}
    if emc_clock is None or "emc_busy_frac" not in chosen:
        return
    bandwidth = "dram_bandwidth_bytes_per_s"
    instead = f"; {bandwidth} is the figure to read" if bandwidth in chosen else ""
    lowest, highest = emc_clock.lowest_hz / 1e6, emc_clock.highest_hz / 1e6
    yield (
        f"the memory clock moved between {lowest:.0f} and {highest:.0f} MHz ({emc_clock.source}), "
        f"so that the mean of emc_busy_frac is one of shares of different clocks{instead}"
    )


def _all_gaps(session: Session) -> list[dict[str, Any]]:
    return [event.detail for event in session.events if event.kind == "gap"]


def _who(gap: dict[str, Any]) -> str:
    return str(gap.get("source") or gap.get("process") or "the sampler")


def _seconds_between(since_ns: object, until_ns: object) -> float | None:
    if isinstance(since_ns, int) and isinstance(until_ns, int):
        return (until_ns - since_ns) / 1e9
    return None


def _marks(session: Session) -> Iterable[str]:
    for event in session.events:
        if event.kind == "marks":
            faults = ", ".join(f"{fault} ({count})" for fault, count in event.detail.items())
            yield f"marks of the program that were not taken as they came: {faults}"


def _mode_changes(session: Session) -> Iterable[str]:
    """A board in another power mode is another machine."""
    for event in session.events:
        if (modes := _modes(event)) is not None:
            at_s = (event.t_ns - span_of(session).t0_ns) / 1e9
            yield (
                f"the power mode changed from {modes[0]} to {modes[1]} at {at_s:.1f} s: figures "
                "of before and after do not belong together"
            )


def _modes(event: Event) -> tuple[str, str] | None:
    """From which power mode to which; None of other events, and of those in another shape."""
    before, after = event.detail.get("from"), event.detail.get("to")
    if event.kind != "power_mode" or not (isinstance(before, str) and isinstance(after, str)):
        return None
    return before[:_LONGEST_REASON], after[:_LONGEST_REASON]


def _events(session: Session) -> Iterable[str]:
    """Divergences are told with the outputs they concern, signals where they are listed."""
    notable = [
        event
        for event in session.events
        if event.severity != "info" and event.kind not in _TOLD_APART and _modes(event) is None
    ]
    details = {event.kind: event.detail for event in reversed(notable)}  # the first of each kind
    for kind, count in Counter(event.kind for event in notable).items():
        detail = details[kind]
        what = ", ".join(f"{key} {value}" for key, value in detail.items() if key != "stderr")
        times = "" if count == 1 else f" ({count} times)"
        yield f"{kind}{times}: {what}" if what else f"{kind}{times}"


def _swapping(session: Session) -> Iterable[str]:
    """A run that swaps goes on and crawls."""
    for event in session.events:
        growth = event.detail.get("growth_bytes")
        if event.kind != "swap" or not isinstance(growth, int):
            continue
        faults = sum(_major_faults(leg) for leg in session.legs)
        read = f", {_counted(faults, 'page')} were read back from disk" if faults else ""
        yield (
            f"swapping: swap grew by {show(growth, 'B')} during the run{read}; the figures "
            "measure the disk too, use a smaller model or context"
        )


def _major_faults(leg: Leg) -> int:
    memory = leg.attrs.get("memory")
    faults = memory.get("major_faults") if isinstance(memory, dict) else 0
    return faults if isinstance(faults, int) else 0


def _single_repeat(runs: Sequence[VariantRuns]) -> Iterable[str]:
    if max((len(rates_by_repeat(run)) for run in runs), default=0) == 1:
        yield "one repeat only (n=1): the spread between repeats is unknown"


def _trends(runs: Sequence[VariantRuns], temperatures: Sequence[Temperature]) -> Iterable[str]:
    for run in runs:
        rates = rates_by_repeat(run)
        falling = all(later < earlier for earlier, later in pairwise(rates))
        if len(rates) < 3 or not falling or rates[-1] > rates[0] * (1 - _TREND):
            continue
        series = ", ".join(f"{rate:.1f}" for rate in rates)
        hottest = max(temperatures, key=lambda zone: zone.highest_c, default=None)
        heat = (
            "temperature not recorded"
            if hottest is None
            else f"{hottest.zone} {hottest.start_c:.0f} to {hottest.end_c:.0f} degrees C"
        )
        yield f"{run.name}: tokens/s fell in every repeat ({series}; {heat})"


def _disturbed(runs: Sequence[VariantRuns], points: Sequence[PassPoint]) -> Iterable[str]:
    """The same kind of pass, held and while decoding: two looks at one figure must agree."""
    held = {point.model: point.time_s.value for point in points if point.tokens == 1}
    for run in runs:
        passes = [p for answer in run.decoded for p in answer.passes if p.phase == "decode"]
        held_s = held.get(run.target)
        if run.drafter is not None or not passes or not held_s:
            continue
        decode_s = statistics.median(seconds(pass_) for pass_ in passes)
        if not 1 / _DISTURBED < decode_s / held_s < _DISTURBED:
            yield (
                f"{run.name}: one-token passes took {show(decode_s, 's')} while decoding and "
                f"{show(held_s, 's')} held; something else used the machine, or the depths differ"
            )


def _passes_differ(session: Session) -> Iterable[str]:
    for name, model in session.info.models.items():
        agreement = model.agreement
        if model.role != "target":  # what a draft says is checked, however it came to it
            continue
        if agreement is not None and not agreement.one_token_passes_agree:
            worst = max(agreement.max_logit_difference.values())
            yield (
                f"{name}: the same token gets logits up to {worst:.2g} apart in passes of "
                "different size, so speculative and plain answers may part"
            )


def _self_drafts(session: Session, runs: Sequence[VariantRuns]) -> Iterable[str]:
    """The same weights on both sides: greedily every drafted token must stand."""
    models = session.info.models
    for run in runs:
        target, draft = models.get(run.target), models.get(run.drafter or "")
        if target is None or draft is None or target.sha256 is None:
            continue
        if any(getattr(target, field) != getattr(draft, field) for field in _IDENTITY):
            continue
        rounds = [round_ for answer in run.answers for round_ in answer.rounds]
        accepted, compared = sum(r.accepted for r in rounds), sum(r.evaluated for r in rounds)
        failed = "" if accepted == compared else ", and all must stand: do not trust this model"
        yield (
            f"{run.name}: draft and target are the same model, which cannot be faster; as a check "
            f"of itself it accepted {accepted} of {compared} drafted tokens{failed}"
        )


def _requantised(session: Session) -> Iterable[str]:
    for name, model in session.info.models.items():
        if model.requantised is not None:
            yield f"{name} does not compute with its file's own weights: {model.requantised}"


def _cache(session: Session) -> Iterable[str]:
    cache = session.info.environment.get("last_level_cache_bytes")
    if not isinstance(cache, int):
        return
    cached = [
        f"{name} ({model.streamed_weight_bytes / 1e6:.0f} MB)"
        for name, model in session.info.models.items()
        if model.streamed_weight_bytes is not None
        and may_be_cached(model, session.info.environment)
    ]
    if cached:
        yield (
            f"weights of less than twice the last-level cache ({cache / 1e6:.0f} MB), which may "
            f"serve a part of them: {', '.join(cached)}; bytes over time is no bandwidth of DRAM "
            "then, and none is given"
        )


def _above_ceiling(points: Sequence[PassPoint]) -> Iterable[str]:
    highest: dict[tuple[str, str], tuple[float, int]] = {}
    for point in points:
        for share, what in (
            (point.bandwidth_share, "streaming"),
            (point.flop_share, "arithmetic"),
        ):
            if share is not None and share > _ABOVE_CEILING:
                key = point.model, what
                highest[key] = max(highest.get(key, (0.0, 0)), (share, point.tokens))
    for (model, what), (share, tokens) in highest.items():
        yield (
            f"{model}: {tokens}-token passes reach {100 * share:.0f} % of the measured {what} "
            "ceiling, which is a lower bound of the machine"
        )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
