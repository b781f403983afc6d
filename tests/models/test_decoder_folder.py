"""What a decoder folder's two JSON files may say; they come from anywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeprof.convert.folder import convert
from edgeprof.errors import FileFault
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
