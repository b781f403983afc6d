"""Storage types and the recipes of file formats, against published block sizes and layer counts."""

import pytest

from edgeprof.catalog import format_table
from edgeprof.models.quantisation import Place, Role, more_bits

TABLE = format_table()


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("f32", 32), ("f16", 16), ("bf16", 16), ("fp8", 8), ("int8", 8),
        ("q4_0", 4.5), ("q4_1", 5), ("q5_0", 5.5), ("q5_1", 6), ("q8_0", 8.5),
        ("q4_k", 4.5), ("q5_k", 5.5), ("q6_k", 6.5625),
        ("q4-group32", 4.5), ("q4-group128", 4.125), ("q4-group128-asym", 4.15625),
        ("nvfp4", 4.5), ("mxfp4", 4.25),
    ],
)  # fmt: skip
def test_bits_of_a_weight(name: str, bits: float) -> None:
    storage = TABLE.storage[name]
    assert 8 * storage.block_bytes / storage.block_weights == bits


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [16, 32, 64, 128])
@pytest.mark.parametrize("symmetry", ["sym", "asym"])
@pytest.mark.parametrize("scale", [16, 32])
def test_matmulnbits_is_bits_plus_scale_plus_zero_point(
    bits: int, block: int, symmetry: str, scale: int
) -> None:
    storage = TABLE.storage.get(f"matmulnbits-int{bits}-block{block}-{symmetry}-fp{scale}-scales")
    if storage is None:
        assert bits == 8, "every 4-bit layout is there"
        return
    expected = bits + scale / block + (bits / block if symmetry == "asym" else 0)
    assert 8 * storage.block_bytes / storage.block_weights == expected


def test_a_last_block_that_is_not_full_is_padded_and_row_scales_are_added() -> None:
    assert TABLE.storage["q4_0"].bytes_of_row(33) == 2 * 18
    # 4 bits x 4096 / 8 + one fp16 scale
    assert TABLE.storage["q4-per-row"].bytes_of_row(4096) == 2048 + 2


@pytest.mark.parametrize(
    ("layers", "hit"),
    [(16, 8), (24, 12), (26, 13), (28, 14), (32, 16), (36, 18), (48, 24), (64, 32), (80, 40)],
)
def test_number_of_more_bits_layers(layers: int, hit: int) -> None:
    assert sum(more_bits(layer, layers) for layer in range(layers)) == hit


def test_which_of_28_layers_get_more_bits() -> None:
    # 28 // 8 = 3 and 7 * 28 // 8 = 24: layers 0-2, 24-27, and 5, 8, 11, ... in between
    hit = [layer for layer in range(28) if more_bits(layer, 28)]
    assert hit == [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]


@pytest.mark.parametrize(
    ("form", "role", "layer", "layers", "stored"),
    [
        ("q4_k_m", "attn_v", 0, 32, "q6_k"),
        ("q4_k_m", "attn_v", 4, 32, "q4_k"),
        ("q4_k_m", "ffn_down", 31, 32, "q6_k"),
        ("q4_k_m", "ffn_up", 0, 32, "q4_k"),
        ("q4_k_m", "lm_head", 0, 32, "q6_k"),
        ("q4_k_m", "embedding", 0, 32, "q4_k"),
        ("q4_k_m", "norm", 0, 32, "f32"),
        ("q4_k_m", "attn_qkv", 5, 32, "q5_k"),
        ("q4_k_m", "attn_v", 11, 80, "q5_k"),  # 80 layers with grouped queries; 11 has base bits
        ("q4_k_s", "attn_v", 3, 32, "q5_k"),
        ("q4_k_s", "attn_v", 4, 32, "q4_k"),
        ("q4_k_s", "ffn_down", 3, 32, "q5_k"),
        ("q4_k_s", "ffn_down", 4, 32, "q4_k"),
        ("q5_k_m", "ffn_down", 0, 32, "q6_k"),
        ("q5_k_m", "attn_qkv", 5, 32, "q6_k"),
        ("q4_0", "lm_head", 0, 32, "q6_k"),
        ("q8_0", "lm_head", 0, 32, "q8_0"),
        ("awq", "lm_head", 0, 32, "f16"),
        ("mlc-q4f16_1", "lm_head", 0, 32, "q4-group32"),
    ],
)
def test_what_a_recipe_puts_where(
    form: str, role: Role, layer: int, layers: int, stored: str
) -> None:
    assert (
        TABLE.formats[form].storage_name(role, Place(layer=layer, layers=layers, sharing=2))
        == stored
    )


@pytest.mark.parametrize(
    ("wanted", "columns", "got"),
    [
        ("q4_k", 896, "q5_0"),  # 896 = 3.5 x 256 = 28 x 32
        ("q5_k", 896, "q5_1"),
        ("q6_k", 896, "q8_0"),
        ("q6_k", 4096, "q6_k"),
        ("q4_k", 100, "f16"),  # no multiple of 32 either
        ("q4-group128", 100, "q4-group128"),  # not GGUF: padded instead
    ],
)
def test_rows_that_are_no_multiple_of_the_block(wanted: str, columns: int, got: str) -> None:
    assert TABLE.storage_for_row(wanted, columns) == got


def test_every_format_has_a_source() -> None:
    assert all(form.source for form in TABLE.formats.values())
