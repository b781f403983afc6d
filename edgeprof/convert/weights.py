"""Reads the shape and the weights of a llama-architecture GGUF, and refuses what it cannot keep.

Everything the graph relies on is checked here: keys, their ranges, the set of tensors, their
dimensions and their storage types.
"""

from typing import NoReturn

import numpy as np
from msgspec import Struct

from edgeprof.convert.blocks import (
    BLOCK,
    BLOCK_STORAGE,
    FLOAT_STORAGE,
    Dense,
    Floats,
    Matrix,
    decode,
)
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, GgufTensor, tensor_bytes

ARCHITECTURES = ("llama",)
# The rotary tables grow with the context: 2^20 positions of 128-wide heads take 512 MiB.
MAX_CONTEXT_TOKENS = 1 << 20
MAX_LAYERS = 1 << 10
MAX_WIDTH = 1 << 20


class LlamaShape(Struct, frozen=True, kw_only=True):
    """The sizes of a llama-architecture decoder."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    context_tokens: int
    rms_epsilon: float
    rope_base: float


class LlamaWeights:
    """The tensors of one file, decoded when asked for."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self.shape = _read_shape(header, self._tensors)
        self._check_tensors()

    def has(self, name: str) -> bool:
        return name in self._tensors

    @property
    def parameters(self) -> int:
        """Weights in the file; a tied output head is the embedding and counts once."""
        return sum(int(np.prod(tensor.dims)) for tensor in self._tensors.values())

    def matrix(self, name: str) -> Matrix:
        tensor = self._tensors[name]
        columns, rows = tensor.dims
        return decode(tensor_bytes(self._header, tensor), tensor.storage, rows, columns)

    def vector(self, name: str) -> Floats:
        tensor = self._tensors[name]
        row = decode(tensor_bytes(self._header, tensor), tensor.storage, 1, tensor.dims[0])
        assert isinstance(row, Dense)
        values: Floats = row.values[0]
        return values

    def _check_tensors(self) -> None:
        """Exactly the tensors of the architecture: one too many would be left out silently."""
        expected = _expected_tensors(self.shape)
        optional = {"output.weight"}
        missing = sorted(expected.keys() - self._tensors.keys() - optional)
        if missing:
            _refuse(self._header, f"tensor {missing[0]!r} is missing")
        unknown = sorted(self._tensors.keys() - expected.keys())
        if unknown:
            _refuse(
                self._header,
                f"tensor {unknown[0]!r} is none that edgeprof converts (biases, norms of queries "
                "and keys, scaled rotary factors and experts are not supported)",
            )
        for name, tensor in self._tensors.items():
            _check_tensor(self._header, tensor, expected[name])


def _check_tensor(header: GgufHeader, tensor: GgufTensor, dims: tuple[int, ...]) -> None:
    if tensor.dims != dims:
        _refuse(header, f"tensor {tensor.name!r} has dimensions {tensor.dims}, expected {dims}")
    supported = FLOAT_STORAGE if len(dims) == 1 else BLOCK_STORAGE + FLOAT_STORAGE
    if tensor.storage not in supported:
        _refuse(
            header,
            f"tensor {tensor.name!r} is stored as {tensor.storage}; edgeprof converts "
            f"{', '.join(supported)}",
        )


def _expected_tensors(shape: LlamaShape) -> dict[str, tuple[int, ...]]:
    """Name -> dimensions in the file's order (row length first)."""
    hidden, feed_forward = shape.hidden, shape.feed_forward
    kv_width = shape.kv_heads * shape.head_dim
    q_width = shape.heads * shape.head_dim
    expected: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (hidden, shape.vocab_size),
        "output_norm.weight": (hidden,),
        "output.weight": (hidden, shape.vocab_size),
    }
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        expected |= {
            block + "attn_norm.weight": (hidden,),
            block + "attn_q.weight": (hidden, q_width),
            block + "attn_k.weight": (hidden, kv_width),
            block + "attn_v.weight": (hidden, kv_width),
            block + "attn_output.weight": (q_width, hidden),
            block + "ffn_norm.weight": (hidden,),
            block + "ffn_gate.weight": (hidden, feed_forward),
            block + "ffn_up.weight": (hidden, feed_forward),
            block + "ffn_down.weight": (feed_forward, hidden),
        }
    return expected


def _read_shape(header: GgufHeader, tensors: dict[str, GgufTensor]) -> LlamaShape:
    architecture = header.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        _refuse(
            header,
            f"general.architecture is {architecture!r}; edgeprof converts "
            f"{', '.join(ARCHITECTURES)}",
        )
    hidden = _count(header, "llama.embedding_length", MAX_WIDTH)
    heads = _count(header, "llama.attention.head_count", hidden)
    kv_heads = _count(header, "llama.attention.head_count_kv", heads, default=heads)
    head_dim = _count(header, "llama.attention.key_length", MAX_WIDTH, default=hidden // heads)
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.dims) != 2:
        _refuse(header, "tensor 'token_embd.weight' is missing or no matrix")
    shape = LlamaShape(
        layers=_count(header, "llama.block_count", MAX_LAYERS),
        hidden=hidden,
        feed_forward=_count(header, "llama.feed_forward_length", MAX_WIDTH),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=embedding.dims[1],
        context_tokens=_count(header, "llama.context_length", MAX_CONTEXT_TOKENS),
        rms_epsilon=_positive(header, "llama.attention.layer_norm_rms_epsilon"),
        rope_base=_positive(header, "llama.rope.freq_base", default=10_000.0),
    )
    _check_shape(header, shape)
    return shape


def _check_shape(header: GgufHeader, shape: LlamaShape) -> None:
    metadata, head_dim = header.metadata, shape.head_dim
    if shape.heads % shape.kv_heads:
        _refuse(
            header,
            f"{shape.heads} query heads cannot share {shape.kv_heads} key-value heads evenly",
        )
    if head_dim % 8:
        _refuse(header, f"heads of {head_dim} values are not supported, only multiples of 8")
    for key in ("llama.rope.dimension_count", "llama.attention.value_length"):
        if metadata.get(key, head_dim) != head_dim:
            _refuse(header, f"{key} is {metadata[key]!r}; only the head's width {head_dim} works")
    scaling = metadata.get("llama.rope.scaling.type", "none")
    if scaling != "none":
        _refuse(header, f"llama.rope.scaling.type {scaling!r} is not supported, only 'none'")
    for name, width in (("embedding", shape.hidden), ("feed-forward", shape.feed_forward)):
        if width % BLOCK:
            _refuse(header, f"the {name} width {width} is no multiple of {BLOCK}")


def _count(header: GgufHeader, key: str, limit: int, default: int | None = None) -> int:
    value = header.metadata.get(key, default)
    if value is None:
        _refuse(header, f"metadata key {key} is missing")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        _refuse(header, f"{key} is {value!r}, not a whole number from 1 to {limit}")
    return value


def _positive(header: GgufHeader, key: str, default: float | None = None) -> float:
    value = header.metadata.get(key, default)
    if value is None:
        _refuse(header, f"metadata key {key} is missing")
    if not isinstance(value, float) or not 0 < value < float("inf"):
        _refuse(header, f"{key} is {value!r}, not a positive number")
    return value


def _refuse(header: GgufHeader, fault: str) -> NoReturn:
    raise FileFault(f"{header.path}: {fault}")
