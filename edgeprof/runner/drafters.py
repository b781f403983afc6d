"""Where drafted tokens come from: a small model, or the text so far. Knows nothing of clocks."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from edgeprof.runner.token_model import TokenModel, greedy_tokens


class ModelRun(NamedTuple):
    """One run of a model, as its provider stamped it."""

    tokens: int
    context_tokens: int
    t0_ns: int
    t1_ns: int


class Drafter(Protocol):
    """Proposes the tokens that may come next."""

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        """Take in a new prompt; the runs it needed are the draft's prefill."""
        ...

    def propose(self, tokens: Sequence[int], limit: int) -> tuple[list[int], list[ModelRun]]:
        """At most ``limit`` tokens to follow ``tokens`` (prompt and answer so far), and the runs
        it took to find them. No tokens: nothing is drafted this round."""
        ...


class ModelDrafter:
    """Greedy drafting with a small model.

    Its cache runs behind: after a round it holds its own proposals of which some were rejected, and
    it has not seen the target's last token. Each proposal first cuts the cache back to what still
    agrees, then feeds what is missing.
    """

    def __init__(self, model: TokenModel) -> None:
        self._model = model
        self._cached: list[int] = []
        self._agreed = 0  # so many cached tokens are known to be part of the text

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        self._model.rewind(0)
        self._cached = []
        self._agreed = 0
        return [self._feed(list(prompt[: self._model.capacity]))[1]]

    def propose(self, tokens: Sequence[int], limit: int) -> tuple[list[int], list[ModelRun]]:
        self._cut_back(tokens)
        pending = list(tokens[len(self._cached) :])
        drafted: list[int] = []
        runs: list[ModelRun] = []
        # A draft with a shorter context than the target ends drafting, not the answer.
        while len(drafted) < limit and self._model.length + len(pending) <= self._model.capacity:
            token, run = self._feed(pending)
            drafted.append(token)
            runs.append(run)
            pending = [token]
        return drafted, runs

    def _feed(self, tokens: list[int]) -> tuple[int, ModelRun]:
        context_tokens = self._model.length
        logits = self._model.extend(tokens, rows=1)
        self._cached += tokens
        run = ModelRun(len(tokens), context_tokens, *self._model.stamps_ns)
        return greedy_tokens(self._model, logits)[0], run

    def _cut_back(self, tokens: Sequence[int]) -> None:
        """Keep the cached tokens that the text agrees with, and leave at least one to feed."""
        most = min(len(self._cached), len(tokens) - 1)
        keep = min(self._agreed, most)
        while keep < most and self._cached[keep] == tokens[keep]:
            keep += 1
        self._agreed = keep
        if keep < len(self._cached):
            del self._cached[keep:]
            self._model.rewind(keep)


class NgramDrafter:
    """Prompt lookup: proposes what followed the last occurrence of the longest repeated ending.

    Endings of ``longest`` down to ``shortest`` tokens are looked up in an index of every n-gram
    seen so far, which grows with the text. (Prompt lookup decoding, A. Saxena 2023.)
    """

    def __init__(self, *, longest: int = 3, shortest: int = 1) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"need 1 <= shortest <= longest, got {shortest} and {longest}")
        self._lengths = range(longest, shortest - 1, -1)
        self._after: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        self._after = {}
        self._indexed = 0
        return []

    def propose(self, tokens: Sequence[int], limit: int) -> tuple[list[int], list[ModelRun]]:
        self._index(tokens)
        for length in self._lengths:
            position = self._after.get(tuple(tokens[len(tokens) - length :]))
            if length < len(tokens) and position is not None:
                # A single repeated token says little about what comes after the next one.
                count = limit if length > 1 else min(limit, 1)
                return list(tokens[position : position + count]), []
        return [], []

    def _index(self, tokens: Sequence[int]) -> None:
        """Note for every n-gram that has a token after it where that token stands; last wins."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for length in self._lengths:
                if length <= end:
                    self._after[tuple(tokens[end - length : end])] = end
        self._indexed = len(tokens)
