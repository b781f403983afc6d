"""Vocabularies decide whether two models make a pair."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.models.pairing import Holder, check_pair, first_difference, judge_pair
from edgeprof.models.spec import Attention, AttentionKind, ModelSpec
from edgeprof.models.vocabulary import Vocabulary, find_vocabulary, read_vocabulary

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


# Vocabularies in GGUF files


def test_r11_unused_tokens_of_a_gguf_are_padding(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list(["a", "b", "[PAD2]", "[PAD3]"])
    writer.add_token_types([1, 1, 5, 5])
    writer.add_eos_token_id(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    vocabulary = find_vocabulary(path)
    assert vocabulary is not None
    assert vocabulary.tokens == {0: "a", 1: "b"}
    assert vocabulary.specials == {"eos": 1}


def test_a_folder_has_the_vocabulary_of_its_tokenizer(folder: Folder) -> None:
    made = folder("t", {"a": 0}, 4)
    found = find_vocabulary(made.path)
    assert found is not None
    assert found.tokens == {0: "a", 1: "<end>"}
    beside = find_vocabulary(made.onnx_path)
    assert beside is not None and beside.tokens == found.tokens


def test_no_tokenizer_no_vocabulary(tmp_path: Path) -> None:
    assert find_vocabulary(tmp_path) is None


# Judging a pair


def model(name: str, **changes: object) -> ModelSpec:
    kind = AttentionKind(layers=1, heads=1, kv_heads=1, key_dim=8, value_dim=8)
    spec = ModelSpec(
        name=name,
        title=name,
        quantisation="f16",
        quantisation_title="F16",
        groups=(),
        attention=Attention(kinds=(kind,)),
        layers=1,
        source="made up",
    )
    return replace(spec, **changes)


def holder(name: str, tokens: dict[int, str] | None = None, **changes: object) -> Holder:
    specials = changes.pop("specials", {})
    assert isinstance(specials, dict)
    vocabulary = (
        None
        if tokens is None
        else Vocabulary(path=Path(f"/{name}"), tokens=tokens, specials=specials)
    )
    return Holder(spec=model(name, **changes), vocabulary=vocabulary)


TOKENS = {0: "a", 1: "b"}


def test_padded_embeddings_over_the_same_tokens_are_fine() -> None:
    answer = judge_pair(holder("t", TOKENS, vocab=152064), holder("d", TOKENS, vocab=151936))
    assert answer.compatible
    assert answer.notes == ("embeddings of 152064 and 151936 rows: padding is no hindrance",)


def test_the_first_difference_is_shown_with_both_strings() -> None:
    target, draft = holder("t", TOKENS), holder("d", TOKENS | {1: "c"})
    answer = judge_pair(target, draft)
    assert answer.reasons == ("the vocabularies differ: token 1 is 'c' in /d and 'b' in /t",)
    assert target.vocabulary is not None and draft.vocabulary is not None
    assert first_difference(target.vocabulary, draft.vocabulary) == answer.difference


@pytest.mark.parametrize(
    ("target", "draft", "reason"),
    [
        ({"tokenizer": "qwen2.5"}, {"tokenizer": "llama3"}, "tokenizer is qwen2.5's"),
        ({"vocab": 3}, {"vocab": 4}, "vocabularies of 3 and 4 tokens"),
        ({"vocab": 3, "rewinds": False}, {"vocab": 3}, "the target keeps a running state"),
        ({"vocab": 3}, {"vocab": 3, "rewinds": False}, "the draft keeps a running state"),
        ({"vocab": 3}, {"vocab": 3, "context_tokens": 99}, "the draft holds 99 tokens"),
        ({"vocab": 3, "context_tokens": 98}, {"vocab": 3}, "the target holds 98 tokens"),
    ],
)
def test_what_speaks_against_a_pair(
    target: dict[str, object], draft: dict[str, object], reason: str
) -> None:
    answer = judge_pair(holder("t", None, **target), holder("d", None, **draft), context_tokens=100)
    assert len(answer.reasons) == 1
    assert reason in answer.reasons[0]


def test_what_is_worth_a_note() -> None:
    window = Attention(kinds=(AttentionKind(layers=1, heads=1, kv_heads=1, key_dim=8, value_dim=8,
                                            window_tokens=128),))  # fmt: skip
    answer = judge_pair(
        holder("t", TOKENS, context_tokens=100, specials={"eos": 1}, attention=window),
        holder("d", TOKENS, context_tokens=50, specials={"eos": 0}),
    )
    assert answer.compatible
    assert [note.partition(":")[0] for note in answer.notes] == [
        "the target's eos token is 1, the draft's 0",
        "the draft stops helping at 50 tokens of context; the target holds 100",
        "t has sliding windows",
    ]
