"""Whatever is done to a model file, only edgeprof's own errors come out, and soon."""

import json
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edgeprof.errors import EdgeprofError
from edgeprof.models.readers.describe import describe_path
from edgeprof.models.vocabulary import find_vocabulary

Make = Callable[..., Any]
quick = settings(
    max_examples=150,
    derandomize=True,
    deadline=2000,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

# Where, what is put there, and how much of the file it replaces.
edits = st.lists(
    st.tuples(
        st.integers(0, 1 << 16),
        st.one_of(
            st.binary(max_size=9),
            st.sampled_from([b"\xff" * 8, b"\0" * 8, struct.pack("<Q", 1 << 60), b"9" * 30]),
        ),
        st.integers(0, 12),
    ),
    max_size=4,
)
cuts = st.one_of(st.none(), st.integers(0, 1 << 16))


def mutated(content: bytes, changes: list[tuple[int, bytes, int]], cut: int | None) -> bytes:
    for place, new, length in changes:
        at = place % (len(content) + 1)
        content = content[:at] + new + content[at + length :]
    return content if cut is None else content[: cut % (len(content) + 1)]


def survives(path: Path) -> None:
    """Describes the model or says what is wrong with it, on one line."""
    for look in (describe_path, find_vocabulary):
        try:
            look(path)
        except EdgeprofError as error:
            assert "\n" not in str(error)


@pytest.fixture
def gguf(write_gguf: Make, tiny_metadata: Make, tiny_tensors: Make) -> Path:
    metadata = tiny_metadata() | {
        "tokenizer.ggml.tokens": ["a", "b"], "llama.attention.head_count_kv": [2, 2]
    }  # fmt: skip
    path: Path = write_gguf(metadata, tiny_tensors(1))
    return path


@quick
@given(changes=edits, cut=cuts)
def test_mutated_gguf(gguf: Path, changes: list[tuple[int, bytes, int]], cut: int | None) -> None:
    path = gguf.with_name("mutated.gguf")
    path.write_bytes(mutated(gguf.read_bytes()[:2048], changes, cut))
    survives(path)


@pytest.fixture
def folder(write_config: Make, write_safetensors: Make) -> Path:
    path: Path = write_config(
        {"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
         "vocab_size": 100, "sliding_window": 4, "layer_types": ["full_attention"],
         "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
         "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}
    )  # fmt: skip
    write_safetensors(
        path.parent / "model.safetensors",
        {"model.embed_tokens.weight": ("F16", (4, 8)), "lm_head.weight": ("F16", (4, 8)),
         "model.layers.0.mlp.experts.0.up_proj.qweight": ("I32", (8, 4)),
         "model.layers.0.mlp.experts.0.up_proj.scales": ("F16", (2, 4))},
    )  # fmt: skip
    return path.parent


@quick
@given(changes=edits, cut=cuts)
def test_mutated_safetensors(
    folder: Path, changes: list[tuple[int, bytes, int]], cut: int | None
) -> None:
    original = folder / "original"
    if not original.exists():
        original.write_bytes((folder / "model.safetensors").read_bytes())
    (folder / "model.safetensors").write_bytes(mutated(original.read_bytes(), changes, cut))
    survives(folder)


@quick
@given(changes=edits, cut=cuts)
def test_mutated_configuration(
    folder: Path, changes: list[tuple[int, bytes, int]], cut: int | None
) -> None:
    path = folder / "other.json"  # of another name, so that no tensors are looked for
    path.write_bytes(mutated((folder / "config.json").read_bytes(), changes, cut))
    survives(path)


ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


QUANTISED = ["bits", "group_size", "quant_method", "config_groups", "ignore"]


@quick
@given(data=st.data())
def test_configurations_with_values_of_any_kind(folder: Path, data: st.DataObject) -> None:
    config = json.loads((folder / "config.json").read_text())
    names = [*config, "kv_lora_rank", "qk_rope_head_dim", "head_dim", "mlp_only_layers",
             "first_k_dense_replace", "n_shared_experts", "sliding_window_pattern", "torch_dtype",
             "text_config", "use_sliding_window", "max_window_layers", "tie_word_embeddings",
             "multi_query", "shared_expert_intermediate_size"]  # fmt: skip
    for name in data.draw(st.lists(st.sampled_from(names), max_size=3)):
        config[name] = data.draw(ANYTHING)
    for name in data.draw(st.lists(st.sampled_from(QUANTISED), max_size=2)):
        if isinstance(config["quantization_config"], dict):
            config["quantization_config"][name] = data.draw(ANYTHING)
    (folder / "other.json").write_text(json.dumps(config))
    survives(folder / "other.json")


@pytest.fixture(scope="module")
def onnx_bytes() -> bytes:
    def value(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT16, shape)

    caches = [f"past_key_values.0.{part}" for part in ("key", "value")]
    nodes = [
        helper.make_node("MatMulNBits", ["x", "q", "s"], ["y"], bits=4, block_size=32, N=4, K=32),
        helper.make_node("GroupQueryAttention", ["y", "", "", *caches], ["z"], num_heads=4,
                         kv_num_heads=2),
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        helper.make_node("MoE", ["x", "r", "fc1"], ["m"], k=1),
    ]  # fmt: skip
    constants = [
        helper.make_tensor("q", TensorProto.UINT8, [4, 1, 16], bytes(64), raw=True),
        helper.make_tensor("s", TensorProto.FLOAT16, [4], bytes(8), raw=True),
        helper.make_tensor("table", TensorProto.FLOAT, [3, 2], bytes(24), raw=True),
        helper.make_tensor("fc1", TensorProto.FLOAT, [2, 2, 2], bytes(32), raw=True),
    ]
    inputs = [value(name, [1, 2, "past", 16]) for name in caches]
    graph = helper.make_graph(nodes, "g", inputs, [value("logits", [1, 1, 3])], constants)
    content: bytes = helper.make_model(graph).SerializeToString()
    return content


@quick
@given(changes=edits, cut=cuts)
def test_mutated_onnx(
    tmp_path: Path, onnx_bytes: bytes, changes: list[tuple[int, bytes, int]], cut: int | None
) -> None:
    path = tmp_path / "mutated.onnx"
    path.write_bytes(mutated(onnx_bytes, changes, cut))
    survives(path)


def test_the_files_that_are_mutated_are_sound(
    gguf: Path, folder: Path, onnx_bytes: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "sound.onnx"
    path.write_bytes(onnx_bytes)
    for one in (gguf, folder, path):
        assert describe_path(one).groups


def test_headers_that_claim_2_to_60_tensors_allocate_nothing(tmp_path: Path) -> None:
    many = 1 << 60
    files = {
        "m.gguf": b"GGUF" + struct.pack("<IQQ", 3, many, 1),
        "k.gguf": b"GGUF" + struct.pack("<IQQ", 3, 1, many),
        "m.safetensors": struct.pack("<Q", many) + b"{}",
        "m.onnx": b"\x3a" + b"\xff" * 8 + b"\x0f",
    }
    (tmp_path / "config.json").write_text(
        '{"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1}'
    )
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        tracemalloc.start()
        started = time.perf_counter()
        with pytest.raises(EdgeprofError):
            describe_path(tmp_path / name)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000, name
        tracemalloc.stop()
        assert time.perf_counter() - started < 1, name


def test_an_onnx_file_of_nothing_but_fields_ends(tmp_path: Path) -> None:
    """Ten million little fields: given up after the limit, not after all."""
    path = tmp_path / "m.onnx"
    path.write_bytes(b"\x08\x01" * 10_000_000)
    with pytest.raises(EdgeprofError, match="more than 1000000 fields"):
        describe_path(path)
