"""Does a drafter pay, and why? Judges figures; measures nothing.

A round costs draft + target + other, in units of one plainly decoded token, and gives so many
tokens; it pays where it gives more than it costs. Which walls it hits, ``limits`` says.
"""

from typing import Literal

from msgspec import Struct

from edgeprof.analysis.comparison import RoundCost
from edgeprof.analysis.limits import NEAR_CEILING, Evidence, Limit, limits_of
from edgeprof.quantity import Quantity

Outcome = Literal["pays", "does not pay", "no difference beyond noise", "not comparable"]

# With a single repeat nobody knows how one run of a variant differs from the next. On an otherwise
# idle machine that is commonly a few per cent, so such a speed-up must differ from 1 by more than
# this, whatever the spread between its prompts says.
_NOISE_OF_ONE_REPEAT = 0.10

# Drafting cannot make a target pass cheaper than it is on its own. Where the run says so by this
# factor (far beyond the noise of medians), the plain variant ran on a disturbed machine.
_DISTURBED = 1.5

_NOTICEABLE = 0.10  # above one pass: less is as good as free


class Verdict(Struct, frozen=True, kw_only=True):
    """``because`` says in one sentence where the outcome comes from."""

    outcome: Outcome
    because: str
    limits: list[Limit]


def judge(evidence: Evidence) -> Verdict:
    """The outcome, why, and the walls by what removing each would gain."""
    if evidence.clock_change is not None:
        limit = Limit(
            name="clocks differ",
            evidence=evidence.clock_change,
            advice="fix the clocks or let the board cool, and run again",
        )
        return Verdict(outcome="not comparable", because=limit.evidence, limits=[limit])
    speedup, cost = evidence.speedup, evidence.cost
    if speedup is None or speedup.value is None or cost is None:
        because = "no prompt was decoded by both this variant and its baseline"
        return Verdict(outcome="not comparable", because=because, limits=_output_limits(evidence))
    held = evidence.held_target_cost
    if held is not None and cost.target * _DISTURBED < held:
        limit = _disturbance(cost, held)
        return Verdict(outcome="not comparable", because=limit.evidence, limits=[limit])
    return Verdict(
        outcome=_outcome(speedup, evidence.repeats),
        because=_because(evidence, cost),
        limits=[*limits_of(evidence, cost), *_output_limits(evidence)],
    )


def _outcome(speedup: Quantity, repeats: int) -> Outcome:
    value = speedup.value or 0.0
    low = value if speedup.low is None else speedup.low
    high = value if speedup.high is None else speedup.high
    outcomes: dict[int, Outcome] = {1: "pays", -1: "does not pay"}
    return outcomes.get(side_of_one(value, low, high, repeats), "no difference beyond noise")


def side_of_one(value: float, low: float, high: float, repeats: int) -> int:
    """Of a ratio and its interval over so many repeats: 1 above 1, -1 below, 0 where noise may be
    all of it."""
    if repeats < 2:
        low = min(low, value * (1 - _NOISE_OF_ONE_REPEAT))
        high = max(high, value * (1 + _NOISE_OF_ONE_REPEAT))
    return int(low > 1) or -int(high < 1)


def _disturbance(cost: RoundCost, held: float) -> Limit:
    return Limit(
        name="disturbed run",
        evidence=f"the target's passes of a round took {cost.target:.2f} of a plainly decoded "
        f"token, and {held:.2f} on held passes; plain decoding was slowed by something else",
        advice="stop other work on the machine and run again, with more repeats",
    )


def _because(evidence: Evidence, cost: RoundCost) -> str:
    balance = (
        f"a round gives {cost.tokens:.2f} tokens for the time of {cost.total:.2f} plain ones "
        f"(draft {cost.draft:.2f}, target {cost.target:.2f}, other {cost.other:.2f})"
    )
    v, point = evidence.verify_cost, evidence.one_token
    if v is None or v.value is None or evidence.draft_tokens is None:
        return balance
    verifying = f"verifying {evidence.draft_tokens + 1} tokens costs {v.value:.2f} of one"
    share = point.bandwidth_share if point is not None else None
    if v.value < 1 + _NOTICEABLE and share is not None and share >= NEAR_CEILING:
        verifying += (
            f": decoding is memory-bound, at {100 * share:.0f} % of the measured streaming ceiling"
        )
    return f"{balance}; {verifying}"


def _output_limits(evidence: Evidence) -> list[Limit]:
    output = evidence.output
    if output is None or output.identical is not False:
        return []
    gap = "" if output.logit_gap is None else f", with a logit gap of {output.logit_gap:.2g} there"
    return [
        Limit(
            name="output differs",
            evidence=f"{output.answers_compared - output.answers_identical} of "
            f"{output.answers_compared} answers differ from {output.reference}, first at "
            f"position {output.first_divergence}{gap}",
            advice="passes of different size give slightly different logits in these kernels; "
            "compare with a reference that decodes through passes of the same size",
        )
    ]
