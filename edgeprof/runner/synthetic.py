"""Random tokens through a model, as llama-bench feeds them: how fast is a pass, whatever it says?

Knows token ids only.
"""

import random
from collections.abc import Iterator

from edgeprof.errors import UsageFault
from edgeprof.runner.drafters import ModelRun
from edgeprof.runner.token_model import TokenModel

# llama-bench's micro-batch. One pass over a long prompt would also need attention scores of all
# its tokens by all its tokens.
_MOST_TOKENS = 512


def synthetic_passes(
    model: TokenModel, *, prompt_tokens: int, new_tokens: int, depth_tokens: int, seed: int = 0
) -> Iterator[ModelRun]:
    """Fill the cache to ``depth_tokens``, take in ``prompt_tokens``, then feed ``new_tokens`` one
    by one; every pass is yielded, those of the filling too, and gives the logits of its last token.

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
    sizes = [*_parts(depth_tokens), *_parts(prompt_tokens), *[1] * new_tokens]
    for size in sizes:
        tokens = [chooser.randrange(model.vocab_size) for _ in range(size)]
        context_tokens = model.length
        model.extend(tokens, rows=1)
        yield ModelRun(size, context_tokens, *model.stamps_ns)
    model.rewind(0)


def _parts(tokens: int) -> Iterator[int]:
    """``tokens`` cut into passes."""
    for start in range(0, tokens, _MOST_TOKENS):
        yield min(_MOST_TOKENS, tokens - start)
