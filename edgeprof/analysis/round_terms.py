"""A round against plain decoding, in terms that add up to the measured speed-up.

In units of the time of one plainly decoded token, speed-up = tokens / (1 + draft + verification +
fixed + in situ). The 1 is the one token that plain decoding takes that time for. Draft is the draft
passes by what held ones take; verification what a held pass over K + 1 tokens takes above one over
1; fixed the time outside passes above that of plain decoding; in situ what passes take longer while
decoding than held, above what plain ones do. Pure arithmetic.
"""

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.comparison import Pair, RoundCost
from edgeprof.analysis.forecast import between, rounds_with_passes
from edgeprof.analysis.latency import phase_s, seconds
from edgeprof.analysis.variants import Answer
from edgeprof.session.records import Pass, Round


class RoundTerms(Struct, frozen=True, kw_only=True):
    """A mean round, in plain tokens. ``rejected`` is the part of draft and verification that went
    into drafted tokens that did not stand. ``in_situ`` is None where nothing was held: then it is
    in the others; ``plain_in_situ``, no term, is what a plain token's pass takes longer, which was
    taken off it. By means, all of them."""

    tokens: float
    draft: float
    verification: float
    fixed: float
    in_situ: float | None
    rejected: float | None
    plain_in_situ: float | None = None

    @property
    def total(self) -> float:
        return 1 + self.draft + self.verification + self.fixed + (self.in_situ or 0.0)

    @property
    def speedup(self) -> float:
        return self.tokens / self.total


def terms_of_cost(cost: RoundCost) -> RoundTerms:
    """Where nothing was held: what each part of a round took while decoding."""
    return RoundTerms(
        tokens=cost.tokens,
        draft=cost.draft,
        verification=cost.target - 1,
        fixed=cost.other,
        in_situ=None,
        rejected=None,
    )


def round_terms(
    pairs: Sequence[Pair],
    cost: RoundCost,
    held_s: Mapping[int, float],
    held_draft_s: float | None,
) -> RoundTerms:
    """Of the pairs that ``cost`` is of. ``held_s`` are the seconds of held target passes by tokens,
    ``held_draft_s`` those of a held draft pass."""
    plain = [pair.plain for pair in pairs if _is_timed(pair)]
    answers = [pair.speculative for pair in pairs if _is_timed(pair)]
    rounds = [found for answer in answers for found in rounds_with_passes(answer)]
    held = [_held_s(passes, held_s, held_draft_s) for _, passes in rounds]
    known = [one for one in held if one is not None]
    one_s = held_s.get(1)
    if one_s is None or not known or len(known) < len(held):
        return terms_of_cost(cost)
    plain_tokens = sum(answer.decode_tokens for answer in plain)
    unit_s = sum(answer.decode_s or 0.0 for answer in plain) / plain_tokens
    plain_pass = sum(_target_s(answer) for answer in plain) / plain_tokens / unit_s
    draft_s, verify_s = (math.fsum(column) / len(known) for column in zip(*known, strict=True))
    draft, target, one = draft_s / unit_s, verify_s / unit_s, one_s / unit_s
    return RoundTerms(
        tokens=cost.tokens,
        draft=draft,
        verification=target - one,
        fixed=cost.other - (1 - plain_pass),
        in_situ=(cost.draft - draft) + (cost.target - target) - (plain_pass - one),
        rejected=_rejected_s(rounds, held_s, held_draft_s) / unit_s,
        plain_in_situ=plain_pass - one,
    )


def _is_timed(pair: Pair) -> bool:
    return pair.speculative.decode_s is not None and pair.plain.decode_s is not None


def _target_s(answer: Answer) -> float:
    return phase_s(answer, "verify") + phase_s(answer, "decode")


def _held_s(
    passes: Sequence[Pass], held_s: Mapping[int, float], held_draft_s: float | None
) -> tuple[float, float] | None:
    """What the draft and the target passes of a round take held; None where one was not held."""
    drafts = [one for one in passes if one.phase == "draft"]
    targets = [between(held_s, one.tokens) for one in passes if one.phase != "draft"]
    if any(one is None for one in targets) or (drafts and held_draft_s is None):
        return None
    return len(drafts) * (held_draft_s or 0.0), sum(one or 0.0 for one in targets)


def _rejected_s(
    rounds: Sequence[tuple[Round, Sequence[Pass]]],
    held_s: Mapping[int, float],
    held_draft_s: float | None,
) -> float:
    """Per round: the draft passes and the width of the verify pass that nothing came of."""
    total_s = 0.0
    for one, passes in rounds:
        if one.drafted <= one.accepted:
            continue
        drafts_s = sum(seconds(p) > 0 for p in passes if p.phase == "draft") * (held_draft_s or 0)
        vain = (one.drafted - one.accepted) / one.drafted
        wide, needed = (between(held_s, n + 1) for n in (one.drafted, one.accepted))
        total_s += vain * drafts_s + max((wide or 0.0) - (needed or 0.0), 0.0)
    return total_s / len(rounds)
