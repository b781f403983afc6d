"""Reads the shape and the weights of a GGUF decoder, and refuses what the graph cannot keep.

Everything the graph relies on is checked here: keys, their ranges, the set of tensors, their
dimensions, their storage types and that no weight is infinite.
"""

import math
from collections.abc import Mapping
from typing import NoReturn, Protocol

from msgspec import Struct

from edgeprof.convert.blocks import (
    BLOCK,
    BLOCK_FORMATS,
    FLOAT_FORMATS,
    Dense,
    Floats,
    Matrix,
    Rows,
    decode,
    dequantise,
    is_finite,
    select_rows,
)
from edgeprof.convert.requantise import REQUANTISABLE, Requantiser, read_by_gguf
from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, GgufTensor, tensor_bytes

# The rotary tables grow with the context: 2^20 positions of 128-wide heads take 512 MiB.
MAX_CONTEXT_TOKENS = 1 << 20
MAX_LAYERS = 1 << 10
MAX_WIDTH = 1 << 20
ROPE_FACTORS = "rope_freqs.weight"
# An 8-bit block of 16 with its scale is the widest container of a quantised weight, 10 bits; the
# same with 32 weights, a scale and a correction. Other weights are widened to float32.
WIDEST_BLOCK_BITS = 10


class Architecture(Struct, frozen=True, kw_only=True):
    """What sets one family of decoders apart.

    ``adjacent_pairs``: its files hold rotary partners side by side. ``head_norms``: each head's
    queries and keys are normalised before they are turned. ``rope_factors``: its files may divide
    every rotary frequency by a number of its own.
    """

    adjacent_pairs: bool = False
    head_norms: bool = False
    rope_factors: bool = False


ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": Architecture(adjacent_pairs=True, rope_factors=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(head_norms=True),
}


class DecoderShape(Struct, frozen=True, kw_only=True):
    """The sizes of a decoder, and the constants of its norms and its rotary embedding."""

    architecture: str
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

    @property
    def family(self) -> Architecture:
        return ARCHITECTURES[self.architecture]

    @property
    def qkv_widths(self) -> tuple[int, int, int]:
        kv_width = self.kv_heads * self.head_dim
        return self.heads * self.head_dim, kv_width, kv_width


class Weights(Protocol):
    """What a graph is built from: tensors by the names that GGUF has for them."""

    shape: DecoderShape

    @property
    def parameters(self) -> int:
        """Weights in all; a tied output head is the embedding and counts once."""
        ...

    def has(self, name: str) -> bool: ...

    def matrix(self, name: str) -> Matrix: ...

    def rows(self, name: str, rows: Rows) -> Matrix:
        """These rows of a matrix, in this order."""
        ...

    def vector(self, name: str) -> Floats: ...

    def rope_factors(self) -> Floats | None:
        """What each rotary frequency is divided by, where anything is."""
        ...


class DecoderWeights:
    """The tensors of one file, decoded when asked for: widened to ``float32``, or in containers.

    ``requantiser`` rounds matrices that no container holds; without one they are refused.
    """

    def __init__(
        self,
        header: GgufHeader,
        *,
        float32: bool = False,
        requantiser: Requantiser | None = None,
    ) -> None:
        self._header = header
        self._float32 = float32
        self._requantiser = requantiser
        self._tensors = {tensor.name: tensor for tensor in header.tensors}
        self.shape = _read_shape(header, self._tensors)
        self._check_tensors()

    def has(self, name: str) -> bool:
        return name in self._tensors

    @property
    def parameters(self) -> int:
        """Weights in the file; a tied output head is the embedding and counts once."""
        return sum(math.prod(tensor.dims) for tensor in self._tensors.values())

    @property
    def most_stored_bytes(self) -> int:
        """No less than the graph's weights will take."""

        def bits(tensor: GgufTensor) -> int:
            return 32 if self._float32 or tensor.storage in FLOAT_FORMATS else WIDEST_BLOCK_BITS

        return sum(math.prod(tensor.dims) * bits(tensor) // 8 for tensor in self._tensors.values())

    def matrix(self, name: str) -> Matrix:
        tensor = self._tensors[name]
        columns, rows = tensor.dims
        raw, storage = tensor_bytes(self._header, tensor), tensor.storage
        matrix: Matrix
        if storage in REQUANTISABLE:
            matrix = Dense(values=read_by_gguf(raw, storage, rows))
        else:
            matrix = decode(raw, storage, rows, columns)
        if not is_finite(matrix):
            _refuse(self._header, f"tensor {name!r} holds weights that are no finite numbers")
        if self._float32:
            return Dense(values=dequantise(matrix))
        if storage in REQUANTISABLE and self._requantiser is not None:
            return self._requantiser.round(dequantise(matrix), storage)
        return matrix

    def rows(self, name: str, rows: Rows) -> Matrix:
        return select_rows(self.matrix(name), rows)

    def vector(self, name: str) -> Floats:
        tensor = self._tensors[name]
        row = decode(tensor_bytes(self._header, tensor), tensor.storage, 1, tensor.dims[0])
        if not is_finite(row):
            _refuse(self._header, f"tensor {name!r} holds weights that are no finite numbers")
        values: Floats = dequantise(row)[0]
        return values

    def rope_factors(self) -> Floats | None:
        """What each rotary frequency is divided by, where the file says so."""
        if not self.has(ROPE_FACTORS):
            return None
        factors = self.vector(ROPE_FACTORS)
        if not (factors > 0).all():
            _refuse(self._header, f"tensor {ROPE_FACTORS!r} holds factors that are not positive")
        return factors

    def _check_tensors(self) -> None:
        """Exactly the tensors of the architecture: one too many would be left out silently."""
        required, optional = _required_tensors(self.shape), _optional_tensors(self.shape)
        missing = sorted(required.keys() - self._tensors.keys())
        if missing:
            _refuse(
                self._header, f"tensor {missing[0]!r} is missing{_in_other_parts(self._header)}"
            )
        expected = required | optional
        unknown = sorted(self._tensors.keys() - expected.keys())
        if unknown:
            _refuse(
                self._header,
                f"tensor {unknown[0]!r} is none that edgeprof converts for the architecture "
                f"{self.shape.architecture!r} (experts, biases other than those of queries, keys "
                "and values, and adapters are not supported)",
            )
        for name, tensor in self._tensors.items():
            self._check_tensor(tensor, expected[name])

    def _check_tensor(self, tensor: GgufTensor, dims: tuple[int, ...]) -> None:
        header, storage = self._header, tensor.storage
        if tensor.dims != dims:
            _refuse(header, f"tensor {tensor.name!r} has dimensions {tensor.dims}, expected {dims}")
        is_vector = len(dims) == 1
        if storage in FLOAT_FORMATS or (storage in BLOCK_FORMATS and not is_vector):
            return
        exact = [*FLOAT_FORMATS] if is_vector else [*BLOCK_FORMATS, *FLOAT_FORMATS]
        fault = (
            f"tensor {tensor.name!r} is stored as {storage}; edgeprof converts {', '.join(exact)}"
        )
        if is_vector or storage not in REQUANTISABLE:
            _refuse(header, f"{fault}: quantise the model to one of them")
        if self._requantiser is None and not self._float32:
            _refuse(
                header,
                f"{fault} as they are: take the model in one of them, widen all weights with "
                f"--weights fp32, or let --requantise round {storage} to 8 bits and measure the "
                'error (in a recipe: weights = "fp32" or requantise = true)',
            )


def _required_tensors(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Name -> dimensions in the file's order (row length first)."""
    hidden, feed_forward = shape.hidden, shape.feed_forward
    q_width, kv_width, _ = shape.qkv_widths
    required: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (hidden, shape.vocab_size),
        "output_norm.weight": (hidden,),
    }
    for layer in range(shape.layers):
        block = f"blk.{layer}."
        required |= {
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
        if shape.family.head_norms:
            required |= {block + f"attn_{part}_norm.weight": (shape.head_dim,) for part in "qk"}
    return required


def _optional_tensors(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    optional: dict[str, tuple[int, ...]] = {"output.weight": (shape.hidden, shape.vocab_size)}
    if shape.family.rope_factors:
        optional[ROPE_FACTORS] = (shape.head_dim // 2,)
    for layer in range(shape.layers):
        for part, width in zip("qkv", shape.qkv_widths, strict=True):
            optional[f"blk.{layer}.attn_{part}.bias"] = (width,)
    return optional


def _in_other_parts(header: GgufHeader) -> str:
    """Said of a file that is one of several."""
    parts = header.metadata.get("split.count", 1)
    if not isinstance(parts, int) or parts <= 1:
        return ""
    return (
        f"; this is one of {parts} parts of a model: join them with "
        "`llama-gguf-split --merge FIRST_PART WHOLE.gguf`"
    )


def _read_shape(header: GgufHeader, tensors: Mapping[str, GgufTensor]) -> DecoderShape:
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
        _refuse(
            header,
            f"general.architecture is {architecture!r}; edgeprof converts "
            f"{', '.join(ARCHITECTURES)}",
        )
    key = architecture + "."
    hidden = _count(header, key + "embedding_length", MAX_WIDTH)
    heads = _count(header, key + "attention.head_count", hidden)
    kv_heads = _count(header, key + "attention.head_count_kv", heads, default=heads)
    head_dim = _count(header, key + "attention.key_length", MAX_WIDTH, default=hidden // heads)
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.dims) != 2:
        _refuse(
            header, f"tensor 'token_embd.weight' is missing or no matrix{_in_other_parts(header)}"
        )
    shape = DecoderShape(
        architecture=architecture,
        layers=_count(header, key + "block_count", MAX_LAYERS),
        hidden=hidden,
        feed_forward=_count(header, key + "feed_forward_length", MAX_WIDTH),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=embedding.dims[1],
        context_tokens=_count(header, key + "context_length", MAX_CONTEXT_TOKENS),
        rms_epsilon=_positive(header, key + "attention.layer_norm_rms_epsilon"),
        rope_base=_positive(header, key + "rope.freq_base", default=10_000.0),
    )
    _check_shape(header, shape)
    return shape


def _check_shape(header: GgufHeader, shape: DecoderShape) -> None:
    metadata, head_dim, key = header.metadata, shape.head_dim, shape.architecture + "."
    if shape.heads % shape.kv_heads:
        _refuse(
            header,
            f"{shape.heads} query heads cannot share {shape.kv_heads} key-value heads evenly",
        )
    if head_dim % 16:  # what GroupQueryAttention turns
        _refuse(header, f"heads of {head_dim} values are not supported, only multiples of 16")
    for name in (key + "rope.dimension_count", key + "attention.value_length"):
        if metadata.get(name, head_dim) != head_dim:
            _refuse(header, f"{name} is {metadata[name]!r}; only the head's width {head_dim} works")
    scaling = metadata.get(key + "rope.scaling.type", "none")
    if scaling != "none":
        _refuse(header, f"{key}rope.scaling.type {scaling!r} is not supported, only 'none'")
    widths = {
        "embedding": shape.hidden,
        "feed-forward": shape.feed_forward,
        "attention": shape.heads * head_dim,
    }
    for name, width in widths.items():
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
