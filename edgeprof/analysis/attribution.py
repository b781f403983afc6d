"""Which bytes are whose: bytes a pass from held legs, and whether the real run adds up to them.

*Closure*: held bytes x passes must be what the counter saw while a variant really decoded; what is
left over is interference. *Duty blocks*, one verify pass and 0, K or 3 K throw-away draft passes in
turn, check the held bytes in another way. The draft length itself is never the regressor: with one
draft length alone nothing tells draft and verify passes apart, and nothing is said.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.board import Readings, leg_clock_change
from edgeprof.analysis.channels import Channel
from edgeprof.analysis.closure import Closure, closures
from edgeprof.analysis.duty import DutyCheck, duty_checks
from edgeprof.analysis.held_bytes import (
    IDLE,
    LEAST_DELAYS,
    Delay,
    Draw,
    Held,
    PhaseKey,
    Stretch,
    declared_window_s,
    hold,
    settled,
    stuck_reason,
)
from edgeprof.analysis.held_legs import DUTY, HELD_BYTES, HeldLeg, attribute, legs_holding
from edgeprof.analysis.pass_cost import pass_bytes
from edgeprof.analysis.variants import VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import ModelRecord, Session, Signal

BANDWIDTH = "dram_bandwidth_bytes_per_s"
_NOT_TOLD_APART = (
    "no phase was held: at one draft length alone the bytes of draft and verify passes cannot be "
    "told apart; run the recipe again with held_legs"
)


class PhaseBytes(Struct, frozen=True, kw_only=True):
    """What one kind of pass moves. ``modelled_bytes`` is what the model's file says, beside it."""

    model: str
    phase: str
    tokens: int
    context_tokens: int
    legs: int
    period_s: float
    bytes_per_pass: Quantity
    bandwidth_bytes_per_s: Quantity
    modelled_bytes: int | None


class Attribution(Struct, frozen=True, kw_only=True):
    """``refused`` says why there is nothing here, or nothing of some kind."""

    refused: str | None
    source: str | None = None
    delay_s: Quantity | None = None
    idle_bytes_per_s: Quantity | None = None
    phases: list[PhaseBytes] = []
    closure: list[Closure] = []
    not_closed: list[str] = []
    duty: list[DutyCheck] = []
    seed: int | None = None


def attribution_of(
    session: Session,
    runs: Sequence[VariantRuns],
    channels: Iterable[Channel],
    readings: Readings,
) -> Attribution | None:
    """None where nobody could ask: no bandwidth was read and nothing was held."""
    channel = readings.channel(BANDWIDTH)
    held = legs_holding(session, HELD_BYTES)
    drafting = any(run.drafter is not None for run in runs)
    if channel is None:
        suspect = [c.suspect for c in channels if c.signal.name == BANDWIDTH and c.suspect]
        if suspect:
            return Attribution(refused=f"the bandwidth is suspect: {suspect[0]}")
        if held:
            return Attribution(refused="the bandwidth was not read while phases were held")
        return None
    if not held:
        return Attribution(refused=_NOT_TOLD_APART) if drafting else None
    return _attributed(session, runs, channel, readings, held)


def _attributed(
    session: Session,
    runs: Sequence[VariantRuns],
    channel: Channel,
    readings: Readings,
    held: list[HeldLeg],
) -> Attribution:
    blocks = legs_holding(session, DUTY)
    busy = [one.leg for one in (*held, *blocks) if not one.is_idle]
    refused = stuck_reason(channel, [(one.key, one.leg) for one in held])
    refused = refused or leg_clock_change(busy, readings)
    if refused:
        return Attribution(refused=refused)
    timed = [(one.key, one.leg, one.period_s) for one in held]
    known = [(key, leg, period_s) for key, leg, period_s in timed if period_s is not None]
    stretches, delay = settled(known, channel)
    if delay is None or (refused := _too_little(stretches, delay, channel.signal)):
        return Attribution(refused=refused or "no edge of the held legs tells the counter's delay")
    figures, models = hold(stretches, delay), session.info.models
    closed, not_closed = closures(runs, channel, readings, figures, models, busy)
    source = f"{channel.signal.source}; held legs, idle subtracted; 90 % bootstrap over legs"
    idle = _idle_legs(figures)
    return Attribution(
        refused=None,
        source=source,
        delay_s=_quantity(figures, lambda draw: draw.delay_s, delay.edges, source),
        idle_bytes_per_s=_quantity(figures, lambda draw: draw.idle_bytes_per_s, idle, source),
        phases=[
            _phase(figures, key, source, models) for key in sorted(figures.estimate.bytes_per_pass)
        ],
        closure=closed,
        not_closed=not_closed,
        duty=duty_checks(blocks, channel, figures),
        seed=attribute(held[0].leg, "seed"),
    )


def _too_little(stretches: Sequence[Stretch], delay: Delay, signal: Signal) -> str | None:
    """Why what was held tells nothing, if so. Six windows are asked for where the source declares
    them, else six of the delays that were found."""
    phases = {one.key.phase for one in stretches}
    if IDLE not in phases or len(phases) < 2:
        return "it takes legs that hold a kind of pass and idle ones, read throughout"
    window_s = declared_window_s(signal) or 0.0
    needed_s = LEAST_DELAYS * max(delay.seconds, window_s)
    shortest_s = min(one.seconds for one in stretches)
    if shortest_s >= needed_s:
        return None
    what = f"a delay of {delay.seconds:.2f} s"
    if window_s > delay.seconds:
        what = f"a window of {window_s:.2f} s"
    return (
        f"a phase was held for {shortest_s:.1f} s only; at {what} it takes {needed_s:.1f} s: raise "
        "held_leg_s"
    )


def _idle_legs(figures: Held) -> int:
    return sum(count for key, count in figures.legs.items() if key.phase == IDLE)


def _quantity(figures: Held, figure: Callable[[Draw], float], n: int, source: str) -> Quantity:
    low, high = figures.band([figure(draw) for draw in figures.draws])
    return Quantity(
        value=figure(figures.estimate), low=low, high=high, n=n, kind="measured", source=source
    )


def _phase(
    figures: Held, key: PhaseKey, source: str, models: Mapping[str, ModelRecord]
) -> PhaseBytes:
    period_s = figures.period_s[key]
    legs = figures.legs[key]
    model = models.get(key.model)
    return PhaseBytes(
        model=key.model,
        phase=key.phase,
        tokens=key.tokens,
        context_tokens=key.context_tokens,
        legs=legs,
        period_s=period_s,
        bytes_per_pass=_quantity(figures, lambda draw: draw.bytes_per_pass[key], legs, source),
        bandwidth_bytes_per_s=_quantity(
            figures, lambda draw: draw.bytes_per_pass[key] / period_s, legs, source
        ),
        modelled_bytes=None if model is None else pass_bytes(model, key.tokens, key.context_tokens),
    )
