"""Where two greedy answers part, and how near the two tokens were to each other there."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeprof.runner.prefill import take_in
from edgeprof.runner.token_model import TokenModel

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Divergence(NamedTuple):
    """The first position at which an answer differs; a token is None where an answer had ended."""

    position: int
    reference_token: int | None
    token: int | None


def first_divergence(reference: Sequence[int], tokens: Sequence[int]) -> Divergence | None:
    """None where both answers are the same."""
    for position in range(max(len(reference), len(tokens))):
        pair = [part[position] if position < len(part) else None for part in (reference, tokens)]
        if pair[0] != pair[1]:
            return Divergence(position, *pair)
    return None


def logit_gap(
    model: TokenModel, prompt: Sequence[int], reference: Sequence[int], divergence: Divergence
) -> float | None:
    """By how much the reference token leads over the other one after the common text.

    Replays that text; the cache is left empty. None where an answer had ended.
    """
    if divergence.reference_token is None or divergence.token is None:
        return None
    model.rewind(0)
    text = [*prompt, *reference[: divergence.position]]
    *_, last = take_in(model, text)
    logits = last.logits[0]
    ids = _column_ids(model, len(logits))
    first, second = (
        float(logits[(ids == token).argmax()])
        for token in (divergence.reference_token, divergence.token)
    )
    model.rewind(0)
    return first - second


def _column_ids(model: TokenModel, columns: int) -> "NDArray[Any]":
    import numpy as np

    return model.token_ids(np.arange(columns))
