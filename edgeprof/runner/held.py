"""Held passes: one size of pass repeated at one depth, so that its cost or its bytes are told apart
from those of others."""

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


class HeldPass:
    """One size of pass after ``context_tokens`` random tokens, rolled back each time it is run.

    The cache is filled at once. Raises UsageFault where it is too small.
    """

    def __init__(
        self, model: TokenModel, tokens: int, *, context_tokens: int, rows: int | None, seed: int
    ) -> None:
        if context_tokens + tokens > model.capacity:
            raise UsageFault(
                f"held passes need room for {context_tokens} + {tokens} tokens, the cache has "
                f"{model.capacity}; lower held_context_tokens or raise context_tokens"
            )
        chooser = random.Random(seed)
        self._model = model
        self._rows = rows
        self._context_tokens = context_tokens
        self._tokens = [chooser.randrange(model.vocab_size) for _ in range(tokens)]
        model.rewind(0)
        context = [chooser.randrange(model.vocab_size) for _ in range(context_tokens)]
        model.extend(context, rows=1)

    def run(self) -> ModelRun:
        self._model.extend(self._tokens, rows=self._rows)
        self._model.rewind(self._context_tokens)
        return ModelRun(len(self._tokens), self._context_tokens, *self._model.stamps_ns)
