"""Random tokens through a model, as llama-bench feeds them: how fast is a pass, whatever it says?

Knows token ids only.
"""

import random
from collections.abc import Iterator

from edgeprof.errors import UsageFault
from edgeprof.runner.prefill import PREFILL_TOKENS, take_in
from edgeprof.runner.token_model import ModelRun, TokenModel


def synthetic_passes(
    model: TokenModel,
    *,
    prompt_tokens: int,
    new_tokens: int,
    depth_tokens: int,
    prefill_tokens: int = PREFILL_TOKENS,
    seed: int = 0,
) -> Iterator[ModelRun]:
    """Fill the cache to ``depth_tokens``, take in ``prompt_tokens``, both by passes of
    ``prefill_tokens``, then feed ``new_tokens`` one by one; every pass is yielded, those of the
    filling too, and gives the logits of its last token.

    The tokens are random (by ``seed``) and exactly as many as asked for; nothing is sampled. The
    cache is left empty. Raises UsageFault where it is too small.
    """
    needed = depth_tokens + prompt_tokens + new_tokens
    if needed > model.capacity:
        raise UsageFault(
            f"the test needs room for {needed} tokens, the cache has {model.capacity}; lower its "
            "sizes or raise context_tokens"
        )
    chooser = random.Random(seed)
    model.rewind(0)
    for size in (depth_tokens, prompt_tokens, *[1] * new_tokens):
        tokens = [chooser.randrange(model.vocab_size) for _ in range(size)]
        for taken in take_in(model, tokens, prefill_tokens):
            yield taken.run
    model.rewind(0)
