"""Takes in a long text by passes of a bounded size.

What a pass needs beside the cache (attention scores of all its tokens, and logits where the graph
gives them for every row) then does not grow with the text. Knows token ids only.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from edgeprof.runner.token_model import ModelRun, TokenModel

if TYPE_CHECKING:
    from edgeprof.runner.token_model import Logits

PREFILL_TOKENS = 512  # the micro-batch of llama.cpp


class TakenIn(NamedTuple):
    """One pass of a prefill; ``logits`` are the row of its last token, overwritten by the next."""

    run: ModelRun
    logits: "Logits"


def take_in(
    model: TokenModel, tokens: Sequence[int], most_tokens: int = PREFILL_TOKENS
) -> Iterator[TakenIn]:
    """Append ``tokens`` by passes of ``most_tokens``, the last one shorter."""
    for start in range(0, len(tokens), most_tokens):
        part = tokens[start : start + most_tokens]
        context_tokens = model.length
        logits = model.extend(part, rows=1)
        yield TakenIn(ModelRun(len(part), context_tokens, *model.stamps_ns), logits)
