"""Which drafted tokens stand: pure functions of what the draft and the target said, and of chance.

Greedy acceptance compares tokens. Sampled acceptance is speculative sampling (Leviathan et al.,
arXiv 2211.17192; Chen et al., arXiv 2302.01318): whatever the draft, each token that is emitted has
the target's own distribution.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from edgeprof.runner.sampling import Chance, Distribution, residual


class Verdict(NamedTuple):
    """``accepted`` drafted tokens stand; ``evaluated`` were compared, the first rejected included;
    ``next_token`` is the target's own: the correction, or the bonus where all were accepted."""

    accepted: int
    evaluated: int
    next_token: int


def accept_greedy(drafted: Sequence[int], target: Sequence[int]) -> Verdict:
    """Keep drafted tokens as long as each is the target's own greedy choice at its position.

    ``target`` holds the greedy token after the context and after each drafted token, one more than
    ``drafted``. The temperature-0 case of Leviathan et al. (arXiv 2211.17192, algorithm 1), in
    which the accepted text equals plain greedy decoding.
    """
    if len(target) != len(drafted) + 1:
        raise ValueError(f"{len(drafted)} drafted tokens need {len(drafted) + 1} target tokens")
    accepted = 0
    while accepted < len(drafted) and drafted[accepted] == target[accepted]:
        accepted += 1
    evaluated = min(accepted + 1, len(drafted))
    return Verdict(accepted, evaluated, target[accepted])


def accept_sampled(
    drafted: Sequence[int],
    draft: Sequence[Distribution],
    target: Callable[[int], Distribution],
    chance: Chance,
) -> Verdict:
    """Keep each drafted token with probability min(1, p/q); replace the first that falls.

    ``draft`` holds the distribution q that each token was drawn from, shaped as the target's;
    ``target(n)`` is the target's p after n drafted tokens, asked for only as far as the round gets.
    The replacement comes from norm(max(0, p - q)), the bonus from the target after the last token.
    """
    for index, token in enumerate(drafted):
        p, q = target(index), draft[index]
        if not chance.happens(acceptance_probability(p, q, token)):
            return Verdict(index, index + 1, chance.pick(residual(p, q)))
    return Verdict(len(drafted), len(drafted), chance.pick(target(len(drafted))))


def acceptance_probability(target: Distribution, draft: Distribution, token: int) -> float:
    """min(1, p/q) for a token that was drawn from the draft, where q is above 0."""
    return min(1.0, target.probability(token) / draft.probability(token))
