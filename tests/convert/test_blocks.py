"""Decoding of weight blocks, against the gguf package's own dequantisation."""

from typing import Any

import numpy as np
import pytest

from edgeprof.convert import blocks
from edgeprof.convert.blocks import (
    Blocks,
    Dense,
    Matrix,
    decode,
    dequantise,
    half_split_rows,
    is_finite,
    kind,
    select_rows,
    stack,
)

# Storage -> weights and bytes of a block, and where its float16 factors begin (ggml-common.h).
LAYOUTS = {
    "Q4_0": (32, 18, (0,)),
    "Q4_1": (32, 20, (0, 2)),
    "Q5_0": (32, 22, (0,)),
    "Q5_1": (32, 24, (0, 2)),
    "Q8_0": (32, 34, (0,)),
    "Q4_K": (256, 144, (0, 2)),
    "Q5_K": (256, 176, (0, 2)),
    "Q6_K": (256, 210, (208,)),
}
FLOAT_BYTES = {"F16": 2, "BF16": 2, "F32": 4}
ROWS, COLUMNS = 6, 768


def random_bytes(storage: str, seed: int = 0) -> np.ndarray:
    """Any byte may stand anywhere; only the floats must be finite. Their signs are random too."""
    rng = np.random.default_rng(seed)
    if storage in FLOAT_BYTES:
        width = FLOAT_BYTES[storage]
        raw = rng.integers(0, 256, (ROWS, COLUMNS, width), dtype=np.uint8)
        raw[..., -1] &= 0xBB  # clears an exponent bit of either float type
        raw[..., -2] &= 0x7F  # and one of bfloat16
        return raw.reshape(ROWS, -1)
    weights, size, places = LAYOUTS[storage]
    raw = rng.integers(0, 256, (ROWS, COLUMNS // weights, size), dtype=np.uint8)
    for place in places:
        raw[..., place + 1] &= 0xBB
    return raw.reshape(ROWS, -1)


@pytest.mark.parametrize("weights_at_once", [1 << 22, COLUMNS * 4, 1])
@pytest.mark.parametrize("storage", [*LAYOUTS, *FLOAT_BYTES])
def test_dequantised_weights_are_those_of_gguf(
    storage: str, weights_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, whether all rows are decoded at once, four and two, or one by one."""
    import gguf

    monkeypatch.setattr(blocks, "WEIGHTS_AT_ONCE", weights_at_once)
    raw = random_bytes(storage)
    expected = gguf.quants.dequantize(
        raw.view({"F16": np.float16, "F32": np.float32}.get(storage, np.uint8)),
        gguf.GGMLQuantizationType[storage],
    )
    weights = dequantise(decode(raw.reshape(-1), storage, ROWS, COLUMNS))
    assert weights.dtype == np.float32
    assert np.isfinite(weights).all()
    assert np.array_equal(weights, expected)


def test_every_format_that_is_converted_is_compared() -> None:
    assert {*LAYOUTS} == {*blocks.BLOCK_FORMATS}
    assert {*FLOAT_BYTES} == {*blocks.FLOAT_FORMATS}


def test_a_block_worked_out_by_hand() -> None:
    """Q4_1, scale 0.5, offset -1: bytes 0x10, 0x32, ... hold weights i (low half) and i + 16."""
    halves = np.array([0.5, -1.0], dtype="<f2").view(np.uint8)
    packed = np.array([(i % 16) | ((15 - i) << 4) for i in range(16)], dtype=np.uint8)
    matrix = decode(np.concatenate([halves, packed]), "Q4_1", 1, 32)
    ascending = [0.5 * i - 1 for i in range(16)]
    assert dequantise(matrix)[0].tolist() == ascending + ascending[::-1]
    # What MatMulNBits does not add by itself: offset + 8 * scale = -1 + 4.
    assert isinstance(matrix, Blocks)
    assert matrix.correction is not None
    assert matrix.correction.tolist() == [[3.0]]
    # Two neighbours a byte, the first in the low half: 0 and 1, 2 and 3, ...
    assert matrix.packed[0, 0, :8].tolist() == [0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]


def test_a_q6_k_block_worked_out_by_hand() -> None:
    """Scale 0.5 and sub-scales 1, -2, 1, ...: weight 0 has low bits 3 and high bits 2, that is
    (2 * 16 + 3 - 32) * 0.5 = 1.5; weight 16, all bits clear, is -32 * 0.5 * -2 = 32."""
    block = np.zeros(210, dtype=np.uint8)
    block[0] = 0x03
    block[128] = 0x02
    block[192:208] = [1, 254] + [1] * 14
    block[208:210] = np.array([0.5], dtype="<f2").view(np.uint8)
    matrix = decode(block, "Q6_K", 1, 256)
    weights = dequantise(matrix)[0]
    assert (weights[0], weights[1], weights[16]) == (1.5, -16.0, 32.0)
    assert isinstance(matrix, Blocks)
    # Blocks of 16; 35 and 0 are stored 96 higher, so that 32 lies in the middle, at 128.
    assert (matrix.bits, matrix.block, matrix.middle) == (8, 16, 128)
    assert (matrix.quantised[0, 0, 0], matrix.quantised[0, 1, 0]) == (131, 96)
    assert matrix.correction is None


@pytest.mark.parametrize("storage", LAYOUTS)
def test_the_container_holds_the_same_weights(storage: str) -> None:
    """scale * (quantised - middle) + correction, as the graph computes it, in float64."""
    matrix = decode(random_bytes(storage).reshape(-1), storage, ROWS, COLUMNS)
    assert isinstance(matrix, Blocks)
    assert matrix.block == (16 if storage == "Q6_K" else 32)
    packed = matrix.packed.astype(np.int64)
    if matrix.bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(ROWS, -1, 32)
    scale = matrix.scale[..., None].astype(np.float64)
    weights: np.ndarray[Any, Any] = (packed - matrix.middle) * scale
    if matrix.correction is not None:
        weights = weights + matrix.correction[..., None]
    # The correction m + 8 d or m + 16 d is one float32 rounding away; the rest is exact, as is
    # dequantise but for its own two roundings. Largest term: at most |m| + 31 |d|.
    largest = 31 * np.abs(matrix.scale).max() + (
        0 if matrix.offset is None else np.abs(matrix.offset).max()
    )
    difference = np.abs(weights.reshape(ROWS, COLUMNS) - dequantise(matrix))
    has_offset = storage in ("Q4_1", "Q5_1", "Q4_K", "Q5_K")
    assert (matrix.correction is not None) == has_offset
    assert difference.max() <= (3 * 2.0**-24 * largest if has_offset else 0)


def test_rows_are_selected_and_stacked_as_their_weights_are() -> None:
    first = decode(random_bytes("Q4_1", 1).reshape(-1), "Q4_1", ROWS, COLUMNS)
    second = decode(random_bytes("Q4_1", 2).reshape(-1), "Q4_1", ROWS, COLUMNS)
    rows = np.array([4, 0, 5])
    assert np.array_equal(dequantise(select_rows(first, rows)), dequantise(first)[rows])
    assert kind(first) == kind(second)
    both = np.concatenate([dequantise(first), dequantise(second)])
    assert np.array_equal(dequantise(stack([first, second])), both)


def test_only_like_containers_are_stacked() -> None:
    """Q4_1 and Q4_K differ in how scales are stored, not in what they are; so do their likes."""
    matrices: dict[str, Matrix] = {
        storage: decode(random_bytes(storage).reshape(-1), storage, ROWS, COLUMNS)
        for storage in [*LAYOUTS, *FLOAT_BYTES]
    }
    kinds: dict[Any, set[str]] = {}
    for storage, matrix in matrices.items():
        kinds.setdefault(kind(matrix), set()).add(storage)
    assert sorted(map(sorted, kinds.values())) == [
        ["BF16", "F16", "F32"],
        ["Q4_0"],
        ["Q4_1", "Q4_K"],
        ["Q5_0", "Q8_0"],
        ["Q5_1", "Q5_K"],
        ["Q6_K"],
    ]
    for alike in kinds.values():
        parts = [matrices[name] for name in sorted(alike)]
        expected = np.concatenate([dequantise(part) for part in parts])
        assert np.array_equal(dequantise(stack(parts)), expected)


@pytest.mark.parametrize("storage", ["F32", "F16", "Q4_0", "Q4_1", "Q4_K", "Q6_K"])
def test_infinite_factors_and_weights_are_found(storage: str) -> None:
    raw = random_bytes(storage)
    assert is_finite(decode(raw.reshape(-1), storage, ROWS, COLUMNS))
    place = LAYOUTS.get(storage, (0, 0, (0,)))[2][-1]
    raw[2, place : place + 4] = np.array([np.inf], "<f4").view(np.uint8)
    if storage != "F32":
        raw[2, place : place + 2] = np.array([np.nan], "<f2").view(np.uint8)
    assert not is_finite(decode(raw.reshape(-1), storage, ROWS, COLUMNS))


def test_half_split_undoes_the_interleaving() -> None:
    """Two heads of four rows. The file holds a0 a2 a1 a3 (partners i, i + 2 side by side)."""
    in_file = np.array([[10], [12], [11], [13], [20], [22], [21], [23]], dtype=np.float32)
    restored = select_rows(Dense(values=in_file), half_split_rows(heads=2, head_dim=4))
    assert dequantise(restored)[:, 0].tolist() == [10, 11, 12, 13, 20, 21, 22, 23]
