"""Decodes the weights of a GGUF tensor without rounding them, and picks or stacks their rows.

A quantised block holds neighbouring weights of a row as small integers, with one scale and in some
formats one offset. The formats called K gather eight or sixteen such blocks under one pair of
float16 factors (ggml's block_q4_0 to block_q6_K). Knows nothing of ONNX.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

BLOCK = 32  # what every row is a multiple of; blocks hold 32 weights, or 16
SUPER_BLOCK = 256  # of the K formats
# Weights decoded at a time: enough to keep numpy busy, little enough to stay near the processor.
WEIGHTS_AT_ONCE = 1 << 22

Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float32]
Rows: TypeAlias = NDArray[np.int64]


class Blocks(Struct, frozen=True, kw_only=True):
    """A matrix in blocks: ``quantised`` is [rows, blocks, weights], the rest [rows, blocks].

    weight = scale * (quantised - zero), plus ``offset`` where the format has one. The integers are
    unsigned and of 4 or 8 bits, whatever width the file stores: 5- and 6-bit values are moved to
    the middle of the 8-bit range, where ``zero`` is ``middle`` or near it.
    """

    bits: int
    quantised: Bytes
    zero: int
    scale: Floats
    offset: Floats | None = None

    @property
    def rows(self) -> int:
        return int(self.quantised.shape[0])

    @property
    def columns(self) -> int:
        return int(self.quantised.shape[1] * self.quantised.shape[2])

    @property
    def block(self) -> int:
        return int(self.quantised.shape[2])

    @property
    def middle(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def correction(self) -> Floats | None:
        """What each weight of a block is more than scale * (quantised - middle)."""
        if self.offset is None:
            return None
        correction: Floats = self.offset + np.float32(self.middle - self.zero) * self.scale
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
    """The matrix whose bytes are ``raw``; ``storage`` is one of the formats below."""
    decode_rows = {**FLOAT_FORMATS, **BLOCK_FORMATS}[storage]
    lines = raw.reshape(rows, -1)
    step = max(1, WEIGHTS_AT_ONCE // columns)
    parts = [decode_rows(lines[start : start + step]) for start in range(0, rows, step)]
    return stack(parts)


def _f32(lines: Bytes) -> Dense:
    return Dense(values=lines.view("<f4").astype(np.float32))


def _f16(lines: Bytes) -> Dense:
    return Dense(values=lines.view("<f2").astype(np.float32))


def _bf16(lines: Bytes) -> Dense:
    upper_halves = lines.view("<u2").astype(np.uint32) << 16
    return Dense(values=upper_halves.view(np.float32))


def _q4_0(lines: Bytes) -> Blocks:
    blocks = _split(lines, 2 + 16)
    return Blocks(bits=4, zero=8, quantised=_nibbles(blocks[..., 2:], 16), scale=_half(blocks, 0))


def _q4_1(lines: Bytes) -> Blocks:
    blocks = _split(lines, 4 + 16)
    return Blocks(
        bits=4,
        zero=0,
        quantised=_nibbles(blocks[..., 4:], 16),
        scale=_half(blocks, 0),
        offset=_half(blocks, 2),
    )


def _q5_0(lines: Bytes) -> Blocks:
    blocks = _split(lines, 2 + 4 + 16)
    five_bits = _nibbles(blocks[..., 6:], 16) | _fifth_bits(blocks[..., 2:6])
    return Blocks(bits=8, zero=128, quantised=five_bits + np.uint8(112), scale=_half(blocks, 0))


def _q5_1(lines: Bytes) -> Blocks:
    blocks = _split(lines, 4 + 4 + 16)
    five_bits = _nibbles(blocks[..., 8:], 16) | _fifth_bits(blocks[..., 4:8])
    return Blocks(
        bits=8,
        zero=112,
        quantised=five_bits + np.uint8(112),
        scale=_half(blocks, 0),
        offset=_half(blocks, 2),
    )


def _q8_0(lines: Bytes) -> Blocks:
    blocks = _split(lines, 2 + 32)
    # -128..127 becomes 0..255: adding 128 to a byte flips its top bit.
    return Blocks(
        bits=8, zero=128, quantised=blocks[..., 2:] ^ np.uint8(0x80), scale=_half(blocks, 0)
    )


def _q4_k(lines: Bytes) -> Blocks:
    blocks = _split(lines, 4 + 12 + 128)
    scale, offset = _scales_and_offsets(blocks)
    four_bits = _nibbles(blocks[..., 16:], 32).reshape(*scale.shape, 32)
    return Blocks(bits=4, zero=0, quantised=four_bits, scale=scale, offset=offset)


def _q5_k(lines: Bytes) -> Blocks:
    """Byte i of the 32 that hold fifth bits has bit j for weight i of the j-th block."""
    blocks = _split(lines, 4 + 12 + 32 + 128)
    scale, offset = _scales_and_offsets(blocks)
    fifth = np.unpackbits(blocks[..., 16:48, None], axis=-1, bitorder="little") << np.uint8(4)
    low = _nibbles(blocks[..., 48:], 32).reshape(*fifth.shape[:-2], 8, 32)
    five_bits = (low | fifth.swapaxes(-1, -2)).reshape(*scale.shape, 32)
    return Blocks(bits=8, zero=112, quantised=five_bits + np.uint8(112), scale=scale, offset=offset)


def _q6_k(lines: Bytes) -> Blocks:
    """Of each half of 128 weights, byte i of 32 has bits 5 and 6 of weights i, i + 32, ..."""
    blocks = _split(lines, 128 + 64 + 16 + 2)
    upper = blocks[..., 128:192].reshape(*blocks.shape[:-1], 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    upper = ((upper >> shifts) & np.uint8(3)) << np.uint8(4)
    six_bits = _nibbles(blocks[..., :128], 64) | upper.reshape(*blocks.shape[:-1], SUPER_BLOCK)
    scale = _half(blocks, 208)[..., None] * blocks[..., 192:208].view(np.int8).astype(np.float32)
    return Blocks(
        bits=8,
        zero=128,
        quantised=(six_bits + np.uint8(96)).reshape(len(lines), -1, 16),
        scale=scale.reshape(len(lines), -1),
    )


FLOAT_FORMATS: Mapping[str, Callable[[Bytes], Matrix]] = {"F32": _f32, "F16": _f16, "BF16": _bf16}
BLOCK_FORMATS: Mapping[str, Callable[[Bytes], Matrix]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}


def _split(lines: Bytes, block_bytes: int) -> Bytes:
    """[rows, blocks, bytes of a block]"""
    return lines.reshape(len(lines), -1, block_bytes)


def _half(blocks: Bytes, start: int) -> Floats:
    """The float16 that begins at byte ``start`` of each block."""
    halves = np.ascontiguousarray(blocks[..., start : start + 2]).view("<f2")
    floats: Floats = halves[..., 0].astype(np.float32)
    return floats


def _nibbles(packed: Bytes, run: int) -> Bytes:
    """Of each ``run`` bytes, the low halves are the next weights and the high halves those after
    them."""
    runs = packed.reshape(*packed.shape[:-1], -1, run)
    both = np.concatenate([runs & 0x0F, runs >> 4], axis=-1)
    return both.reshape(*packed.shape[:-1], -1)


def _fifth_bits(packed: Bytes) -> Bytes:
    """Four bytes with a bit for each of 32 weights, as the value 16 where it is set."""
    bits: Bytes = np.unpackbits(packed, axis=-1, bitorder="little") << np.uint8(4)
    return bits


def _scales_and_offsets(blocks: Bytes) -> tuple[Floats, Floats]:
    """[rows, blocks of 32] of Q4_K and Q5_K.

    Twelve bytes behind the two float16 factors hold eight 6-bit scales and eight 6-bit minima. The
    first four of each fill the low six bits of bytes 0-3 and 4-7; of the last four the low four
    bits are the halves of bytes 8-11, and the two high ones sit on top of bytes 0-3 and 4-7.
    """
    first, second, third = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 2) & 48)], axis=-1)
    minima = np.concatenate([second & 63, (third >> 4) | ((second >> 2) & 48)], axis=-1)
    scale = _half(blocks, 0)[..., None] * scales.astype(np.float32)
    offset = -(_half(blocks, 2)[..., None] * minima.astype(np.float32))
    return scale.reshape(len(blocks), -1), offset.reshape(len(blocks), -1)


def dequantise(matrix: Matrix) -> Floats:
    """The weights as float32, rounded as ggml rounds them."""
    if isinstance(matrix, Dense):
        return matrix.values
    weights = matrix.quantised.astype(np.float32)
    weights -= np.float32(matrix.zero)
    weights *= matrix.scale[..., None]
    if matrix.offset is not None:
        weights += matrix.offset[..., None]
    return weights.reshape(matrix.rows, matrix.columns)


def is_finite(matrix: Matrix) -> bool:
    """Whether no weight is infinite or not a number."""
    if isinstance(matrix, Dense):
        return bool(np.isfinite(matrix.values).all())
    factors = [matrix.scale] if matrix.offset is None else [matrix.scale, matrix.offset]
    return all(bool(np.isfinite(factor).all()) for factor in factors)


def select_rows(matrix: Matrix, rows: Rows) -> Matrix:
    """The given rows, in the given order."""
    if isinstance(matrix, Dense):
        return Dense(values=matrix.values[rows])
    return Blocks(
        bits=matrix.bits,
        quantised=matrix.quantised[rows],
        zero=matrix.zero,
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


def kind(matrix: Matrix) -> tuple[int, ...]:
    """Matrices of one kind and width fit into one without changing a weight."""
    if isinstance(matrix, Dense):
        return ()
    return (matrix.bits, matrix.block, matrix.zero, matrix.offset is not None)


def stack(parts: Sequence[Matrix]) -> Matrix:
    """The rows of all parts below each other; they must be of one ``kind``."""
    if len(parts) == 1:
        return parts[0]
    dense = [part.values for part in parts if isinstance(part, Dense)]
    if dense:
        return Dense(values=np.concatenate(dense))
    blocks = [part for part in parts if isinstance(part, Blocks)]
    offsets = [part.offset for part in blocks if part.offset is not None]
    return Blocks(
        bits=blocks[0].bits,
        quantised=np.concatenate([part.quantised for part in blocks]),
        zero=blocks[0].zero,
        scale=np.concatenate([part.scale for part in blocks]),
        offset=np.concatenate(offsets) if offsets else None,
    )
