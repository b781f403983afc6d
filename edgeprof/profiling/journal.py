"""Turns what happens in the decoder into numbered records. Knows nothing of models."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate, count
from typing import Any, NamedTuple

from msgspec.structs import replace

from edgeprof.profiling.messages import Message
from edgeprof.profiling.tokenizer import TextStream
from edgeprof.runner.decode import Finished, FirstToken, PassDone, RoundDone, Step
from edgeprof.runner.token_model import ModelRun
from edgeprof.session.records import (
    Event,
    Leg,
    LegKind,
    LegStatus,
    Origin,
    Pass,
    Phase,
    Request,
    Round,
    Severity,
    Token,
)

_LOOK_S = 0.1


class Interrupted(Exception):
    """The recorder asked to stop; the leg in hand ends here."""


class ModelName(NamedTuple):
    """The name and the provider under which a model's passes are written down."""

    key: str
    provider: str


# Starts to watch something; what it returns tells what happened since.
Watch = Callable[[], Callable[[], Mapping[str, float]]]


class Journal:
    """Gives out ids and writes records to ``put``; raises Interrupted after the pass in hand.

    Every leg holds, under the name of each of the ``watches``, what that tells at its end.
    """

    def __init__(
        self,
        put: Callable[[Message], None],
        *,
        clock: Callable[[], int],
        stop_asked: Callable[[], bool],
        watches: Mapping[str, Watch] | None = None,
    ) -> None:
        self._put = put
        self._clock = clock
        self._stop_asked = stop_asked
        self._watches = watches or {}
        self._legs, self._requests, self._rounds = count(1), count(1), count(1)
        self._passes, self._tokens = count(1), count(1)

    @contextmanager
    def leg(
        self,
        name: str,
        *,
        kind: LegKind,
        variant: str,
        repeat: int = 1,
        warmup: bool = False,
        attrs: dict[str, Any] | None = None,
        t0_ns: int | None = None,
    ) -> Iterator[Leg]:
        """A leg around the block: written at its start and, with how it ended, at its end."""
        watched = {name: watch() for name, watch in self._watches.items()}
        leg = Leg(
            id=next(self._legs),
            name=name,
            kind=kind,
            variant=variant,
            repeat=repeat,
            warmup=warmup,
            t0_ns=self._clock() if t0_ns is None else t0_ns,
            attrs=attrs or {},
        )
        self._put(leg)
        status: LegStatus = "failed"
        try:
            yield leg
            status = "complete"
        except Interrupted:
            status = "interrupted"
            raise
        finally:
            t1_ns = self._clock()
            told = {name: dict(since()) for name, since in watched.items()}
            self._put(replace(leg, t1_ns=t1_ns, status=status, attrs={**leg.attrs, **told}))

    def run(
        self,
        leg: Leg,
        phase: Phase,
        model: ModelName,
        run: ModelRun,
        *,
        request_id: int | None = None,
        round_id: int | None = None,
        stream: int = 0,
    ) -> None:
        """Write down one run of a model; what runs beside it has a ``stream`` of its own."""
        self._put(
            Pass(
                id=next(self._passes),
                leg_id=leg.id,
                request_id=request_id,
                round_id=round_id,
                phase=phase,
                model=model.key,
                provider=model.provider,
                stream=stream,
                tokens=run.tokens,
                context_tokens=run.context_tokens,
                t0_ns=run.t0_ns,
                t1_ns=run.t1_ns,
            )
        )
        if self._stop_asked():
            raise Interrupted

    def rest(self, seconds: float) -> None:
        """Do nothing for so long; raises Interrupted like a pass."""
        until_ns = self._clock() + round(seconds * 1e9)
        while (left_ns := until_ns - self._clock()) > 0:
            if self._stop_asked():
                raise Interrupted
            time.sleep(min(left_ns / 1e9, _LOOK_S))

    def note(
        self,
        leg: Leg | None,
        kind: str,
        detail: dict[str, Any],
        severity: Severity = "warning",
    ) -> None:
        """Write down something that the reader of the session should know."""
        leg_id = leg.id if leg is not None else None
        self._put(
            Event(leg_id=leg_id, t_ns=self._clock(), kind=kind, severity=severity, detail=detail)
        )

    def answer(
        self,
        leg: Leg,
        steps: Iterable[Step],
        models: dict[str, ModelName],
        to_text: Callable[[list[int]], str | None],
        *,
        prompt_sha256: str,
        prompt_kind: str,
        prompt_tokens: int,
    ) -> list[int]:
        """Write down a request as it is answered; ``models`` names those in the roles of the steps.

        Returns the tokens of the answer.
        """
        request = Request(
            id=next(self._requests),
            leg_id=leg.id,
            prompt_sha256=prompt_sha256,
            prompt_kind=prompt_kind,
            prompt_tokens=prompt_tokens,
            new_tokens=0,
            t0_ns=self._clock(),
        )
        self._put(request)
        tokens: list[int] = []
        round_id = next(self._rounds)
        for step in steps:
            if isinstance(step, PassDone):
                inside = None if step.phase == "prefill" else round_id
                self.run(
                    leg,
                    step.phase,
                    models[step.role],
                    step.run,
                    request_id=request.id,
                    round_id=inside,
                )
            elif isinstance(step, FirstToken):
                request = replace(request, first_token_ns=step.t_ns)
                self._emit(request, None, tokens, [step.token], ["plain"])
            elif isinstance(step, RoundDone):
                self._put(_round(round_id, request, step))
                self._emit(request, round_id, tokens, step.tokens, step.origins)
                round_id = next(self._rounds)
            else:
                self._put(_finished(request, step, tokens, to_text))
        return tokens

    def _emit(
        self,
        request: Request,
        round_id: int | None,
        tokens: list[int],
        emitted: list[int],
        origins: list[Origin],
    ) -> None:
        """Append ``emitted`` to the answer so far and write each of them down."""
        for token_id, origin in zip(emitted, origins, strict=True):
            self._put(
                Token(
                    id=next(self._tokens),
                    leg_id=request.leg_id,
                    request_id=request.id,
                    round_id=round_id,
                    position=len(tokens),
                    token_id=token_id,
                    origin=origin,
                )
            )
            tokens.append(token_id)


def _round(round_id: int, request: Request, step: RoundDone) -> Round:
    return Round(
        id=round_id,
        leg_id=request.leg_id,
        request_id=request.id,
        drafted=step.drafted,
        evaluated=step.evaluated,
        accepted=step.accepted,
        emitted=len(step.tokens),
        t0_ns=step.t0_ns,
        t1_ns=step.t1_ns,
    )


def _finished(
    request: Request, step: Finished, tokens: list[int], to_text: Callable[[list[int]], str | None]
) -> Request:
    text = to_text(tokens)
    return replace(
        request,
        new_tokens=len(tokens),
        t1_ns=step.t_ns,
        stop_reason=step.reason,
        text=text,
        text_ends=None if text is None else _text_ends(tokens, text, to_text),
    )


def _text_ends(
    tokens: list[int], text: str, to_text: Callable[[list[int]], str | None]
) -> list[int] | None:
    """How far the text reaches after each token; None where the tokens alone do not give it."""
    stream = TextStream(lambda window: to_text(window) or "")
    pieces = [stream.add(token) for token in tokens]
    if pieces:
        pieces[-1] += stream.finish()
    return list(accumulate(map(len, pieces))) if "".join(pieces) == text else None
