"""How many tokens to draft: as many as pay, by what passes cost and how often drafted tokens stand.

Knows nothing of models, text or clocks: it is told what each round took and brought.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_BINS = 10  # of confidence; each learns how often its tokens stand
_BIN_WEIGHT = 8.0  # the drafter's own word counts as so many tokens seen
_BIN_MEMORY = 0.95  # what an older token counts beside the next one of its bin
_UNKNOWN = 0.5  # how often tokens stand of a drafter of which nothing is known
_MEAN_STEP = 0.02
_FORGETTING = 0.02
_RATE_MEMORY = 0.95  # and an older round beside the next one
_SLOPE = 0.15  # of a plain pass for each further token, until something was measured
_LEVEL_STEP = 0.4
_SHAPE_STEP = 0.03  # of one pass, once many of its size were seen
_KNOWN_PASSES = 16  # a size that was held counts as so many passes seen
_OUTLIER = 2.0  # a pass or step that took so many times what was expected says no more than that
_ROUNDS_A_PLAIN_PASS = 64


class RoundCost(NamedTuple):
    """What a round took: every step of its drafting, and all the rest, in seconds."""

    draft_s: Sequence[float]
    verify_tokens: int
    verify_s: float


class PassCost:
    """What a target pass of n tokens costs, in plain passes, as passes of all sizes go by.

    ``measured`` holds seconds by number of tokens, where passes were held before; between sizes it
    is read off a straight line. The machine's speed at the moment (``plain_s``) is told apart from
    the shape of the curve: a busy neighbour changes the one at once and the other hardly.
    """

    def __init__(self, measured: Mapping[int, float] | None = None) -> None:
        self.plain_s = (measured or {}).get(1)
        plain_s = self.plain_s or 1.0
        self._shape = {1: 1.0}
        if self.plain_s is not None:
            self._shape |= {n: s / plain_s for n, s in (measured or {}).items() if n > 1}
        self._passes = dict.fromkeys(self._shape, _KNOWN_PASSES)

    def __call__(self, tokens: int) -> float:
        shape = self._shape
        if tokens in shape:
            return shape[tokens]
        below = max(n for n in shape if n < tokens)
        above = min((n for n in shape if n > tokens), default=None)
        if above is not None:
            share = (tokens - below) / (above - below)
            return shape[below] + share * (shape[above] - shape[below])
        slope = (shape[below] - 1) / (below - 1) if below > 1 else _SLOPE
        return shape[below] + max(slope, 0.0) * (tokens - below)

    def learn(self, tokens: int, seconds: float) -> None:
        """A pass of so many tokens took so long; nothing is learnt where the clock did not move."""
        if seconds <= 0:
            return
        expected = self(tokens)
        if self.plain_s is None:
            self.plain_s = seconds / expected
        seconds = min(seconds, _OUTLIER * expected * self.plain_s)
        if tokens > 1:
            passes = self._passes.get(tokens, 0) + 1
            step = max(_SHAPE_STEP, 1 / (passes + 1))
            self._shape[tokens] = expected + step * (seconds / self.plain_s - expected)
            self._passes[tokens] = passes
        self.plain_s += _LEVEL_STEP * (seconds / expected - self.plain_s)


class DraftSteps:
    """What the steps of a draft model cost, in plain passes.

    The first of a round costs more than those behind it: it finds the caches full of the target's
    weights and, where its threads were parked, wakes them.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._later: float | None = None

    def __call__(self, done: int, until: int) -> float:
        """Of the steps behind ``done`` steps until there are ``until``; 0 while none was run."""
        if until <= done:
            return 0.0
        first = self._first or 0.0
        later = first if self._later is None else self._later
        return (first if done == 0 else later) + (until - done - 1) * later

    def learn(self, steps: Sequence[float]) -> None:
        """The steps of a round took so many plain passes each."""
        self._first = _moved(self._first, steps[0])
        if len(steps) > 1:
            self._later = _moved(self._later, sum(steps[1:]) / (len(steps) - 1))

    def forget_a_little(self) -> None:
        """Nothing was drafted, perhaps as some steps were held up: they may cost less by now."""
        if self._first is not None:
            self._first *= 1 - _FORGETTING
        if self._later is not None:
            self._later *= 1 - _FORGETTING


def _moved(known: float | None, seen: float) -> float:
    if known is None:
        return min(seen, _OUTLIER)
    return known + _LEVEL_STEP * (min(seen, _OUTLIER * known) - known)


class AdaptiveLength:
    """Chooses the draft length of every round so that the rate of the whole answer is greatest.

    A round that verifies k drafted tokens brings E(k) = 1 + a1 + a1 a2 + ... tokens and takes
    v(k + 1) and the draft's steps, both in plain passes. Time spent here is not spent elsewhere: k
    is chosen for the largest E(k) - rate x time, where ``rate`` is what recent rounds brought, at
    least the one token a plain pass brings. So a place that is easy to draft gets a long draft, and
    one where no drafted token pays gets none. How often a token stands (a) is learnt for each
    degree of the drafter's confidence.

    It needs ``cost`` only for its first rounds: what passes cost and how often drafted tokens stand
    is learnt from every round, and kept from one answer to the next.
    """

    def __init__(self, cost: PassCost | None = None) -> None:
        self._cost = cost or PassCost()
        self._draft_steps = DraftSteps()
        self._stood = [_BIN_WEIGHT * (index + 0.5) / _BINS for index in range(_BINS)]
        self._looked_at = [_BIN_WEIGHT] * _BINS
        self._mean = _UNKNOWN  # of tokens whose confidence is not known yet
        self._tokens = self._time = 1.0
        self._rounds_without_plain = 0

    @property
    def rate(self) -> float:
        """Tokens a plain pass's time, of late."""
        return max(1.0, self._tokens / self._time)

    def goes_on(self, confidence: Sequence[float], limit: int) -> bool:
        """Is it worth drafting on, with this confidence in what is drafted so far?

        What a step will bring is not known before it was run; it is taken to be as good as tokens
        of this drafter are on the whole.
        """
        if not confidence and self._rounds_without_plain >= _ROUNDS_A_PLAIN_PASS:
            return False
        so_far = [self._acceptance(sure) for sure in confidence]
        ahead = [self._mean] * (limit - len(so_far))
        return self._best(so_far + ahead, drafted=len(so_far)) > len(so_far)

    def keep(self, confidence: Sequence[float]) -> int:
        """So many of the drafted tokens are worth verifying."""
        return self._best([self._acceptance(sure) for sure in confidence], drafted=len(confidence))

    def learn(self, stood: Sequence[tuple[float, bool]], emitted: int, cost: RoundCost) -> None:
        """A round brought so many tokens. ``stood``: of the drafted tokens of which that is known,
        the confidence in each and whether it was the target's choice."""
        for sure, was_right in stood:
            self._see(_bin(sure), was_right)
        if not stood:
            self._forget_a_little()
        self._cost.learn(cost.verify_tokens, cost.verify_s)
        plain_s = self._cost.plain_s
        if cost.draft_s and plain_s is not None:
            self._draft_steps.learn([seconds / plain_s for seconds in cost.draft_s])
        elif not cost.draft_s:
            self._draft_steps.forget_a_little()
        time = self._cost(cost.verify_tokens) + self._draft_steps(0, len(cost.draft_s))
        self._tokens = _RATE_MEMORY * self._tokens + emitted
        self._time = _RATE_MEMORY * self._time + time
        plain = cost.verify_tokens == 1
        self._rounds_without_plain = 0 if plain else self._rounds_without_plain + 1

    def _see(self, index: int, stood: bool) -> None:
        self._stood[index] = _BIN_MEMORY * self._stood[index] + stood
        self._looked_at[index] = _BIN_MEMORY * self._looked_at[index] + 1
        self._mean += _MEAN_STEP * (stood - self._mean)

    def _forget_a_little(self) -> None:
        """Who drafts nothing learns nothing: so that drafting is tried again some time."""
        self._mean += _FORGETTING * (_UNKNOWN - self._mean)

    def _acceptance(self, confidence: float) -> float:
        index = _bin(confidence)
        return self._stood[index] / self._looked_at[index]

    def _best(self, acceptance: Sequence[float], *, drafted: int) -> int:
        """The length with the largest gain; the steps of those ``drafted`` are paid already."""
        rate = self.rate
        best, best_gain = 0, -rate * self._cost(1)
        brought, reached = 0.0, 1.0
        for length, stands in enumerate(acceptance, start=1):
            reached *= stands
            brought += reached
            steps = self._draft_steps(drafted, length)
            gain = brought - rate * (self._cost(length + 1) + steps)
            if gain > best_gain:
                best, best_gain = length, gain
        return best


def _bin(confidence: float) -> int:
    return min(int(confidence * _BINS), _BINS - 1)
