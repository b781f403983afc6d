"""The tokenizer made of a GGUF's fields, against ids that llama.cpp gave."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_gguf import write_vocabulary_gguf
from tokenizers import Tokenizer

from edgeprof.convert.tokenizer import read_special_tokens, read_tokenizer
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, read_header

DATA = Path(__file__).parents[1] / "data"
RECORDED = json.loads((DATA / "tokenizer_smollm2.json").read_text())
SPLITTINGS = ("smollm", "gpt-2", "llama-bpe", "qwen2")
# Real vocabularies, cut to what takes part in the strings; see "about" in the file.
FAMILIES = json.loads((DATA / "tokenizers_llama_cpp.json").read_text())
VOCABULARIES: dict[str, dict[str, Any]] = FAMILIES["vocabularies"]
BYTE_LEVEL = ("llama-bpe", "qwen2", "smollm")


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


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], GgufHeader]:
    folder = tmp_path_factory.mktemp("vocabularies")

    def written(name: str) -> GgufHeader:
        return read_header(write_vocabulary_gguf(folder / f"{name}.gguf", VOCABULARIES[name]))

    return functools.cache(written)


def original_ids(tokenizer: Tokenizer, name: str, text: str) -> list[int]:
    """The ids in the whole vocabulary."""
    kept = VOCABULARIES[name]["ids"]
    return [kept[index] for index in tokenizer.encode(text, add_special_tokens=False).ids]


def test_at_least_two_hundred_strings_were_recorded() -> None:
    texts = [entry["text"] for entry in RECORDED["strings"]] + FAMILIES["strings"]
    assert len(set(texts)) >= 200
    assert all(len(v["strings"]) == len(FAMILIES["strings"]) for v in VOCABULARIES.values())


@pytest.mark.parametrize("name", VOCABULARIES)
def test_real_vocabularies_give_the_ids_of_llama_cpp(
    name: str, family: Callable[[str], GgufHeader]
) -> None:
    """Qwen2's vocabulary has an ordinary token "</s>", which llama.cpp takes for a special one
    because of its name; the model's own tokenizer does not, and neither does edgeprof."""
    tokenizer = read_tokenizer(family(name))
    recorded = zip(FAMILIES["strings"], VOCABULARIES[name]["strings"], strict=True)
    wrong = {
        text: (ids, expected)
        for text, expected in recorded
        if (ids := original_ids(tokenizer, name, text)) != expected
    }
    if name == "qwen2":
        assert wrong and all("</s>" in text for text in wrong)
        assert original_ids(tokenizer, name, "</s>") == [522, 82, 29]  # "</", "s" and ">"
    else:
        assert not wrong


@pytest.mark.parametrize("name", BYTE_LEVEL)
def test_bytes_that_are_no_utf8_are_replaced_one_by_one(
    name: str, family: Callable[[str], GgufHeader]
) -> None:
    tokenizer = read_tokenizer(family(name))
    for raw, expected in zip(FAMILIES["not_utf8"], VOCABULARIES[name]["not_utf8"], strict=True):
        text = bytes.fromhex(raw).decode("utf-8", "surrogateescape")
        text = "".join("\ufffd" if "\udc80" <= char <= "\udcff" else char for char in text)
        assert original_ids(tokenizer, name, text) == expected


@pytest.mark.parametrize("name", VOCABULARIES)
def test_every_recorded_text_comes_back(name: str, family: Callable[[str], GgufHeader]) -> None:
    """The word start of SentencePiece is a space to it: there the two cannot be told apart."""
    tokenizer = read_tokenizer(family(name))
    for text in FAMILIES["strings"]:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        back = tokenizer.decode(ids, skip_special_tokens=False)
        if name == "llama-spm":
            if any(special in text for special in ("<s>", "</s>", "<unk>")):
                continue  # each special token is followed by a space of its own
            text = text.replace("\u2581", " ")
        assert back == text


def test_a_text_of_sentencepiece_begins_with_its_token_and_a_space(
    family: Callable[[str], GgufHeader],
) -> None:
    """<s> is token 1 of Llama 2, "\u2581a" 263 and "a" 29874."""
    header = family("llama-spm")
    kept = VOCABULARIES["llama-spm"]["ids"]
    assert [kept[i] for i in read_tokenizer(header).encode("a").ids] == [1, 263]
    bare = with_metadata(header, add_space_prefix=False, add_bos_token=False)
    tokenizer = read_tokenizer(bare)
    assert [kept[i] for i in tokenizer.encode("a").ids] == [29874]
    assert tokenizer.decode(tokenizer.encode(" a").ids) == " a"


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"scores": None}, "scores does not give 1597 tokens their scores"),
        ({"scores": (0.0,) * 7}, "scores does not give 1597 tokens their scores"),
        ({"scores": ("x",) * 1597}, "scores holds something else than numbers"),
        ({"scores": (float("nan"),) * 1597}, "scores holds something else than numbers"),
        ({"token_type": (1,) * 1597}, "lack the byte token <0x00>"),
    ],
)
def test_pieces_that_make_no_tokenizer_are_refused_by_name(
    family: Callable[[str], GgufHeader], changes: dict[str, Any], fault: str
) -> None:
    header = family("llama-spm")
    assert len(VOCABULARIES["llama-spm"]["ids"]) == 1597
    with pytest.raises(FileFault, match=fault) as caught:
        read_tokenizer(with_metadata(header, **changes))
    assert str(header.path) in str(caught.value)


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


def test_a_piece_too_long_to_take_apart_is_refused(tmp_path: Path) -> None:
    """The work grows with the square of the length; a hostile file may hold a token of megabytes.
    Tokens that are matched as they stand may be as long as they like."""
    spm = VOCABULARIES["llama-spm"]
    for its_type, length in ((1, 256), (4, 10_000)):
        tokens, types = [*spm["tokens"]], [*spm["types"]]
        tokens[700], types[700] = "x" * length, its_type
        fine = {**spm, "tokens": tokens, "types": types}
        read_tokenizer(read_header(write_vocabulary_gguf(tmp_path / "fine.gguf", fine)))
    long = {**spm, "tokens": [*tokens[:700], "x" * 257, *tokens[701:]]}
    with pytest.raises(FileFault, match="token 700 is 257 characters long, which is no piece"):
        read_tokenizer(read_header(write_vocabulary_gguf(tmp_path / "long.gguf", long)))


def test_tokens_that_end_an_answer(tiny: GgufHeader) -> None:
    """The file names <|im_end|>, token 2; <|endoftext|>, token 0, ends answers by its name."""
    specials = read_special_tokens(tiny, 300)
    assert (specials.eos, specials.ends) == (2, (0, 2))
    named = with_metadata(tiny, eot_token_id=7, eom_token_id=9)
    assert read_special_tokens(named, 300).ends == (0, 2, 7, 9)


def test_r22_an_end_of_turn_that_only_the_tokenizer_knows_ends_an_answer(
    family: Callable[[str], GgufHeader],
) -> None:
    """Llama 3 and Qwen2 name the end of a text; turns end with <|eot_id|> and <|im_end|>."""
    for name, ends in {"llama-bpe": {128001, 128009}, "qwen2": {151643, 151645}}.items():
        kept = VOCABULARIES[name]["ids"]
        specials = read_special_tokens(family(name), len(kept))
        assert {kept[index] for index in specials.ends} == ends
        assert kept[specials.eos] == VOCABULARIES[name]["eos"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"pre": "deepseek-coder"}, r"pre is 'deepseek-coder'; edgeprof knows .*gpt-2, llama-bpe"),
        ({"pre": None}, "pre is None"),
        ({"pre": 7}, "pre is 7"),
        ({"model": "bert"}, "model is 'bert'; edgeprof converts byte-level BPE"),
        ({"model": "llama"}, "scores does not give 300 tokens their scores"),
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
