"""What drafting brings: tokens a round, speed-up, the best draft length. Pure formulas.

Symbols of Leviathan et al., arXiv 2211.17192. ``acceptance`` is the conditional one: accepted over
evaluated, the alpha of the closed form (accepted over drafted is another, smaller number).
``draft_cost`` c is one draft pass, ``verify_cost`` v(n) a target pass over n tokens and
``fixed_cost`` o what else a round takes, all in plain target passes.
"""

from collections.abc import Callable

from msgspec import Struct

from edgeprof.errors import UsageFault

LONGEST_DRAFT = 64  # with a free draft the speed-up grows without end: the search stops here


class BestDraft(Struct, frozen=True, kw_only=True):
    """The draft length with the largest speed-up; 0 and 1.0 where drafting does not pay."""

    draft_length: int
    speedup: float


def one_pass(tokens: int) -> float:
    """v(n) = 1: verifying costs what decoding one token does, as long as memory is the wall."""
    return 1.0


def expected_tokens(acceptance: float, draft_length: int) -> float:
    """Tokens a round, the bonus or correction included: (1 - a^(K+1)) / (1 - a), K + 1 at a = 1."""
    _check(acceptance, draft_length)
    if acceptance == 1.0:
        return draft_length + 1.0
    return (1 - acceptance ** (draft_length + 1)) / (1 - acceptance)


def speedup(
    tokens_per_round: float,
    draft_length: int,
    draft_cost: float,
    verify_cost: float = 1.0,
    fixed_cost: float = 0.0,
) -> float:
    """E / (K c + v(K+1) + o): tokens a round over what the round costs."""
    _check_costs(draft_cost, verify_cost, fixed_cost)
    return tokens_per_round / (draft_length * draft_cost + verify_cost + fixed_cost)


def best_draft_length(
    acceptance: float,
    draft_cost: float,
    verify_cost: Callable[[int], float] = one_pass,
    fixed_cost: float = 0.0,
    longest: int = LONGEST_DRAFT,
) -> BestDraft:
    """The shortest of the best draft lengths up to ``longest``."""
    best = BestDraft(draft_length=0, speedup=1.0)
    for length in range(1, longest + 1):
        tokens = expected_tokens(acceptance, length)
        gain = speedup(tokens, length, draft_cost, verify_cost(length + 1), fixed_cost)
        if gain > best.speedup:
            best = BestDraft(draft_length=length, speedup=gain)
    return best


def break_even_acceptance(
    draft_length: int, draft_cost: float, verify_cost: float = 1.0, fixed_cost: float = 0.0
) -> float | None:
    """The acceptance at which a round gains nothing; None where even full acceptance loses."""
    _check(0.0, draft_length)
    _check_costs(draft_cost, verify_cost, fixed_cost)
    round_cost = draft_length * draft_cost + verify_cost + fixed_cost
    if round_cost > draft_length + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(60):  # E grows with acceptance, so halving finds the crossing
        middle = (low + high) / 2
        if expected_tokens(middle, draft_length) < round_cost:
            low = middle
        else:
            high = middle
    return high


def ceiling(acceptance: float) -> float | None:
    """1 / (1 - a): more no draft length can bring, were drafting free; None (no limit) at a = 1."""
    _check(acceptance, 1)
    return None if acceptance == 1.0 else 1 / (1 - acceptance)


def _check(acceptance: float, draft_length: int) -> None:
    if not 0.0 <= acceptance <= 1.0:
        raise UsageFault(f"acceptance must be between 0 and 1, got {acceptance}")
    if draft_length < 0:
        raise UsageFault(f"draft length must be 0 or more, got {draft_length}")


def _check_costs(draft_cost: float, verify_cost: float, fixed_cost: float) -> None:
    if not draft_cost >= 0 or not fixed_cost >= 0:
        raise UsageFault(f"costs must be 0 or more, got draft {draft_cost}, fixed {fixed_cost}")
    if not verify_cost > 0:
        raise UsageFault(f"verify cost must be above 0, got {verify_cost}")
