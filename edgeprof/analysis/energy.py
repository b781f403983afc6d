"""What tokens cost in joules: power integrated over the decode phase, plain against speculative.

The power is that of the board's total rail, or of the sum of rails that its profile declares; which
one is always named. What the board draws idle is in it, and is shown apart. Without such a rail
there is no energy, and the reason takes its place.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from edgeprof.analysis.board import Readings
from edgeprof.analysis.channels import AbsentSignal, Channel
from edgeprof.analysis.comparison import Pair
from edgeprof.analysis.disturbance import is_disturbed
from edgeprof.analysis.integral import LEAST_READINGS, integral, mean_over, resolution_s
from edgeprof.analysis.statistics import bootstrap_interval, grid_sums, mean_of
from edgeprof.analysis.synthetic import SyntheticRuns
from edgeprof.analysis.variants import Answer
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, Session

TOTAL = "power_w.total"
MODULE_SUM = "power_w.module_sum"
_BOOTSTRAP = "95 % bootstrap over prompts and repeats"


class Idle(Struct, frozen=True, kw_only=True):
    """The machine with all models loaded and nothing running; None where it was not measured."""

    duration_s: float
    power_w: Quantity | None
    gpu_busy_frac: Quantity | None
    bandwidth_bytes_per_s: Quantity | None


class Energy(Struct, frozen=True, kw_only=True):
    """Joules of the decode phase. ``scope`` names the rail; figures are None for ``reason``.

    ``per_accepted_token_j`` is over the drafted tokens that were accepted; None without a drafter.
    ``above_idle_per_token_j`` is ``per_token_j`` less what the board draws idle in that time.
    ``answers`` counts those that have an energy, ``left_out`` those that were too short for one.
    """

    scope: str | None
    power_w: Quantity | None = None
    per_token_j: Quantity | None = None
    per_accepted_token_j: Quantity | None = None
    above_idle_per_token_j: Quantity | None = None
    answers: int = 0
    left_out: int = 0
    reason: str | None = None


class Rail(NamedTuple):
    """The power that stands for the board; ``channel`` is None for ``reason``."""

    channel: Channel | None
    scope: str | None
    reason: str | None


class Span(NamedTuple):
    """What a variant or a test did from one time to another; ``prompt`` and ``repeat`` say what
    belongs together."""

    prompt: str
    repeat: int
    t0_ns: int
    t1_ns: int
    tokens: int
    accepted: int = 0


class _Stretch(NamedTuple):
    """A span; ``area`` is the integral of a channel over it."""

    area: float
    seconds: float
    tokens: int
    accepted: int


def rail_of(readings: Readings, absent: Sequence[AbsentSignal]) -> Rail:
    """The total rail, else the profile's declared sum, else why there is neither."""
    for name, what in ((TOTAL, "total rail"), (MODULE_SUM, "sum of rails, not wall power")):
        channel = readings.channel(name)
        if channel is not None:
            detail = channel.signal.note or channel.signal.node
            scope = f"{what} ({detail})" if detail else what
            return Rail(channel, f"{scope}, {channel.signal.source}", None)
    rails = sorted(name for name in readings.names() if name.startswith("power_w."))
    if rails:
        listed = ", ".join(name.removeprefix("power_w.") for name in rails)
        return Rail(None, None, f"only {listed} were read: no total, and no sum is declared")
    told = (one.reason for one in absent if one.signal.partition(".")[0] == "power_w")
    return Rail(None, None, next(told, "no power rail was read in this session"))


def idle_of(session: Session, readings: Readings, rail: Rail) -> Idle | None:
    """From the idle legs; None where the session has none."""
    all_legs = [leg for leg in session.legs if _is_idle(leg) and leg.status == "complete"]
    legs = [leg for leg in all_legs if not is_disturbed(leg.attrs)] or all_legs
    if not legs:
        return None
    return Idle(
        duration_s=sum(((leg.t1_ns or leg.t0_ns) - leg.t0_ns) / 1e9 for leg in legs),
        power_w=_mean_in(legs, rail.channel, "power"),
        gpu_busy_frac=_mean_in(legs, readings.channel("gpu_busy_frac"), "load of the GPU"),
        bandwidth_bytes_per_s=_mean_in(
            legs, readings.channel("dram_bandwidth_bytes_per_s"), "memory traffic"
        ),
    )


def _is_idle(leg: Leg) -> bool:
    """A leg of its own, or the one among those that are held for their bytes."""
    return leg.kind == "idle" or (leg.kind == "held" and leg.attrs.get("phase") == "idle")


def decode_spans(answers: Sequence[Answer]) -> list[Span]:
    """From the first token of each answer to its end."""
    return [span for answer in answers if (span := _decode_span(answer)) is not None]


def _decode_span(answer: Answer) -> Span | None:
    request = answer.request
    if answer.decode_s is None or request.first_token_ns is None or request.t1_ns is None:
        return None
    return Span(
        prompt=request.prompt_sha256,
        repeat=answer.repeat,
        t0_ns=request.first_token_ns,
        t1_ns=request.t1_ns,
        tokens=answer.decode_tokens,
        accepted=sum(round_.accepted for round_ in answer.rounds),
    )


def spans_of_test(run: SyntheticRuns) -> list[Span]:
    """The measured part of each repeat of a synthetic test."""
    return [Span(run.name, repeat, *measured) for repeat, *measured in run.measured]


def energy_of(spans: Sequence[Span], rail: Rail, idle: Idle | None) -> Energy:
    """Of all spans of one variant or test."""
    if rail.channel is None:
        return Energy(scope=None, reason=rail.reason)
    cells = _cells(spans, rail.channel)
    spent = [one for same in cells.values() for one in same]
    left_out = len(spans) - len(spent)
    if not spent:
        reason = _too_short(rail.channel) if spans else "nothing was decoded"
        return Energy(scope=rail.scope, left_out=left_out, reason=reason)
    window_s = rail.channel.signal.window_s
    idle_w = None if idle is None or idle.power_w is None else idle.power_w.value
    source = f"{rail.scope}, trapezoid over the decode phase"
    return Energy(
        scope=rail.scope,
        power_w=_ratio(cells, lambda one: (one.area, one.seconds), f"{source}, mean", window_s),
        per_token_j=_ratio(
            cells, lambda one: (one.area, one.tokens), f"{source}, per token", window_s
        ),
        per_accepted_token_j=_ratio(
            cells,
            lambda one: (one.area, one.accepted),
            f"{source}, per drafted token that was accepted",
            window_s,
        ),
        above_idle_per_token_j=None
        if idle_w is None
        else _ratio(
            cells,
            lambda one: (one.area - idle_w * one.seconds, one.tokens),
            f"{source} less idle power, per token",
            window_s,
        ),
        answers=len(spent),
        left_out=left_out,
    )


def energy_ratio(pairs: Sequence[Pair], rail: Rail) -> Quantity | None:
    """Joules a token with the drafter over those without; only pairs in which both have some."""
    if rail.channel is None:
        return None
    cells: dict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)
    for ours, theirs in pairs:
        spans = [_decode_span(ours), _decode_span(theirs)]
        spent = [None if span is None else _stretch(span, rail.channel) for span in spans]
        if spent[0] is not None and spent[1] is not None:
            both = (part for one in (spent[0], spent[1]) for part in (one.area, one.tokens))
            cells[theirs.request.prompt_sha256, theirs.repeat].append(tuple(both))

    def ratio(sums: Sequence[float]) -> float:
        area, tokens, plain_area, plain_tokens = sums
        return area / tokens / (plain_area / plain_tokens)

    found = [one for same in cells.values() for one in same]
    totals = [sum(column) for column in zip(*found, strict=True)]
    if not found or totals[2] <= 0:
        return None
    whole, sums = ratio(totals), grid_sums(cells)
    low, high = bootstrap_interval(
        len(found), lambda rng: whole if (drawn := sums(rng)) is None else ratio(drawn)
    )
    source = f"joules a token over the baseline's, paired, {rail.scope}; {_BOOTSTRAP}"
    return Quantity(
        value=whole, low=low, high=high, n=len(found), kind="measured", source=source,
        window_s=rail.channel.signal.window_s,
    )  # fmt: skip


def mean_while_decoding(
    spans: Sequence[Span], channel: Channel | None, what: str
) -> Quantity | None:
    """The mean of a channel over the spans, each weighted by its length."""
    if channel is None:
        return None
    cells = _cells(spans, channel)
    source = f"{what} while decoding, mean over time"
    return _ratio(cells, lambda one: (one.area, one.seconds), source, channel.signal.window_s)


def _cells(spans: Sequence[Span], channel: Channel) -> Mapping[tuple[str, int], list[_Stretch]]:
    cells: dict[tuple[str, int], list[_Stretch]] = defaultdict(list)
    for span in spans:
        if (spent := _stretch(span, channel)) is not None:
            cells[span.prompt, span.repeat].append(spent)
    return cells


def _stretch(span: Span, channel: Channel) -> _Stretch | None:
    area = integral(channel, span.t0_ns, span.t1_ns)
    if area is None:
        return None
    return _Stretch(area, (span.t1_ns - span.t0_ns) / 1e9, span.tokens, span.accepted)


def _ratio(
    cells: Mapping[tuple[str, int], Sequence[_Stretch]],
    parts: Callable[[_Stretch], tuple[float, float]],
    source: str,
    window_s: float | None,
) -> Quantity | None:
    """The sum of the first parts over that of the second; None where that is 0."""

    def ratio(sums: Sequence[float]) -> float | None:
        above, below = sums
        return above / below if below else None

    parted = {key: [parts(one) for one in same] for key, same in cells.items()}
    found = [one for same in parted.values() for one in same]
    whole = ratio([sum(column) for column in zip(*found, strict=True)]) if found else None
    if whole is None:
        return None
    sums = grid_sums(parted)

    def draw(rng: random.Random) -> float:
        drawn = sums(rng)
        value = None if drawn is None else ratio(drawn)
        return whole if value is None else value

    low, high = bootstrap_interval(len(found), draw)
    return Quantity(
        value=whole,
        low=low,
        high=high,
        n=len(found),
        kind="measured",
        source=f"{source}; {_BOOTSTRAP}",
        window_s=window_s,
    )


def _mean_in(legs: Sequence[Leg], channel: Channel | None, what: str) -> Quantity | None:
    """The mean over the legs' own means, each over the whole leg."""
    if channel is None:
        return None
    means = [mean_over(channel, leg.t0_ns, leg.t1_ns) for leg in legs if leg.t1_ns is not None]
    known = [mean for mean in means if mean is not None]
    return mean_of(known, source=f"{what} with nothing running, mean over idle legs")


def _too_short(channel: Channel) -> str:
    shortest_s = LEAST_READINGS * resolution_s(channel)
    return (
        f"no answer was decoded for {shortest_s:.2g} s, {LEAST_READINGS} readings of the rail, "
        "with readings all along: raise new_tokens"
    )
