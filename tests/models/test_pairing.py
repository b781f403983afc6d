"""Vocabularies decide whether two models make a pair."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.models.pairing import check_pair, read_vocabulary

Folder = Callable[..., DecoderFolder]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A decoder folder with a tokenizer and an embedding that may be padded."""

    def make(name: str, vocab: dict[str, int], rows: int, added: str = "<end>") -> DecoderFolder:
        path = tmp_path / name
        path.mkdir()
        (path / "model.onnx").write_bytes(b"")
        decoder = {"filename": "model.onnx", "num_hidden_layers": 1}
        model = {"decoder": decoder, "vocab_size": rows, "context_length": 8}
        (path / "genai_config.json").write_text(json.dumps({"model": model}))
        tokens = [{"id": len(vocab), "content": added, "special": True}]
        content = {"model": {"type": "BPE", "vocab": vocab}, "added_tokens": tokens}
        (path / "tokenizer.json").write_text(json.dumps(content))
        return read_decoder_folder(path)

    return make


def test_r11_paddings_of_different_size_are_no_difference(folder: Folder) -> None:
    vocab = {"a": 0, "b": 1}
    check_pair("t", folder("t", vocab, 152064), "d", folder("d", vocab, 151936))


def test_r12_the_first_token_that_differs_is_named(folder: Folder) -> None:
    target = folder("t", {"a": 0, "the": 1, "c": 2}, 4)
    draft = folder("d", {"a": 0, "\u2581the": 1, "d": 2}, 4)
    with pytest.raises(FileFault, match=r"token 1 is '\u2581the' in .*/d/.* and 'the' in .*/t/"):
        check_pair("fp32", target, "small", draft)


def test_r13_special_tokens_are_compared_too(folder: Folder) -> None:
    target, draft = folder("t", {"a": 0}, 2), folder("d", {"a": 0}, 2, added="<stop>")
    with pytest.raises(FileFault, match=r"token 1 is '<stop>' in .* and '<end>'"):
        check_pair("t", target, "d", draft)


def test_a_shorter_vocabulary_lacks_a_token(folder: Folder) -> None:
    target, draft = folder("t", {"a": 0, "b": 1}, 3), folder("d", {"a": 0}, 3, added="b")
    with pytest.raises(FileFault, match=r"token 2 is absent in"):
        check_pair("t", target, "d", draft)


def test_without_tokenizers_sizes_must_do(folder: Folder) -> None:
    bare = replace(folder("t", {"a": 0}, 2), tokenizer_path=None)
    check_pair("t", bare, "d", folder("d", {"a": 0}, 2))
    with pytest.raises(FileFault, match="3 tokens"):
        check_pair("t", bare, "d", folder("e", {"a": 0}, 3))


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"model": {"vocab": {"a": "x"}}}', "\xff"])
def test_what_is_no_tokenizer_is_told(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(FileFault, match=r"tokenizer\.json: not a tokenizer"):
        read_vocabulary(path)


def test_vocabularies_may_be_lists_with_scores(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"model": {"vocab": [["<s>", 0.0], ["a", -1.5]]}}))
    assert read_vocabulary(path) == {0: "<s>", 1: "a"}
