"""Bytes of models: exact, and equal to the sizes of real files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgeprof.catalog import find_kv_type, find_model, format_table, model_table
from edgeprof.models.shape import Experts, ModelShape, build_spec
from edgeprof.models.spec import ModelSpec

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


def test_all_models_are_there() -> None:
    assert len(model_table().models) == 34


def test_mxfp4_is_for_the_experts_or_for_all_layers_of_a_dense_model() -> None:
    """17 bytes for 32 weights; 28 layers of attn_k 512 x 3584."""
    dense, mixture = spec("qwen2.5-7b:mxfp4"), spec("gpt-oss-20b:mxfp4")
    assert bytes_of(dense, "attn_k") == 28 * 512 * 3584 * 17 // 32
    assert {g.storage_name for g in dense.groups if g.role.startswith("ffn")} == {"mxfp4"}
    assert {g.storage_name for g in dense.groups if g.role == "lm_head"} == {"bf16"}
    assert {g.storage_name for g in mixture.groups if g.role.startswith("attn")} == {"bf16"}


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
        ("llama3.1-8b:iq4_xs", 4.17 * GIB, 0.005 * GIB),
        ("llama3.1-8b:iq4_nl", 4.38 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q3_k_s", 3.41 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q3_k_l", 4.02 * GIB, 0.005 * GIB),
        ("llama3.1-8b:q2_k", 2.95 * GIB, 0.005 * GIB),
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


@pytest.mark.parametrize(
    ("form", "bits"),
    [
        ("q2_k", 3.1593), ("q3_k_s", 3.6429), ("q3_k_l", 4.2979), ("iq4_xs", 4.4597),
        ("iq4_nl", 4.6818), ("q4_k_s", 4.6672), ("q4_k_m", 4.8944), ("q5_k_s", 5.5704),
        ("q5_k_m", 5.7036), ("q6_k", 6.5633), ("q8_0", 8.5008), ("f16", 16.0005),
    ],
)  # fmt: skip
def test_bits_a_weight_of_llama_3_1_8b_as_llama_cpp_prints_them(form: str, bits: float) -> None:
    """To the last digit of the table in llama.cpp's tools/quantize/README.md."""
    model = spec(f"llama3.1-8b:{form}")
    assert round(8 * model.resident_weight_bytes / model.parameters, 4) == bits


# Mixtures of experts


def olmoe(form: str) -> ModelSpec:
    """OLMoE's shape; norms of queries and keys are as wide as the hidden state there."""
    shape = ModelShape(
        title="OLMoE", layers=16, hidden=2048, heads=16, kv_heads=16, head_dim=128, vocab=50304,
        tied_embeddings=False, norms_per_layer=4, experts=Experts(count=64, used=8, ffn=1024),
        source="test",
    )  # fmt: skip
    table = format_table()
    return build_spec("olmoe", shape, form, table.formats[form], table)


def test_one_token_streams_the_experts_it_uses() -> None:
    model = olmoe("q4_0")
    experts = 16 * 8 * 3 * 2048 * 1024 * 18 // 32  # 16 layers, 8 experts, 4.5 bits
    attention = 16 * 4 * 2048 * 2048 * 18 // 32
    head = 50304 * 2048 * 210 // 256
    router, norms = 16 * 64 * 2048 * 4, (16 * 4 + 1) * 2048 * 4
    assert experts + attention + head + router + norms == 697_411_584
    assert model.streamed_weight_bytes == 697_411_584
    # all 64 experts lie in memory, and the input embedding
    embedding = 50304 * 2048 * 18 // 32
    assert model.resident_weight_bytes == 697_411_584 + 7 * experts + embedding


def test_five_tokens_stream_the_expected_union() -> None:
    model = olmoe("q4_0")
    # 64 (1 - (56/64)^5) = 31.17 experts a layer instead of 8
    assert model.streamed_bytes(5) == 2_009_585_664
    assert model.streamed_bytes(5) / model.streamed_bytes(1) == pytest.approx(2.88, abs=0.005)


def test_a_position_is_multiplied_with_the_experts_it_uses() -> None:
    experts = 16 * 8 * 3 * 2048 * 1024
    rest = 16 * 4 * 2048 * 2048 + 50304 * 2048 + 16 * 64 * 2048
    assert olmoe("f16").used_parameters == experts + rest


@pytest.mark.parametrize(
    ("name", "used"),
    [
        # 48 layers: 2 x 2048 x (4096 + 512) attention, 8 experts, router; head
        ("qwen3-30b-a3b", 48 * (2 * 2048 * 4608 + 8 * 3 * 2048 * 768 + 128 * 2048)
         + 151936 * 2048),
        ("gpt-oss-20b", 24 * (2 * 2880 * 4608 + 4 * 3 * 2880 * 2880 + 32 * 2880)
         + 201088 * 2880),
    ],
)  # fmt: skip
def test_used_parameters_of_known_mixtures(name: str, used: int) -> None:
    assert spec(f"{name}:f16").used_parameters == used


def test_mixtures_in_files_have_published_sizes() -> None:
    # llama-bench prints 17.28 GiB and 11.27 GiB for these files
    assert spec("qwen3-30b-a3b:q4_k_m").resident_weight_bytes / GIB == pytest.approx(
        17.28, abs=5e-3
    )
    assert spec("gpt-oss-20b:mxfp4_moe").resident_weight_bytes / GIB == pytest.approx(
        11.27, abs=5e-3
    )


@given(st.sampled_from(["qwen3-30b-a3b", "gpt-oss-20b"]), st.integers(1, 500))
def test_more_tokens_never_need_fewer_experts(name: str, tokens: int) -> None:
    model = spec(name)
    read, more = model.streamed_bytes(tokens), model.streamed_bytes(tokens + 1)
    assert model.streamed_weight_bytes <= read <= more
    assert more <= sum(group.bytes for group in model.streamed_groups)


def test_matrices_beside_eight_experts_keep_more_bits() -> None:
    shape = ModelShape(
        title="eight", layers=1, hidden=256, heads=2, kv_heads=1, head_dim=128, vocab=None,
        tied_embeddings=True, experts=Experts(count=8, used=2, ffn=256), source="test",
    )  # fmt: skip
    table = format_table()
    model = build_spec("eight", shape, "q4_k_m", table.formats["q4_k_m"], table)
    stored = {group.role: group.storage_name for group in model.groups}
    assert (stored["attn_q"], stored["attn_k"], stored["attn_v"], stored["attn_output"]) == (
        "q4_k", "q8_0", "q8_0", "q5_k"
    )  # fmt: skip
    assert stored["router"] == "f32"
