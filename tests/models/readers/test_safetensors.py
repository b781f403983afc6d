"""Headers of safetensors files, sound and not."""

import json
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from edgeprof.errors import FileFault
from edgeprof.models.readers.safetensors import read_safetensors_header


def written(tmp_path: Path, header: Any, data: bytes = b"") -> Path:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return path


def entry(dtype: Any = "F16", shape: Any = (2, 3), offsets: Any = (0, 12)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_a_sound_header(tmp_path: Path) -> None:
    content = {"__metadata__": {"format": "pt"}, "a": entry(), "b": entry("F4", [3], [12, 14])}
    header = read_safetensors_header(written(tmp_path, content, bytes(14)))
    assert [(t.name, t.elements, t.byte_length) for t in header.tensors] == [
        ("a", 6, 12), ("b", 3, 2)
    ]  # fmt: skip
    assert header.missing_bytes == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": 7}, "tensor 'a' has no description"),
        ({"a": entry("Q4")}, "unknown type 'Q4'"),
        ({"a": entry(["F16"])}, "unknown type"),
        ({"a": entry(shape=[-1])}, r"has the shape \[-1\]"),
        ({"a": entry(shape=[1 << 60])}, "has the shape"),
        ({"a": entry(shape=[2.5])}, "has the shape"),
        ({"a": entry(offsets=[0])}, r"lies at \[0\]"),
        ({"a": entry(offsets=[0, 11])}, "takes 12 bytes, its place in the file has 11"),
        ({"a": entry(), "b": entry(offsets=[6, 18])}, "tensor 'b' overlaps another"),
        (b"{", "not valid JSON: line 1"),
        (b"[]", "holds no JSON object but a list"),
        (b"\xff", "not a text file in UTF-8"),
    ],
)
def test_what_cannot_be_is_told(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(FileFault, match=message):
        read_safetensors_header(written(tmp_path, content))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "only 0 bytes"),
        (b"\x10\0\0\0\0\0\0", "only 7 bytes"),
        (struct.pack("<Q", 1 << 60) + b"{}", "claims 1152921504606846976 bytes, the file has 10"),
        (b"<!doctype html>", "HTML page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_other_files_are_told(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(raw)
    tracemalloc.start()
    with pytest.raises(FileFault, match=message):
        read_safetensors_header(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
