"""Which repetitions were disturbed, and by what: a throttled board, another program, swapping.

A disturbed leg is shown with its reasons and left out of means; where a variant has no other leg,
its disturbed ones stay. A leg that was only slow, with no cause seen, is never left out: that would
choose results by their outcome.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from edgeprof.analysis.board import Readings
from edgeprof.analysis.comparison import pairs_of
from edgeprof.analysis.variants import VariantRuns
from edgeprof.session.records import Event, Leg, Session
from edgeprof.units import show

_OTHERS_CORES = 0.5  # that other programs took, on average over a leg
_STOLEN_CORES = 0.25
_SHORTEST_S = 0.2  # the system counts in hundredths of a second
# Beside an antagonist less is too much; edgeprof's own other processes take a few hundredths.
_OTHERS_BESIDE, _STOLEN_BESIDE = 0.15, 0.1
_SWAPPED_BYTES = 16 << 20
_MODE_EVERY_NS = 1_000_000_000  # the sampler looks at it once a second
_CLOCK_DROP = 0.05  # below the median of the variant's legs
_CLOCKS = ("emc_clock_hz", "gpu_clock_hz", "cpu_clock_hz")
_LEAST_LEGS = 3  # of a variant, for a median to speak of
_MOST_REASONS = 3
_HOTTER_C = 5.0  # from start to end, in the hottest zone: a trend


class Disturbance(Struct, frozen=True, kw_only=True):
    """A leg and what disturbed it."""

    leg_id: int
    leg: str
    variant: str
    repeat: int
    reasons: list[str]
    left_out: bool


def disturbances_of(session: Session, readings: Readings) -> list[Disturbance]:
    """The decode legs that were disturbed, warm-up apart, in their order."""
    legs = [leg for leg in session.legs if leg.kind == "decode" and not leg.warmup]
    events = _events_by_leg(session.events, legs, readings)
    slow = _clock_drops(legs, readings)
    reasons = {
        leg.id: [*_told(events[leg.id]), *slow.get(leg.id, []), *neighbours(leg), *_swapped(leg)]
        for leg in legs
    }
    clean = {leg.variant for leg in legs if not reasons[leg.id]}
    return [
        Disturbance(
            leg_id=leg.id,
            leg=leg.name,
            variant=leg.variant,
            repeat=leg.repeat,
            reasons=reasons[leg.id],
            left_out=leg.variant in clean,
        )
        for leg in legs
        if reasons[leg.id]
    ]


def left_out_legs(disturbances: Iterable[Disturbance]) -> frozenset[int]:
    """By id."""
    return frozenset(one.leg_id for one in disturbances if one.left_out)


class Sides(NamedTuple):
    """A variant and its baseline; ``whole`` says that disturbed repetitions of both count."""

    run: VariantRuns
    plain: VariantRuns | None
    whole: bool


def like_sides(
    run: VariantRuns,
    plain: VariantRuns | None,
    disturbances: Sequence[Disturbance],
    every: Callable[[], Sequence[VariantRuns]],
) -> Sides:
    """The two in a like state, for what is undisturbed is faster than what is not.

    Where one of them alone has nothing but disturbed legs, or where the undisturbed ones of both
    answer no prompt in the same repeat, all legs of both count; ``every`` gives these.
    """
    left_out = {one.variant for one in disturbances if one.left_out}
    if plain is None or not left_out & {run.name, plain.name}:
        return Sides(run, plain, False)
    kept = {one.variant for one in disturbances} - left_out
    if (run.name in kept) == (plain.name in kept) and pairs_of(run, plain):
        return Sides(run, plain, False)
    by_name = {one.name: one for one in every()}
    return Sides(by_name[run.name], by_name[plain.name], True)


def disturbed_words(
    disturbances: Sequence[Disturbance], *, with_disturbed: bool = False
) -> Iterator[str]:
    """For the reader: how many repetitions of each variant, the first reasons, and whether they
    count."""
    by_variant: dict[str, list[Disturbance]] = defaultdict(list)
    for one in disturbances:
        by_variant[one.variant].append(one)
    for variant, same in by_variant.items():
        legs = "1 leg was" if len(same) == 1 else f"{len(same)} legs were"
        reasons = dict.fromkeys(reason for one in same for reason in one.reasons)
        shown = "; ".join(list(reasons)[:_MOST_REASONS])
        left_out = same[0].left_out and not with_disturbed
        kept = "left out of all figures" if left_out else "in the figures all the same"
        yield f"{variant}: {legs} disturbed ({shown}), {kept}"


def is_disturbed(attrs: Mapping[str, Any]) -> bool:
    """Did others take processor time in a leg: other programs, or the host of a virtual machine?

    ``processor`` holds seconds of a core that this process did not use; the antagonist's own are
    none of theirs.
    """
    told = attrs.get("processor")
    processor = told if isinstance(told, dict) else {}
    wall_s = _number(processor, "wall_s")
    if wall_s <= 0:
        return False
    stolen_s = _number(processor, "stolen_s")
    return _others_s(attrs) >= _OTHERS_BESIDE * wall_s or stolen_s >= _STOLEN_BESIDE * wall_s


def _others_s(attrs: Mapping[str, Any]) -> float:
    """Processor time that neither this process took nor an antagonist that it runs beside."""
    processor = attrs.get("processor")
    others_s = _number(processor, "others_s") if isinstance(processor, dict) else 0.0
    return max(others_s - _number(attrs, "antagonist_cpu_s"), 0.0)


def _events_by_leg(
    events: Iterable[Event], legs: Sequence[Leg], readings: Readings
) -> dict[int, list[Event]]:
    """By the time in which they happened: a leg ends in the decoder, and an event is noticed in the
    sampler, maybe after that. Every leg that it may have happened in has it."""
    found: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        since_ns = _since_ns(event, readings)
        for leg in legs:
            if leg.t0_ns <= event.t_ns and since_ns <= (leg.t1_ns or leg.t0_ns):
                found[leg.id].append(event)
    return found


def _since_ns(event: Event, readings: Readings) -> int:
    """The time of the look before the one that noticed an event."""
    if event.kind == "power_mode":
        return event.t_ns - _MODE_EVERY_NS
    channel = None
    if event.kind == "throttling":
        channel = readings.channel(f"throttle_events.{event.detail.get('counter')}")
    if channel is None:
        return event.t_ns
    before = int(np.searchsorted(channel.times_ns, event.t_ns, side="right")) - 2
    return event.t_ns if before < 0 else int(channel.times_ns[before])


def _told(events: Iterable[Event]) -> Iterator[str]:
    for event in events:
        detail = event.detail
        if event.kind == "throttling":
            counter = f"{detail.get('counter')} {detail.get('from')} to {detail.get('to')}"
            yield f"throttled (counter {counter})"
        elif event.kind == "power_mode":
            yield f"the power mode changed from {detail.get('from')} to {detail.get('to')}"
        elif event.kind == "suspend":
            yield "the machine slept"


def _clock_drops(legs: Sequence[Leg], readings: Readings) -> Mapping[int, list[str]]:
    """Legs in which a clock was lower than is usual for the variant."""
    found: dict[int, list[str]] = defaultdict(list)
    for name in _CLOCKS:
        by_variant: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for leg in legs:
            if values := readings.values(name, leg):
                by_variant[leg.variant].append((leg.id, statistics.fmean(values)))
        for means in by_variant.values():
            usual = statistics.median(mean for _, mean in means)
            if len(means) < _LEAST_LEGS:
                continue
            for leg_id, mean in means:
                if mean < usual * (1 - _CLOCK_DROP):
                    dropped = f"{name} fell to {mean / 1e6:.0f} MHz from {usual / 1e6:.0f} MHz"
                    found[leg_id].append(dropped)
    return found


def neighbours(leg: Leg) -> Iterator[str]:
    """What other programs, or other machines on the same host, took of the processor meanwhile."""
    seconds = 0.0 if leg.t1_ns is None else (leg.t1_ns - leg.t0_ns) / 1e9
    processor = leg.attrs.get("processor")
    if seconds < _SHORTEST_S or not isinstance(processor, dict):
        return
    for taken_s, limit, who in (
        (_others_s(leg.attrs), _OTHERS_CORES, "other programs took"),
        (_number(processor, "stolen_s"), _STOLEN_CORES, "the host gave to other machines"),
    ):
        cores = taken_s / seconds
        if cores >= limit:
            yield f"{who} {cores:.1f} cores"


def _swapped(leg: Leg) -> Iterator[str]:
    memory = leg.attrs.get("memory")
    grown = _number(memory, "swap_growth_bytes") if isinstance(memory, dict) else 0.0
    if grown >= _SWAPPED_BYTES:
        yield f"swap grew by {show(grown, 'B')}"


def _number(values: Mapping[str, Any], key: str) -> float:
    """Attributes are free JSON: what is no number is 0 here."""
    value = values.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def heating(readings: Readings) -> Iterator[str]:
    """The zone that grew hotter from the start of a session to its end, where one did by much."""
    rises = []
    for name in readings.names():
        values = readings.values(name)
        if name.startswith("temp_c.") and len(values) >= 2:
            rises.append((values[-1] - values[0], name.removeprefix("temp_c."), values))
    rise, zone, values = max(rises, default=(0.0, "", []))
    if rise >= _HOTTER_C:
        yield (
            f"{zone} went from {values[0]:.0f} to {values[-1]:.0f} degrees C during the session; "
            "what ran later ran hotter"
        )
