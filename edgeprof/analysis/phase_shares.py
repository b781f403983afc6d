"""Whose the memory traffic and the energy of decoding are: the shares of the phases.

Bytes: held bytes a pass x passes, over the bytes that the counter saw while the variant decoded,
idle subtracted from both. Energy: mean power of the rail while a kind of pass was held x the time
of such passes while decoding, over the energy that was measured meanwhile; idle power is in both.
Pure arithmetic.
"""

import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from edgeprof.analysis.attribution import Attribution
from edgeprof.analysis.energy import Rail
from edgeprof.analysis.held_bytes import PhaseKey, held_value
from edgeprof.analysis.held_legs import HELD_BYTES, HeldLeg, legs_holding
from edgeprof.analysis.integral import integral, mean_over
from edgeprof.analysis.latency import seconds
from edgeprof.analysis.variants import Answer, VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Session

_PHASES = ("draft", "verify", "decode")


class PhaseShares(Struct, frozen=True, kw_only=True):
    """Shares of what was measured while a variant decoded; all None for ``reason``.

    ``other`` is what no held pass accounts for. It is below 0 where held passes make more than was
    measured.
    """

    draft: Quantity | None = None
    verify: Quantity | None = None
    decode: Quantity | None = None
    other: Quantity | None = None
    reason: str | None = None


def traffic_shares(
    variant: VariantRuns, attribution: Attribution | None, no_bandwidth: str | None
) -> PhaseShares:
    """From the closure; ``no_bandwidth`` says why no bandwidth was read, None where it was."""
    if attribution is None or attribution.refused is not None:
        refused = None if attribution is None else attribution.refused
        return PhaseShares(reason=no_bandwidth or refused or "no kind of pass was held")
    for closure in attribution.closure:
        if closure.variant == variant.name and closure.measured_bytes > 0:
            return _shares(
                closure.held_bytes_by_phase,
                closure.measured_bytes,
                closure.answers,
                "held bytes x passes over the bytes seen while decoding, idle subtracted",
            )
    start = f"{variant.name}: "
    told = (one.removeprefix(start) for one in attribution.not_closed if one.startswith(start))
    alone = "the balance is only made for variants with a drafter"
    return PhaseShares(
        reason=next(told, alone if variant.drafter is None else "the counter saw nothing but idle")
    )


class HeldPower(NamedTuple):
    """The rail; mean power in watts while each kind of pass was held, or why there is none."""

    rail: Rail
    watts: Mapping[PhaseKey, float]
    reason: str | None


def held_power(session: Session, rail: Rail) -> HeldPower:
    """The mean over the legs of each kind, from the first pass of a leg to the end of its last."""
    channel = rail.channel
    if channel is None:
        return HeldPower(rail, {}, rail.reason)
    legs = [one for one in legs_holding(session, HELD_BYTES) if not one.is_idle and one.passes]
    found: dict[PhaseKey, list[float]] = defaultdict(list)
    for one in legs:
        watts = mean_over(channel, *_from_first_to_last(one))
        if watts is not None:
            found[one.key].append(watts)
    reason = "no kind of pass was held"
    if legs:
        reason = "the passes were not held long enough for the rail's readings: raise held_leg_s"
    means = {key: statistics.fmean(several) for key, several in found.items()}
    return HeldPower(rail, means, None if means else reason)


def energy_shares(variant: VariantRuns, held: HeldPower) -> PhaseShares:
    """Over the answers that have an energy."""
    channel = held.rail.channel
    if channel is None or held.reason is not None:
        return PhaseShares(reason=held.reason)
    joules = dict.fromkeys(_PHASES, 0.0)
    measured_j, answers = 0.0, 0
    for answer in variant.decoded:
        request = answer.request
        assert request.first_token_ns is not None and request.t1_ns is not None  # it was decoded
        spent_j = integral(channel, request.first_token_ns, request.t1_ns)
        if spent_j is None:
            continue
        taken = _held_joules(answer, held.watts)
        if isinstance(taken, str):
            return PhaseShares(reason=taken)
        joules = {phase: joules[phase] + taken[phase] for phase in _PHASES}
        measured_j, answers = measured_j + spent_j, answers + 1
    if measured_j <= 0:
        return PhaseShares(reason="no answer was decoded for long enough: raise new_tokens")
    source = f"power of held passes x their time while decoding, over the energy; {held.rail.scope}"
    return _shares(joules, measured_j, answers, source)


def _held_joules(answer: Answer, watts: Mapping[PhaseKey, float]) -> dict[str, float] | str:
    """Of the passes of each phase; which kind was not held, where one was not."""
    joules = dict.fromkeys(_PHASES, 0.0)
    for one in answer.passes:
        if one.phase not in joules:
            continue
        power_w = held_value(watts, one.phase, one.model, one.tokens)
        if power_w is None:
            return f"no {one.phase} pass of {one.model} was held long enough"
        joules[one.phase] += power_w * seconds(one)
    return joules


def _from_first_to_last(held: HeldLeg) -> tuple[int, int]:
    return min(one.t0_ns for one in held.passes), max(one.t1_ns for one in held.passes)


def _shares(parts: Mapping[str, float], whole: float, answers: int, source: str) -> PhaseShares:
    def share(value: float, what: str) -> Quantity:
        return Quantity(value=value, n=answers, kind="measured", source=what)

    values = [parts.get(phase, 0.0) / whole for phase in _PHASES]
    draft, verify, decode = (share(value, source) for value in values)
    rest = share(1 - sum(values), f"1 less the shares of the phases: {source}")
    return PhaseShares(draft=draft, verify=verify, decode=decode, other=rest)
