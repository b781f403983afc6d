"""Writes little model files of every kind, by hand where the format is simple."""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

# GGUF type -> (id, weights per block, bytes per block)
GGUF_TYPES = {
    "F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34),
    "Q4_K": (12, 256, 144), "Q6_K": (14, 256, 210), "MXFP4": (39, 32, 17),
}  # fmt: skip
U32, STRING, ARRAY, INT32, BOOL = 4, 8, 9, 5, 7

GgufTensors = Sequence[tuple[str, tuple[int, ...], str]]


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", U32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _text(value)
    head = struct.pack("<I", ARRAY)
    if value and isinstance(value[0], str):
        return head + struct.pack("<IQ", STRING, len(value)) + b"".join(map(_text, value))
    return head + struct.pack(f"<IQ{len(value)}i", INT32, len(value), *value)


def gguf_bytes(metadata: Mapping[str, Any], tensors: GgufTensors) -> tuple[bytes, int]:
    """The header of a GGUF and the length of the whole file."""
    rows, offset, end = [], 0, 0
    for name, dims, kind in tensors:
        number, weights, size = GGUF_TYPES[kind]
        rows.append(
            _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, number, offset)
        )
        length = size
        for index, dim in enumerate(dims):
            length *= dim // weights if index == 0 else dim
        end = offset + length
        offset = -(-end // 32) * 32
    pairs = [_text(key) + _value(value) for key, value in metadata.items()]
    header = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(pairs))
    header += b"".join(pairs) + b"".join(rows)
    start = -(-len(header) // 32) * 32
    return header.ljust(start, b"\0"), start + end


@pytest.fixture
def write_gguf(tmp_path: Path) -> Callable[..., Path]:
    """Writes a GGUF whose weights are holes."""

    def write(
        metadata: Mapping[str, Any],
        tensors: GgufTensors,
        *,
        name: str = "model.gguf",
        missing: int = 0,
        trailing: int = 0,
    ) -> Path:
        header, length = gguf_bytes(metadata, tensors)
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(header)
            file.truncate(length - missing + trailing)
        return path

    return write


def llama_metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of a model with 2 layers, hidden 64, 4 heads on 2 of 16."""
    return {
        "general.architecture": "llama",
        "general.name": "Tiny",
        "general.file_type": 2,
        "llama.block_count": 2,
        "llama.context_length": 128,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
    } | changes


def llama_tensors(layers: int = 2) -> list[tuple[str, tuple[int, ...], str]]:
    """Tensors that go with it: feed-forward 96, vocabulary 100, tied."""
    tensors: list[tuple[str, tuple[int, ...], str]] = [
        ("token_embd.weight", (64, 100), "Q8_0"), ("output_norm.weight", (64,), "F32")
    ]  # fmt: skip
    for layer in range(layers):
        block = f"blk.{layer}."
        tensors += [
            (block + "attn_norm.weight", (64,), "F32"),
            (block + "attn_q.weight", (64, 64), "Q4_0"),
            (block + "attn_k.weight", (64, 32), "Q4_0"),
            (block + "attn_v.weight", (64, 32), "Q4_0"),
            (block + "attn_output.weight", (64, 64), "Q4_0"),
            (block + "ffn_norm.weight", (64,), "F32"),
            (block + "ffn_gate.weight", (64, 96), "Q4_0"),
            (block + "ffn_up.weight", (64, 96), "Q4_0"),
            (block + "ffn_down.weight", (96, 64), "Q4_0"),
        ]
    return tensors


@pytest.fixture
def tiny_metadata() -> Callable[..., dict[str, Any]]:
    return llama_metadata


@pytest.fixture
def tiny_tensors() -> Callable[..., list[tuple[str, tuple[int, ...], str]]]:
    return llama_tensors


SAFETENSORS_BITS = {"F32": 32, "F16": 16, "BF16": 16, "I32": 32, "U8": 8, "F8_E4M3": 8}


@pytest.fixture
def write_safetensors() -> Callable[..., Path]:
    """Writes a safetensors file whose weights are holes."""

    def write(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> Path:
        header, offset = {}, 0
        for name, (dtype, shape) in tensors.items():
            length = SAFETENSORS_BITS[dtype] // 8
            for size in shape:
                length *= size
            header[name] = {
                "dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + length]
            }  # fmt: skip
            offset += length
        raw = json.dumps(header).encode()
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(raw)) + raw)
            file.truncate(8 + len(raw) + offset)
        return path

    return write


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Writes a config.json; text is written as it is."""

    def write(content: Mapping[str, Any] | str | bytes) -> Path:
        path = tmp_path / "config.json"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return write
