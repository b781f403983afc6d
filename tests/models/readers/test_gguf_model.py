"""Models described from GGUF headers, tensor by tensor."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeprof.catalog import find_kv_type, find_model
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf_model import describe_gguf
from edgeprof.models.spec import AttentionKind, ModelSpec

Make = Callable[..., Any]


def bytes_of(spec: ModelSpec, role: str) -> int:
    return sum(group.bytes for group in spec.groups if group.role == role)


# 64 x 100 rows of two 34-byte blocks; layers: (64 + 32 + 32 + 64) rows of 2 x 18 bytes,
# 2 x 96 of the same, 64 of 3 x 18; norms: 5 x 64 x 4.
HEAD = 100 * 2 * 34
LAYER = (64 + 32 + 32 + 64 + 96 + 96) * 36 + 64 * 54
NORMS = 5 * 64 * 4


def test_every_tensor_counts_once(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    spec = describe_gguf(write_gguf(tiny_metadata(), tiny_tensors()))
    assert spec.resident_weight_bytes == spec.streamed_weight_bytes == HEAD + 2 * LAYER + NORMS
    assert bytes_of(spec, "lm_head") == HEAD  # the tied table, read as the output head
    assert spec.title == "Tiny"
    assert (spec.quantisation, spec.context_tokens, spec.vocab) == ("q4_0", 128, 100)
    # 2 layers x (keys + values) x 2 heads x 16 x 2 bytes
    assert spec.kv_bytes_per_token(find_kv_type("f16")) == 2 * 2 * 2 * 16 * 2
    assert spec.rewinds and spec.warnings == ()


def test_an_untied_embedding_is_read_by_the_row(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    tensors = [*tiny_tensors(), ("output.weight", (64, 100), "F16")]
    spec = describe_gguf(write_gguf(tiny_metadata(), tensors))
    assert bytes_of(spec, "embedding") == HEAD
    assert spec.embedding_row_bytes == 2 * 34
    assert spec.streamed_weight_bytes == 100 * 64 * 2 + 2 * LAYER + NORMS


def test_a_real_file_equals_its_recipe(smollm2_gguf: Path) -> None:
    spec, by_name = describe_gguf(smollm2_gguf), find_model("smollm2-135m:q4_1")[0]
    assert spec.resident_weight_bytes == by_name.resident_weight_bytes == 96_576_768
    assert spec.parameters == by_name.parameters == 134_515_008
    assert spec.attention == by_name.attention


def test_m17_experts_are_recognised(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    tensors = [entry for entry in tiny_tensors() if "ffn_gate" not in entry[0]]
    tensors = [entry for entry in tensors if "ffn_up" not in entry[0] and "down" not in entry[0]]
    for layer in range(2):
        tensors += [
            (f"blk.{layer}.ffn_gate_inp.weight", (64, 8), "F32"),
            (f"blk.{layer}.ffn_gate_exps.weight", (64, 32, 8), "MXFP4"),
            (f"blk.{layer}.ffn_up_exps.weight", (64, 32, 8), "MXFP4"),
            (f"blk.{layer}.ffn_down_exps.weight", (32, 64, 8), "MXFP4"),
        ]
    metadata = tiny_metadata(**{"llama.expert_count": 8, "llama.expert_used_count": 2})
    spec = describe_gguf(write_gguf(metadata, tensors))
    expert = 2 * 32 * 2 * 17 + 64 * 17  # gate and up: 32 rows of two blocks; down: 64 of one
    dense = HEAD + 2 * (64 + 32 + 32 + 64) * 36 + NORMS + 2 * 8 * 64 * 4
    assert spec.resident_weight_bytes == dense + 2 * 8 * expert
    assert spec.streamed_weight_bytes == dense + 2 * 2 * expert
    # two tokens: 8 (1 - (6/8)^2) = 3.5 experts
    assert spec.streamed_bytes(2) == dense + 2 * 3.5 * expert
    assert spec.warnings == ()


def test_m19_a_truncated_file_is_described_with_a_warning(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    whole = describe_gguf(write_gguf(tiny_metadata(), tiny_tensors()))
    spec = describe_gguf(write_gguf(tiny_metadata(), tiny_tensors(), name="s.gguf", missing=3000))
    assert spec.groups == whole.groups
    assert "truncated: 3000 of " in spec.warnings[0]


def test_m21_padding_at_the_end_is_ignored(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    spec = describe_gguf(write_gguf(tiny_metadata(), tiny_tensors(), trailing=64))
    assert spec.warnings == ()
    assert spec.resident_weight_bytes == HEAD + 2 * LAYER + NORMS


def test_m22_bits_are_those_of_the_blocks(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    spec = describe_gguf(write_gguf(tiny_metadata(), tiny_tensors()))
    assert {g.bits_per_weight for g in spec.groups if g.role.startswith("ffn")} == {4.5}


def test_m14_an_array_of_values_for_every_layer(write_gguf: Make, tiny_metadata: Make) -> None:
    """88 layers, each with its own number of KV heads: all are read."""
    heads = [1 + layer % 2 for layer in range(88)]
    metadata = tiny_metadata(**{"llama.block_count": 88, "llama.attention.head_count_kv": heads})
    tensors = [("token_embd.weight", (64, 100), "Q8_0")]
    tensors += [(f"blk.{i}.attn_k.weight", (64, 16 * heads[i]), "Q4_0") for i in range(88)]
    spec = describe_gguf(write_gguf(metadata, tensors))
    # 44 layers with one head of 16, 44 with two; keys and values, 2 bytes
    assert spec.kv_bytes_per_token(find_kv_type("f16")) == (44 * 1 + 44 * 2) * 2 * 16 * 2


def test_layers_without_a_cache_and_with_a_state(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    tensors = [e for e in tiny_tensors() if not e[0].startswith("blk.0.attn_k")]
    tensors += [
        ("blk.0.ssm_out.weight", (64, 64), "Q4_0"),
        ("blk.0.attn_qkv.weight", (64, 64), "Q4_0"),
    ]
    spec = describe_gguf(write_gguf(tiny_metadata(), tensors))
    assert not spec.rewinds
    assert spec.attention.layers == 1
    assert bytes_of(spec, "other") == 64 * 36
    assert "running state" in spec.warnings[0]


def test_a_model_without_attention_keeps_no_cache(write_gguf: Make) -> None:
    metadata = {
        "general.architecture": "mamba", "mamba.block_count": 1, "mamba.embedding_length": 64,
        "mamba.attention.head_count": 0,
    }  # fmt: skip
    spec = describe_gguf(write_gguf(metadata, [("blk.0.ssm_in.weight", (64, 64), "Q4_0")]))
    assert spec.kv_bytes_per_token(find_kv_type("f16")) == 0
    assert not spec.rewinds


@pytest.mark.parametrize(
    ("architecture", "layers", "windowed"),
    [("gemma2", 26, 13), ("gemma3", 26, 22), ("gemma3", 34, 29), ("gpt-oss", 24, 12)],
)
def test_which_layers_have_a_window(
    write_gguf: Make, architecture: str, layers: int, windowed: int
) -> None:
    metadata = {
        "general.architecture": architecture,
        f"{architecture}.block_count": layers,
        f"{architecture}.embedding_length": 64,
        f"{architecture}.attention.head_count": 4,
        f"{architecture}.attention.sliding_window": 512,
    }
    tensors = [(f"blk.{layer}.attn_k.weight", (64, 64), "Q4_0") for layer in range(layers)]
    spec = describe_gguf(write_gguf(metadata, tensors))
    assert spec.attention.windowed_layers == windowed
    assert spec.attention.layers == layers


def test_a_latent_cache_is_one_vector_for_all_heads(write_gguf: Make) -> None:
    """DeepSeek-V2's numbers: a latent vector of 512 and a rotated key of 64."""
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.block_count": 1,
        "deepseek2.embedding_length": 256,
        "deepseek2.attention.head_count": 16,
        "deepseek2.attention.kv_lora_rank": 512,
        "deepseek2.rope.dimension_count": 64,
    }
    spec = describe_gguf(write_gguf(metadata, [("blk.0.attn_kv_a_mqa.weight", (256, 576), "Q4_0")]))
    assert spec.attention.kinds == (
        AttentionKind(layers=1, heads=16, kv_heads=1, key_dim=576, value_dim=512,
                      latent_value=True),
    )  # fmt: skip
    assert spec.kv_bytes_per_token(find_kv_type("f16")) == (512 + 64) * 2


# Split files


def split(write_gguf: Make, metadata: dict[str, Any], tensors: list[Any], parts: int = 2) -> Path:
    share = -(-len(tensors) // parts)
    for number in range(parts):
        write_gguf(
            (metadata if number == 0 else {}) | {"split.no": number, "split.count": parts},
            tensors[number * share : (number + 1) * share],
            name=f"m-{number + 1:05d}-of-{parts:05d}.gguf",
        )
    path: Path = write_gguf({}, [], name="unrelated.gguf").with_name("m-00001-of-00002.gguf")
    return path


@pytest.mark.parametrize("number", [1, 2])
def test_a_split_model_is_described_from_any_part(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make, number: int
) -> None:
    path = split(write_gguf, tiny_metadata(), tiny_tensors())
    spec = describe_gguf(path.with_name(f"m-{number:05d}-of-00002.gguf"))
    assert spec.name == "m"
    assert spec.resident_weight_bytes == HEAD + 2 * LAYER + NORMS
    assert "2 files" in spec.source


def test_a_missing_part_is_named(write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make) -> None:
    path = split(write_gguf, tiny_metadata(), tiny_tensors())
    path.with_name("m-00002-of-00002.gguf").unlink()
    with pytest.raises(FileFault, match=r"1 of the 2 parts .* missing: m-00002-of-00002\.gguf"):
        describe_gguf(path)


def test_parts_of_two_models_are_told(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    path = split(write_gguf, tiny_metadata(), tiny_tensors())
    write_gguf({"split.no": 1, "split.count": 3}, [], name="m-00002-of-00002.gguf")
    with pytest.raises(FileFault, match=r"split\.count is 3, its name says 2"):
        describe_gguf(path)


# What cannot be


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("general.architecture", 7, "general.architecture is missing"),
        ("llama.block_count", 0, r"llama\.block_count is 0, not a whole number from 1"),
        ("llama.block_count", 1 << 31, r"llama\.block_count is 2147483648"),
        ("llama.embedding_length", "wide", r"llama\.embedding_length is 'wide'"),
        ("llama.attention.head_count", 0, r"llama\.attention\.head_count is 0"),
        ("llama.attention.head_count_kv", [2], r"head_count_kv has 1 values for 2 layers"),
        ("llama.attention.head_count_kv", 3, "4 heads are no multiple of 3 KV heads"),
        ("general.architecture", "clip", "the vision part of a model"),
    ],
)
def test_m05_a_key_that_cannot_be_is_named(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make, key: str, value: Any, message: str
) -> None:
    with pytest.raises(FileFault, match=message):
        describe_gguf(write_gguf(tiny_metadata(**{key: value}), tiny_tensors()))


def test_a_missing_key_is_named(write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make) -> None:
    metadata = tiny_metadata()
    del metadata["llama.block_count"]
    with pytest.raises(FileFault, match=r"key llama\.block_count is missing"):
        describe_gguf(write_gguf(metadata, tiny_tensors()))


def test_layers_without_tensors_are_told(
    write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make
) -> None:
    told = "; ".join(describe_gguf(write_gguf(tiny_metadata(), tiny_tensors(layers=1))).warnings)
    assert "1 of 2 layers have no weights here: part of the model is missing" in told
    assert describe_gguf(write_gguf(tiny_metadata(), tiny_tensors(layers=2))).warnings == ()


def test_m18_a_web_page_is_called_one(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"<!doctype html><html>")
    with pytest.raises(FileFault, match="HTML page, not a model: the download failed"):
        describe_gguf(path)


def test_a_vocabulary_alone_is_no_model(write_gguf: Make, tiny_metadata: Make) -> None:
    with pytest.raises(FileFault, match="holds no tensors"):
        describe_gguf(write_gguf(tiny_metadata(), []))
