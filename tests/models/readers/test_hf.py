"""Models described from Hugging Face configurations, with and without safetensors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeprof.catalog import find_kv_type, find_model, model_table
from edgeprof.errors import EdgeprofError, FileFault
from edgeprof.models.readers.hf import describe_hf
from edgeprof.models.spec import ModelSpec

Make = Callable[..., Any]
F16 = find_kv_type("f16")

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 152064,
}
TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 100,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}


def bytes_of(spec: ModelSpec, role: str) -> int:
    return sum(group.bytes for group in spec.groups if group.role == role)


def test_a_configuration_gives_the_published_model(write_config: Make) -> None:
    spec = describe_hf(write_config(QWEN))
    assert spec.parameters == model_table().models["qwen2.5-7b"].parameters
    assert spec.resident_weight_bytes == 2 * spec.parameters  # all bfloat16
    assert spec.attention == find_model("qwen2.5-7b")[0].attention
    assert (spec.context_tokens, spec.quantisation) == (32768, "bf16")
    # 28 layers x 2 x 4 KV heads x 128 x 2 bytes x 32768 tokens
    assert spec.kv_read_bytes(32768, F16) == 1_879_048_192


def test_28_layers_of_8_heads_at_4096_tokens(write_config: Make) -> None:
    spec = describe_hf(write_config(QWEN | {"num_key_value_heads": 8, "num_attention_heads": 32,
                                            "head_dim": 128}))  # fmt: skip
    assert spec.kv_read_bytes(4096, F16) == 469_762_048


@pytest.mark.parametrize(
    "config",
    [
        {"llm_config": {"hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 24}},
        {"thinker_config": {"text_config": {
            "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 24}}},
    ],
)  # fmt: skip
def test_m03_nested_configurations(write_config: Make, config: dict[str, Any]) -> None:
    spec = describe_hf(write_config(config))
    # 24 layers x 2 x 16 heads x 128 x 2 bytes
    assert spec.kv_bytes_per_token(F16) == 196_608
    told = " ".join(spec.warnings)
    assert "no vocab_size; lm_head and embedding are NOT counted" in told
    assert "no intermediate_size; the feed-forward weights are NOT counted" in told


def test_m03_keys_that_are_there_are_listed(write_config: Make) -> None:
    with pytest.raises(FileFault, match=r"no dimensions .* keys found: 'inner', 'model_type'"):
        describe_hf(write_config({"model_type": "x", "inner": {"hidden": 3}}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": 0}, "num_attention_heads is 0, not a whole number from 1"),
        ({"num_attention_heads": None}, "num_attention_heads or n_head is missing"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is -1"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"hidden_size": 64.0}, r"hidden_size is 64\.0"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"vocab_size": "many"}, "vocab_size is 'many'"),
        ({"num_attention_heads": "4"}, "num_attention_heads is '4', not a whole number"),
        ({"num_key_value_heads": 3}, "heads 4 is no multiple of kv_heads 3"),
        ({"head_dim": None, "hidden_size": 66}, "66 is no multiple of 4 heads"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is no"),
        ({"num_experts": 8}, "8 experts, but num_experts_per_tok is missing"),
        ({"num_experts": 8, "num_experts_per_tok": 9}, "uses 9 experts of 8"),
        ({"sliding_window": -4}, "sliding_window is -4"),
        ({"sliding_window": 4, "layer_types": ["sliding_attention"]}, "1 entries for 2 layers"),
        ({"torch_dtype": "int3"}, "torch_dtype 'int3' is not known"),
        ({"quantization_config": {"quant_method": "hqq"}}, "quant_method is 'hqq'; known: awq"),
        ({"quantization_config": {"quant_method": "awq"}}, "bits or group_size is missing"),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "multi-head latent attention"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "some layers are recurrent"),
    ],
)
def test_m05_a_value_that_cannot_be_is_named(
    write_config: Make, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(FileFault, match=message) as caught:
        describe_hf(write_config(TINY | changes))
    assert "config.json: " in str(caught.value)


def test_m05_as_reported(write_config: Make) -> None:
    with pytest.raises(FileFault, match="num_attention_heads is 0"):
        describe_hf(write_config({"hidden_size": 2048, "num_attention_heads": 0}))


def test_m06_gpt2_names_its_keys_otherwise(write_config: Make) -> None:
    spec = describe_hf(write_config(
        {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}
    ))  # fmt: skip
    assert spec.kv_bytes_per_token(F16) == 36_864  # 12 x 2 x 12 x 64 x 2
    assert spec.parameters == 124_439_808  # GPT-2 small, as published
    assert spec.context_tokens == 1024


def test_m07_multi_query_is_one_kv_head(write_config: Make) -> None:
    spec = describe_hf(write_config(
        {"n_layer": 24, "n_embd": 2048, "n_head": 16, "multi_query": True}
    ))  # fmt: skip
    assert [kind.kv_heads for kind in spec.attention.kinds] == [1]
    assert spec.kv_bytes_per_token(F16) == 24 * 2 * 128 * 2


def test_a_type_that_is_not_known_is_taken_for_the_nearest(write_config: Make) -> None:
    spec = describe_hf(write_config(TINY | {"model_type": "qwen2_new"}))
    assert (
        "model_type 'qwen2_new' is not known; taken for a decoder like qwen2's" in spec.warnings[0]
    )
    assert bytes_of(spec, "bias") == 2 * (64 + 2 * 32) * 2  # of queries, keys and values


def test_m09_tensors_know_better_than_the_tie_flag(write_config: Make) -> None:
    path = write_config(TINY)
    index = {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00001.safetensors"}}
    (path.parent / "model.safetensors.index.json").write_text(json.dumps(index))
    spec = describe_hf(path.parent)
    assert bytes_of(spec, "embedding") == 0
    assert bytes_of(spec, "lm_head") == 100 * 64 * 2
    assert any("says untied embeddings, the tensors have no lm_head" in w for w in spec.warnings)


@pytest.mark.parametrize("nested", [True, False])
def test_m10_the_nested_tie_flag_wins(write_config: Make, nested: bool) -> None:
    text = TINY | {"tie_word_embeddings": nested}
    spec = describe_hf(write_config({"tie_word_embeddings": not nested, "text_config": text}))
    assert bytes_of(spec, "lm_head") == 100 * 64 * 2
    assert bytes_of(spec, "embedding") == (0 if nested else 100 * 64 * 2)


def test_m11_the_size_of_the_configuration_counts(write_config: Make) -> None:
    spec = describe_hf(write_config(QWEN))
    assert bytes_of(spec, "lm_head") == 152_064 * 3584 * 2


def test_m31_windows_cap_the_layers_that_have_one(write_config: Make) -> None:
    types = ["sliding_attention", "full_attention"]
    spec = describe_hf(write_config(TINY | {"sliding_window": 512, "layer_types": types}))
    # keys and values of 2 heads x 16 x 2 bytes: 128 a token and layer
    assert spec.kv_read_bytes(4096, F16) == (512 + 4096) * 128


@pytest.mark.parametrize(
    ("changes", "windowed"),
    [
        ({"model_type": "mistral", "sliding_window": 8}, 6),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        ({"model_type": "gemma2", "sliding_window": 8}, 3),
        ({"model_type": "gemma3_text", "sliding_window": 8}, 5),
        ({"model_type": "gemma3_text", "sliding_window": 8, "sliding_window_pattern": 3}, 4),
        ({"model_type": "qwen2", "sliding_window": 8}, 0),
        ({"model_type": "qwen2", "sliding_window": 8, "use_sliding_window": True,
          "max_window_layers": 4}, 2),
    ],
)  # fmt: skip
def test_windows_without_a_list_of_layers(
    write_config: Make, changes: dict[str, Any], windowed: int
) -> None:
    spec = describe_hf(write_config(TINY | {"num_hidden_layers": 6} | changes))
    assert spec.attention.windowed_layers == windowed


def test_m33_a_byte_order_mark_is_accepted(write_config: Make) -> None:
    spec = describe_hf(write_config(b"\xef\xbb\xbf" + json.dumps(TINY).encode()))
    assert spec.layers == 2


def test_m33_broken_json_is_told_with_its_place(write_config: Make) -> None:
    with pytest.raises(FileFault, match="not valid JSON: line 1, column 21: "):
        describe_hf(write_config('\ufeff{"hidden_size": 896,}'))


@pytest.mark.parametrize("content", ["", "[]", "7", "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_m33_siblings(write_config: Make, content: str) -> None:
    with pytest.raises(FileFault, match=r"config\.json: "):
        describe_hf(write_config(content))


# Storage by configuration


MATRICES = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96)  # weights of the layers' matrices
REST = 2 * (2 * 100 * 64 + 5 * 64)  # lm_head, embedding and norms in 16 bit


@pytest.mark.parametrize(
    ("quantised", "bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True},
         4 + 16 / 32 + 4 / 32),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32}, 8 + 16 / 32 + 8 / 32),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head"], "config_groups": {
            "group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32,
                                    "symmetric": True}}}}, 4 + 16 / 32),
        ({"quant_method": "fp8"}, 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 4 + 32 / 64),
    ],
)  # fmt: skip
def test_bits_of_a_quantised_configuration(
    write_config: Make, quantised: dict[str, Any], bits: float
) -> None:
    config = TINY | {"quantization_config": quantised, "hidden_size": 256, "head_dim": 64}
    config |= {"intermediate_size": 512}
    spec = describe_hf(write_config(config))
    for group in spec.groups:
        expected = bits if group.role.startswith(("attn", "ffn")) else 16
        assert group.bits_per_weight == pytest.approx(expected), group.role


def test_experts_alone_are_mxfp4(write_config: Make) -> None:
    spec = describe_hf(write_config(TINY | {
        "model_type": "gpt_oss", "num_local_experts": 8, "num_experts_per_tok": 2,
        "quantization_config": {"quant_method": "mxfp4"}}))  # fmt: skip
    stored = {group.storage_name for group in spec.groups if group.role.startswith("expert")}
    assert stored == {"mxfp4"}
    assert {g.storage_name for g in spec.groups if g.role.startswith("attn")} == {"f16"}


def test_a_dense_model_in_mxfp4_has_it_in_all_matrices_of_its_layers(write_config: Make) -> None:
    spec = describe_hf(write_config(TINY | {"quantization_config": {"quant_method": "mxfp4"}}))
    for group in spec.groups:
        matrix = group.role.startswith(("attn", "ffn"))
        assert group.storage_name == ("mxfp4" if matrix else "f16"), group.role


def test_gpt_oss_by_its_configuration(write_config: Make) -> None:
    types = ["sliding_attention", "full_attention"] * 12
    spec = describe_hf(write_config({
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
        "num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 24,
        "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088,
        "attention_bias": True, "sliding_window": 128, "layer_types": types,
        "tie_word_embeddings": False}))  # fmt: skip
    assert spec.parameters == 20_914_757_184


# Exact bytes from safetensors


def tiny_safetensors(dtype: str = "F16", head: bool = True) -> dict[str, Any]:
    tensors: dict[str, Any] = {"model.embed_tokens.weight": (dtype, (100, 64))}
    for layer in range(2):
        block = f"model.layers.{layer}."
        shapes = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64),
                  "self_attn.v_proj": (32, 64), "self_attn.o_proj": (64, 64),
                  "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
                  "input_layernorm": (64,), "post_attention_layernorm": (64,)}  # fmt: skip
        tensors |= {f"{block}{name}.weight": (dtype, shape) for name, shape in shapes.items()}
    tensors["model.norm.weight"] = (dtype, (64,))
    if head:
        tensors["lm_head.weight"] = (dtype, (100, 64))
    return tensors


def test_tensors_and_configuration_agree(write_config: Make, write_safetensors: Make) -> None:
    path = write_config(TINY)
    by_config = describe_hf(path)
    write_safetensors(path.parent / "model.safetensors", tiny_safetensors())
    spec = describe_hf(path.parent)
    assert spec.resident_weight_bytes == by_config.resident_weight_bytes == 2 * MATRICES + REST
    assert spec.streamed_weight_bytes == by_config.streamed_weight_bytes
    assert spec.used_parameters == by_config.used_parameters
    assert "headers of 1 safetensors files" in spec.source


def test_shards_named_by_an_index(write_config: Make, write_safetensors: Make) -> None:
    path = write_config(TINY)
    names = list(tiny_safetensors())
    shards = {name: f"model-{number % 2 + 1}.safetensors" for number, name in enumerate(names)}
    for shard in set(shards.values()):
        content = {n: t for n, t in tiny_safetensors().items() if shards[n] == shard}
        write_safetensors(path.parent / shard, content)
    index = path.parent / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards}))
    assert describe_hf(path.parent).resident_weight_bytes == 2 * MATRICES + REST
    (path.parent / "model-2.safetensors").unlink()
    told = describe_hf(path.parent)
    assert told.resident_weight_bytes == 2 * MATRICES + REST  # from the configuration
    assert "1 of 2 files are not there" in told.warnings[0]


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", 7, ""])
def test_an_index_names_files_of_its_folder_only(write_config: Make, file: Any) -> None:
    path = write_config(TINY)
    index = path.parent / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(FileFault, match="weight_map does not name files of this folder"):
        describe_hf(path.parent)


def test_packed_weights_count_with_their_scales(
    write_config: Make, write_safetensors: Make
) -> None:
    """GPTQ, group 32: eight weights an int32, zero points packed alike, scales in f16."""
    path = write_config(
        TINY | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32}}
    )
    tensors = tiny_safetensors()
    name = "model.layers.0.mlp.up_proj"
    del tensors[f"{name}.weight"]
    tensors |= {
        f"{name}.qweight": ("I32", (8, 96)),
        f"{name}.qzeros": ("I32", (2, 12)),
        f"{name}.scales": ("F16", (2, 96)),
        f"{name}.g_idx": ("I32", (64,)),
    }
    write_safetensors(path.parent / "model.safetensors", tensors)
    spec = describe_hf(path.parent)
    (group,) = [group for group in spec.groups if group.storage_name == "4-bit packed"]
    assert group.parameters == 64 * 96
    assert group.bytes == 8 * 96 * 4 + 2 * 12 * 4 + 2 * 96 * 2 + 64 * 4


def test_a_latent_cache_with_its_tensors(write_config: Make, write_safetensors: Make) -> None:
    path = write_config(TINY | {"kv_lora_rank": 512, "qk_rope_head_dim": 64})
    write_safetensors(path.parent / "model.safetensors", tiny_safetensors())
    assert describe_hf(path.parent).kv_bytes_per_token(F16) == 2 * (512 + 64) * 2


def test_truncated_safetensors_are_described_with_a_warning(
    write_config: Make, write_safetensors: Make
) -> None:
    path = write_config(TINY)
    file = write_safetensors(path.parent / "model.safetensors", tiny_safetensors())
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - 1000)
    spec = describe_hf(path.parent)
    assert spec.resident_weight_bytes == 2 * MATRICES + REST
    assert any("truncated: 1000 bytes are missing" in warning for warning in spec.warnings)


def test_layers_without_tensors_are_told(write_config: Make, write_safetensors: Make) -> None:
    """As when the first of several files was fetched alone: its bytes are not the model's."""
    config = write_config(TINY)
    norm = ("F16", (64,))
    tensors = {"model.layers.0.input_layernorm.weight": norm, "model.norm.weight": norm}
    write_safetensors(config.parent / "model-00001-of-00002.safetensors", tensors)
    told = "; ".join(describe_hf(config.parent).warnings)
    assert "1 of 2 layers have no weights here: part of the model is missing" in told
    tensors["model.layers.1.input_layernorm.weight"] = norm
    write_safetensors(config.parent / "model-00002-of-00002.safetensors", tensors)
    (config.parent / "model-00001-of-00002.safetensors").unlink()
    assert not any("no weights here" in one for one in describe_hf(config.parent).warnings)


def test_a_folder_without_configuration(tmp_path: Path) -> None:
    with pytest.raises(EdgeprofError, match=r"no config\.json in it"):
        describe_hf(tmp_path)
