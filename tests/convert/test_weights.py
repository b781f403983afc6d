"""Metadata of a llama-architecture file that contradicts itself or is not supported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgeprof.convert.weights import LlamaWeights
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, read_header


@pytest.fixture
def header(tiny_gguf: Callable[..., Path], tmp_path: Path) -> GgufHeader:
    return read_header(tiny_gguf(tmp_path / "tiny.gguf"))


def changed(header: GgufHeader, key: str, value: Any) -> GgufHeader:
    return msgspec.structs.replace(header, metadata={**header.metadata, key: value})


def test_the_shape_is_read(header: GgufHeader) -> None:
    shape = LlamaWeights(header).shape
    assert (shape.layers, shape.hidden, shape.feed_forward) == (2, 64, 128)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 16)
    assert (shape.vocab_size, shape.context_tokens, shape.rope_base) == (300, 256, 10_000.0)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("general.architecture", "qwen2", "is 'qwen2'; edgeprof converts llama"),
        ("llama.block_count", 0, "llama.block_count is 0"),
        ("llama.block_count", 1 << 40, "llama.block_count is 1099511627776"),
        ("llama.block_count", "2", "llama.block_count is '2'"),
        ("llama.block_count", True, "llama.block_count is True"),
        ("llama.block_count", 3, "tensor 'blk.2.attn_k.weight' is missing"),
        ("llama.block_count", 1, "tensor 'blk.1.attn_k.weight' is none that edgeprof converts"),
        ("llama.feed_forward_length", 80, "feed-forward width 80 is no multiple of 32"),
        ("llama.embedding_length", 72, "heads of 18 values are not supported"),
        ("llama.feed_forward_length", 96, r"has dimensions \(64, 128\), expected \(64, 96\)"),
        ("llama.attention.head_count", 3, "3 query heads cannot share 2"),
        ("llama.attention.head_count_kv", 8, "head_count_kv is 8"),
        ("llama.attention.head_count_kv", (2, 2), "head_count_kv is"),
        ("llama.attention.key_length", 12, "heads of 12 values"),
        ("llama.attention.value_length", 8, "only the head's width 16"),
        ("llama.rope.dimension_count", 8, "only the head's width 16"),
        ("llama.rope.freq_base", float("nan"), "freq_base is nan"),
        ("llama.rope.freq_base", -1.0, "freq_base is -1.0"),
        ("llama.rope.scaling.type", "yarn", "scaling.type 'yarn' is not supported"),
        ("llama.context_length", 1 << 30, "context_length is 1073741824"),
        ("llama.attention.layer_norm_rms_epsilon", 0.0, "rms_epsilon is 0.0"),
    ],
)
def test_what_cannot_be_converted_is_refused_by_name(
    header: GgufHeader, key: str, value: Any, fault: str
) -> None:
    with pytest.raises(FileFault, match=fault) as caught:
        LlamaWeights(changed(header, key, value))
    assert str(header.path) in str(caught.value)


def test_a_tensor_that_the_graph_would_leave_out_is_refused(header: GgufHeader) -> None:
    bias = msgspec.structs.replace(header.tensors[1], name="blk.0.attn_q.bias")
    with pytest.raises(FileFault, match=r"'blk.0.attn_q.bias' is none that edgeprof converts"):
        LlamaWeights(msgspec.structs.replace(header, tensors=(*header.tensors, bias)))
