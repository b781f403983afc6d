"""Text and tokens of a folder's own tokenizer."""

import pytest
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.tokenizer import Tokenizer


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


def test_r31_a_character_cut_in_two_survives(tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode("\N{GRINNING FACE}")  # four bytes, a token each
    assert len(tokens) == 4
    assert tokenizer.decode(tokens) == "\N{GRINNING FACE}"
    assert "\ufffd" in tokenizer.decode(tokens[:2])


def test_m12_a_token_outside_the_vocabulary_is_named(tokenizer: Tokenizer) -> None:
    hi = tokenizer.encode("hi")
    assert tokenizer.decode([*hi, 9999, *hi]) == "hi<unk:9999>hi"


def test_what_is_no_tokenizer_is_told(
    folders: dict[str, DecoderFolder], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bad") / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(FileFault, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer(replace(folders["t"], tokenizer_path=path))
    with pytest.raises(FileFault, match=r"no tokenizer\.json"):
        Tokenizer(replace(folders["t"], tokenizer_path=None))
