"""Reads the header of a safetensors file: names, types and sizes of its tensors, never the weights.

Layout: eight bytes of length, a JSON object of that length, the data.
"""

import math
import os
from pathlib import Path
from typing import Any, TypeGuard

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.readers.json_file import parse_json_object
from edgeprof.models.readers.model_file import opened_model

MAX_HEADER_BYTES = 32 << 20  # the largest models have some 10 MB
MAX_TENSORS = 1 << 20

# Type -> bits of an element.
TYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
    "F32": 32, "F64": 64, "I64": 64, "U64": 64, "C64": 64,
}  # fmt: skip


class SafeTensor(Struct, frozen=True, kw_only=True):
    """One entry of the header."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    byte_length: int

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


class SafetensorsHeader(Struct, frozen=True, kw_only=True):
    """What the file holds; ``missing_bytes`` is 0 in a complete file."""

    path: Path
    tensors: tuple[SafeTensor, ...]
    byte_length: int
    missing_bytes: int


def read_safetensors_header(path: Path) -> SafetensorsHeader:
    """The header, every size in it checked against the others and the file."""
    with opened_model(path) as file:
        byte_length = os.fstat(file.fileno()).st_size
        if byte_length < 8:
            raise FileFault(f"{path}: truncated: the file has only {byte_length} bytes")
        length = int.from_bytes(file.read(8), "little")
        if length > min(MAX_HEADER_BYTES, byte_length - 8):
            raise FileFault(
                f"{path}: not a safetensors file, or truncated: its header claims {length} "
                f"bytes, the file has {byte_length}"
            )
        raw = file.read(length)
    entries = parse_json_object(raw, path)
    entries.pop("__metadata__", None)
    if len(entries) > MAX_TENSORS:
        raise FileFault(f"{path}: {len(entries)} tensors, more than {MAX_TENSORS}")
    spans = [_span(path, name, entry) for name, entry in entries.items()]
    _check_no_overlap(path, spans)
    end = 8 + length + max((stop for _, stop, _ in spans), default=0)
    return SafetensorsHeader(
        path=path,
        tensors=tuple(tensor for _, _, tensor in spans),
        byte_length=byte_length,
        missing_bytes=max(0, end - byte_length),
    )


def _span(path: Path, name: str, entry: Any) -> tuple[int, int, SafeTensor]:
    """Start and end in the data, and the tensor."""
    if not isinstance(entry, dict):
        raise FileFault(f"{path}: tensor {name!r} has no description")
    dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in TYPE_BITS:
        raise FileFault(f"{path}: tensor {name!r} has the unknown type {dtype!r}")
    if not _are_counts(shape) or len(shape) > 8:
        raise FileFault(f"{path}: tensor {name!r} has the shape {str(shape)[:60]}")
    if not _are_counts(offsets) or len(offsets) != 2:
        raise FileFault(f"{path}: tensor {name!r} lies at {str(offsets)[:60]}")
    bits = math.prod(shape) * TYPE_BITS[dtype]
    start, stop = offsets
    if stop - start != -(-bits // 8):
        raise FileFault(
            f"{path}: tensor {name!r} of {dtype} {shape} takes {-(-bits // 8)} bytes, its place in "
            f"the file has {stop - start}"
        )
    tensor = SafeTensor(name=name, dtype=dtype, shape=tuple(shape), byte_length=stop - start)
    return start, stop, tensor


def _are_counts(values: Any) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < 1 << 50 for value in values
    )


def _check_no_overlap(path: Path, spans: list[tuple[int, int, SafeTensor]]) -> None:
    reached = 0
    for start, stop, tensor in sorted(spans, key=lambda span: span[:2]):
        if start < reached:
            raise FileFault(f"{path}: tensor {tensor.name!r} overlaps another")
        reached = stop
