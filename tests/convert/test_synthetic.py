"""Stacks of synthetic layers: the converter's graph, the model's bytes, nothing of its weights."""

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
from made_gguf import write_decoder_gguf

from edgeprof.catalog import find_model
from edgeprof.convert.folder import convert
from edgeprof.convert.synthetic import build_decoder, stored_bytes
from edgeprof.errors import UsageFault
from edgeprof.runner.ort_model import OrtModel


def operators(path: Path) -> Counter[str]:
    """Without what makes the weights."""
    kinds = Counter(node.op_type for node in onnx.load(path).graph.node)
    del kinds["Tile"]
    return kinds


@pytest.mark.parametrize(
    ("architecture", "storage", "settings"),
    [
        ("llama", "Q4_K", {}),
        ("llama", "F32", {}),
        ("qwen2", "Q8_0", {"tied": False, "biases": True}),
        ("qwen3", "Q6_K", {}),
        ("qwen2", "Q5_0", {"storages": {"attn_v": "Q8_0", "ffn_down": "Q5_1"}}),
    ],
)
def test_the_graph_is_that_of_the_converted_model(
    tmp_path: Path, architecture: str, storage: str, settings: dict[str, Any]
) -> None:
    gguf = write_decoder_gguf(
        tmp_path / "m.gguf", architecture, storage=storage, hidden=256, ffn=512, **settings
    )
    real = convert(gguf, tmp_path / "real")
    spec, _ = find_model(str(gguf))
    stack = build_decoder(spec, spec.layers, tmp_path, context_tokens=64)
    assert operators(stack.folder.onnx_path) == operators(real.onnx_path)
    made, known = stack.folder.manifest, real.manifest
    assert made is not None and known is not None
    assert made.streamed_weight_bytes == known.streamed_weight_bytes
    assert made.flop_per_token == known.flop_per_token
    assert made.kv_bytes_per_token == known.kv_bytes_per_token
    assert made.kernel == known.kernel


def test_bytes_of_smollm2_worked_out_by_hand(tmp_path: Path) -> None:
    """Q4_1 in the runtime: 4 bits, and float32 scale and correction a block of 32: 6 bits a weight.
    A layer has 576 x (576 + 192 + 192 + 576) + 3 x 576 x 1536 weights. The tied head is Q8_0: 8
    bits and a scale, 9 bits. 61 norms of 576 float32."""
    spec, _ = find_model("smollm2-135m:q4_1")
    layer = (576 * (576 + 192 + 192 + 576) + 3 * 576 * 1536) * 6 // 8
    head = 49152 * 576 * 9 // 8
    assert stored_bytes(spec, 3) == 3 * layer + head
    stack = build_decoder(spec, 3, tmp_path, context_tokens=64)
    assert (stack.layer_bytes, stack.all_layer_bytes) == (3 * layer, 30 * layer)
    assert stack.folder.manifest is not None
    assert stack.folder.manifest.streamed_weight_bytes == 3 * layer + head + 7 * 576 * 4


def test_a_stack_runs_with_and_without_its_head(tmp_path: Path) -> None:
    gguf = write_decoder_gguf(tmp_path / "m.gguf", "llama", storage="Q4_0")
    spec, _ = find_model(str(gguf))
    stack = build_decoder(spec, 2, tmp_path, context_tokens=32)
    model = OrtModel.open(stack.folder, threads=1, capacity=16)
    assert model.extend([1, 2, 3]).shape[0] == 3
    assert model.extend([1, 2], rows=0).shape[0] == 0
    assert model.length == 5


def test_mixed_storage_is_kept_in_proportion(tmp_path: Path) -> None:
    """Of 28 layers of Q4_K_M 14 hold ffn_down in 6 bits: of 4 layers, 2."""
    spec, _ = find_model("qwen2.5-7b:q4_k_m")
    stack = build_decoder(spec, 4, tmp_path, context_tokens=8)
    kinds = [
        next(a.i for a in node.attribute if a.name == "bits")
        for node in onnx.load(stack.folder.onnx_path).graph.node
        if node.op_type == "MatMulNBits" and "ffn_down" in node.name
    ]
    assert sorted(kinds) == [4, 4, 8, 8]
    assert stack.layer_bytes * 7 == stack.all_layer_bytes


def test_no_two_weights_are_made_alike(tmp_path: Path) -> None:
    """The runtime would keep one of them only, and every layer would read the same memory."""
    spec, _ = find_model("smollm2-135m:q4_1")
    stack = build_decoder(spec, 3, tmp_path, context_tokens=8)
    tensors = onnx.load(stack.folder.onnx_path).graph.initializer
    patterns = [one.raw_data for one in tensors if one.name.endswith(".pattern")]
    assert len(set(patterns)) == len(patterns) >= 3 * 4


@pytest.mark.parametrize("name", ["qwen3-30b-a3b:q4_k_m", "gpt-oss-20b:mxfp4_moe"])
def test_a_mixture_of_experts_is_refused(name: str) -> None:
    spec, _ = find_model(name)
    with pytest.raises(UsageFault, match="dense decoders"):
        stored_bytes(spec, 1)
