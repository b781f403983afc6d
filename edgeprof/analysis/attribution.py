"""Which bytes are whose: bytes a pass from held legs, and whether the real run adds up to them.

*Closure*: held bytes x passes must be what the counter saw while a variant really decoded; what is
left over is interference. *Duty blocks*, one verify pass and 0, K or 3 K throw-away draft passes in
turn, check the held bytes in another way. The draft length itself is never the regressor: with one
draft length alone nothing tells draft and verify passes apart, and nothing is said.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.board import Readings, leg_clock_change
from edgeprof.analysis.channels import Channel
from edgeprof.analysis.held_bytes import (
    IDLE,
    LEAST_DELAYS,
    Draw,
    Held,
    PhaseKey,
    Stretch,
    Trace,
    hold,
    mean_bytes,
    period_of,
    settled,
    share_inside,
    slope_and_intercept,
    stretches_of,
    stuck_reason,
    trace_of,
    widening,
)
from edgeprof.analysis.pass_cost import pass_bytes
from edgeprof.analysis.statistics import percentile, resampled
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, ModelRecord, Pass, Session

BANDWIDTH = "dram_bandwidth_bytes_per_s"
HELD_BYTES, DUTY = "bytes", "duty"  # what legs of kind "held" hold: the attribute "held"
_END_S = 0.1
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


class Closure(Struct, frozen=True, kw_only=True):
    """Of one variant's real decoding: ``interference_frac`` is measured over held, less 1."""

    variant: str
    answers: int
    seconds: float
    held_bytes: float
    measured_bytes: float
    interference_frac: Quantity


class DutyCheck(Struct, frozen=True, kw_only=True):
    """The bytes of a draft and a verify pass by the slope and the start of the duty blocks."""

    target: str
    drafter: str
    tokens: int
    blocks: int
    draft_bytes: Quantity
    verify_bytes: Quantity
    draft_over_held: float | None
    verify_over_held: float | None


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


class _Leg(Struct, frozen=True):
    """A leg that held something, and its passes."""

    leg: Leg
    key: PhaseKey
    passes: list[Pass]


def attribution_of(
    session: Session,
    runs: Sequence[VariantRuns],
    channels: Iterable[Channel],
    readings: Readings,
) -> Attribution | None:
    """None where nobody could ask: no bandwidth was read and nothing was held."""
    channel = readings.channel(BANDWIDTH)
    held = _held_legs(session)
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
    held: list[_Leg],
) -> Attribution:
    blocks = _duty_legs(session)
    busy = [one.leg for one in (*held, *blocks) if one.key.phase != IDLE]
    refused = stuck_reason(channel, [(one.key, one.leg) for one in held]) or leg_clock_change(
        busy, readings
    )
    if refused:
        return Attribution(refused=refused)
    timed = [(one.key, one.leg, _period(one)) for one in held if _period(one) is not None]
    stretches, delay = settled([(k, leg, p or 0.0) for k, leg, p in timed], channel)
    if delay is None or not any(one.key.phase != IDLE for one in stretches):
        return Attribution(refused="the held legs have no edges that tell the counter's delay")
    needed_s = LEAST_DELAYS * delay.seconds
    shortest_s = min(one.seconds for one in stretches)
    if shortest_s < needed_s:
        return Attribution(
            refused=f"a phase was held for {shortest_s:.1f} s only; at a delay of "
            f"{delay.seconds:.2f} s it takes {needed_s:.1f} s: raise held_leg_s"
        )
    figures = hold(stretches, delay)
    closed, not_closed = _closures(runs, channel, readings, figures, session.info.models, busy)
    source = f"{channel.signal.source}; held legs, idle subtracted; 90 % bootstrap over legs"
    return Attribution(
        refused=None,
        source=source,
        delay_s=_quantity(figures, lambda draw: draw.delay_s, delay.edges, source),
        idle_bytes_per_s=_quantity(
            figures, lambda draw: draw.idle_bytes_per_s, _idle_legs(figures), source
        ),
        phases=[
            _phase(figures, key, source, session.info.models)
            for key in sorted(figures.estimate.bytes_per_pass)
        ],
        closure=closed,
        not_closed=not_closed,
        duty=_duty_checks(blocks, channel, figures),
        seed=_seed(held),
    )


def _held_legs(session: Session) -> list[_Leg]:
    return _legs_holding(session, HELD_BYTES)


def _duty_legs(session: Session) -> list[_Leg]:
    return _legs_holding(session, DUTY)


def _legs_holding(session: Session, what: str) -> list[_Leg]:
    legs = {
        leg.id: leg
        for leg in session.legs
        if leg.kind == "held" and leg.attrs.get("held") == what and leg.status == "complete"
    }
    passes: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in session.passes:
        if pass_.leg_id in legs:
            passes[pass_.leg_id].append(pass_)
    return [_Leg(leg, _key(leg), passes[leg.id]) for leg in legs.values()]


def _key(leg: Leg) -> PhaseKey:
    """Attributes are free JSON: what is of another kind is taken as unknown."""
    phase, tokens = leg.attrs.get("phase"), leg.attrs.get("tokens")
    context = leg.attrs.get("context_tokens")
    return PhaseKey(
        phase if isinstance(phase, str) else IDLE,
        leg.variant,
        tokens if isinstance(tokens, int) else 0,
        context if isinstance(context, int) else 0,
    )


def _period(one: _Leg) -> float | None:
    """An idle leg has no passes, and none are needed."""
    return 0.0 if one.key.phase == IDLE else period_of(one.leg, one.passes)


def _seed(held: Sequence[_Leg]) -> int | None:
    seed = held[0].leg.attrs.get("seed")
    return seed if isinstance(seed, int) else None


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


def _closures(
    runs: Sequence[VariantRuns],
    channel: Channel,
    readings: Readings,
    figures: Held,
    models: Mapping[str, ModelRecord],
    busy: Sequence[Leg],
) -> tuple[list[Closure], list[str]]:
    """Every variant whose answers took long enough; and why the others are left open."""
    found, left = [], []
    for run in runs:
        if run.drafter is None:
            continue
        if reason := leg_clock_change([*busy, *run.legs], readings):
            left.append(f"{run.name}: {reason}")
            continue
        closed = _close(run, channel, figures, models)
        if isinstance(closed, str):
            left.append(f"{run.name}: {closed}")
        else:
            found.append(closed)
    return found, left


class _Window(Struct, frozen=True):
    """The settled part of one answer's decoding: what was read in it, and its passes by phase,
    model and tokens: how many lie inside, and the sum of their depths."""

    trace: Trace
    passes: dict[tuple[str, str, int], tuple[float, float]]


def _close(
    run: VariantRuns, channel: Channel, figures: Held, models: Mapping[str, ModelRecord]
) -> Closure | str:
    delay_s = figures.estimate.delay_s
    windows = [w for a in run.decoded if (w := _window(a, channel, delay_s)) is not None]
    if not windows:
        longest_s = max((answer.decode_s or 0.0 for answer in run.decoded), default=0.0)
        return (
            f"the longest answer decoded for {longest_s:.1f} s, and {LEAST_DELAYS:.0f} delays of "
            f"{delay_s:.2f} s are needed; raise new_tokens"
        )
    estimate = _balance(windows, figures.estimate, models)
    if estimate is None:
        return "not every kind of pass in it was held"
    rng = random.Random(0)
    ratios = []
    for draw in figures.draws:
        drawn = _balance(resampled(windows, rng), draw, models)
        if drawn is not None:
            ratios.append(drawn[0] / drawn[1] - 1)
    measured, held = estimate
    value = measured / held - 1
    wide = widening(len(windows))
    return Closure(
        variant=run.name,
        answers=len(windows),
        seconds=sum(w.trace.seconds for w in windows),
        held_bytes=held,
        measured_bytes=measured,
        interference_frac=Quantity(
            value=value,
            low=value + wide * (percentile(ratios, 0.05) - value),
            high=value + wide * (percentile(ratios, 0.95) - value),
            n=len(windows),
            kind="measured",
            source="bytes seen while decoding over held bytes x passes, less 1; 90 % bootstrap "
            "over answers and held legs",
        ),
    )


def _window(answer: Answer, channel: Channel, delay_s: float) -> _Window | None:
    """From two delays after the first token to the end; None where that is too short."""
    request = answer.request
    if request.first_token_ns is None or request.t1_ns is None:
        return None
    if (answer.decode_s or 0.0) < LEAST_DELAYS * delay_s:
        return None
    t0_ns = request.first_token_ns + round((2 * delay_s + _END_S) * 1e9)
    t1_ns = request.t1_ns - round(_END_S * 1e9)
    trace = trace_of(channel, t0_ns, t1_ns)
    if trace is None:
        return None
    passes: dict[tuple[str, str, int], tuple[float, float]] = {}
    for one in answer.passes:
        if share := share_inside(one, trace.t0_ns, trace.t1_ns):
            count, depth = passes.get((one.phase, one.model, one.tokens), (0.0, 0.0))
            kind = one.phase, one.model, one.tokens
            passes[kind] = count + share, depth + share * one.context_tokens
    return _Window(trace, passes) if passes else None


def _balance(
    windows: Sequence[_Window], draw: Draw, models: Mapping[str, ModelRecord]
) -> tuple[float, float] | None:
    """Measured and held bytes, idle subtracted; of the latter the keys and values by which the
    depth differs from the one held are those of the model."""
    measured = held = 0.0
    for window in windows:
        rate = window.trace.level(draw.delay_s) - draw.idle_bytes_per_s
        measured += rate * window.trace.seconds
        for (phase, model, tokens), (count, depth) in window.passes.items():
            expected = mean_bytes(draw.bytes_per_pass, phase, model, tokens)
            if expected is None:
                return None
            held_depth = next(k.context_tokens for k in draw.bytes_per_pass if k.model == model)
            record = models.get(model)
            kv_bytes = 0 if record is None else record.kv_bytes_per_token or 0
            held += count * expected + kv_bytes * (depth - count * held_depth)
    return (measured, held) if held > 0 else None


def _duty_checks(blocks: Sequence[_Leg], channel: Channel, figures: Held) -> list[DutyCheck]:
    """One a pair of target and drafter."""
    pairs: dict[tuple[str, str, int], list[_Leg]] = defaultdict(list)
    for block in blocks:
        drafter = block.leg.attrs.get("drafter")
        if isinstance(drafter, str):
            pairs[block.leg.variant, drafter, block.key.tokens].append(block)
    checks = []
    for (target, drafter, tokens), same in pairs.items():
        check = _duty_check(target, drafter, tokens, same, channel, figures)
        if check is not None:
            checks.append(check)
    return checks


def _duty_check(
    target: str,
    drafter: str,
    tokens: int,
    blocks: Sequence[_Leg],
    channel: Channel,
    figures: Held,
) -> DutyCheck | None:
    points: list[tuple[int, Stretch]] = []
    for block in blocks:
        leg = block.key, block.leg, _round_s(block) or 0.0
        found = stretches_of([leg], channel, figures.estimate.delay_s)
        points += [(_draft_passes(block), stretch) for stretch in found if stretch.period_s > 0]

    def line(draw: Draw, chosen: Sequence[tuple[int, Stretch]]) -> tuple[float, float] | None:
        return slope_and_intercept([(n, _round_bytes(one, draw)) for n, one in chosen])

    estimate = line(figures.estimate, points) if points else None
    if estimate is None:
        return None
    rng = random.Random(0)
    draws = [
        drawn for draw in figures.draws if (drawn := line(draw, resampled(points, rng))) is not None
    ]
    source = "least squares over duty blocks of 0, K and 3 K throw-away draft passes a verify pass"
    wide = widening(len(points) - 1)  # a line takes one more than a mean
    quantities = [
        Quantity(
            value=value,
            low=value + wide * (percentile([draw[i] for draw in draws], 0.05) - value),
            high=value + wide * (percentile([draw[i] for draw in draws], 0.95) - value),
            n=len(points),
            kind="measured",
            source=f"{source}; 90 % bootstrap over blocks and held legs",
        )
        for i, value in enumerate(estimate)
    ]
    held = figures.estimate.bytes_per_pass
    draft = mean_bytes(held, "draft", drafter, 1)
    verify = mean_bytes(held, "verify", target, tokens)
    return DutyCheck(
        target=target,
        drafter=drafter,
        tokens=tokens,
        blocks=len(points),
        draft_bytes=quantities[0],
        verify_bytes=quantities[1],
        draft_over_held=estimate[0] / draft if draft else None,
        verify_over_held=estimate[1] / verify if verify else None,
    )


def _draft_passes(block: _Leg) -> int:
    count = block.leg.attrs.get("draft_passes")
    return count if isinstance(count, int) else 0


def _round_s(block: _Leg) -> float | None:
    """From one verify pass to the next."""
    return period_of(block.leg, [p for p in block.passes if p.phase == "verify"])


def _round_bytes(stretch: Stretch, draw: Draw) -> float:
    return (stretch.level(draw.delay_s) - draw.idle_bytes_per_s) * stretch.period_s
