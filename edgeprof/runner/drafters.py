"""Where drafted tokens come from: a small model, or the text so far. Knows nothing of clocks."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from edgeprof.runner.prefill import PREFILL_TOKENS, take_in
from edgeprof.runner.sampling import Distribution, Sampler, point_mass
from edgeprof.runner.token_model import ModelRun, TokenModel, greedy_tokens

if TYPE_CHECKING:
    from edgeprof.runner.token_model import Logits


class Proposal(NamedTuple):
    """Tokens that may come next, and the runs it took to find them.

    ``drawn_from`` holds the distribution of each token where chance chose it, else nothing.
    ``confidence`` holds, where it was asked for, how probable the drafter takes it to be that each
    token stands if those before it do.
    """

    tokens: Sequence[int] = ()
    runs: Sequence[ModelRun] = ()
    drawn_from: Sequence[Distribution] = ()
    confidence: Sequence[float] = ()

    @property
    def distributions(self) -> Sequence[Distribution]:
        """What each token was drawn from: where no chance was in it, from itself alone."""
        return self.drawn_from or [point_mass(token) for token in self.tokens]

    def cut(self, count: int) -> "Proposal":
        """The first ``count`` tokens, with all the runs."""
        return Proposal(
            self.tokens[:count], self.runs, self.drawn_from[:count], self.confidence[:count]
        )


# Given the confidence in each token so far, is another draft step worth its time?
GoesOn = Callable[[Sequence[float]], bool]


class Drafter(Protocol):
    """Proposes the tokens that may come next."""

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        """Take in a new prompt; the runs it needed are the draft's prefill."""
        ...

    def propose(self, tokens: Sequence[int], limit: int, goes_on: GoesOn | None = None) -> Proposal:
        """At most ``limit`` tokens to follow ``tokens`` (prompt and answer so far). No tokens:
        nothing is drafted this round. With ``goes_on`` the proposal has its confidence, and a
        drafter whose steps cost time asks before each of them."""
        ...


class ModelDrafter:
    """Drafting with a small model: greedily, or by drawing from its own shaped distribution.

    Its cache runs behind: after a round it holds its own proposals of which some were rejected, and
    it has not seen the target's last token. Each proposal first cuts the cache back to what still
    agrees, then feeds what is missing.

    Drafting ends before a place in which the draft's most probable token has less than
    ``least_confidence``. (Of a token that was drawn its own probability must not decide: whether it
    is proposed at all would then depend on which it is, and the answer's distribution with it.)
    """

    def __init__(
        self,
        model: TokenModel,
        sampler: Sampler | None = None,
        *,
        least_confidence: float = 0.0,
        prefill_tokens: int = PREFILL_TOKENS,
    ) -> None:
        self._model = model
        self._sampler = sampler
        self._least_confidence = least_confidence
        self._prefill_tokens = prefill_tokens
        self._cached: list[int] = []
        self._agreed = 0  # so many cached tokens are known to be part of the text

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        self._model.rewind(0)
        # A text that fills its cache leaves no room to draft in, so that it is not even read.
        self._cached = list(prompt) if len(prompt) < self._model.capacity else []
        self._agreed = 0
        return [taken.run for taken in take_in(self._model, self._cached, self._prefill_tokens)]

    def propose(self, tokens: Sequence[int], limit: int, goes_on: GoesOn | None = None) -> Proposal:
        self._cut_back(tokens)
        pending = list(tokens[len(self._cached) :])
        drafted: list[int] = []
        runs: list[ModelRun] = []
        drawn_from: list[Distribution] = []
        confidence: list[float] = []
        judged = goes_on is not None or self._least_confidence > 0
        # A draft with a shorter context than the target ends drafting, not the answer.
        while len(drafted) < limit and self._model.length + len(pending) <= self._model.capacity:
            if goes_on is not None and not goes_on(confidence):
                break
            logits, run = self._feed(pending)
            runs.append(run)
            shaped = self._sampler.distribution(logits[0]) if self._sampler is not None else None
            if judged:
                sure = largest_share(logits[0]) if shaped is None else largest_of(shaped)
                if sure < self._least_confidence:
                    break
                confidence.append(sure)
            if self._sampler is None or shaped is None:
                token = greedy_tokens(self._model, logits)[0]
            else:
                drawn_from.append(shaped)
                token = self._sampler.chance.pick(shaped)
            drafted.append(token)
            pending = [token]
        return Proposal(drafted, runs, drawn_from, confidence)

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


def largest_share(logits: "Logits") -> float:
    """The probability of the most probable token, at temperature 1."""
    weights = np.exp(logits - logits.max())
    return 1 / float(weights.sum())


def largest_of(shaped: Distribution) -> float:
    """The probability of the most probable token."""
    return float(shaped.weights.max()) / shaped.total


# How often a token stood after a match of 1, 2, ... tokens, on prompts of five kinds that a small
# model answered; what one sees elsewhere differs, and an adaptive draft length learns it.
_MATCH_CONFIDENCE = (0.2, 0.5, 0.55, 0.7, 0.7, 0.75, 0.75, 0.9)
_DOUBT_LEFT = 0.7  # each further time that the same token followed leaves so much of the doubt


class NgramDrafter:
    """Prompt lookup: proposes what followed the last occurrence of the longest repeated ending.

    Endings of ``longest`` down to ``shortest`` tokens are looked up in an index of every n-gram
    seen so far, which grows with the text. Where the text that is copied from ends, the ending is
    looked up again with the proposal behind it, which carries repetitions on. (Prompt lookup
    decoding, A. Saxena 2023; the chained lookup as in onnxruntime-genai.)

    A text further back than ``context_tokens`` is not copied from. Drafting ends before a token
    in which the drafter has less than ``least_confidence``.
    """

    def __init__(
        self,
        *,
        longest: int = 3,
        shortest: int = 1,
        context_tokens: int | None = None,
        least_confidence: float = 0.0,
    ) -> None:
        if not 1 <= shortest <= longest:
            raise ValueError(f"need 1 <= shortest <= longest, got {shortest} and {longest}")
        self._lengths = range(longest, shortest - 1, -1)
        self._context_tokens = context_tokens
        self._least_confidence = least_confidence
        self._after: dict[tuple[int, ...], tuple[int, int]] = {}
        self._indexed = 0

    def start(self, prompt: Sequence[int]) -> list[ModelRun]:
        self._after = {}
        self._indexed = 0
        self._index(prompt)
        return []

    def propose(self, tokens: Sequence[int], limit: int, goes_on: GoesOn | None = None) -> Proposal:
        self._index(tokens)
        text = list(tokens)
        end = len(text) + limit
        confidence: list[float] = []
        while len(text) < end:
            found = self._longest_match(text, len(tokens))
            if found is None:
                break
            place, times, length = found
            # A single repeated token says little about what comes after the next one.
            stop = place + 1 if length == 1 else len(tokens)
            for source in range(place, min(stop, place + end - len(text))):
                sure = ngram_confidence(length, times)
                if sure < self._least_confidence:
                    return Proposal(text[len(tokens) :], confidence=confidence)
                text.append(tokens[source])
                confidence.append(sure)
                length += 1
            if stop == place + 1:
                break
        return Proposal(text[len(tokens) :], confidence=confidence)

    def _longest_match(self, text: list[int], known: int) -> tuple[int, int, int] | None:
        """Where the token stands that followed the ending of ``text`` before, how often in a row it
        was the same one, and how many tokens match."""
        for length in self._lengths:
            found = self._after.get(tuple(text[len(text) - length :]))
            if found is None or length >= len(text):
                continue
            place, times = found
            if self._context_tokens is not None and place < known - self._context_tokens:
                continue
            while length < min(place, len(_MATCH_CONFIDENCE)) and (
                text[place - 1 - length] == text[len(text) - 1 - length]
            ):
                length += 1
            return place, times, length
        return None

    def _index(self, tokens: Sequence[int]) -> None:
        """Note for every n-gram that has a token after it where that token stands; last wins."""
        after = self._after
        for end in range(max(self._indexed, 1), len(tokens)):
            for length in self._lengths:
                if length > end:
                    continue
                ngram = tuple(tokens[end - length : end])
                before = after.get(ngram)
                same = before is not None and tokens[before[0]] == tokens[end]
                after[ngram] = end, before[1] + 1 if before is not None and same else 1
        self._indexed = len(tokens)


def ngram_confidence(match_tokens: int, times: int) -> float:
    """How probably the token stands that followed a match of so many tokens, so often in a row."""
    sure = _MATCH_CONFIDENCE[min(match_tokens, len(_MATCH_CONFIDENCE)) - 1]
    return 1 - (1 - sure) * _DOUBT_LEFT ** (times - 1)
