"""A session over time, thinned for drawing: its legs, passes, rounds and signals on one axis.

Times are seconds from the start of the session's span. What is left out of a drawing is counted;
it stays in the session.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from edgeprof.analysis.channels import Channel, Span, channels_of, chosen_channels, span_of
from edgeprof.analysis.thinning import Floats, thinned
from edgeprof.session.records import Event, Leg, Pass, Round, Session

# Phases in the order of a round; a session that was watched has those that its program announced.
PHASES = ("prefill", "draft", "verify", "decode", "ceiling")


class Stretch(Struct, frozen=True, kw_only=True):
    """Something that lasted; ``note`` says more about it."""

    label: str
    t0_s: float
    t1_s: float
    note: str = ""


class RoundMark(Struct, frozen=True, kw_only=True):
    """One round: what was drafted, what of it was accepted, what came out, and what it took."""

    id: int
    t0_s: float
    t1_s: float
    drafted: int
    accepted: int
    emitted: int
    draft_s: float
    target_s: float


class Line(Struct, frozen=True, kw_only=True):
    """One signal in its SI unit; NaN stands between readings where nothing is known. ``usual_s`` is
    the time between two readings as they came: for so long a single one stands."""

    name: str
    source: str
    usual_s: float
    times_s: Floats
    values: Floats


class Moment(Struct, frozen=True, kw_only=True):
    """An event of the session."""

    t_s: float
    kind: str
    severity: str
    detail: dict[str, Any]


class Timeline(Struct, frozen=True, kw_only=True):
    """``passes`` are by phase; ``left_out`` counts what was thinned away, by what it is."""

    duration_s: float
    legs: list[Stretch]
    passes: dict[str, list[Stretch]]
    rounds: list[RoundMark]
    lines: list[Line]
    moments: list[Moment]
    left_out: dict[str, int]


def timeline_of(
    session: Session, *, most_points: int = 2000, most_stretches: int = 4000
) -> Timeline:
    """At most ``most_points`` readings of each signal; at most ``most_stretches`` legs, rounds,
    events, and passes of each phase."""
    span = span_of(session)
    passes = _passes_by_phase(session.passes)
    legs = _kept(session.legs, _leg_seconds, most_stretches)
    rounds = _kept(session.rounds, lambda one: float(one.emitted), most_stretches)
    kept = {phase: _kept(some, _seconds, most_stretches) for phase, some in passes.items()}
    events = session.events[:most_stretches]
    missing = {
        "legs": len(session.legs) - len(legs),
        "rounds": len(session.rounds) - len(rounds),
        "passes": len(session.passes) - sum(map(len, kept.values())),
        "events": len(session.events) - len(events),
    }
    return Timeline(
        duration_s=span.seconds,
        legs=[_leg(one, span) for one in legs],
        passes={phase: [_pass(one, span) for one in some] for phase, some in kept.items()},
        rounds=_round_marks(rounds, session.passes, span),
        lines=[
            line_of(channel, span.t0_ns, most_points)
            for channel in chosen_channels(channels_of(session)).values()
        ],
        moments=[_moment(event, span) for event in events],
        left_out={what: count for what, count in missing.items() if count},
    )


def line_of(channel: Channel, start_ns: int, most: int) -> Line:
    """``most`` readings of a channel or fewer, in seconds since ``start_ns``; NaN in the gaps."""
    times_s = (channel.times_ns - start_ns) / 1e9
    kept = thinned(times_s, channel.values, most)
    begins = np.ones(channel.n, dtype=bool)  # a run of readings that are held together
    begins[1:] = ~channel.held
    gaps = np.flatnonzero(np.diff(np.cumsum(begins)[kept])) + 1
    between_s = (times_s[kept[gaps - 1]] + times_s[kept[gaps]]) / 2
    return Line(
        name=channel.signal.name,
        source=channel.signal.source,
        usual_s=channel.usual_s,
        times_s=np.insert(times_s[kept], gaps, between_s),
        values=np.insert(channel.values[kept], gaps, np.nan),
    )


def _kept(records: Sequence[Any], value: Any, most: int) -> list[Any]:
    """The records whose value stands out in their stretch of time, in the order of time."""
    ordered = sorted(records, key=lambda one: one.t0_ns)
    times = np.array([one.t0_ns for one in ordered], dtype=float)
    values = np.array([value(one) for one in ordered], dtype=float)
    return [ordered[index] for index in thinned(times, values, most).tolist()]


def _passes_by_phase(passes: Iterable[Pass]) -> dict[str, list[Pass]]:
    found: dict[str, list[Pass]] = defaultdict(list)
    for one in passes:
        found[one.phase].append(one)
    return {phase: found[phase] for phase in PHASES if phase in found}


def _seconds(one: Pass) -> float:
    return (one.t1_ns - one.t0_ns) / 1e9


def _leg_seconds(leg: Leg) -> float:
    return ((leg.t0_ns if leg.t1_ns is None else leg.t1_ns) - leg.t0_ns) / 1e9


def _at(t_ns: int, span: Span) -> float:
    return (t_ns - span.t0_ns) / 1e9


def _leg(leg: Leg, span: Span) -> Stretch:
    """One whose end nobody saw reaches to the end of the session."""
    facts = [leg.kind, *(["warm-up"] if leg.warmup else []), leg.status]
    return Stretch(
        label=leg.name,
        t0_s=_at(leg.t0_ns, span),
        t1_s=_at(span.t1_ns if leg.t1_ns is None else leg.t1_ns, span),
        note=", ".join(facts),
    )


def _pass(one: Pass, span: Span) -> Stretch:
    return Stretch(
        label=one.model,
        t0_s=_at(one.t0_ns, span),
        t1_s=_at(one.t1_ns, span),
        note=f"{one.tokens} tokens after {one.context_tokens}",
    )


def _round_marks(rounds: Sequence[Round], passes: Iterable[Pass], span: Span) -> list[RoundMark]:
    """With what the passes of each took: the draft's, and the target's."""
    wanted = {one.id for one in rounds}
    draft_ns: dict[int, int] = defaultdict(int)
    target_ns: dict[int, int] = defaultdict(int)
    for one in passes:
        if one.round_id in wanted and one.round_id is not None:
            side = draft_ns if one.phase == "draft" else target_ns
            side[one.round_id] += one.t1_ns - one.t0_ns
    return [
        RoundMark(
            id=one.id,
            t0_s=_at(one.t0_ns, span),
            t1_s=_at(one.t1_ns, span),
            drafted=one.drafted,
            accepted=one.accepted,
            emitted=one.emitted,
            draft_s=draft_ns[one.id] / 1e9,
            target_s=target_ns[one.id] / 1e9,
        )
        for one in rounds
    ]


def _moment(event: Event, span: Span) -> Moment:
    return Moment(
        t_s=_at(event.t_ns, span), kind=event.kind, severity=event.severity, detail=event.detail
    )
