"""Does a drafter pay, and which wall says so? Judges figures; measures nothing.

A round costs draft + target + other, in units of one plainly decoded token, and gives so many
tokens; it pays where it gives more than it costs. Every limit is named with its numbers.
"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from edgeprof.analysis.acceptance import Acceptance
from edgeprof.analysis.comparison import Output, RoundCost, ShorterDraft
from edgeprof.analysis.pass_cost import PassPoint
from edgeprof.analysis.speculation import break_even_acceptance
from edgeprof.quantity import Quantity

Outcome = Literal["pays", "does not pay", "no difference beyond noise", "not comparable"]

# With a single repeat nobody knows how one run of a variant differs from the next. On an otherwise
# idle machine that is commonly a few per cent, so such a speed-up must differ from 1 by more than
# this, whatever the spread between its prompts says.
_NOISE_OF_ONE_REPEAT = 0.10

# Drafting cannot make a target pass cheaper than it is on its own. Where the run says so by this
# factor (far beyond the noise of medians), the plain variant ran on a disturbed machine.
_DISTURBED = 1.5

# A cost of a tenth of a plain token a round is more than timing noise and worth a user's effort;
# smaller ones are not named as walls.
_NOTICEABLE = 0.10

# Below one half a compared token is more likely thrown away than kept.
_LOW_ACCEPTANCE = 0.5

# A pass that reaches half of what a large, regular product reaches through the same kernel is
# taken to be held by that ceiling; further below, something else (launches, small shapes) holds it.
_NEAR_CEILING = 0.5


class Limit(Struct, frozen=True, kw_only=True):
    """A wall, the numbers that show it, and what could move it."""

    name: str
    evidence: str
    advice: str


class Verdict(Struct, frozen=True, kw_only=True):
    """``because`` says in one sentence where the outcome comes from."""

    outcome: Outcome
    because: str
    limits: list[Limit]


class Evidence(Struct, frozen=True, kw_only=True):
    """What a verdict rests on; None is not measured.

    ``draft_ratio`` is c, ``verify_cost`` v(draft_tokens + 1), both from held passes;
    ``one_token`` and ``verify_pass`` are held target passes of 1 and draft_tokens + 1 tokens.
    ``held_target_cost`` is v averaged over the draft lengths of the run, ``repeats`` how often
    both variants ran. ``clock_change`` says which clock differed between them, if any did.
    """

    speedup: Quantity | None
    drafter_kind: str | None
    draft_tokens: int | None
    acceptance: Acceptance | None
    cost: RoundCost | None
    repeats: int
    held_target_cost: float | None = None
    draft_ratio: Quantity | None = None
    verify_cost: Quantity | None = None
    one_token: PassPoint | None = None
    verify_pass: PassPoint | None = None
    shorter_drafts: Sequence[ShorterDraft] = ()
    output: Output | None = None
    clock_change: str | None = None


def judge(evidence: Evidence) -> Verdict:
    """The outcome, why, and the walls in the order of their weight."""
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
        limits=[*_cost_limits(evidence, cost), *_output_limits(evidence)],
    )


def _outcome(speedup: Quantity, repeats: int) -> Outcome:
    value = speedup.value or 0.0
    low = value if speedup.low is None else speedup.low
    high = value if speedup.high is None else speedup.high
    if repeats < 2:
        low = min(low, value * (1 - _NOISE_OF_ONE_REPEAT))
        high = max(high, value * (1 + _NOISE_OF_ONE_REPEAT))
    if low > 1:
        return "pays"
    return "does not pay" if high < 1 else "no difference beyond noise"


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
    if v.value < 1 + _NOTICEABLE and share is not None and share >= _NEAR_CEILING:
        verifying += (
            f": decoding is memory-bound, at {100 * share:.0f} % of the measured streaming ceiling"
        )
    return f"{balance}; {verifying}"


def _cost_limits(evidence: Evidence, cost: RoundCost) -> list[Limit]:
    """Costs by weight; acceptance first where no single cost, taken away, would make it pay."""
    excess = {
        "draft": (cost.draft, _draft_limit(evidence, cost)),
        "target": (cost.target - 1, _verification_limit(evidence, cost)),
        "other": (cost.other, _overhead_limit(evidence, cost)),
    }
    named = sorted(excess.values(), key=lambda item: item[0], reverse=True)
    limits = [limit for amount, limit in named if amount >= _NOTICEABLE]
    acceptance = _acceptance_limit(evidence, cost)
    if acceptance is None:
        return limits
    largest = max(amount for amount, _ in named)
    return [acceptance, *limits] if cost.tokens <= cost.total - largest else [*limits, acceptance]


def _acceptance_limit(evidence: Evidence, cost: RoundCost) -> Limit | None:
    acceptance = evidence.acceptance
    if acceptance is None or acceptance.conditional_acceptance is None:
        return None
    rate = acceptance.conditional_acceptance
    drafted_share = 1 - acceptance.rounds_without_draft / acceptance.rounds
    if rate >= _LOW_ACCEPTANCE and drafted_share >= _LOW_ACCEPTANCE:
        return None
    found = ""
    if acceptance.rounds_without_draft:
        found = f"; {100 * drafted_share:.0f} % of the rounds had a draft"
    if evidence.drafter_kind == "ngram":
        advice = "prompts whose answers repeat their text, or a draft model"
    else:
        advice = f"a draft made for this target, or {_fewer_tokens(evidence)}"
    return Limit(
        name="low acceptance" if rate < _LOW_ACCEPTANCE else "few drafts",
        evidence=f"{100 * rate:.0f} % of the compared tokens were accepted{found}; a round gives "
        f"{cost.tokens:.2f} tokens and at its cost must give more than {cost.total:.2f} to pay"
        f"{_break_even(evidence, cost)}",
        advice=advice,
    )


def _break_even(evidence: Evidence, cost: RoundCost) -> str:
    """The acceptance at which a round of this cost would pay; a fixed draft length only."""
    if evidence.drafter_kind != "model" or evidence.draft_tokens is None or cost.total <= 1:
        return ""
    needed = break_even_acceptance(evidence.draft_tokens, 0.0, verify_cost=cost.total)
    if needed is None:
        return f", which {evidence.draft_tokens} drafted tokens cannot bring"
    return f" ({100 * needed:.0f} % accepted)"


def _draft_limit(evidence: Evidence, cost: RoundCost) -> Limit:
    c = evidence.draft_ratio
    step = "" if c is None or c.value is None else f"; a held draft step costs {c.value:.2f}"
    return Limit(
        name="draft cost",
        evidence=f"drafting takes {cost.draft:.2f} of a plain token's time each round{step}",
        advice="a smaller draft, a cut output head (convert --head-rows), or "
        f"{_fewer_tokens(evidence)}",
    )


def _verification_limit(evidence: Evidence, cost: RoundCost) -> Limit:
    facts = [f"the target takes {cost.target:.2f} of a plain token's time each round"]
    v, point = evidence.verify_cost, evidence.verify_pass
    if v is not None and v.value is not None and evidence.draft_tokens is not None:
        band = "" if v.low is None else f" [{v.low:.2f}, {v.high:.2f}]"
        facts.append(f"v({evidence.draft_tokens + 1}) = {v.value:.2f}{band} on held passes")
    flop, bandwidth = (point.flop_share, point.bandwidth_share) if point else (None, None)
    if point is not None and flop is not None and bandwidth is not None:
        facts.append(
            f"a {point.tokens}-token pass reaches {100 * flop:.0f} % of the kernel's measured "
            f"arithmetic ceiling and {100 * bandwidth:.0f} % of its streaming ceiling"
        )
    if flop is not None and flop >= _NEAR_CEILING and flop >= (bandwidth or 0.0):
        name = "compute-bound verification"
        advice = f"{_fewer_tokens(evidence)}, or a kernel or provider with more arithmetic"
    else:
        name = "verification cost"
        advice = (
            f"a kernel that reads the weights once for a few tokens, or {_fewer_tokens(evidence)}"
        )
    return Limit(name=name, evidence="; ".join(facts), advice=advice)


def _overhead_limit(evidence: Evidence, cost: RoundCost) -> Limit:
    work = "looking up n-grams" if evidence.drafter_kind == "ngram" else "handing tokens over"
    return Limit(
        name="overhead",
        evidence=f"{cost.other:.2f} of a plain token's time each round lies outside any pass "
        f"(choosing tokens, {work})",
        advice="a larger target hides it; more accepted tokens a round share it",
    )


def _fewer_tokens(evidence: Evidence) -> str:
    """Draft less, with the best shorter length where one is predicted to be better."""
    advice = "fewer drafted tokens (-k)"
    if not evidence.shorter_drafts:
        return advice
    best = max(evidence.shorter_drafts, key=lambda draft: draft.predicted_speedup)
    if best.draft_tokens == evidence.draft_tokens:
        return advice
    return f"{advice}: {best.predicted_speedup:.2f}x is predicted at k={best.draft_tokens}"


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
