"""Files that contradict themselves or hold what is not supported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_gguf import write_decoder_gguf

from edgeprof.convert.requantise import Requantiser
from edgeprof.convert.weights import DecoderWeights
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, read_header


@pytest.fixture
def header(tiny_gguf: Callable[..., Path], tmp_path: Path) -> GgufHeader:
    return read_header(tiny_gguf(tmp_path / "tiny.gguf"))


def changed(header: GgufHeader, key: str, value: Any) -> GgufHeader:
    return msgspec.structs.replace(header, metadata={**header.metadata, key: value})


def test_the_shape_is_read(header: GgufHeader) -> None:
    shape = DecoderWeights(header).shape
    assert (shape.layers, shape.hidden, shape.feed_forward) == (2, 64, 128)
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (4, 2, 16)
    assert (shape.vocab_size, shape.context_tokens, shape.rope_base) == (300, 256, 10_000.0)


@pytest.mark.parametrize(
    ("key", "value", "fault"),
    [
        ("general.architecture", "gemma3", "is 'gemma3'; edgeprof converts llama, qwen2, qwen3"),
        ("general.architecture", ("llama",), "is \\('llama',\\); edgeprof converts"),
        ("general.architecture", "qwen2", "metadata key qwen2.embedding_length is missing"),
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
        ("llama.attention.key_length", 24, "heads of 24 values .* only multiples of 16"),
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
        DecoderWeights(changed(header, key, value))
    assert str(header.path) in str(caught.value)


def with_tensor(header: GgufHeader, name: str, **changes: Any) -> GgufHeader:
    """The header with the tensor of that name changed."""
    tensors = [
        msgspec.structs.replace(tensor, **changes) if tensor.name == name else tensor
        for tensor in header.tensors
    ]
    return msgspec.structs.replace(header, tensors=tuple(tensors))


@pytest.mark.parametrize(
    "name", ["blk.0.ffn_up.bias", "blk.0.attn_q_norm.weight", "blk.0.ffn_gate_inp.weight"]
)
def test_a_tensor_that_the_graph_would_leave_out_is_refused(header: GgufHeader, name: str) -> None:
    extra = msgspec.structs.replace(header.tensors[1], name=name)
    with pytest.raises(FileFault, match=rf"'{name}' is none that edgeprof converts for .*'llama'"):
        DecoderWeights(msgspec.structs.replace(header, tensors=(*header.tensors, extra)))


def test_norms_of_heads_are_missed_where_the_architecture_has_them(tmp_path: Path) -> None:
    whole = read_header(write_decoder_gguf(tmp_path / "m.gguf", "qwen3", head_dim=32))
    assert DecoderWeights(whole).shape.qkv_widths == (128, 64, 64)
    tensors = [tensor for tensor in whole.tensors if tensor.name != "blk.1.attn_k_norm.weight"]
    with pytest.raises(FileFault, match=r"'blk.1.attn_k_norm.weight' is missing"):
        DecoderWeights(msgspec.structs.replace(whole, tensors=tuple(tensors)))


@pytest.mark.parametrize("storage", ["IQ2_XXS", "IQ3_S", "IQ4_XS", "Q2_K", "Q3_K", "TQ1_0"])
def test_a_storage_without_an_exact_container_is_named_with_what_to_do(
    header: GgufHeader, storage: str
) -> None:
    changed_header = with_tensor(header, "blk.1.attn_v.weight", storage=storage)
    fault = (
        rf"'blk.1.attn_v.weight' is stored as {storage}; edgeprof converts Q4_0, .*"
        rf"--weights fp32, or let --requantise round {storage} to 8 bits"
    )
    with pytest.raises(FileFault, match=fault):
        DecoderWeights(changed_header)
    DecoderWeights(changed_header, float32=True)
    DecoderWeights(changed_header, requantiser=Requantiser())


@pytest.mark.parametrize("storage", ["I8", "F64", "MXFP4", "Q8_K"])
def test_a_storage_that_nothing_reads_is_refused_in_every_form(
    header: GgufHeader, storage: str
) -> None:
    changed_header = with_tensor(header, "blk.1.attn_v.weight", storage=storage)
    for choices in ({}, {"float32": True}, {"requantiser": Requantiser()}):
        with pytest.raises(FileFault, match=f"is stored as {storage}; .* quantise the model"):
            DecoderWeights(changed_header, **choices)


def test_a_quantised_norm_is_refused(header: GgufHeader) -> None:
    with pytest.raises(FileFault, match="is stored as Q8_0; edgeprof converts F32, F16, BF16"):
        DecoderWeights(with_tensor(header, "blk.0.attn_norm.weight", storage="Q8_0"))


def test_weights_that_are_not_finite_are_refused_by_name(
    header: GgufHeader, tmp_path: Path
) -> None:
    """The tiny model's matrices are float32: four bytes of ones are no number."""
    matrix = next(t for t in header.tensors if t.name == "blk.1.ffn_up.weight")
    norm = next(t for t in header.tensors if t.name == "blk.1.ffn_norm.weight")
    data = bytearray(header.path.read_bytes())
    for tensor in (matrix, norm):
        data[tensor.offset : tensor.offset + 4] = bytes([255] * 4)
    header.path.write_bytes(data)
    weights = DecoderWeights(header)
    with pytest.raises(FileFault, match=r"'blk.1.ffn_up.weight' holds weights that are no finite"):
        weights.matrix("blk.1.ffn_up.weight")
    with pytest.raises(FileFault, match=r"'blk.1.ffn_norm.weight' holds weights that are no fin"):
        weights.vector("blk.1.ffn_norm.weight")


def test_a_rope_factor_of_zero_is_refused(tmp_path: Path) -> None:
    path = write_decoder_gguf(tmp_path / "m.gguf", "llama", rope_factors=True)
    header = read_header(path)
    factors = next(t for t in header.tensors if t.name == "rope_freqs.weight")
    data = bytearray(path.read_bytes())
    data[factors.offset : factors.offset + 4] = bytes(4)
    path.write_bytes(data)
    with pytest.raises(FileFault, match=r"'rope_freqs.weight' holds factors that are not positive"):
        DecoderWeights(header).rope_factors()


def test_one_part_of_a_split_model_says_how_to_join_them(header: GgufHeader) -> None:
    """llama-gguf-split leaves only some of the tensors in each part."""
    for kept in (header.tensors[:4], ()):
        part = changed(header, "split.count", 3)
        part = msgspec.structs.replace(part, tensors=kept)
        with pytest.raises(FileFault, match=r"one of 3 parts .*`llama-gguf-split --merge"):
            DecoderWeights(part)
