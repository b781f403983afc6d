"""The tokenizer made of a GGUF's fields, against ids that llama.cpp gave."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tokenizers import Tokenizer

from edgeprof.convert.tokenizer import read_special_tokens, read_tokenizer
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, read_header

RECORDED = json.loads((Path(__file__).parents[1] / "data" / "tokenizer_smollm2.json").read_text())
SPLITTINGS = ("smollm", "gpt-2", "llama-bpe", "qwen2")


def with_metadata(header: GgufHeader, **changes: Any) -> GgufHeader:
    """The header with keys below ``tokenizer.ggml.`` replaced, or left out where None."""
    metadata = dict(header.metadata)
    for key, value in changes.items():
        metadata.pop("tokenizer.ggml." + key, None)
        if value is not None:
            metadata["tokenizer.ggml." + key] = value
    return msgspec.structs.replace(header, metadata=metadata)


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> GgufHeader:
    return read_header(smollm2_gguf)


@pytest.fixture
def tiny(tiny_gguf: Callable[..., Path], tmp_path: Path) -> GgufHeader:
    return read_header(tiny_gguf(tmp_path / "tiny.gguf"))


def test_at_least_sixty_strings_were_recorded() -> None:
    texts = [entry["text"] for entry in RECORDED["strings"]]
    assert len(set(texts)) == len(texts) >= 60


@pytest.mark.parametrize("splitting", SPLITTINGS)
def test_ids_are_those_of_llama_cpp(smollm2: GgufHeader, splitting: str) -> None:
    tokenizer = read_tokenizer(with_metadata(smollm2, pre=splitting))
    wrong = {
        entry["text"]: (ids, entry["ids"][splitting])
        for entry in RECORDED["strings"]
        if (ids := tokenizer.encode(entry["text"], add_special_tokens=False).ids)
        != entry["ids"][splitting]
    }
    assert not wrong


@pytest.mark.parametrize(
    ("splitting", "words"),
    [
        ("gpt-2", ["I", "'ll", " pay", " 12345", "$", "\n\n", " x", " I", "'", "LL"]),
        ("smollm", ["I", "'ll", " pay", " ", *"12345", "$", "\n\n", " x", " I", "'", "LL"]),
        ("llama-bpe", ["I", "'ll", " pay", " ", "123", "45", "$\n\n", " x", " I", "'LL"]),
        ("qwen2", ["I", "'ll", " pay", " ", *"12345", "$\n\n", " x", " I", "'LL"]),
    ],
)
def test_each_splitting_cuts_in_its_own_way(
    tiny: GgufHeader, splitting: str, words: list[str]
) -> None:
    """SmolLM2 merges no digits, so its tokens alone would not tell three digits from one."""
    cut = read_tokenizer(with_metadata(tiny, pre=splitting)).pre_tokenizer
    assert cut is not None
    pieces = [piece for piece, _ in cut.pre_tokenize_str("I'll pay 12345$\n\n x I'LL")]
    # In GPT-2's alphabet of bytes a space reads U+0120 and a line feed U+010A.
    assert pieces == [word.replace(" ", "\u0120").replace("\n", "\u010a") for word in words]


def test_text_comes_back_and_so_does_the_tokenizer_from_its_file(
    smollm2: GgufHeader, tmp_path: Path
) -> None:
    tokenizer = read_tokenizer(smollm2)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    saved = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("  a\r\n\tb  ", "naïve 你好 👩‍👩‍👧‍👦 12345", "x<|im_end|>y"):
        ids = tokenizer.encode(text).ids
        assert saved.encode(text).ids == ids
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_a_text_begins_with_the_token_that_the_file_asks_for(tiny: GgufHeader) -> None:
    """<|im_start|> is token 1, <|im_end|> token 2; the bytes follow the three special tokens, in
    ascending order of value: "a" (0x61) is token 3 + 97."""
    assert read_tokenizer(tiny).encode("a").ids == [100]
    asking = with_metadata(tiny, add_bos_token=True)
    assert read_tokenizer(asking).encode("a").ids == [1, 100]
    llama = with_metadata(tiny, add_bos_token=None, pre="llama-bpe")
    assert read_tokenizer(llama).encode("a").ids == [1, 100]
    assert read_special_tokens(llama, 300).adds_bos


def test_tokens_that_end_an_answer(tiny: GgufHeader) -> None:
    assert read_special_tokens(tiny, 300).ends == (2,)
    assert read_special_tokens(with_metadata(tiny, eot_token_id=0), 300).ends == (0, 2)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"pre": "deepseek-coder"}, "pre is 'deepseek-coder'; edgeprof knows gpt-2, llama-bpe"),
        ({"pre": None}, "pre is None"),
        ({"pre": 7}, "pre is 7"),
        ({"model": "llama"}, "model is 'llama'; edgeprof converts byte-level BPE"),
        ({"tokens": None}, "tokens is missing"),
        ({"tokens": (1, 2)}, "no list of strings"),
        ({"merges": None}, "merges is missing"),
        ({"token_type": (1, 1)}, "token_type does not give 300 tokens their types"),
        ({"eos_token_id": 300}, "eos_token_id is 300, no token of the 300"),
        ({"eos_token_id": None}, "names no token that ends an answer"),
        ({"bos_token_id": None, "add_bos_token": True}, "token that is not named"),
        ({"bos_token_id": "x"}, "bos_token_id is 'x'"),
    ],
)
def test_fields_that_make_no_tokenizer_are_refused_by_name(
    tiny: GgufHeader, changes: dict[str, Any], fault: str
) -> None:
    with pytest.raises(FileFault, match=fault) as caught:
        read_tokenizer(with_metadata(tiny, **changes))
    assert str(tiny.path) in str(caught.value)


def test_merges_of_unknown_pieces_are_refused(tiny: GgufHeader) -> None:
    """The tokens' own list as merges: no spaces in it; the merges as tokens: no such pieces."""
    tokens = tiny.metadata["tokenizer.ggml.tokens"]
    merges = tiny.metadata["tokenizer.ggml.merges"]
    with pytest.raises(FileFault, match="not two pieces and a space"):
        read_tokenizer(with_metadata(tiny, merges=tokens))
    swapped = with_metadata(tiny, tokens=merges, token_type=(1,) * len(merges))  # type: ignore[arg-type]
    with pytest.raises(FileFault, match="merges do not fit the tokens"):
        read_tokenizer(swapped)
