"""Which walls a variant hit, ranked by what removing each would gain.

A wall is removed down to a level that matched pairs and good kernels reach, not to nothing: a draft
at a tenth of a target pass, a verify pass a tenth above one token, four drafted tokens of five
accepted. It is named where that would make the variant at least a tenth faster. What is wrong with
the set-up, whose gain nobody can tell, comes first.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from edgeprof.analysis.acceptance import Acceptance
from edgeprof.analysis.bus import Bus, Together
from edgeprof.analysis.circumstances import Circumstances
from edgeprof.analysis.comparison import Output, RoundCost
from edgeprof.analysis.forecast import Forecast
from edgeprof.analysis.pass_cost import PassPoint
from edgeprof.analysis.round_terms import RoundTerms, terms_of_cost
from edgeprof.analysis.speculation import break_even_acceptance, expected_tokens
from edgeprof.quantity import Quantity

_NOTICEABLE = 1.10  # a gain of a tenth is more than noise and worth a user's effort

# What can be reached, in plain target passes: draft passes of matched pairs cost 0.07 to 0.17 of
# the target's (bytes of Qwen2.5 0.5B/7B, Llama 3 1B/8B), good kernels verify at 1.0 to 1.1
# (llama.cpp on Orin), four of five drafted tokens stand with drafts made for their target.
_DRAFT_COST, _VERIFICATION, _FIXED, _IN_SITU = 0.10, 0.10, 0.10, 0.10
_GOOD_ACCEPTANCE, _LOW_ACCEPTANCE = 0.8, 0.5

# A draft pass that takes twice its share of bytes is held by something else than reading them.
_OVERHEAD_BOUND = 2.0

# A pass that reaches half of what a large, regular product reaches through the same kernel is
# taken to be held by that ceiling; further below, something else (launches, small shapes) holds it.
NEAR_CEILING = 0.5


class Limit(Struct, frozen=True, kw_only=True):
    """A wall, the numbers that show it, and what could move it. ``gain`` is by what factor the
    variant would be faster without; None: nobody can tell."""

    name: str
    evidence: str
    advice: str
    gain: float | None = None


class Evidence(Struct, frozen=True, kw_only=True):
    """What a verdict rests on; None is not measured.

    ``draft_ratio`` is c, ``verify_cost`` v(draft_tokens + 1), both from held passes;
    ``one_token`` and ``verify_pass`` are held target passes of 1 and draft_tokens + 1 tokens.
    ``held_target_cost`` is v averaged over the draft lengths of the run, ``repeats`` how often
    both variants ran. ``clock_change`` says which clock differed between them, if any did.
    ``byte_ratio`` is what the draft streams over what the target does.
    """

    speedup: Quantity | None
    drafter_kind: str | None
    draft_tokens: int | None
    acceptance: Acceptance | None
    cost: RoundCost | None
    repeats: int
    terms: RoundTerms | None = None
    held_target_cost: float | None = None
    draft_ratio: Quantity | None = None
    byte_ratio: float | None = None
    verify_cost: Quantity | None = None
    one_token: PassPoint | None = None
    verify_pass: PassPoint | None = None
    forecasts: Sequence[Forecast] = ()
    output: Output | None = None
    clock_change: str | None = None
    around: Circumstances = Circumstances()


def limits_of(evidence: Evidence, cost: RoundCost) -> list[Limit]:
    """The walls, faults of the set-up first, then by what removing each would gain."""
    terms = evidence.terms or terms_of_cost(cost)
    found = [
        *_setup_limits(evidence, terms),
        *_acceptance_limits(evidence, terms),
        *_cost_limits(evidence, cost, terms),
        *_length_limits(evidence),
    ]
    named = [limit for limit in found if limit.gain is None or limit.gain >= _NOTICEABLE]
    return sorted(named, key=lambda limit: -(limit.gain or float("inf")))


def _without(terms: RoundTerms, cost: float, healthy: float) -> float:
    """The gain of bringing one cost down to what can be reached; 1 where it is there already."""
    excess = max(cost - healthy, 0.0)
    return terms.total / (terms.total - excess)


def _setup_limits(evidence: Evidence, terms: RoundTerms) -> Iterator[Limit]:
    around = evidence.around
    if around.provider is not None:
        yield Limit(
            name="wrong provider",
            evidence=around.provider,
            advice='run it on the GPU (provider = "cuda" in the recipe)',
        )
    if around.memory is not None:
        yield Limit(
            name="memory pressure",
            evidence=around.memory,
            advice="a smaller target, draft or context; see edgeprof roofline for what fits",
        )
    if around.throttled is not None:
        yield Limit(
            name="throttled",
            evidence=around.throttled,
            advice="cool the board or choose a lower power mode, and run again",
        )
    elif around.clocks is not None:
        yield Limit(
            name="clocks not pinned",
            evidence=around.clocks,
            advice=f"pin the clocks (jetson_clocks): at the highest seen up to "
            f"{around.clock_gain or 1:.2f}x of these tokens/s",
            gain=around.clock_gain,
        )
    yield from _in_situ_limits(evidence, terms)


def _in_situ_limits(evidence: Evidence, terms: RoundTerms) -> Iterator[Limit]:
    """What passes take longer while decoding than held, by the cause that the session shows."""
    around, extra = evidence.around, terms.in_situ or 0.0
    together = around.bus.together
    if around.cores is not None:
        gain = _without(terms, extra, _IN_SITU)
        yield Limit(
            name="cores fought over",
            evidence=f"{around.cores}; {_against_held(terms)}",
            advice="stop the other programs, or give the draft fewer threads: "
            f"{_better(terms, extra)}",
            gain=max(gain, around.core_gain or _NOTICEABLE),
        )
    elif together is not None and together.on_gpu:
        yield Limit(
            name="GPU fought over",
            evidence=f"{_at_once(together)} on one GPU, where both compete for its SMs and time "
            f"slices; {_against_held(terms)}",
            advice=f"let draft and target take turns: {_better(terms, extra)}",
            gain=_without(terms, extra, _IN_SITU),
        )
    else:
        yield from _bus_or_turns(evidence, terms, extra)


def _bus_or_turns(evidence: Evidence, terms: RoundTerms, extra: float) -> Iterator[Limit]:
    """The bus, where that was measured or both ran at once and nothing was; else taking turns."""
    around, bus = evidence.around, evidence.around.bus
    gain = _without(terms, extra, _IN_SITU)
    better = _better(terms, extra)
    facts = [_against_held(terms), *bus.facts]
    if bus.together is not None:
        facts.insert(0, _at_once(bus.together))
    if bus.is_shared or (bus.is_shared is None and bus.together is not None):
        yield Limit(
            name="bus contention",
            evidence="; ".join(facts),
            advice=f"{_bus_advice(bus)}: {better}",
            gain=gain,
        )
    elif around.memory is None and around.throttled is None:
        denied = ", so the bus is not in the way" if bus.is_shared is False else ""
        yield Limit(
            name="alternation",
            evidence="; ".join(facts) + denied,
            advice="a draft that leaves the caches to the target, or more drafted tokens a "
            f"round: {better}",
            gain=gain,
        )


def _against_held(terms: RoundTerms) -> str:
    """What the in situ term is made of, for passes by themselves may show another sign."""
    extra, plain = terms.in_situ or 0.0, terms.plain_in_situ or 0.0
    told = f"passes take {extra:.2f} of a plain token longer each round than held, by their means"
    if round(abs(plain), 2) == 0:
        return told
    return (
        f"{told} and beyond plain decoding's: those of a round {_longer(extra + plain)}, a plain "
        f"token's {_longer(plain)}"
    )


def _longer(difference: float) -> str:
    return f"{abs(difference):.2f} {'longer' if difference >= 0 else 'shorter'}"


def _bus_advice(bus: Bus) -> str:
    if bus.together is None:
        return "find what else moves bytes meanwhile, or a draft that leaves the caches alone"
    turns = "let draft and target take turns"
    return turns if bus.kappa is not None else f"{turns}, or measure with edgeprof contend"


def _at_once(together: Together) -> str:
    return f"the target ran during {100 * together.share:.0f} % of the draft's time"


def _better(terms: RoundTerms, extra: float) -> str:
    return f"predicted {_removed(terms, extra, _IN_SITU):.2f}x"


def _acceptance_limits(evidence: Evidence, terms: RoundTerms) -> Iterator[Limit]:
    acceptance = evidence.acceptance
    if acceptance is None or acceptance.conditional_acceptance is None:
        return
    rate = acceptance.conditional_acceptance
    drafted_share = 1 - acceptance.rounds_without_draft / acceptance.rounds
    if rate >= _LOW_ACCEPTANCE and drafted_share >= _LOW_ACCEPTANCE:
        return
    found = ""
    if acceptance.rounds_without_draft:
        found = f"; {100 * drafted_share:.0f} % of the rounds had a draft"
    good = expected_tokens(_GOOD_ACCEPTANCE, evidence.draft_tokens or 1)
    gain = good / terms.tokens
    better = (
        f"at {100 * _GOOD_ACCEPTANCE:.0f} % accepted: predicted {gain * terms.speedup:.2f}x at "
        f"K = {evidence.draft_tokens or 1}"
    )
    name, advice = _acceptance_words(evidence, rate, better)
    yield Limit(
        name=name,
        evidence=f"{100 * rate:.0f} % of the compared tokens were accepted{found}; a round gives "
        f"{terms.tokens:.2f} tokens and at its cost must give more than {terms.total:.2f} to pay"
        f"{_break_even(evidence, terms)}{_words(evidence)}",
        advice=advice,
        gain=gain,
    )


def _acceptance_words(evidence: Evidence, rate: float, better: str) -> tuple[str, str]:
    if evidence.around.vocabularies is not None:
        return "mismatched vocabularies", f"a draft with the target's tokenizer; {better}"
    name = "low acceptance" if rate < _LOW_ACCEPTANCE else "few drafts"
    if evidence.drafter_kind == "ngram":
        return name, f"prompts whose answers repeat their text, or a draft model; {better}"
    return name, f"a draft made for this target; {better}"


def _words(evidence: Evidence) -> str:
    words = evidence.around.vocabularies
    return "" if words is None else f"; {words}"


def _break_even(evidence: Evidence, terms: RoundTerms) -> str:
    """The acceptance at which a round of this cost would pay; a fixed draft length only."""
    if evidence.drafter_kind != "model" or evidence.draft_tokens is None or terms.total <= 1:
        return ""
    needed = break_even_acceptance(evidence.draft_tokens, 0.0, verify_cost=terms.total)
    if needed is None:
        return f", which {evidence.draft_tokens} drafted tokens cannot bring"
    return f" ({100 * needed:.0f} % accepted)"


def _cost_limits(evidence: Evidence, cost: RoundCost, terms: RoundTerms) -> Iterator[Limit]:
    healthy = _DRAFT_COST * (evidence.draft_tokens or 0)
    if evidence.drafter_kind == "model":
        yield _draft_limit(evidence, terms, healthy)
    yield _verification_limit(evidence, cost, terms)
    work = "looking up n-grams" if evidence.drafter_kind == "ngram" else "handing tokens over"
    yield Limit(
        name="overhead",
        evidence=f"{terms.fixed:.2f} of a plain token's time each round lies outside any pass "
        f"(choosing tokens, {work})",
        advice="a larger target hides it, more accepted tokens a round share it: at "
        f"{_FIXED:.2f} predicted {_removed(terms, terms.fixed, _FIXED):.2f}x",
        gain=_without(terms, terms.fixed, _FIXED),
    )


def _removed(terms: RoundTerms, cost: float, healthy: float) -> float:
    return terms.speedup * _without(terms, cost, healthy)


def _draft_limit(evidence: Evidence, terms: RoundTerms, healthy: float) -> Limit:
    c = evidence.draft_ratio
    step = "" if c is None or c.value is None else f"; a held draft step costs {c.value:.2f}"
    better = f"at {_DRAFT_COST:.2f} a step predicted {_removed(terms, terms.draft, healthy):.2f}x"
    name, advice = (
        "draft cost",
        f"a smaller draft, or a cut output head (convert --head-rows): {better}",
    )
    ratio = evidence.byte_ratio
    if c is not None and c.value is not None and ratio and c.value >= _OVERHEAD_BOUND * ratio:
        name = "overhead-bound draft"
        step += f", {c.value / ratio:.1f} times its share of bytes ({ratio:.2f})"
        advice = "a draft of fewer layers, as launches and not bytes take its time"
    return Limit(
        name=name,
        evidence=f"drafting takes {terms.draft:.2f} of a plain token's time each round{step}",
        advice=f"{advice}: {better}",
        gain=_without(terms, terms.draft, healthy),
    )


def _verification_limit(evidence: Evidence, cost: RoundCost, terms: RoundTerms) -> Limit:
    facts = [f"the target takes {cost.target:.2f} of a plain token's time each round"]
    v, point = evidence.verify_cost, evidence.verify_pass
    if v is not None and v.value is not None and evidence.draft_tokens is not None:
        band = "" if v.low is None else f" [{v.low:.2f}, {v.high:.2f}]"
        facts.append(f"v({evidence.draft_tokens + 1}) = {v.value:.2f}{band} on held passes")
    flop, bandwidth = (point.flop_share, point.bandwidth_share) if point else (None, None)
    if point is not None and flop is not None:
        streaming = "" if bandwidth is None else f" and {100 * bandwidth:.0f} % of its streaming"
        facts.append(
            f"a {point.tokens}-token pass reaches {100 * flop:.0f} % of the kernel's measured "
            f"arithmetic{streaming} ceiling"
        )
    if flop is not None and flop >= NEAR_CEILING and flop >= (bandwidth or 0.0):
        name, advice = "compute-bound verification", "a kernel or provider with more arithmetic"
    else:
        name = "verification cost"
        advice = "a kernel that reads the weights once for a few tokens"
    better = _removed(terms, terms.verification, _VERIFICATION)
    return Limit(
        name=name,
        evidence="; ".join(facts),
        advice=f"{advice}: at {1 + _VERIFICATION:.2f} predicted {better:.2f}x",
        gain=_without(terms, terms.verification, _VERIFICATION),
    )


def _length_limits(evidence: Evidence) -> Iterator[Limit]:
    best = best_length(evidence.forecasts)
    asked = evidence.draft_tokens
    now = next((one for one in evidence.forecasts if one.draft_tokens == asked), None)
    if best is None or now is None or best.draft_tokens == asked:
        return
    longer = "more" if best.draft_tokens > now.draft_tokens else "fewer"
    yield Limit(
        name="draft length",
        evidence=f"{asked} tokens are drafted; {longer} would be better by acceptance and held "
        f"passes, which predict {now.predicted_speedup:.2f}x at K = {asked}",
        advice=f"-k {best.draft_tokens}: {length_words(best)}"
        if best.predicted_speedup >= 1
        else f"decode plainly: no length is predicted to pay, {length_words(best)}",
        gain=best.predicted_speedup / now.predicted_speedup,
    )


def best_length(forecasts: Sequence[Forecast]) -> Forecast | None:
    """The shortest of those that promise most."""
    return max(forecasts, key=lambda one: (one.predicted_speedup, -one.draft_tokens), default=None)


def length_words(best: Forecast) -> str:
    """``K = 3: predicted 1.42x [1.35, 1.48]``."""
    band = "" if best.low is None else f" [{best.low:.2f}, {best.high:.2f}]"
    return f"K = {best.draft_tokens}: predicted {best.predicted_speedup:.2f}x{band}"
