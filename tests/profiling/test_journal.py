"""Steps of decoding become numbered records; a wish to stop ends the leg after the pass in hand."""

from collections.abc import Callable, Iterator
from itertools import count

import pytest

from edgeprof.profiling.journal import Interrupted, Journal, ModelName
from edgeprof.profiling.messages import Message
from edgeprof.runner.decode import Finished, FirstToken, PassDone, RoundDone, Step
from edgeprof.runner.token_model import ModelRun
from edgeprof.session.records import Leg, Pass, Request, Round, Token

MODELS = {"target": ModelName("t", "cpu"), "draft": ModelName("d", "cuda")}
STEPS: list[Step] = [
    PassDone("target", "prefill", ModelRun(3, 0, 10, 20)),
    PassDone("draft", "prefill", ModelRun(3, 0, 20, 22)),
    FirstToken(50, 23),
    PassDone("draft", "draft", ModelRun(1, 3, 24, 25)),
    PassDone("target", "verify", ModelRun(3, 3, 26, 36)),
    RoundDone(2, 2, 1, [51, 52], ["accepted", "corrected"], 24, 37),
    PassDone("target", "decode", ModelRun(1, 5, 38, 47)),
    RoundDone(0, 0, 0, [53], ["plain"], 38, 48),
    Finished("new_tokens", 49),
]


def in_words(tokens: list[int]) -> str:
    return "-".join(map(str, tokens))


class Written:
    def __init__(self, stop_after: int | None = None) -> None:
        self.messages: list[Message] = []
        ticks = count(1000)
        self.journal = Journal(
            self.messages.append,
            clock=lambda: next(ticks),
            stop_asked=lambda: stop_after is not None and len(self.of(Pass)) >= stop_after,
        )

    def of(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.messages if isinstance(message, kind)]

    def answer(
        self, steps: Iterator[Step], to_text: Callable[[list[int]], str] = in_words
    ) -> list[int]:
        with self.journal.leg("t+d r1", kind="decode", variant="t+d k=2") as leg:
            return self.journal.answer(
                leg,
                steps,
                MODELS,
                to_text,
                prompt_sha256="00",
                prompt_kind="chat",
                prompt_tokens=3,
            )


def test_a_request_is_written_down_pass_by_pass() -> None:
    written = Written()
    assert written.answer(iter(STEPS)) == [50, 51, 52, 53]
    passes = [message for message in written.messages if isinstance(message, Pass)]
    assert [(p.id, p.round_id, p.phase, p.model, p.provider) for p in passes] == [
        (1, None, "prefill", "t", "cpu"),
        (2, None, "prefill", "d", "cuda"),
        (3, 1, "draft", "d", "cuda"),
        (4, 1, "verify", "t", "cpu"),
        (5, 2, "decode", "t", "cpu"),
    ]
    assert {(p.leg_id, p.request_id) for p in passes} == {(1, 1)}
    rounds = [message for message in written.messages if isinstance(message, Round)]
    assert [(r.id, r.drafted, r.evaluated, r.accepted, r.emitted) for r in rounds] == [
        (1, 2, 2, 1, 2),
        (2, 0, 0, 0, 1),
    ]
    tokens = [message for message in written.messages if isinstance(message, Token)]
    assert [(t.position, t.token_id, t.round_id, t.origin) for t in tokens] == [
        (0, 50, None, "plain"),
        (1, 51, 1, "accepted"),
        (2, 52, 1, "corrected"),
        (3, 53, 2, "plain"),
    ]


def test_a_request_is_written_at_its_start_and_again_at_its_end() -> None:
    written = Written()
    written.answer(iter(STEPS))
    first, last = written.of(Request)
    assert isinstance(first, Request) and isinstance(last, Request)
    assert (first.id, first.new_tokens, first.t1_ns) == (1, 0, None)
    assert (last.id, last.new_tokens, last.first_token_ns, last.t1_ns) == (1, 4, 23, 49)
    assert (last.stop_reason, last.text) == ("new_tokens", "50-51-52-53")
    assert (first.text_ends, last.text_ends) == (None, [2, 5, 8, 11])  # 50, -51, -52, -53


def test_where_tokens_alone_do_not_give_the_text_it_is_not_cut() -> None:
    written = Written()
    written.answer(iter(STEPS), lambda tokens: f"{len(tokens)} tokens")
    last = written.of(Request)[-1]
    assert isinstance(last, Request)
    assert (last.text, last.text_ends) == ("4 tokens", None)


def test_a_leg_is_complete_only_at_its_end() -> None:
    written = Written()
    written.answer(iter(STEPS))
    legs = [message for message in written.messages if isinstance(message, Leg)]
    assert [(leg.status, leg.t1_ns is None) for leg in legs] == [
        ("running", True),
        ("complete", False),
    ]


def test_a_wish_to_stop_ends_the_leg_after_the_pass_in_hand() -> None:
    written = Written(stop_after=3)
    with pytest.raises(Interrupted):
        written.answer(iter(STEPS))
    assert len(written.of(Pass)) == 3
    assert written.of(Round) == []
    last = written.messages[-1]
    assert isinstance(last, Leg) and last.status == "interrupted"


def test_an_error_leaves_the_leg_failed() -> None:
    def broken() -> Iterator[Step]:
        yield STEPS[0]
        raise RuntimeError("driver")

    written = Written()
    with pytest.raises(RuntimeError):
        written.answer(broken())
    last = written.messages[-1]
    assert isinstance(last, Leg) and last.status == "failed"


def test_a_leg_tells_at_its_end_what_the_memory_did() -> None:
    messages: list[Message] = []
    watched = Journal(
        messages.append,
        clock=lambda: 1,
        stop_asked=lambda: False,
        watches={"memory": lambda: lambda: {"major_faults": 3}},
    )
    with watched.leg("x", kind="held", variant="t", attrs={"held": "verify"}):
        pass
    started, ended = (message for message in messages if isinstance(message, Leg))
    assert started.attrs == {"held": "verify"}
    assert ended.attrs == {"held": "verify", "memory": {"major_faults": 3}}
