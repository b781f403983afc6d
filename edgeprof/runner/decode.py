"""Decoding, plain and speculative, greedy and sampled, as a generator of what happened.

Knows token ids only: nothing of text, files or ONNX. The caller writes the steps down; the loop
carries no profiler code. Plain decoding is the case without a drafter.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from edgeprof.errors import UsageFault
from edgeprof.runner.acceptance import Verdict, accept_greedy, accept_sampled
from edgeprof.runner.drafters import Drafter, ModelRun, Proposal
from edgeprof.runner.sampling import Sampler
from edgeprof.runner.token_model import TokenModel, greedy_tokens
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
    end_tokens: frozenset[int] = frozenset(),
    sampler: Sampler | None = None,
) -> Iterator[Step]:
    """Answer ``prompt`` with at most ``new_tokens`` tokens; yields steps as they happen.

    ``clock`` gives monotonic nanoseconds. A round's passes are yielded before the round itself.
    Without a ``sampler`` of the target decoding is greedy; with one a drafter that draws needs a
    sampler of the same rule.
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
    tokens = list(prompt)
    stop_at = len(prompt) + new_tokens
    target.rewind(0)
    logits = target.extend(tokens, rows=1)
    token = _verdict(target, Proposal(), logits, sampler).next_token
    yield PassDone("target", "prefill", ModelRun(len(tokens), 0, *target.stamps_ns))
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
        limit = min(draft_tokens, room) if drafter is not None else 0
        step = yield from _round(target, tokens, drafter, limit, end_tokens, clock, sampler)
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


def _round(
    target: TokenModel,
    tokens: list[int],
    drafter: Drafter | None,
    limit: int,
    end_tokens: frozenset[int],
    clock: Callable[[], int],
    sampler: Sampler | None,
) -> Generator[Step, None, RoundDone]:
    """Draft up to ``limit`` tokens, verify them in one pass, cut the cache back to what stands."""
    t0_ns = clock()
    proposal = Proposal()
    if drafter is not None and limit > 0:
        proposal = drafter.propose(tokens, limit)
        for run in proposal.runs:
            yield PassDone("draft", "draft", run)
    drafted = proposal.tokens
    context_tokens = target.length
    logits = target.extend([tokens[-1], *drafted])
    verdict = _verdict(target, proposal, logits, sampler)
    run = ModelRun(1 + len(drafted), context_tokens, *target.stamps_ns)
    yield PassDone("target", "verify" if drafted else "decode", run)
    emitted, origins = _emitted(drafted, verdict, end_tokens)
    target.rewind(context_tokens + len(emitted))
    accepted = sum(origin == "accepted" for origin in origins)
    # Where an end token cuts an accepted run, what follows it was never looked at.
    evaluated = verdict.evaluated if len(emitted) > verdict.accepted else accepted
    return RoundDone(len(drafted), evaluated, accepted, emitted, origins, t0_ns, clock())


def _verdict(
    target: TokenModel, proposal: Proposal, logits: "Logits", sampler: Sampler | None
) -> Verdict:
    """What stands of a proposal, and the target's own token after it; ``logits`` has a row for the
    text so far and for each token of the proposal."""
    if sampler is None:
        return accept_greedy(proposal.tokens, greedy_tokens(target, logits))
    return accept_sampled(
        proposal.tokens,
        proposal.distributions,
        lambda drafted: sampler.distribution(logits[drafted]),
        sampler.chance,
    )


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
