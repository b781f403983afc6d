"""Decodes the weights of a GGUF tensor without rounding them, and picks or stacks their rows.

A quantised block holds 32 neighbouring weights of a row as small integers, with one scale and in
some formats one offset (ggml's block_q4_0, block_q4_1, block_q8_0). Knows nothing of ONNX.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

BLOCK = 32
FLOAT_STORAGE = ("F32", "F16", "BF16")
BLOCK_STORAGE = ("Q4_0", "Q4_1", "Q8_0")

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = NDArray[np.int64]


class Blocks(Struct, frozen=True, kw_only=True):
    """A matrix in blocks: ``quantised`` is [rows, blocks, 32], the rest [rows, blocks].

    weight = scale * (quantised - zero_point) without an ``offset``, scale * quantised + offset
    with one. Every format is held with the zero point in the middle of its range.
    """

    bits: int
    quantised: Bytes
    scale: Floats
    offset: Floats | None = None

    @property
    def rows(self) -> int:
        return int(self.quantised.shape[0])

    @property
    def columns(self) -> int:
        return int(self.quantised.shape[1]) * BLOCK

    @property
    def zero_point(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def correction(self) -> Floats | None:
        """What each weight of a block is more than scale * (quantised - zero_point)."""
        if self.offset is None:
            return None
        correction: Floats = self.offset + np.float32(self.zero_point) * self.scale
        return correction

    @property
    def packed(self) -> Bytes:
        """[rows, blocks, bytes]; of two 4-bit values the first lies in the low half of the byte."""
        if self.bits == 8:
            return self.quantised
        low, high = self.quantised[..., 0::2], self.quantised[..., 1::2]
        packed: Bytes = low | (high << np.uint8(4))
        return packed


class Dense(Struct, frozen=True, kw_only=True):
    """A matrix of float32 weights, [rows, columns]."""

    values: Floats

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def columns(self) -> int:
        return int(self.values.shape[1])


Matrix: TypeAlias = Blocks | Dense


def decode(raw: Bytes, storage: str, rows: int, columns: int) -> Matrix:
    """The matrix whose bytes are ``raw``; ``storage`` is one of the formats above."""
    if storage == "F32":
        return Dense(values=raw.view("<f4").astype(np.float32).reshape(rows, columns))
    if storage == "F16":
        return Dense(values=raw.view("<f2").astype(np.float32).reshape(rows, columns))
    if storage == "BF16":  # the upper half of a float32
        upper = raw.view("<u2").astype(np.uint32) << 16
        return Dense(values=upper.view(np.float32).reshape(rows, columns))
    blocks = raw.reshape(rows, columns // BLOCK, -1)
    scale = _halves(blocks, 0)
    if storage == "Q4_0":
        return Blocks(bits=4, quantised=_nibbles(blocks[..., 2:]), scale=scale)
    if storage == "Q4_1":
        offset = _halves(blocks, 2)
        return Blocks(bits=4, quantised=_nibbles(blocks[..., 4:]), scale=scale, offset=offset)
    if storage == "Q8_0":
        # -128..127 becomes 0..255: adding 128 to a byte flips its top bit.
        return Blocks(bits=8, quantised=blocks[..., 2:] ^ np.uint8(0x80), scale=scale)
    raise ValueError(f"no decoder for storage type {storage}")


def _halves(blocks: Bytes, start: int) -> Floats:
    """The float16 that begins at byte ``start`` of each block."""
    halves = np.ascontiguousarray(blocks[..., start : start + 2]).view("<f2")
    floats: Floats = halves[..., 0].astype(np.float32)
    return floats


def _nibbles(packed: Bytes) -> Bytes:
    """ggml keeps weights 0-15 of a block in the low halves of its bytes, 16-31 in the high ones."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=-1)


def dequantise(matrix: Matrix) -> Floats:
    """The weights as float32, rounded as ggml rounds them."""
    if isinstance(matrix, Dense):
        return matrix.values
    scale = matrix.scale[..., None]
    if matrix.offset is None:
        weights = scale * (matrix.quantised.astype(np.float32) - np.float32(matrix.zero_point))
    else:
        weights = scale * matrix.quantised.astype(np.float32) + matrix.offset[..., None]
    flat: Floats = weights.reshape(matrix.rows, matrix.columns)
    return flat


def select_rows(matrix: Matrix, rows: Rows) -> Matrix:
    """The given rows, in the given order."""
    if isinstance(matrix, Dense):
        return Dense(values=matrix.values[rows])
    return Blocks(
        bits=matrix.bits,
        quantised=matrix.quantised[rows],
        scale=matrix.scale[rows],
        offset=None if matrix.offset is None else matrix.offset[rows],
    )


def half_split_rows(heads: int, head_dim: int) -> Rows:
    """Where each row of a rotary projection lies in a GGUF of the llama architecture.

    Rotary embedding turns pairs of components. The model's authors pair component i of a head with
    i + head_dim/2; GGUF files of this architecture hold the rows with partners side by side.
    """
    pairs = np.arange(heads * head_dim).reshape(heads, head_dim // 2, 2)
    rows: Rows = pairs.swapaxes(1, 2).reshape(-1)
    return rows


def can_stack(parts: Sequence[Matrix]) -> bool:
    """Whether the parts, of equal width, fit into one matrix without changing a weight."""

    def kind(part: Matrix) -> tuple[int, bool] | None:
        return None if isinstance(part, Dense) else (part.bits, part.offset is None)

    return len({kind(part) for part in parts}) == 1


def stack(parts: Sequence[Matrix]) -> Matrix:
    """The parts' rows below each other; see ``can_stack``."""
    dense = [part.values for part in parts if isinstance(part, Dense)]
    if dense:
        return Dense(values=np.concatenate(dense))
    blocks = [part for part in parts if isinstance(part, Blocks)]
    offsets = [part.offset for part in blocks if part.offset is not None]
    return Blocks(
        bits=blocks[0].bits,
        quantised=np.concatenate([part.quantised for part in blocks]),
        scale=np.concatenate([part.scale for part in blocks]),
        offset=np.concatenate(offsets) if offsets else None,
    )
