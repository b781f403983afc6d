"""Bytes of models: exact, and equal to the sizes of real files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeprof.catalog import find_kv_type, find_model, format_table, model_table
from edgeprof.models.spec import ModelSpec, build_spec

MIB, GIB = 2**20, 2**30


def spec(name: str) -> ModelSpec:
    return find_model(name)[0]


def bytes_of(model: ModelSpec, *roles: str, stored: str | None = None) -> int:
    return sum(
        group.bytes
        for group in model.groups
        if group.role in roles and stored in (None, group.storage_name)
    )


@pytest.mark.parametrize("name", model_table().models)
def test_parameters_reproduce_the_published_total(name: str) -> None:
    assert spec(f"{name}:f16").parameters == model_table().models[name].parameters


def test_all_dense_models_are_there() -> None:
    assert len(model_table().models) == 32


def test_llama2_7b_q4_k_m_group_by_group() -> None:
    """32 layers, hidden 4096, feed-forward 11008, vocabulary 32000; 16 layers with more bits."""
    model = spec("7b-q4")
    q4, q6 = 144 / 256, 210 / 256  # bytes a weight
    square, wide = 4096 * 4096, 4096 * 11008
    # attn_q, attn_k and attn_output are Q4_K everywhere, attn_v in 16 layers
    assert bytes_of(model, "attn_q") == 32 * square * q4 == 301_989_888
    assert bytes_of(model, "attn_v", stored="q4_k") == 16 * square * q4 == 150_994_944
    assert bytes_of(model, "attn_v", stored="q6_k") == 16 * square * q6 == 220_200_960
    assert bytes_of(model, "ffn_gate", "ffn_up") == 64 * wide * q4 == 1_623_195_648
    assert bytes_of(model, "ffn_down", stored="q4_k") == 16 * wide * q4 == 405_798_912
    assert bytes_of(model, "ffn_down", stored="q6_k") == 16 * wide * q6 == 591_790_080
    assert bytes_of(model, "lm_head") == 32000 * 4096 * q6 == 107_520_000
    assert bytes_of(model, "norm") == (2 * 32 + 1) * 4096 * 4 == 1_064_960
    streamed = (
        3 * 301_989_888 + 150_994_944 + 220_200_960 + 1_623_195_648
        + 405_798_912 + 591_790_080 + 107_520_000 + 1_064_960
    )  # fmt: skip
    assert model.streamed_weight_bytes == streamed == 4_006_535_168
    # the input embedding lies in memory but is not read: 32000 rows of 16 blocks of 144 bytes
    assert model.resident_weight_bytes - streamed == 32000 * 16 * 144
    assert model.embedding_row_bytes == 16 * 144


def test_qwen25_7b_q4_k_m_to_the_byte() -> None:
    model = spec("qwen2.5-7b:q4_k_m")
    layer_roles = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    q4, q6 = 3_121_348_608, 800_808_960
    head, norms = 152064 * 3584 * 210 // 256, (2 * 28 + 1) * 3584 * 4
    assert bytes_of(model, *layer_roles, stored="q4_k") == q4
    assert bytes_of(model, *layer_roles, stored="q6_k") == q6
    assert bytes_of(model, "lm_head") == head == 447_068_160
    assert bytes_of(model, "norm") == norms == 817_152
    biases = 28 * (3584 + 2 * 512) * 4  # of queries, keys and values, in F32
    assert bytes_of(model, "bias") == biases == 516_096
    without_biases = q4 + q6 + head + norms
    assert without_biases == 4_370_042_880
    # biases are read with every pass: they count
    assert model.streamed_weight_bytes == without_biases + biases == 4_370_558_976
    assert bytes_of(model, "embedding") == 306_561_024


@pytest.mark.parametrize(
    ("wrong_bytes", "why"),
    [
        (7_070_619_136 // 2, "half a byte a weight, no scales"),
        (round(7.616e9 * 4.5 / 8), "4.5 bits on all parameters"),
        (4_677_120_000, "the whole file, embedding too"),
        (4_370_558_976 - 447_068_160 + 2 * 152064 * 3584, "lm_head in 16 bit"),
    ],
)
def test_common_mistakes_are_not_made(wrong_bytes: int, why: str) -> None:
    assert abs(spec("qwen2.5-7b:q4_k_m").streamed_weight_bytes / wrong_bytes - 1) > 0.01, why


@pytest.mark.parametrize(
    ("name", "size", "tolerance"),
    [
        ("llama2-7b:q4_0", 3.56 * GIB, 0.005 * GIB),
        ("llama2-7b:q4_k_m", 3.80 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q4_k_m", 4.58 * GIB, 0.0051 * GIB),
        ("llama3.1-8b:q4_k_s", 4.36 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q5_k_s", 5.21 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q5_k_m", 5.33 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q6_k", 6.14 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q8_0", 7.95 * GIB, 0.005 * GIB),
        ("qwen2.5-7b:q4_k_m", 4.36 * GIB, 0.005 * GIB),
        ("qwen2.5-14b:q4_k_m", 8.37 * GIB, 0.0051 * GIB),
        ("qwen2.5-32b:q4_k_m", 18.48 * GIB, 0.005 * GIB),
        ("qwen2.5-0.5b:q4_k_m", 373.71 * MIB, 0.005 * MIB),
        ("gemma3-1b:q4_k_m", 762.49 * MIB, 0.005 * MIB),
        ("tinyllama-1.1b:q4_k_m", 636.18 * MIB, 0.005 * MIB),
        ("gemma3-270m:q4_k_m", 246_587_904, 0),
        ("smollm2-135m:q4_1", 96_576_768, 0),
    ],
)
def test_tensor_bytes_of_real_files(name: str, size: float, tolerance: float) -> None:
    """Sizes printed by llama-bench and read from GGUF headers, to their last digit."""
    assert spec(name).resident_weight_bytes == pytest.approx(size, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "kv", "bytes_a_token"),
    [
        ("llama2-7b", "f16", 524_288),  # 2 x 32 layers x 32 heads x 128 x 2
        ("llama3.1-8b", "f16", 131_072),
        ("qwen2.5-7b", "f16", 57_344),  # 2 x 28 x 4 x 128 x 2
        ("qwen2.5-7b", "q8_0", 30_464),  # x 34/32 instead of x 2
        ("qwen2.5-7b", "q4_0", 16_128),  # x 18/32
        ("qwen2.5-7b", "fp8", 28_672),
        ("qwen2.5-0.5b", "f16", 12_288),
        ("qwen3-0.6b", "f16", 114_688),
        ("smollm2-135m", "f16", 23_040),
    ],
)
def test_cache_bytes_a_token(name: str, kv: str, bytes_a_token: int) -> None:
    assert spec(name).kv_bytes_per_token(find_kv_type(kv)) == bytes_a_token


def test_cache_of_a_known_engine_log() -> None:
    """28 layers, 8 KV heads of 128, f16, 4096 tokens: an engine's log printed 448 MiB."""
    model = spec("qwen3-1.7b")
    assert model.kv_read_bytes(4096, find_kv_type("f16")) == 448 * MIB == 469_762_048


def test_sliding_windows_cap_what_is_read() -> None:
    model = spec("gemma3-1b")
    # (22 layers x 512 + 4 x 8192 tokens) x 2 x 1 head x 256 x 2 bytes
    assert model.kv_read_bytes(8192, find_kv_type("f16")) == (22 * 512 + 4 * 8192) * 1024
    # below the window all layers read alike
    assert model.kv_read_bytes(100, find_kv_type("f16")) == 26 * 100 * 1024


def test_a_tied_table_is_read_once_as_lm_head() -> None:
    model = spec("qwen2.5-0.5b:q8_0")
    assert bytes_of(model, "embedding") == 0
    assert model.embedding_row_bytes == 0
    assert model.streamed_weight_bytes == model.resident_weight_bytes


@given(st.sampled_from(sorted(model_table().models)), st.integers(0, 100_000))
def test_the_cache_never_shrinks_and_windows_only_save(name: str, context: int) -> None:
    form = format_table().formats["f16"]
    model = build_spec(name, model_table().models[name], "f16", form, format_table())
    kv = find_kv_type("f16")
    read = model.kv_read_bytes(context, kv)
    assert read <= context * model.kv_bytes_per_token(kv)
    assert read <= model.kv_read_bytes(context + 1, kv)
