"""Where drafted tokens come from: a small model, or the text so far. Knows nothing of clocks."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from edgeprof.runner.sampling import Distribution, Sampler, point_mass
from edgeprof.runner.token_model import TokenModel, greedy_tokens

if TYPE_CHECKING:
    from edgeprof.runner.token_model import Logits


class ModelRun(NamedTuple):
    """One run of a model, as its provider stamped it."""

    tokens: int
    context_tokens: int
    t0_ns: int
    t1_ns: int


class Proposal(NamedTuple):
    """Tokens that may come next, and the runs it took to find them.

    ``drawn_from`` holds the distribution of each token where chance chose it, else nothing.
    """

    tokens: Sequence[int] = ()
    runs: Sequence[ModelRun] = ()
    drawn_from: Sequence[Distribution] = ()

    @property
    def distributions(self) -> Sequence[Distribution]:
        """What each token was drawn from: where no chance was in it, from itself alone."""
        return self.drawn_from or [point_mass(token) for token in self.tokens]


class Drafter(Protocol):
    """Proposes the tokens that may come next."""

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        """Take in a new prompt; the runs it needed are the draft's prefill."""
        ...

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal:
        """At most ``limit`` tokens to follow ``tokens`` (prompt and answer so far). No tokens:
        nothing is drafted this round."""
        ...


class ModelDrafter:
    """Drafting with a small model: greedily, or by drawing from its own shaped distribution.

    Its cache runs behind: after a round it holds its own proposals of which some were rejected, and
    it has not seen the target's last token. Each proposal first cuts the cache back to what still
    agrees, then feeds what is missing.
    """

    def __init__(self, model: TokenModel, sampler: Sampler | None = None) -> None:
        self._model = model
        self._sampler = sampler
        self._cached: list[int] = []
        self._agreed = 0  # so many cached tokens are known to be part of the text

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        self._model.rewind(0)
        self._cached = []
        self._agreed = 0
        return [self._feed(list(prompt[: self._model.capacity]))[1]]

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal:
        self._cut_back(tokens)
        pending = list(tokens[len(self._cached) :])
        drafted: list[int] = []
        runs: list[ModelRun] = []
        drawn_from: list[Distribution] = []
        # A draft with a shorter context than the target ends drafting, not the answer.
        while len(drafted) < limit and self._model.length + len(pending) <= self._model.capacity:
            logits, run = self._feed(pending)
            runs.append(run)
            if self._sampler is None:
                token = greedy_tokens(self._model, logits)[0]
            else:
                drawn_from.append(self._sampler.distribution(logits[0]))
                token = self._sampler.chance.pick(drawn_from[-1])
            drafted.append(token)
            pending = [token]
        return Proposal(drafted, runs, drawn_from)

    def _feed(self, tokens: list[int]) -> tuple["Logits", ModelRun]:
        context_tokens = self._model.length
        logits = self._model.extend(tokens, rows=1)
        self._cached += tokens
        return logits, ModelRun(len(tokens), context_tokens, *self._model.stamps_ns)

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

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal:
        self._index(tokens)
        for length in self._lengths:
            position = self._after.get(tuple(tokens[len(tokens) - length :]))
            if length < len(tokens) and position is not None:
                # A single repeated token says little about what comes after the next one.
                count = limit if length > 1 else min(limit, 1)
                return Proposal(list(tokens[position : position + count]))
        return Proposal()

    def _index(self, tokens: Sequence[int]) -> None:
        """Note for every n-gram that has a token after it where that token stands; last wins."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for length in self._lengths:
                if length <= end:
                    self._after[tuple(tokens[end - length : end])] = end
        self._indexed = len(tokens)
