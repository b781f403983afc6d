"""Reads the header of a GGUF file: its metadata and its table of tensors, never the weights.

The file may come from anywhere, so every count, length and range is checked before it is used, and
whatever is wrong ends in one FileFault that names the file and the fault. Knows no architecture:
what the keys mean is the caller's business. Layout: the GGUF specification, versions 2 and 3.
"""

import math
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, overload

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.readers.model_file import mapped_model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# Limits far above any real file (a 262 000-token vocabulary has 1.3 million array values): they
# bound what a hostile header can make us allocate.
MAX_HEADER_BYTES = 1 << 28
MAX_KEYS = 1 << 16
MAX_TENSORS = 1 << 17
MAX_DIMENSIONS = 4
MAX_NAME_BYTES = 1 << 16
MAX_ARRAY_VALUES = 1 << 22
MAX_ARRAY_DEPTH = 4

# Type id -> (name, weights per block, bytes per block), as in ggml.h.
STORAGE_TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}

# Value type id -> struct code.
_SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_SMALLEST_PAIR_BYTES = 8 + 4 + 1  # empty key, value type, one-byte value
_SMALLEST_TENSOR_BYTES = 8 + 4 + 4 + 8  # empty name, no dimension, type, offset


class GgufStrings(Sequence[str]):
    """An array of strings, decoded when asked for: a vocabulary costs nothing until it is used.

    Bytes that are not UTF-8 survive as surrogate escapes.
    """

    def __init__(self, raw: bytes, starts: list[int]) -> None:
        self._raw = raw
        # Eight bytes of length stand before each string, so the next start gives this one's end.
        self._starts = [*starts, len(raw) + 8]

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        positions = range(len(self))[index]
        if isinstance(positions, range):
            return [self._decoded(position) for position in positions]
        return self._decoded(positions)

    def __iter__(self) -> Iterator[str]:
        return map(self._decoded, range(len(self)))

    def _decoded(self, position: int) -> str:
        text = self._raw[self._starts[position] : self._starts[position + 1] - 8]
        return text.decode("utf-8", "surrogateescape")


Value: TypeAlias = "bool | int | float | str | GgufStrings | tuple[Value, ...]"


class GgufTensor(Struct, frozen=True, kw_only=True):
    """One row of the tensor table. ``dims`` are in the file's order: the row length comes first.
    ``offset`` counts from the start of the file."""

    name: str
    dims: tuple[int, ...]
    storage: str
    offset: int
    byte_length: int


class GgufHeader(Struct, frozen=True, kw_only=True):
    """What a GGUF file says about itself. ``pair_spans`` is where in the file each metadata pair
    lies (start, end), for copying it untouched; ``missing_bytes`` is 0 in a complete file."""

    path: Path
    version: int
    alignment: int
    byte_length: int
    metadata: Mapping[str, Value]
    pair_spans: Mapping[str, tuple[int, int]]
    tensors: tuple[GgufTensor, ...]
    missing_bytes: int


def read_header(path: Path, *, allow_missing_data: bool = False) -> GgufHeader:
    """The header of the file. A file that ends before its last tensor does is a fault, unless
    ``allow_missing_data``: then ``missing_bytes`` tells what is not there."""
    with mapped_model(path) as data:
        header = _parse(path, data)
    if header.missing_bytes and not allow_missing_data:
        raise FileFault(
            f"{path}: truncated: {header.missing_bytes} of "
            f"{header.byte_length + header.missing_bytes} bytes are missing; fetch the file again"
        )
    return header


def tensor_bytes(header: GgufHeader, tensor: GgufTensor) -> "NDArray[np.uint8]":
    """The tensor's bytes as they lie in the file, mapped, not read."""
    import numpy as np

    if tensor.byte_length == 0:
        return np.zeros(0, dtype=np.uint8)
    try:
        return np.memmap(
            header.path,
            dtype=np.uint8,
            mode="r",
            offset=tensor.offset,
            shape=(tensor.byte_length,),
        )
    except (OSError, ValueError) as error:
        raise FileFault(f"{header.path}: tensor {tensor.name!r} cannot be read: {error}") from error


def _parse(path: Path, data: mmap.mmap) -> GgufHeader:
    cursor = _Cursor(path, data)
    version = _version(cursor)
    tensor_count = cursor.count("tensors", MAX_TENSORS, _SMALLEST_TENSOR_BYTES)
    pair_count = cursor.count("metadata keys", MAX_KEYS, _SMALLEST_PAIR_BYTES)
    metadata, spans = _metadata(cursor, pair_count)
    alignment = _alignment(cursor, metadata)
    rows = _tensor_rows(cursor, tensor_count)
    data_start = -(-cursor.position // alignment) * alignment
    tensors = tuple(_tensor(cursor, row, data_start, alignment) for row in rows)
    _check_no_overlap(cursor, tensors)
    end = max((tensor.offset + tensor.byte_length for tensor in tensors), default=0)
    return GgufHeader(
        path=path,
        version=version,
        alignment=alignment,
        byte_length=len(data),
        metadata=metadata,
        pair_spans=spans,
        tensors=tensors,
        missing_bytes=max(0, end - len(data)),
    )


class _Cursor:
    """A place in the file that only moves forward, and never past the end."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path = path
        self.data = data
        self.position = 0
        self.array_values_left = MAX_ARRAY_VALUES

    def damaged(self, what: str) -> NoReturn:
        raise FileFault(f"{self.path}: damaged GGUF header: {what}")

    def skip(self, length: int) -> int:
        """Moves on by ``length`` bytes, which must be there; returns where they start."""
        start = self.position
        if start + length > MAX_HEADER_BYTES:
            self.damaged(f"it is larger than {MAX_HEADER_BYTES >> 20} MiB")
        missing = start + length - len(self.data)
        if missing > 0:
            raise FileFault(
                f"{self.path}: truncated: the file ends inside its header, "
                f"at least {missing} bytes are missing; fetch the file again"
            )
        self.position = start + length
        return start

    def u32(self) -> int:
        value: int = _U32.unpack_from(self.data, self.skip(4))[0]
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self.data, self.skip(8))[0]
        return value

    def count(self, what: str, limit: int, smallest_bytes: int) -> int:
        """A number of things to come. Refused where the file cannot hold them."""
        count = self.u64()
        if count > limit:
            self.damaged(f"it announces {count} {what}, more than {limit}")
        if count * smallest_bytes > len(self.data) - self.position:
            self.skip(count * smallest_bytes)
        return count

    def text(self) -> bytes:
        length = self.u64()
        start = self.skip(length)
        return self.data[start : start + length]

    def name(self, what: str) -> str:
        raw = self.text()
        if len(raw) > MAX_NAME_BYTES:
            self.damaged(f"{what} is {len(raw)} bytes long, more than {MAX_NAME_BYTES}")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            self.damaged(f"{what} is not UTF-8: {raw[:40]!r}")


def _version(cursor: _Cursor) -> int:
    start = cursor.data[:512]
    if not start.startswith(MAGIC):
        raise FileFault(f"{cursor.path}: {_what_it_is(start)}")
    cursor.skip(len(MAGIC))
    version = cursor.u32()
    if version in VERSIONS:
        return version
    if version and version % (1 << 16) == 0:
        big_endian = int.from_bytes(version.to_bytes(4, "little"), "big")
        raise FileFault(
            f"{cursor.path}: this is a big-endian GGUF (version {big_endian}); edgeprof reads "
            "little-endian ones: convert it with gguf-convert-endian of the gguf package"
        )
    raise FileFault(f"{cursor.path}: this is GGUF version {version}; edgeprof reads 2 and 3")


def _what_it_is(start: bytes) -> str:
    """Says what a file is whose first bytes are not a GGUF's."""
    if start.startswith((b"lmgg", b"fmgg", b"tjgg", b"algg")):
        return "this is a model in the GGML format that came before GGUF: convert it to GGUF"
    if MAGIC.startswith(start):
        return f"truncated: the file has only {len(start)} bytes"
    return f"not a GGUF file: it starts with {start[:8]!r} instead of {MAGIC!r}"


def _metadata(cursor: _Cursor, count: int) -> tuple[dict[str, Value], dict[str, tuple[int, int]]]:
    metadata: dict[str, Value] = {}
    spans = {}
    for _ in range(count):
        start = cursor.position
        key = cursor.name("a metadata key")
        if key in metadata:
            cursor.damaged(f"metadata key {key!r} appears twice")
        metadata[key] = _value(cursor, cursor.u32(), key, MAX_ARRAY_DEPTH)
        spans[key] = start, cursor.position
    return metadata, spans


def _value(cursor: _Cursor, kind: int, key: str, depth_left: int) -> Value:
    if kind in _SCALARS:
        scalar: tuple[Value] = _unpacked(cursor, _SCALARS[kind], 1)
        return scalar[0]
    if kind == _STRING:
        return cursor.text().decode("utf-8", "surrogateescape")
    if kind == _ARRAY and depth_left:
        return _array(cursor, key, depth_left - 1)
    if kind == _ARRAY:
        cursor.damaged(f"the arrays of {key!r} lie more than {MAX_ARRAY_DEPTH} deep")
    cursor.damaged(f"the value of {key!r} has the unknown type {kind}")


def _array(cursor: _Cursor, key: str, depth_left: int) -> Value:
    kind = cursor.u32()
    code = _SCALARS.get(kind)
    # An array inside an array has its type and its count.
    smallest = struct.calcsize("<" + code) if code else 8 if kind == _STRING else 12
    limit = cursor.array_values_left
    count = cursor.count(f"values in {key!r}", limit, smallest)
    cursor.array_values_left -= count
    if code:
        return _unpacked(cursor, code, count)
    if kind == _STRING:
        return _strings(cursor, count)
    return tuple(_value(cursor, kind, key, depth_left) for _ in range(count))


def _unpacked(cursor: _Cursor, code: str, count: int) -> tuple[Any, ...]:
    layout = struct.Struct(f"<{count}{code}")
    return layout.unpack_from(cursor.data, cursor.skip(layout.size))


def _strings(cursor: _Cursor, count: int) -> GgufStrings:
    """Walks a string array length by length. This loop is what describing a file costs."""
    data, unpack = cursor.data, _U64.unpack_from
    first = position = cursor.position
    starts: list[int] = []
    add = starts.append
    last = len(data) - 8
    for _ in range(count):
        if position > last:
            break
        (length,) = unpack(data, position)
        position += 8
        add(position - first)
        position += length
    cursor.skip(position - first)
    if len(starts) < count:
        cursor.skip(8)
    return GgufStrings(data[first:position], starts)


def _alignment(cursor: _Cursor, metadata: Mapping[str, Value]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0 or value & (value - 1):
        cursor.damaged(f"general.alignment is {value!r}, not a power of two")
    return value


class _Row(NamedTuple):
    """A row of the tensor table as it stands in the file; the offset counts from the data."""

    name: str
    dims: tuple[int, ...]
    kind: int
    offset: int


def _tensor_rows(cursor: _Cursor, count: int) -> list[_Row]:
    rows = []
    names = set()
    for _ in range(count):
        name = cursor.name("a tensor's name")
        if name in names:
            cursor.damaged(f"tensor {name!r} appears twice")
        names.add(name)
        rank = cursor.u32()
        if rank > MAX_DIMENSIONS:
            cursor.damaged(f"tensor {name!r} has {rank} dimensions, more than {MAX_DIMENSIONS}")
        dims = _unpacked(cursor, "Q", rank)
        rows.append(_Row(name, dims, cursor.u32(), cursor.u64()))
    return rows


def _tensor(cursor: _Cursor, row: _Row, data_start: int, alignment: int) -> GgufTensor:
    if row.kind not in STORAGE_TYPES:
        cursor.damaged(
            f"tensor {row.name!r} has storage type {row.kind}, which edgeprof does not know"
        )
    storage, block_weights, block_bytes = STORAGE_TYPES[row.kind]
    row_length = row.dims[0] if row.dims else 1
    if row_length % block_weights:
        cursor.damaged(
            f"the rows of tensor {row.name!r} hold {row_length} weights, "
            f"no multiple of the {block_weights} in a {storage} block"
        )
    byte_length = math.prod(row.dims) // block_weights * block_bytes
    if row.offset % alignment:
        cursor.damaged(f"tensor {row.name!r} starts at {row.offset}, off the {alignment}-byte grid")
    if max(byte_length, row.offset) >= 1 << 62:
        cursor.damaged(f"tensor {row.name!r} claims {byte_length} bytes at {row.offset}")
    return GgufTensor(
        name=row.name,
        dims=row.dims,
        storage=storage,
        offset=data_start + row.offset,
        byte_length=byte_length,
    )


def _check_no_overlap(cursor: _Cursor, tensors: Sequence[GgufTensor]) -> None:
    in_order = sorted(tensors, key=lambda tensor: (tensor.offset, tensor.byte_length))
    for before, after in pairwise(in_order):
        if before.offset + before.byte_length > after.offset:
            cursor.damaged(f"tensors {before.name!r} and {after.name!r} overlap")
