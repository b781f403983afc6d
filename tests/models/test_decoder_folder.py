"""What a decoder folder's small files may say; they come from anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeprof.convert.folder import convert
from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.decoder_folder import GENAI_NAME, MANIFEST_NAME, read_decoder_folder

DECODER = ("model", "decoder")


@pytest.fixture
def folder(tiny_gguf: Callable[..., Path], tmp_path: Path) -> Path:
    return convert(tiny_gguf(tmp_path / "m.gguf", layers=1), tmp_path / "onnx").path


def put(path: Path, keys: tuple[str, ...], value: Any) -> None:
    content = msgspec.json.decode(path.read_bytes())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_bytes(msgspec.json.encode(content))


@pytest.mark.parametrize(
    ("name", "keys", "value"),
    [
        (GENAI_NAME, (*DECODER, "num_hidden_layers"), 0),
        (GENAI_NAME, (*DECODER, "num_hidden_layers"), 10**9),
        (GENAI_NAME, (*DECODER, "filename"), "../m.gguf"),
        (GENAI_NAME, (*DECODER, "filename"), "/etc/passwd"),
        (GENAI_NAME, (*DECODER, "filename"), "x" * 5000),
        (GENAI_NAME, (*DECODER, "filename"), "a\0b"),
        (GENAI_NAME, ("model", "vocab_size"), -1),
        (GENAI_NAME, ("model", "context_length"), 0),
        (GENAI_NAME, ("model", "context_length"), 10**18),
        (MANIFEST_NAME, ("attention_pad",), -1),
        (MANIFEST_NAME, ("attention_pad",), 10**9),
        (MANIFEST_NAME, ("streamed_weight_bytes",), 0),
        (MANIFEST_NAME, ("kv_bytes_per_token",), -1),
        (MANIFEST_NAME, ("flop_per_token",), 10**18),
    ],
)
def test_values_that_no_decoder_has_are_refused_by_file_and_field(
    folder: Path, name: str, keys: tuple[str, ...], value: Any
) -> None:
    put(folder / name, keys, value)
    with pytest.raises(FileFault) as caught:
        read_decoder_folder(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / name}: ") and keys[-1] in message
    assert len(message.splitlines()) == 1


def test_json_nested_beyond_reason_is_refused(folder: Path) -> None:
    (folder / GENAI_NAME).write_text('{"zz":' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(FileFault, match=GENAI_NAME):
        read_decoder_folder(folder)


CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 300,
    "max_position_embeddings": 512,
}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(content))


@pytest.fixture
def optimum(tmp_path: Path) -> Path:
    """A folder as optimum and transformers.js lay it out; the graph is not looked at."""
    path = tmp_path / "optimum"
    write(path / "config.json", CONFIG | {"eos_token_id": 7})
    (path / "onnx").mkdir()
    (path / "onnx/model.onnx").touch()
    return path


def test_an_optimum_folder_is_read_as_it_is(optimum: Path) -> None:
    folder = read_decoder_folder(optimum)
    assert (folder.layers, folder.vocab_size, folder.context_tokens) == (3, 300, 512)
    assert folder.onnx_path == optimum / "onnx/model.onnx"
    assert folder.end_token_ids == {7}
    assert (folder.manifest, folder.tokenizer_path) == (None, None)
    assert read_decoder_folder(folder.location) == folder


def test_m33_a_byte_order_mark_is_no_fault(optimum: Path) -> None:
    for name, content in (("config.json", CONFIG), ("generation_config.json", {"eos_token_id": 9})):
        (optimum / name).write_bytes(b"\xef\xbb\xbf" + msgspec.json.encode(content))
    assert read_decoder_folder(optimum).end_token_ids == {9}
    genai = {"model": {"decoder": {"filename": "m", "num_hidden_layers": 1}, "vocab_size": 5,
                       "context_length": 6}}  # fmt: skip
    (optimum / GENAI_NAME).write_bytes(b"\xef\xbb\xbf" + msgspec.json.encode(genai))
    (optimum / "m").touch()
    assert read_decoder_folder(optimum).vocab_size == 5


def test_r21_r22_end_tokens_of_all_files_count(optimum: Path) -> None:
    """128001 and 128009 of the generation, the end of turn that only the tokenizer knows."""
    write(optimum / "generation_config.json", {"eos_token_id": [128001, 128009, "x", -1, True]})
    write(optimum / "tokenizer_config.json", {"eos_token": {"content": "<|im_end|>"}})
    added = [{"id": 2, "content": "<s>"}, {"id": 248044, "content": "<|im_end|>"}]
    write(optimum / "tokenizer.json", {"added_tokens": added})
    assert read_decoder_folder(optimum).end_token_ids == {7, 128001, 128009, 248044}
    write(optimum / "tokenizer_config.json", {"eos_token": "<s>"})
    assert read_decoder_folder(optimum).end_token_ids == {7, 128001, 128009, 2}


def test_r22_genai_folders_are_asked_for_the_same_files(folder: Path) -> None:
    (folder / MANIFEST_NAME).unlink()
    put(folder / GENAI_NAME, ("model", "eos_token_id"), [11, 12])
    write(folder / "generation_config.json", {"eos_token_id": 13})
    (folder / "tokenizer_config.json").unlink()
    assert read_decoder_folder(folder).end_token_ids == {11, 12, 13}


def test_a_usual_name_is_chosen_before_its_variants(optimum: Path) -> None:
    (optimum / "onnx/model_q4.onnx").touch()
    assert read_decoder_folder(optimum).onnx_path.name == "model.onnx"
    chosen = read_decoder_folder(optimum / "onnx/model_q4.onnx")
    assert (chosen.path, chosen.onnx_path.name) == (optimum, "model_q4.onnx")
    assert read_decoder_folder(chosen.location) == chosen
    (optimum / "onnx/model.onnx").unlink()
    assert read_decoder_folder(optimum).onnx_path.name == "model_q4.onnx"
    (optimum / "onnx/model_fp16.onnx").touch()
    with pytest.raises(UsageFault, match=r"onnx/model_fp16\.onnx, onnx/model_q4\.onnx.*one"):
        read_decoder_folder(optimum)
    (optimum / "onnx/decoder_model_merged.onnx").touch()
    assert read_decoder_folder(optimum).onnx_path.name == "decoder_model_merged.onnx"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"vocab_size": None}, "no vocab_size"),
        ({"max_position_embeddings": None}, "no max_position_embeddings"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "many"}, "vocab_size"),
    ],
)
def test_what_a_configuration_lacks_is_named(
    optimum: Path, change: dict[str, Any], says: str
) -> None:
    write(optimum / "config.json", CONFIG | change)
    with pytest.raises(FileFault, match=says) as told:
        read_decoder_folder(optimum)
    assert str(optimum / "config.json") in str(told.value)


def test_folders_without_a_graph_or_a_configuration_are_refused(
    optimum: Path, tmp_path: Path
) -> None:
    (optimum / "onnx/model.onnx").unlink()
    with pytest.raises(FileFault, match="no ONNX graph in it, nor in its folder 'onnx'"):
        read_decoder_folder(optimum)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileFault, match=r"no genai_config\.json or config\.json in it"):
        read_decoder_folder(tmp_path / "empty")
    with pytest.raises(UsageFault, match="no such folder"):
        read_decoder_folder(tmp_path / "nowhere")
