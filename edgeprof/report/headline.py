"""The answer of a session in a few sentences: what pays for each target, what does not, and why."""

from collections import Counter

from msgspec import Struct

from edgeprof.analysis.summary import Comparison, Summary
from edgeprof.quantity import Quantity

_CONTRAST = 0.1  # of a plain token: the least cost that a verdict names, too


class Headline(Struct, frozen=True, kw_only=True):
    """One target's answer and the sentence that explains it."""

    target: str
    answer: str
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
    return Headline(target=target, answer=answer, reason=best.verdict.because)


def _typical_size(sizes: list[int], comparisons: list[Comparison]) -> int:
    """The pass size that most of the drafters ask for, or the largest that was held."""
    asked = Counter(c.draft_tokens + 1 for c in comparisons if c.draft_tokens is not None)
    common = [size for size, _ in asked.most_common() if size in sizes]
    return common[0] if common else max(sizes)


def _speedup(comparison: Comparison) -> str:
    drafter = comparison.variant.partition("+")[2] or comparison.variant
    return f"{ratio(comparison.decode_speedup)} with {drafter}"


def _best(comparisons: list[Comparison]) -> Comparison:
    return max(comparisons, key=_value)


def _value(comparison: Comparison) -> float:
    speedup = comparison.decode_speedup
    return speedup.value or 0.0 if speedup is not None else 0.0
