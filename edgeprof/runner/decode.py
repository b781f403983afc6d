"""Decoding, plain and speculative, greedy and sampled, as a generator of what happened.

Knows token ids only: nothing of text, files or ONNX. The caller writes the steps down; the loop
carries no profiler code. Plain decoding is the case without a drafter.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from edgeprof.errors import UsageFault
from edgeprof.runner.acceptance import Verdict, accept_greedy, accept_sampled
from edgeprof.runner.draft_length import AdaptiveLength, RoundCost
from edgeprof.runner.drafters import Drafter, Proposal
from edgeprof.runner.prefill import PREFILL_TOKENS, take_in
from edgeprof.runner.sampling import Sampler
from edgeprof.runner.token_model import ModelRun, TokenModel, greedy_tokens
from edgeprof.session.records import Origin, Phase

if TYPE_CHECKING:
    from edgeprof.runner.token_model import Logits

StopReason = Literal["end_token", "new_tokens", "context_end"]


class PassDone(NamedTuple):
    """A model ran once: the target or, in phase ``draft`` or its own prefill, the draft."""

    role: Literal["target", "draft"]
    phase: Phase
    run: ModelRun


class FirstToken(NamedTuple):
    """The prefills are done and the answer's first token is known."""

    token: int
    t_ns: int


class RoundDone(NamedTuple):
    """A target pass and what it brought; ``tokens`` and ``origins`` are those emitted."""

    drafted: int
    evaluated: int
    accepted: int
    tokens: list[int]
    origins: list[Origin]
    t0_ns: int
    t1_ns: int


class Finished(NamedTuple):
    """The answer is complete."""

    reason: StopReason
    t_ns: int


Step = PassDone | FirstToken | RoundDone | Finished


def decode(
    target: TokenModel,
    prompt: Sequence[int],
    *,
    new_tokens: int,
    clock: Callable[[], int],
    drafter: Drafter | None = None,
    draft_tokens: int = 0,
    draft_length: AdaptiveLength | None = None,
    end_tokens: frozenset[int] = frozenset(),
    sampler: Sampler | None = None,
    prefill_tokens: int = PREFILL_TOKENS,
) -> Iterator[Step]:
    """Answer ``prompt`` with at most ``new_tokens`` tokens; yields steps as they happen.

    ``clock`` gives monotonic nanoseconds. A round's passes are yielded before the round itself.
    The prompt goes in by passes of ``prefill_tokens``.
    Each round drafts ``draft_tokens``, or with ``draft_length`` as many of them as pay, which may
    be none. Without a ``sampler`` of the target decoding is greedy; with one a drafter that draws
    needs a sampler of the same rule.
    Ends at any of ``end_tokens`` (emitted as the last token), after ``new_tokens`` (0: after the
    prefills), or where the target's cache is full. Raises UsageFault for a prompt that is empty or
    leaves no room.
    """
    if not prompt:
        raise UsageFault("the prompt has no tokens; give at least one")
    if len(prompt) > target.capacity:
        raise UsageFault(
            f"the prompt has {len(prompt)} tokens, more than the {target.capacity} the cache "
            "holds; raise context_tokens"
        )
    rounds = _Rounds(target, clock, drafter, draft_length, end_tokens, sampler)
    tokens = list(prompt)
    stop_at = len(prompt) + new_tokens
    target.rewind(0)
    for taken in take_in(target, tokens, prefill_tokens):
        yield PassDone("target", "prefill", taken.run)
    token = rounds.verdict(Proposal(), taken.logits).next_token
    if drafter is not None:
        for run in drafter.start(tokens):
            yield PassDone("draft", "prefill", run)
    if new_tokens == 0:
        yield Finished("new_tokens", clock())
        return
    tokens.append(token)
    yield FirstToken(token, clock())
    while (reason := _reason_to_stop(tokens, stop_at, target, end_tokens)) is None:
        # One token of the answer comes from the target itself, so no more than the rest is drafted.
        room = min(stop_at - len(tokens) - 1, target.capacity - target.length - 1)
        step = yield from rounds.run(tokens, min(draft_tokens, room))
        yield step
        tokens += step.tokens
    yield Finished(reason, clock())


def _reason_to_stop(
    tokens: list[int], stop_at: int, target: TokenModel, end_tokens: frozenset[int]
) -> StopReason | None:
    if tokens[-1] in end_tokens:
        return "end_token"
    if len(tokens) >= stop_at:
        return "new_tokens"
    if target.length >= target.capacity:
        return "context_end"
    return None


class _Rounds(NamedTuple):
    """What all rounds of an answer share."""

    target: TokenModel
    clock: Callable[[], int]
    drafter: Drafter | None
    draft_length: AdaptiveLength | None
    end_tokens: frozenset[int]
    sampler: Sampler | None

    def run(self, tokens: list[int], limit: int) -> Generator[Step, None, RoundDone]:
        """Draft up to ``limit`` tokens, verify them in one pass, cut the cache back to what
        stands."""
        t0_ns = self.clock()
        proposal = self._proposal(tokens, limit)
        for run in proposal.runs:
            yield PassDone("draft", "draft", run)
        kept = self._worth_verifying(proposal)
        drafted = kept.tokens
        context_tokens = self.target.length
        logits = self.target.extend([tokens[-1], *drafted])
        verdict = self.verdict(kept, logits)
        run = ModelRun(1 + len(drafted), context_tokens, *self.target.stamps_ns)
        yield PassDone("target", "verify" if drafted else "decode", run)
        emitted, origins = _emitted(drafted, verdict, self.end_tokens)
        self.target.rewind(context_tokens + len(emitted))
        accepted = origins.count("accepted")
        # Where an end token cuts an accepted run, what follows it was never looked at.
        evaluated = verdict.evaluated if len(emitted) > verdict.accepted else accepted
        done = RoundDone(len(drafted), evaluated, accepted, emitted, origins, t0_ns, self.clock())
        if self.draft_length is not None:
            self._learn(self.draft_length, proposal, done)
        return done

    def _proposal(self, tokens: list[int], limit: int) -> Proposal:
        if self.drafter is None or limit <= 0:
            return Proposal()
        length = self.draft_length
        if length is None:
            return self.drafter.propose(tokens, limit)
        return self.drafter.propose(
            tokens, limit, lambda confidence: length.goes_on(confidence, limit)
        )

    def _worth_verifying(self, proposal: Proposal) -> Proposal:
        """Tokens that chance chose all stay: to leave one out for what it led to would favour the
        others, and the answer would not have the target's distribution."""
        if self.draft_length is None or proposal.drawn_from:
            return proposal
        return proposal.cut(self.draft_length.keep(proposal.confidence))

    def verdict(self, proposal: Proposal, logits: "Logits") -> Verdict:
        """What stands of a proposal, and the target's own token after it; ``logits`` has a row for
        the text so far and for each token of the proposal."""
        sampler = self.sampler
        if sampler is None:
            return accept_greedy(proposal.tokens, greedy_tokens(self.target, logits))
        return accept_sampled(
            proposal.tokens,
            proposal.distributions,
            lambda drafted: sampler.distribution(logits[drafted]),
            sampler.chance,
        )

    def _learn(self, length: AdaptiveLength, proposal: Proposal, done: RoundDone) -> None:
        """Tell the draft length how the round went.

        Where the drafter left nothing to chance, the token after the verified ones shows whether
        one that was drafted, but not worth verifying, would have stood.
        """
        known, stood = done.evaluated, done.accepted
        next_known = known == stood < min(len(done.tokens), len(proposal.tokens))
        if next_known and not proposal.drawn_from:
            stood += proposal.tokens[known] == done.tokens[known]
            known += 1
        drafts_s = _drafts_s(proposal.runs)
        length.learn(
            [(sure, place < stood) for place, sure in enumerate(proposal.confidence[:known])],
            len(done.tokens),
            RoundCost(
                draft_s=drafts_s,
                verify_tokens=1 + done.drafted,
                verify_s=(done.t1_ns - done.t0_ns) / 1e9 - sum(drafts_s),
            ),
        )


def _drafts_s(runs: Sequence[ModelRun]) -> list[float]:
    """Every step of a proposal until the next begins."""
    ends = [run.t0_ns for run in runs[1:]] + [run.t1_ns for run in runs[-1:]]
    return [(end - run.t0_ns) / 1e9 for run, end in zip(runs, ends, strict=True)]


def _emitted(
    drafted: Sequence[int], verdict: Verdict, end_tokens: frozenset[int]
) -> tuple[list[int], list[Origin]]:
    """The tokens of a round and where each came from, cut after the first end token."""
    emitted = [*drafted[: verdict.accepted], verdict.next_token]
    last: Origin = "corrected" if verdict.accepted < len(drafted) else "bonus"
    origins: list[Origin] = ["accepted"] * verdict.accepted
    origins.append(last if drafted else "plain")
    for index, token in enumerate(emitted):
        if token in end_tokens:
            return emitted[: index + 1], origins[: index + 1]
    return emitted, origins
