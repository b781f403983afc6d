"""Text and tokens of a folder's own tokenizer."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.tokenizer import TextStream, Tokenizer


@pytest.fixture
def tokenizer(folders: dict[str, DecoderFolder]) -> Tokenizer:
    return Tokenizer(folders["t"])


def test_text_comes_back(tokenizer: Tokenizer) -> None:
    text = "hello  th\u00e9re\n\tone"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_special_tokens_are_read_and_not_shown(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("<|im_start|>hi<|im_end|>")
    assert (tokens[0], tokens[-1]) == (1, 2)  # their places in the vocabulary
    assert tokenizer.decode(tokens) == "hi"


def test_a_byte_of_the_command_line_that_is_no_text_is_replaced(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a\udcffb") == tokenizer.encode("a\N{REPLACEMENT CHARACTER}b")


def test_r31_a_character_cut_in_two_survives(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("\N{GRINNING FACE}")  # four bytes, a token each
    assert len(tokens) == 4
    assert tokenizer.decode(tokens) == "\N{GRINNING FACE}"
    assert "\ufffd" in tokenizer.decode(tokens[:2])


def test_m12_a_token_outside_the_vocabulary_is_named(tokenizer: Tokenizer) -> None:
    hi = tokenizer.encode("hi")
    assert tokenizer.decode([*hi, 9999, *hi]) == "hi<unk:9999>hi"


def test_m12_a_vocabulary_may_have_gaps(folders: dict[str, DecoderFolder], tmp_path: Path) -> None:
    """The last token has an id beyond the number of tokens, and those between stand for none."""
    content = json.loads(Path(str(folders["t"].tokenizer_path)).read_text())
    content["model"]["vocab"]["far"] = 310
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    sparse = Tokenizer(replace(folders["t"], tokenizer_path=path))
    assert sparse.id_count == 311
    assert sparse.decode([310, 305, 310]) == "far<unk:305>far"


def test_what_is_no_tokenizer_is_told(
    folders: dict[str, DecoderFolder], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bad") / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(FileFault, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer(replace(folders["t"], tokenizer_path=path))
    with pytest.raises(FileFault, match=r"no tokenizer\.json"):
        Tokenizer(replace(folders["t"], tokenizer_path=None))


# Streaming


def as_bytes(tokens: list[int]) -> str:
    """The text of tokens that are bytes, as a byte-level tokenizer reads them."""
    return bytes(tokens).decode(errors="replace")


def streamed(stream: TextStream, tokens: list[int]) -> list[str]:
    return [*(stream.add(token) for token in tokens), stream.finish()]


def test_r31_a_character_is_held_back_until_its_last_token(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a\N{GRINNING FACE}b")
    assert len(tokens) == 6  # the face is four bytes, a token each
    pieces = streamed(TextStream(tokenizer.decode), tokens)
    assert pieces == ["a", "", "", "", "\N{GRINNING FACE}", "b", ""]


def test_r31_a_character_that_never_ends_is_shown_at_the_end(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("a\N{GRINNING FACE}")[:3]
    pieces = streamed(TextStream(tokenizer.decode), tokens)
    assert pieces[:3] == ["a", "", ""] and set(pieces[3]) == {"\ufffd"}


def test_r31_what_is_no_text_holds_nothing_up_for_long() -> None:
    # four bytes that begin no character, then a face: the first can be no part of it
    pieces = streamed(TextStream(as_bytes), [0xFF] * 4 + list("\N{GRINNING FACE}!".encode()))
    assert "".join(pieces) == "\ufffd" * 4 + "\N{GRINNING FACE}!"
    assert pieces[3] == "\ufffd"


def test_r31_special_tokens_between_have_no_text(tokenizer: Tokenizer) -> None:
    first, *rest = tokenizer.encode("\N{GRINNING FACE}")
    pieces = streamed(TextStream(tokenizer.decode), [1, *tokenizer.encode("hi"), 2, first, *rest])
    assert "".join(pieces) == "hi\N{GRINNING FACE}"


def test_a_word_that_reads_differently_at_the_start_of_a_text_is_shown_as_it_reads() -> None:
    """As SentencePiece has it: the blank before the first word is not shown."""
    words = {1: " one", 2: " two"}
    stream = TextStream(lambda tokens: "".join(words[t] for t in tokens).removeprefix(" "))
    assert streamed(stream, [1, 2, 1]) == ["one", " two", " one", ""]


def test_a_stream_looks_at_few_tokens_at_a_time() -> None:
    seen: list[int] = []

    def decode(tokens: list[int]) -> str:
        seen.append(len(tokens))
        return as_bytes(tokens)

    pieces = streamed(TextStream(decode), [0x61] * 2000 + [0xFF] * 2000 + [0x62])
    assert "".join(pieces) == "a" * 2000 + "\ufffd" * 2000 + "b"
    assert max(seen[:3999]) == 2 and max(seen) <= 257


@given(text=st.text(), cuts=st.lists(st.integers(1, 5), max_size=40))
def test_r31_the_pieces_are_the_text(text: str, cuts: list[int]) -> None:
    """Bytes grouped into tokens at any place: every piece is whole, together they are the text."""
    raw = text.encode()
    tokens, start = [], 0
    for size in [*cuts, *[1] * len(raw)]:
        if start < len(raw):
            tokens.append(raw[start : start + size])
            start += size

    def decode(ids: list[int]) -> str:
        return b"".join(tokens[id] for id in ids).decode(errors="replace")

    pieces = streamed(TextStream(decode), list(range(len(tokens))))
    assert "".join(pieces) == decode(list(range(len(tokens))))
    if "\ufffd" not in text and text.isprintable():
        assert not any("\ufffd" in piece for piece in pieces)


def test_what_the_tokenizer_adds_to_a_text_is_added_on_request(
    folders: dict[str, DecoderFolder], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    content = json.loads(Path(str(folders["t"].tokenizer_path)).read_text())
    content["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}
        },
    }
    path.write_text(json.dumps(content))
    adding = Tokenizer(replace(folders["t"], tokenizer_path=path))
    assert adding.encode("x", begin=True) == [1, *adding.encode("x")]
    assert adding.token_id("<|im_end|>") == 2 and adding.token_id("no such") is None
