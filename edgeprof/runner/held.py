"""Held passes: one size of pass repeated at one depth, so that its cost is told apart."""

import random
from collections.abc import Iterator, Sequence

from edgeprof.errors import UsageFault
from edgeprof.runner.prefill import take_in
from edgeprof.runner.token_model import ModelRun, TokenModel

_WARMUP_ROUNDS = 2


def held_passes(
    model: TokenModel,
    sizes: Sequence[int],
    *,
    context_tokens: int,
    repeats: int,
    seed: int = 0,
) -> Iterator[ModelRun]:
    """``repeats`` passes of each size after ``context_tokens`` random tokens, each rolled back.

    Every round runs each size once, in random order, so that a drift of the machine falls on all
    alike. Two warm-up rounds are run first and not yielded. Raises UsageFault where the cache is
    too small.
    """
    if context_tokens + max(sizes) > model.capacity:
        raise UsageFault(
            f"held passes need room for {context_tokens} + {max(sizes)} tokens, the cache has "
            f"{model.capacity}; lower held_context_tokens or raise context_tokens"
        )
    chooser = random.Random(seed)
    context = [chooser.randrange(model.vocab_size) for _ in range(context_tokens)]
    tokens = [chooser.randrange(model.vocab_size) for _ in range(max(sizes))]
    model.rewind(0)
    for _ in take_in(model, context):
        pass
    order = list(sizes)
    for round_index in range(_WARMUP_ROUNDS + repeats):
        chooser.shuffle(order)
        for size in order:
            model.extend(tokens[:size])
            model.rewind(context_tokens)
            if round_index >= _WARMUP_ROUNDS:
                yield ModelRun(size, context_tokens, *model.stamps_ns)
    model.rewind(0)
