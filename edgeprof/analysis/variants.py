"""The decode legs of a session, gathered by variant: what each way of decoding did.

Warm-up legs are left out. Knows how records belong together; computes no figure.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Any

from msgspec import Struct

from edgeprof.session.records import Leg, Pass, Request, Round, Session


class Answer(Struct, frozen=True, kw_only=True):
    """One request that ended, with all that belongs to it, in order.

    ``occurrence`` tells apart requests of one repeat that share a prompt.
    """

    request: Request
    repeat: int
    occurrence: int
    rounds: list[Round]
    passes: list[Pass]
    token_ids: list[int]

    @property
    def key(self) -> tuple[str, int, int]:
        """What an answer of another variant must share to be its partner."""
        return self.request.prompt_sha256, self.repeat, self.occurrence

    @property
    def decode_s(self) -> float | None:
        """From the first token to the end; None where nothing followed the first token."""
        request = self.request
        if request.new_tokens < 2 or request.first_token_ns is None or request.t1_ns is None:
            return None
        seconds = (request.t1_ns - request.first_token_ns) / 1e9
        return seconds if seconds > 0 else None

    @property
    def decode_tokens(self) -> int:
        """Tokens that decoding gave: all but the first, which the prefill gives."""
        return self.request.new_tokens - 1


class VariantRuns(Struct, frozen=True, kw_only=True):
    """A variant's legs and the answers that ended in them."""

    name: str
    target: str
    drafter: str | None
    drafter_kind: str | None
    draft_tokens: int | None
    legs: list[Leg]
    answers: list[Answer]
    unfinished: int

    @property
    def decoded(self) -> list[Answer]:
        """The answers that have a decode rate."""
        return [answer for answer in self.answers if answer.decode_s is not None]


def variants_of(session: Session, left_out: Collection[int] = frozenset()) -> list[VariantRuns]:
    """One entry a variant: target by target, each plain first, then in the order of the legs.
    Legs of the ids in ``left_out`` are as if they had not been.

    A leg cut short answers other prompts than a whole one, so where a variant has complete legs
    only those count; without any, what ended counts.
    """
    legs: dict[str, list[Leg]] = defaultdict(list)
    for leg in session.legs:
        counts = leg.kind == "decode" and not leg.warmup and leg.id not in left_out
        if counts and "test" not in leg.attrs:
            legs[leg.variant].append(leg)
    records = _RecordsByOwner(session)
    runs = [_runs_of(name, variant_legs, records) for name, variant_legs in legs.items()]
    targets = list(dict.fromkeys(run.target for run in runs))
    return sorted(runs, key=lambda run: (targets.index(run.target), run.drafter is not None))


def plain_variant(runs: Iterable[VariantRuns], target: str) -> VariantRuns | None:
    """The variant in which ``target`` decodes alone."""
    return next((run for run in runs if run.target == target and run.drafter is None), None)


class _RecordsByOwner:
    """The session's records, found by the leg or request that they belong to."""

    def __init__(self, session: Session) -> None:
        self.requests: dict[int, list[Request]] = defaultdict(list)
        self.rounds: dict[int, list[Round]] = defaultdict(list)
        self.passes: dict[int, list[Pass]] = defaultdict(list)
        for request in session.requests:
            self.requests[request.leg_id].append(request)
        for round_ in session.rounds:
            self.rounds[round_.request_id].append(round_)
        for pass_ in session.passes:
            if pass_.request_id is not None:
                self.passes[pass_.request_id].append(pass_)
        self._tokens = session.tokens

    def token_ids(self, request_id: int) -> list[int]:
        """Of one answer, in the order of their positions."""
        tokens = self._tokens.of_request(request_id)
        order = tokens.column("position").argsort(kind="stable")
        ids: list[int] = tokens.column("token_id")[order].tolist()
        return ids


def _runs_of(name: str, legs: list[Leg], records: _RecordsByOwner) -> VariantRuns:
    used = [leg for leg in legs if leg.status == "complete"] or legs
    attrs = used[0].attrs
    draft_tokens = attrs.get("draft_tokens")
    return VariantRuns(
        name=name,
        target=_text(attrs, "target") or name,
        drafter=_text(attrs, "drafter"),
        drafter_kind=_text(attrs, "drafter_kind"),
        draft_tokens=draft_tokens if isinstance(draft_tokens, int) else None,
        legs=used,
        answers=_answers(used, records),
        unfinished=sum(r.t1_ns is None for leg in used for r in records.requests[leg.id]),
    )


def _text(attrs: dict[str, Any], key: str) -> str | None:
    """Attributes are free JSON: what is not text there is not known here."""
    value = attrs.get(key)
    return value if isinstance(value, str) else None


def _answers(legs: list[Leg], records: _RecordsByOwner) -> list[Answer]:
    """The requests of a variant's legs that ended."""
    seen: dict[tuple[int, str], int] = defaultdict(int)
    answers = []
    for leg in legs:
        for request in records.requests[leg.id]:
            occurrence = seen[leg.repeat, request.prompt_sha256]
            seen[leg.repeat, request.prompt_sha256] += 1
            if request.t1_ns is None:
                continue
            answers.append(
                Answer(
                    request=request,
                    repeat=leg.repeat,
                    occurrence=occurrence,
                    rounds=records.rounds[request.id],
                    passes=records.passes[request.id],
                    token_ids=records.token_ids(request.id),
                )
            )
    return answers
