"""The answer of a session in a few sentences: what pays for each target, what does not, and why."""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from edgeprof.analysis.summary import Comparison, Summary
from edgeprof.quantity import Quantity

_MOST_NAMED = 3
_CONTRAST = 0.1  # of a plain token: the least cost that a verdict names, too


class Headline(Struct, frozen=True, kw_only=True):
    """One target's answer, whether its drafted output is the reference's, and the sentence that
    explains the answer."""

    target: str
    answer: str
    output: str
    reason: str


def headlines(summary: Summary) -> list[Headline]:
    """One a target, in the order of the session; empty where nothing was compared."""
    targets = dict.fromkeys(comparison.target for comparison in summary.comparisons)
    return [
        _headline(target, [c for c in summary.comparisons if c.target == target])
        for target in targets
    ]


def contrast(summary: Summary) -> str | None:
    """What checking several tokens costs each target, where that differs, and what comes of it."""
    best = {
        target: _best([c for c in summary.comparisons if c.target == target])
        for target in dict.fromkeys(c.target for c in summary.comparisons)
    }
    held = {(cost.target, cost.tokens): cost.measured.value or 0.0 for cost in summary.verify_cost}
    sizes = [n for n in {n for _, n in held} if n > 1 and all((t, n) in held for t in best)]
    if not best or not sizes:
        return None
    n = _typical_size(sizes, summary.comparisons)
    cheap, dear = (choose(best, key=lambda target: held[target, n]) for choose in (min, max))
    if held[dear, n] - held[cheap, n] < _CONTRAST:
        return None  # the difference lies elsewhere; each target's own reason tells
    return (
        f"The contrast: checking {n} tokens in one pass costs {held[cheap, n]:.2f} of one token "
        f"with {cheap} and {held[dear, n]:.2f} with {dear}; at best, speculation gives "
        f"{ratio(best[cheap].decode_speedup)} and {ratio(best[dear].decode_speedup)}."
    )


def stamps(summary: Summary) -> list[str]:
    """What must stand above all figures: an early end, no figures, samples that no board gave."""
    session = summary.session
    lines = []
    if not session.complete:
        reason = session.ended_reason or "reason not recorded"
        lines.append(f"Incomplete session: {reason}. The figures cover what was measured.")
    if session.nothing_measured is not None:
        lines.append(f"Nothing was measured: {session.nothing_measured}.")
    for quality in ("simulated", "replayed"):
        if session.samples.get(quality):
            lines.append(f"{quality.capitalize()} samples: not read from a board in this session.")
    return lines


def ratio(quantity: Quantity | None) -> str:
    """``1.33x [1.30, 1.36]``; without a band where there is none."""
    if quantity is None or quantity.value is None:
        return "n/a"
    if quantity.low is None or quantity.high is None:
        return f"{quantity.value:.2f}x"
    return f"{quantity.value:.2f}x [{quantity.low:.2f}, {quantity.high:.2f}]"


def _headline(target: str, comparisons: list[Comparison]) -> Headline:
    paying = [c for c in comparisons if c.verdict.outcome == "pays"]
    rated = [c for c in comparisons if c.verdict.outcome != "not comparable"]
    if paying:
        ranked = sorted(paying, key=_value, reverse=True)
        best = ranked[0]
        answer = "speculation pays: " + ", ".join(_speedup(c) for c in ranked)
        failing = [c for c in rated if c.verdict.outcome != "pays"]
        if failing:
            answer += "; not with " + ", ".join(_speedup(c) for c in failing)
    elif rated:
        best = _best(rated)
        if best.verdict.outcome == "does not pay":
            answer = f"speculation does not pay: at best {_speedup(best)}"
        else:
            answer = f"no difference beyond noise: at best {_speedup(best)}"
    else:
        best = comparisons[0]
        answer = "plain and speculative decoding are not comparable here"
    return Headline(
        target=target, answer=answer, output=_output(comparisons), reason=best.verdict.because
    )


def _output(comparisons: list[Comparison]) -> str:
    """Of all drafters together: equal, or with which not and from where on."""
    sampled = next((c.output.not_comparable for c in comparisons if c.output.not_comparable), None)
    if sampled is not None:
        return f"the output is {sampled}"
    differing = [c for c in comparisons if c.output.identical is False]
    equal = [c for c in comparisons if c.output.identical]
    rest = [c for c in comparisons if c.output.identical is None]
    parts = []
    if differing:
        parts.append(f"differs from its reference, plain decoding, {_where(differing)}")
    if equal:
        answers = sum(c.output.answers_compared for c in equal)
        amount = "in the one answer" if answers == 1 else f"in all {answers} answers"
        what = "is the reference's" if differing else "equals its reference, plain decoding"
        who = f" with {_some(map(_drafter, equal))}" if differing or rest else ""
        parts.append(f"{what}, token for token,{who} {amount}")
    if rest:
        who = f" with {_some(map(_drafter, rest))}" if differing or equal else ""
        parts.append(f"was not compared{who}, as no prompt was answered both ways")
    return f"the output {'; it '.join(parts)}"


def _where(differing: list[Comparison]) -> str:
    """``with draft k=2 in 2 of 4 answers, first at position 5``; those that differ most first."""
    ranked = sorted(differing, key=lambda c: c.output.answers_identical - c.output.answers_compared)
    return "with " + _some(
        f"{_drafter(c)} in {c.output.answers_compared - c.output.answers_identical} of "
        f"{c.output.answers_compared} answers, first at position {c.output.first_divergence}"
        for c in ranked
    )


def _some(items: Iterable[str]) -> str:
    """All of a few; of many the first, and how many more."""
    listed = list(items)
    more = len(listed) - _MOST_NAMED
    return "; ".join(listed if more < 2 else [*listed[:_MOST_NAMED], f"{more} more"])


def _typical_size(sizes: list[int], comparisons: list[Comparison]) -> int:
    """The pass size that most of the drafters ask for, or the largest that was held."""
    asked = Counter(c.draft_tokens + 1 for c in comparisons if c.draft_tokens is not None)
    common = [size for size, _ in asked.most_common() if size in sizes]
    return common[0] if common else max(sizes)


def _speedup(comparison: Comparison) -> str:
    return f"{ratio(comparison.decode_speedup)} with {_drafter(comparison)}"


def _drafter(comparison: Comparison) -> str:
    return comparison.variant.partition("+")[2] or comparison.variant


def _best(comparisons: list[Comparison]) -> Comparison:
    return max(comparisons, key=_value)


def _value(comparison: Comparison) -> float:
    speedup = comparison.decode_speedup
    return speedup.value or 0.0 if speedup is not None else 0.0
