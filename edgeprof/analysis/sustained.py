"""A model that decodes for minutes: its first minute against what it keeps up once all is warm."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

from edgeprof.analysis.board import Readings
from edgeprof.analysis.energy import Rail
from edgeprof.analysis.integral import mean_over
from edgeprof.analysis.statistics import mean_of
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, Pass, Session

_FIRST_NS = 60_000_000_000
_SLICES = 6  # of either stretch; their spread is the interval
_STEADY_CHANGE = 0.02


class Shift(Struct, frozen=True, kw_only=True):
    """A signal's mean in the first minute and in the steady state, in its own unit."""

    name: str
    unit: str
    first: float | None
    steady: float | None


class Sustained(Struct, frozen=True, kw_only=True):
    """One long leg. The first minute (of a shorter leg the first third) against the last third.

    ``settled`` says whether the two halves of the last third agree within 2 %; if not, the steady
    state had not come yet. ``throttle_events`` are those that the board told of meanwhile.
    """

    target: str
    duration_s: float
    first_tokens_per_s: Quantity | None
    steady_tokens_per_s: Quantity | None
    retained: float | None
    settled: bool | None
    power_w: Shift | None
    temperatures: list[Shift]
    clocks: list[Shift]
    throttle_events: int


def sustained_of(session: Session, readings: Readings, rail: Rail) -> list[Sustained]:
    """Of every sustained leg that ran, to its end or not."""
    return [
        _figures(leg, [p for p in session.passes if p.leg_id == leg.id], session, readings, rail)
        for leg in session.legs
        if leg.kind == "sustained" and leg.t1_ns is not None
    ]


def _figures(
    leg: Leg, passes: Sequence[Pass], session: Session, readings: Readings, rail: Rail
) -> Sustained:
    ended_ns = leg.t1_ns or leg.t0_ns
    third_ns = (ended_ns - leg.t0_ns) // 3
    first = (leg.t0_ns, leg.t0_ns + min(_FIRST_NS, third_ns))
    steady = (ended_ns - third_ns, ended_ns)
    rates = [_rates(passes, *stretch) for stretch in (first, steady)]
    early, late = (
        mean_of(found, source=f"passes a second, mean over slices of the {what}")
        for found, what in zip(rates, ("first minute", "last third"), strict=True)
    )
    halves = [_rate(passes, *half) for half in _slices(*steady, 2)]
    shifts = [_shift(name, readings, first, steady) for name in readings.names()]
    power = None if rail.channel is None else rail.channel.signal.name
    by_name = {shift.name: shift for shift in shifts}
    return Sustained(
        target=leg.variant,
        duration_s=(ended_ns - leg.t0_ns) / 1e9,
        first_tokens_per_s=early,
        steady_tokens_per_s=late,
        retained=_ratio(late, early),
        settled=_settled(halves),
        power_w=None if power is None else by_name[power],
        temperatures=_family(by_name, "temp_c."),
        clocks=[shift for name, shift in by_name.items() if name.endswith("_clock_hz")],
        throttle_events=sum(
            event.kind == "throttling" and leg.t0_ns <= event.t_ns <= ended_ns
            for event in session.events
        ),
    )


def _rates(passes: Sequence[Pass], t0_ns: int, t1_ns: int) -> list[float]:
    """Tokens/s of each slice in which something ran."""
    found = (_rate(passes, *part) for part in _slices(t0_ns, t1_ns, _SLICES))
    return [rate for rate in found if rate is not None]


def _rate(passes: Sequence[Pass], t0_ns: int, t1_ns: int) -> float | None:
    """From the start of the first pass that lies within to the end of the last."""
    own = [p for p in passes if p.t0_ns >= t0_ns and p.t1_ns <= t1_ns]
    if not own:
        return None
    return sum(p.tokens for p in own) / ((own[-1].t1_ns - own[0].t0_ns) / 1e9)


def _slices(t0_ns: int, t1_ns: int, count: int) -> list[tuple[int, int]]:
    edges = [t0_ns + (t1_ns - t0_ns) * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def _settled(halves: Sequence[float | None]) -> bool | None:
    early, late = halves
    if early is None or late is None:
        return None
    return abs(late / early - 1) <= _STEADY_CHANGE


def _shift(name: str, readings: Readings, first: tuple[int, int], steady: tuple[int, int]) -> Shift:
    channel = readings.channel(name)
    assert channel is not None  # the name is one of theirs
    return Shift(
        name=name,
        unit=channel.signal.unit,
        first=mean_over(channel, *first),
        steady=mean_over(channel, *steady),
    )


def _family(shifts: Mapping[str, Shift], prefix: str) -> list[Shift]:
    return [shift for name, shift in shifts.items() if name.startswith(prefix)]


def _ratio(late: Quantity | None, early: Quantity | None) -> float | None:
    if late is None or early is None or late.value is None or not early.value:
        return None
    return late.value / early.value
