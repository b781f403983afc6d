"""Decoding of weight blocks, against the gguf package's own dequantisation."""

from typing import Any

import numpy as np
import pytest

from edgeprof.convert.blocks import (
    Blocks,
    Dense,
    Matrix,
    can_stack,
    decode,
    dequantise,
    half_split_rows,
    select_rows,
    stack,
)

BLOCK_BYTES = {"Q4_0": 18, "Q4_1": 20, "Q8_0": 34, "F16": 64, "BF16": 64, "F32": 128}
ROWS, COLUMNS = 6, 96


def random_bytes(storage: str, seed: int = 0) -> np.ndarray:
    """Any byte may stand anywhere; only the float16 and float32 values must be finite."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (ROWS, COLUMNS // 32, BLOCK_BYTES[storage]), dtype=np.uint8)
    floats = {"Q4_0": 2, "Q4_1": 4, "Q8_0": 2}.get(storage, BLOCK_BYTES[storage])
    step = 4 if storage == "F32" else 2
    for end in range(step, floats + 1, step):
        raw[..., end - 1] &= 0xBB  # clears an exponent bit of either float type
        raw[..., end - 2] &= 0x7F  # and one of bfloat16
    return raw.reshape(ROWS, -1)


@pytest.mark.parametrize("storage", BLOCK_BYTES)
def test_dequantised_weights_are_those_of_gguf(storage: str) -> None:
    import gguf

    raw = random_bytes(storage)
    kind = gguf.GGMLQuantizationType[storage]
    expected = gguf.quants.dequantize(
        raw.view({"F16": np.float16, "F32": np.float32}.get(storage, np.uint8)), kind
    )
    weights = dequantise(decode(raw.reshape(-1), storage, ROWS, COLUMNS))
    assert weights.dtype == np.float32
    assert np.isfinite(weights).all()
    assert np.array_equal(weights, expected)


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


@pytest.mark.parametrize("storage", ["Q4_0", "Q4_1", "Q8_0"])
def test_the_container_holds_the_same_weights(storage: str) -> None:
    """scale * (quantised - zero point) + correction, as the graph computes it, in float64."""
    matrix = decode(random_bytes(storage).reshape(-1), storage, ROWS, COLUMNS)
    assert isinstance(matrix, Blocks)
    packed = matrix.packed.astype(np.int64)
    if matrix.bits == 4:
        packed = np.stack([packed & 15, packed >> 4], axis=-1).reshape(ROWS, -1, 32)
    scale = matrix.scale[..., None].astype(np.float64)
    weights: np.ndarray[Any, Any] = (packed - matrix.zero_point) * scale
    if matrix.correction is not None:
        weights = weights + matrix.correction[..., None]
    # The correction m + 8 d is one float32 rounding away; the rest is exact, as is dequantise but
    # for its own two roundings. Largest term: at most |m| + 15 |d|.
    largest = 15 * np.abs(matrix.scale).max() + (
        0 if matrix.offset is None else np.abs(matrix.offset).max()
    )
    difference = np.abs(weights.reshape(ROWS, COLUMNS) - dequantise(matrix))
    assert difference.max() <= (3 * 2.0**-24 * largest if storage == "Q4_1" else 0)


def test_rows_are_selected_and_stacked_as_their_weights_are() -> None:
    first = decode(random_bytes("Q4_1", 1).reshape(-1), "Q4_1", ROWS, COLUMNS)
    second = decode(random_bytes("Q4_1", 2).reshape(-1), "Q4_1", ROWS, COLUMNS)
    rows = np.array([4, 0, 5])
    assert np.array_equal(dequantise(select_rows(first, rows)), dequantise(first)[rows])
    assert can_stack([first, second])
    both = np.concatenate([dequantise(first), dequantise(second)])
    assert np.array_equal(dequantise(stack([first, second])), both)


def test_only_like_containers_are_stacked() -> None:
    matrices: dict[str, Matrix] = {
        storage: decode(random_bytes(storage).reshape(-1), storage, ROWS, COLUMNS)
        for storage in ("Q4_0", "Q4_1", "Q8_0", "F32", "F16")
    }
    assert can_stack([matrices["F32"], matrices["F16"]])
    for pair in (("Q4_0", "Q4_1"), ("Q4_0", "Q8_0"), ("Q8_0", "F32")):
        assert not can_stack([matrices[name] for name in pair])


def test_half_split_undoes_the_interleaving() -> None:
    """Two heads of four rows. The file holds a0 a2 a1 a3 (partners i, i + 2 side by side)."""
    in_file = np.array([[10], [12], [11], [13], [20], [22], [21], [23]], dtype=np.float32)
    restored = select_rows(Dense(values=in_file), half_split_rows(heads=2, head_dim=4))
    assert dequantise(restored)[:, 0].tolist() == [10, 11, 12, 13, 20, 21, 22, 23]
