"""How fast a variant answered: rates, latencies and where the time went.

Prefill is apart from decoding: a decode rate starts at the first token and does not count it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

from msgspec import Struct

from edgeprof.analysis.acceptance import LONGEST_ROUND
from edgeprof.analysis.statistics import mean_of, percentile
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Pass, Phase


class InterTokenLatency(Struct, frozen=True, kw_only=True):
    """Percentiles of the gaps between tokens."""

    p50: Quantity
    p90: Quantity
    p99: Quantity


class TimeShare(Struct, frozen=True, kw_only=True):
    """Shares of the decode wall time; ``other`` is what no pass accounts for."""

    draft: Quantity
    verify: Quantity
    decode: Quantity
    other: Quantity


def rates_by_repeat(runs: VariantRuns) -> list[float]:
    """Decode tokens/s of each repeat over all its prompts, in the order of the repeats."""
    tokens: dict[int, int] = defaultdict(int)
    seconds: dict[int, float] = defaultdict(float)
    for answer in runs.decoded:
        tokens[answer.repeat] += answer.decode_tokens
        seconds[answer.repeat] += answer.decode_s or 0.0
    return [tokens[repeat] / seconds[repeat] for repeat in sorted(tokens)]


def tokens_per_s(runs: VariantRuns) -> Quantity | None:
    """The headline rate; n counts repeats, each over all prompts."""
    source = (
        "tokens after the first over the time from the first token to the end, all prompts of a "
        "repeat together; mean over repeats, 95 % t interval"
    )
    return mean_of(rates_by_repeat(runs), source=source)


def time_to_first_token(runs: VariantRuns) -> Quantity | None:
    """From the start of a request until its first token is known: the prefills."""
    seconds = [
        (answer.request.first_token_ns - answer.request.t0_ns) / 1e9
        for answer in runs.answers
        if answer.request.first_token_ns is not None and answer.request.new_tokens > 0
    ]
    return mean_of(seconds, source="start to first token; mean over requests, 95 % t interval")


def time_per_output_token(runs: VariantRuns) -> Quantity | None:
    """(end - first token) / (tokens - 1)."""
    seconds = [(answer.decode_s or 0.0) / answer.decode_tokens for answer in runs.decoded]
    source = "(end - first token) / (tokens - 1); mean over requests, 95 % t interval"
    return mean_of(seconds, source=source)


def inter_token_latency(runs: VariantRuns) -> InterTokenLatency | None:
    """Bursty under speculation: all tokens of a round come when the round ends."""
    gaps = [gap for answer in runs.decoded for gap in _gaps(answer)]
    if not gaps:
        return None

    def at(fraction: float) -> Quantity:
        return Quantity(
            value=percentile(gaps, fraction),
            n=len(gaps),
            kind="measured",
            source="gaps between tokens; all tokens of a round come at its end",
        )

    return InterTokenLatency(p50=at(0.50), p90=at(0.90), p99=at(0.99))


def time_share(runs: VariantRuns) -> TimeShare | None:
    """None where nothing was decoded."""
    wall_s = sum(answer.decode_s or 0.0 for answer in runs.decoded)
    if not wall_s:
        return None
    taken_s = seconds_by_phase(runs.decoded)
    draft, verify, decode = (taken_s[phase] / wall_s for phase in ("draft", "verify", "decode"))

    def share(value: float, what: str) -> Quantity:
        return Quantity(
            value=value,
            n=len(runs.decoded),
            kind="measured",
            source=f"{what} over decode wall time, all requests together",
        )

    return TimeShare(
        draft=share(draft, "draft passes"),
        verify=share(verify, "target passes of several tokens"),
        decode=share(decode, "one-token target passes"),
        other=share(1 - draft - verify - decode, "time outside any pass"),
    )


def seconds_by_phase(answers: Iterable[Answer]) -> Mapping[str, float]:
    """What the passes of each phase took, all answers together; 0 where there was none."""
    taken_s = dict.fromkeys(get_args(Phase), 0.0)
    for answer in answers:
        for pass_ in answer.passes:
            taken_s[pass_.phase] += seconds(pass_)
    return taken_s


def phase_s(answer: Answer, phase: str) -> float:
    """Seconds that an answer's passes of one phase took."""
    return sum(seconds(pass_) for pass_ in answer.passes if pass_.phase == phase)


def seconds(pass_: Pass) -> float:
    """How long the provider ran."""
    return (pass_.t1_ns - pass_.t0_ns) / 1e9


def _gaps(answer: Answer) -> list[float]:
    gaps = []
    last_ns = answer.request.first_token_ns or 0
    for round_ in answer.rounds:
        gaps.append((round_.t1_ns - last_ns) / 1e9)
        gaps += [0.0] * (min(round_.emitted, LONGEST_ROUND) - 1)
        last_ns = round_.t1_ns
    return gaps
