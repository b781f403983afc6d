"""Distributions of the next token: how logits are shaped, drawn from and compared.

Knows nothing of drafts or rounds. Shaping applies, in this order: top-k, top-p, min-p, temperature.
It is llama.cpp's default order (tools/completion/README.md there: "top_k;typ_p;top_p;min_p;xtc;
temperature"), so which tokens stay in does not depend on the temperature. Hugging Face and vLLM
divide by the temperature first: their top-p and min-p keep more tokens at a temperature above 1,
fewer below.
"""

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from edgeprof.errors import FileFault
from edgeprof.recipe import Sampling
from edgeprof.runner.token_model import TokenModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Columns = NDArray[np.intp]

_BLOCK = 256  # so many are summed up or sorted at once, not a whole vocabulary
_ROWS = 64  # of the folded vocabulary in which the largest logits are looked for
_COLDEST = 1e-30  # below, float32 divides by zero; any difference of logits is infinite already


class Distribution:
    """The probabilities of some ``tokens``, in ascending order; any other token has none.

    Held as ``weights``, which ``total`` makes probabilities of: most are never looked at.
    """

    def __init__(self, tokens: "NDArray[np.int64]", weights: "NDArray[Any]") -> None:
        self.tokens = tokens
        self.weights = weights
        whole = len(weights) - len(weights) % _BLOCK
        blocks = np.einsum("ij->i", weights[:whole].reshape(-1, _BLOCK), dtype=np.float64)
        rest = weights[whole:].sum(dtype=np.float64)
        self._ends = np.cumsum(np.append(blocks, rest))
        self.total = float(self._ends[-1])

    @property
    def probabilities(self) -> "Floats":
        found: Floats = np.divide(self.weights, self.total, dtype=np.float64)
        return found

    def probability(self, token: int) -> float:
        place = int(np.searchsorted(self.tokens, token))
        known = place < len(self.tokens) and self.tokens[place] == token
        return float(self.weights[place]) / self.total if known else 0.0

    def draw(self, uniform: float) -> int:
        """The token at ``uniform``, of [0, 1), on the probabilities laid end to end."""
        point = uniform * self.total
        block = int(np.searchsorted(self._ends, point, side="right"))
        if block:
            point -= float(self._ends[block - 1])
        first = block * _BLOCK
        inside = np.cumsum(self.weights[first : first + _BLOCK], dtype=np.float64)
        # The two sums may round apart: no further than the last token that has a probability.
        point = min(point, float(np.nextafter(inside[-1], 0)))
        return int(self.tokens[first + np.searchsorted(inside, point, side="right")])


def point_mass(token: int) -> Distribution:
    """All probability on one token: it was chosen without chance."""
    return Distribution(np.array([token]), np.ones(1))


def residual(target: Distribution, draft: Distribution) -> Distribution:
    """norm(max(0, target - draft)): what the target gives beyond what the draft gave already.

    Where rounding leaves nothing, the two are the same and the target itself is as good.
    """
    rest = target.weights.astype(np.float64)
    given = draft.weights.astype(np.float64)
    given *= target.total / draft.total
    if np.array_equal(target.tokens, draft.tokens):
        rest -= given
    else:
        places = np.searchsorted(target.tokens, draft.tokens)
        places = np.minimum(places, len(target.tokens) - 1)
        shared = target.tokens[places] == draft.tokens
        rest[places[shared]] -= given[shared]
    np.maximum(rest, 0, out=rest)
    return Distribution(target.tokens, rest) if rest.any() else target


class Chance(Protocol):
    """Decides what is left to chance. Who enumerates all outcomes takes another than a run does."""

    def happens(self, probability: float) -> bool:
        """True with this probability; at 1 or more always."""
        ...

    def pick(self, distribution: Distribution) -> int:
        """One of its tokens."""
        ...


class Dice:
    """Chance by a generator of random numbers: one number a decision, in the order asked."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def happens(self, probability: float) -> bool:
        return self._generator.random() < probability

    def pick(self, distribution: Distribution) -> int:
        return distribution.draw(self._generator.random())


class Sampler:
    """Shapes the logits of one model and draws from them.

    Columns that stand for a token outside ``vocabulary`` pad the head and are left out. ``name`` is
    what the model is called where its logits are no numbers.
    """

    def __init__(
        self, model: TokenModel, rule: Sampling, chance: Chance, *, vocabulary: int, name: str
    ) -> None:
        self.chance = chance
        self._model = model
        self._rule = rule
        self._vocabulary = vocabulary
        self._name = name
        self._columns: Any = None
        self._tokens: NDArray[np.int64] = np.empty(0, np.int64)

    def distribution(self, logits: "NDArray[Any]") -> Distribution:
        """The distribution of the token after one row of logits.

        A logit of minus infinity excludes its token. Raises FileFault for logits that are no
        numbers, or all excluded.
        """
        if self._columns is None:
            self._choose_columns(len(logits))
        known = logits[self._columns].astype(np.float32, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            peak = known.max(initial=-np.inf)
            if not np.isfinite(peak):
                raise FileFault(
                    f"{self._name} gives logits that are no numbers; its weights are damaged, or "
                    "too large for the type it computes in"
                )
            kept = kept_columns(known, self._rule)
            weights = known[kept] - peak
            weights /= np.float32(max(self._rule.temperature, _COLDEST))
            np.exp(weights, out=weights)
        return Distribution(self._tokens[kept], weights)

    def _choose_columns(self, count: int) -> None:
        """The columns within the vocabulary, in the order of their tokens."""
        tokens = self._model.token_ids(np.arange(count))
        order = np.argsort(tokens)
        columns = order[: int((tokens < self._vocabulary).sum())]
        self._tokens = tokens[columns]
        in_place = np.array_equal(columns, np.arange(len(columns)))
        self._columns = slice(len(columns)) if in_place else columns  # a slice copies nothing


def kept_columns(logits: "NDArray[np.float32]", rule: Sampling) -> Any:
    """The columns that top-k, top-p and min-p leave, ascending; a slice where they leave all."""
    kept: Any = slice(None)
    if 0 < rule.top_k < len(logits):
        kept = largest(logits, rule.top_k)
    if rule.top_p < 1:
        kept = _of(kept, _nucleus(logits[kept], rule.top_p))
    if rule.min_p > 0:
        least = logits.max() + np.float32(math.log(rule.min_p))
        kept = _of(kept, np.flatnonzero(logits[kept] >= least))
    return kept


def _of(kept: Any, chosen: "Columns") -> Any:
    """The columns that were chosen among those kept."""
    return chosen if isinstance(kept, slice) else kept[chosen]


def largest(logits: "NDArray[np.float32]", count: int) -> "Columns":
    """The columns of the ``count`` largest, ascending; the lowest column wins a tie.

    The vocabulary is folded and the maxima of the fold looked at first: the ``count``-th largest of
    them is no larger than the ``count``-th largest of all, and few logits reach it.
    """
    width = len(logits) // _ROWS
    if count >= len(logits):
        candidates = np.arange(len(logits))
    else:
        seen = logits
        if count < width:
            seen = logits[: width * _ROWS].reshape(_ROWS, width).max(axis=0)
        bound = np.partition(seen, len(seen) - count)[len(seen) - count]
        candidates = np.flatnonzero(logits >= bound)
    order = np.argsort(-logits[candidates], kind="stable")
    return np.sort(candidates[order[:count]])


def _nucleus(logits: "NDArray[np.float32]", share: float) -> "Columns":
    """The fewest columns that hold at least this share of the probability, ascending; the lowest
    column wins a tie."""
    weights = logits - logits.max()
    np.exp(weights, out=weights)
    whole = _sum(weights)
    wanted = share * whole
    columns = np.arange(len(weights)) if len(weights) <= _BLOCK else largest(logits, _BLOCK)
    held = weights[columns]
    if held.sum(dtype=np.float64) < wanted:
        # What is below this holds less than is to be left out, even all together.
        columns = np.flatnonzero(weights >= (whole - wanted) / len(weights))
        held = weights[columns]
    least = _least_weight(held, wanted)
    reaches = held >= least
    columns, held = columns[reaches], held[reaches]
    spare = int((held.sum(dtype=np.float64) - wanted) / least)
    if spare > 0:
        ties = np.flatnonzero(held == least)
        columns = np.delete(columns, ties[max(1, len(ties) - spare) :])
    return columns


def _sum(weights: "NDArray[np.float32]") -> float:
    """By blocks in float32, which is several times as fast as widening every weight, and exact to
    a millionth: enough to say where a nucleus ends, while probabilities are summed in float64."""
    whole = len(weights) - len(weights) % _BLOCK
    blocks = np.einsum("ij->i", weights[:whole].reshape(-1, _BLOCK))
    return float(blocks.sum(dtype=np.float64) + weights[whole:].sum(dtype=np.float64))


def _least_weight(weights: "NDArray[np.float32]", wanted: float) -> Any:
    """The last weight it takes, from the largest down, to reach the sum ``wanted``: halves the
    candidates, by size and not sorted, until few are left."""
    while len(weights) > _BLOCK:
        middle = len(weights) // 2
        weights = np.partition(weights, middle)
        upper = weights[middle:].sum(dtype=np.float64)
        if upper >= wanted:
            weights = weights[middle:]
        else:
            wanted -= upper
            weights = weights[:middle]
    weights = np.sort(weights)[::-1]
    place = int(np.searchsorted(np.cumsum(weights, dtype=np.float64), wanted))
    return weights[min(place, len(weights) - 1)]
