"""Which drafted tokens stand: pure functions of what the draft and the target said."""

from collections.abc import Sequence
from typing import NamedTuple


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
