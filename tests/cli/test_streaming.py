"""Answers on stderr as they come."""

import pytest
from msgspec.structs import replace

from edgeprof.cli.streaming import Streaming
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.session.records import Leg, Token

Folders = dict[str, DecoderFolder]


def leg(name: str, *, warmup: bool = False, test: str | None = None) -> Leg:
    attrs = {"target": "t"} if test is None else {"target": "t", "test": test}
    return Leg(
        id=1, name=name, kind="decode", variant="t", repeat=1, warmup=warmup, t0_ns=0, attrs=attrs
    )


def feed(streaming: Streaming, request: int, ids: list[int]) -> None:
    for position, token_id in enumerate(ids):
        streaming.token(
            Token(
                id=1, leg_id=1, request_id=request, round_id=None, position=position,
                token_id=token_id, origin="plain",
            )
        )  # fmt: skip


@pytest.fixture
def streaming(tiny_folders: Folders) -> Streaming:
    return Streaming(tiny_folders)


@pytest.fixture(scope="module")
def tokenizer(tiny_folders: Folders) -> Tokenizer:
    return Tokenizer(tiny_folders["t"])


def test_r31_whole_characters_under_the_name_of_the_leg(
    streaming: Streaming, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    face = tokenizer.encode("\N{GRINNING FACE}")
    streaming.leg(leg("t r1 p1"))
    feed(streaming, 1, [*tokenizer.encode("hi "), *face[:3]])
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "--- t r1 p1\nhi ")
    feed(streaming, 1, face[3:])
    assert capsys.readouterr().err == "\N{GRINNING FACE}"
    streaming.leg(replace(leg("t r1 p1"), status="complete", t1_ns=1))
    assert capsys.readouterr().err == "\n"


def test_what_was_held_back_comes_at_the_end(
    streaming: Streaming, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    streaming.leg(leg("t r1 p1"))
    feed(streaming, 1, tokenizer.encode("a\N{GRINNING FACE}")[:2])
    feed(streaming, 2, tokenizer.encode("b"))
    streaming.finish()
    streaming.finish()
    assert capsys.readouterr().err == "--- t r1 p1\na\ufffd\nb\n"


def test_text_does_not_steer_the_terminal(
    streaming: Streaming, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    streaming.leg(leg("t r1 p1"))
    feed(streaming, 1, tokenizer.encode("\x1b[2J\rx\ty\n"))
    assert capsys.readouterr().err == "--- t r1 p1\n\ufffd[2J\ufffdx\ty\n"


def test_warm_up_and_tests_show_nothing(
    streaming: Streaming, tokenizer: Tokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    streaming.leg(leg("t warm-up", warmup=True))
    feed(streaming, 1, tokenizer.encode("a"))
    streaming.leg(leg("pp8", test="pp8"))
    streaming.leg(replace(leg("t agreement"), kind="check", attrs={}))
    streaming.finish()
    assert capsys.readouterr().err == ""


def test_without_a_tokenizer_tokens_are_numbers(
    tiny_folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    streaming = Streaming({"t": replace(tiny_folders["t"], tokenizer_path=None)})
    streaming.leg(leg("t r1 p1"))
    feed(streaming, 1, [0, 299])
    streaming.finish()
    assert capsys.readouterr().err == "--- t r1 p1\n 0 299\n"
