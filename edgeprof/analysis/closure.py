"""Closure: held bytes x passes against what the counter saw while a variant really decoded. What is
left over is interference. Pure arithmetic.
"""

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from edgeprof.analysis.board import Readings, leg_clock_change
from edgeprof.analysis.channels import Channel
from edgeprof.analysis.held_bytes import (
    LEAST_DELAYS,
    Draw,
    Held,
    Trace,
    held_value,
    share_inside,
    trace_of,
    widened_band,
)
from edgeprof.analysis.statistics import percentile, resampled
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, ModelRecord

_END_S = 0.1  # clocks of counter and passes may differ by that much
_SEED = 0


class Closure(Struct, frozen=True, kw_only=True):
    """Of one variant's real decoding: ``interference_frac`` is measured over held, less 1;
    ``held_bytes_by_phase`` add up to ``held_bytes``."""

    variant: str
    answers: int
    seconds: float
    held_bytes: float
    held_bytes_by_phase: dict[str, float]
    measured_bytes: float
    interference_frac: Quantity


def closures(
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
    measured, by_phase = estimate
    held = sum(by_phase.values())
    drawn = _draws(windows, figures, models)
    if held <= 0 or percentile([one.held for one in drawn], 0.05) <= 0:
        return "the counter does not tell the held passes from idleness"
    return Closure(
        variant=run.name,
        answers=len(windows),
        seconds=sum(w.trace.seconds for w in windows),
        held_bytes=held,
        held_bytes_by_phase=by_phase,
        measured_bytes=measured,
        interference_frac=_interference(measured / held - 1, drawn, len(windows)),
    )


class _Drawn(NamedTuple):
    """Bytes of one draw of the bootstrap."""

    measured: float
    held: float


def _draws(
    windows: Sequence[_Window], figures: Held, models: Mapping[str, ModelRecord]
) -> list[_Drawn]:
    """Over answers and held legs."""
    rng = random.Random(_SEED)
    drawn = (_balance(resampled(windows, rng), draw, models) for draw in figures.draws)
    return [_Drawn(one[0], sum(one[1].values())) for one in drawn if one is not None]


def _interference(value: float, drawn: Sequence[_Drawn], answers: int) -> Quantity:
    ratios = [one.measured / one.held - 1 for one in drawn if one.held > 0]
    low, high = widened_band(value, ratios, answers)
    return Quantity(
        value=value,
        low=low,
        high=high,
        n=answers,
        kind="measured",
        source="bytes seen while decoding over held bytes x passes, less 1; 90 % bootstrap over "
        "answers and held legs",
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
) -> tuple[float, dict[str, float]] | None:
    """Measured bytes and held ones by phase, idle subtracted; of the latter the keys and values by
    which the depth differs from the one held are those of the model."""
    measured, held = 0.0, defaultdict[str, float](float)
    for window in windows:
        rate = window.trace.level(draw.delay_s) - draw.idle_bytes_per_s
        measured += rate * window.trace.seconds
        for (phase, model, tokens), (count, depth) in window.passes.items():
            expected = held_value(draw.bytes_per_pass, phase, model, tokens)
            if expected is None:
                return None
            held_depth = next(k.context_tokens for k in draw.bytes_per_pass if k.model == model)
            record = models.get(model)
            kv_bytes = 0 if record is None else record.kv_bytes_per_token or 0
            held[phase] += count * expected + kv_bytes * (depth - count * held_depth)
    return measured, dict(held)
