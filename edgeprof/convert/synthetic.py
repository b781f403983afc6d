"""A decoder of a given shape whose weights are made where they are used: no model is needed.

The graph is the converter's own. Each weight is a short random pattern that ONNX Runtime repeats
to the full size when it loads the graph, so that the file is small and the weights are as large in
memory as real ones. What it says is noise; what it costs is what the model costs.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from edgeprof.convert.blocks import BLOCK, Blocks, Bytes, Dense, Floats, Matrix, Rows
from edgeprof.convert.decoder import EMBEDDING, HEAD, DecoderBuilder
from edgeprof.convert.folder import ONNX_NAME, graph_sizes
from edgeprof.convert.graph import PAGE_BYTES, Graph
from edgeprof.convert.requantise import REQUANTISABLE
from edgeprof.convert.weights import DecoderShape
from edgeprof.errors import UsageFault
from edgeprof.models.decoder_folder import DecoderFolder, Manifest
from edgeprof.models.spec import ModelSpec, WeightGroup

# Tokens that an untied input embedding knows: a pass picks one row a token, however many there are.
KNOWN_TOKENS = 64
_PATTERN_BYTES = 1 << 16
_PAD = 1  # dummy rows of attention, as ``edgeprof convert`` has them
_QKV = ("attn_q", "attn_k", "attn_v")
_OTHERS = ("attn_output", "ffn_gate", "ffn_up", "ffn_down")
_KNOWN = (*_QKV, "attn_qkv", *_OTHERS, "lm_head", "embedding", "norm", "bias", "idle")


class _Container(NamedTuple):
    """How the converter stores a type: bits, block, the middle of its range, and whether each block
    has an offset. Of 32 bits: as floats."""

    bits: int
    block: int = BLOCK
    zero: int = 0
    offset: bool = False


# As blocks.py decodes the formats.
_CONTAINERS = {
    "q4_0": _Container(4, zero=8),
    "q4_1": _Container(4, offset=True),
    "q4_k": _Container(4, offset=True),
    "q5_0": _Container(8, zero=128),
    "q5_1": _Container(8, zero=112, offset=True),
    "q5_k": _Container(8, zero=112, offset=True),
    "q6_k": _Container(8, block=16, zero=128),
    "q8_0": _Container(8, zero=128),
}
_EIGHT_BITS = _Container(8, zero=128)


class SyntheticDecoder(NamedTuple):
    """The decoder, and how much of the model it is: ``layer_bytes`` that a pass reads of its layers
    and ``all_layer_bytes`` of the model's, both as the runtime stores them."""

    folder: DecoderFolder
    layers: int
    layer_bytes: int
    all_layer_bytes: int


def stored_bytes(spec: ModelSpec, layers: int) -> int:
    """What the runtime holds of the weights of so many layers and the output head."""
    weights = _Weights(spec, layers, context_tokens=1)
    return sum(_size(matrix) for matrix in weights.every_matrix())


def build_decoder(
    spec: ModelSpec, layers: int, folder: Path, *, context_tokens: int
) -> SyntheticDecoder:
    """Write the graph of the first ``layers`` layers and the output head into ``folder``.

    Where layers are stored in different types, the stack holds each in proportion. Raises
    UsageFault for a model that the converter has no graph for.
    """
    weights = _Weights(spec, layers, context_tokens)
    builder = DecoderBuilder(weights, head_rows=None, attention_pad=_PAD, graph=_PatternGraph())
    path = folder / ONNX_NAME
    onnx.save(builder.build().model, path)
    manifest = Manifest(
        source_name=spec.name,
        source_sha256="",
        weights="synthetic",
        attention_pad=_PAD,
        end_token_ids=[],
        onnx_sha256="",
        **graph_sizes(builder),
    )
    described = DecoderFolder(
        path=folder,
        onnx_path=path,
        tokenizer_path=None,
        manifest=manifest,
        layers=layers,
        vocab_size=KNOWN_TOKENS,
        context_tokens=context_tokens,
        end_token_ids=frozenset(),
    )
    return SyntheticDecoder(
        folder=described,
        layers=layers,
        layer_bytes=weights.layer_bytes(),
        all_layer_bytes=_Weights(spec, spec.layers, context_tokens).layer_bytes(),
    )


class _Even(Blocks, frozen=True, kw_only=True):
    """Blocks that are all alike, and take no memory."""

    @property
    def packed(self) -> Bytes:
        rows, blocks, weights = self.quantised.shape
        return np.broadcast_to(np.uint8(0), (rows, blocks, weights * self.bits // 8))

    @property
    def correction(self) -> Floats | None:
        return None if self.offset is None else self.scale


def _even(rows: int, columns: int, container: _Container) -> Matrix:
    if container.bits == 32:
        return Dense(values=np.broadcast_to(np.float32(0), (rows, columns)))
    blocks = columns // container.block
    scale: Floats = np.broadcast_to(np.float32(1), (rows, blocks))
    return _Even(
        bits=container.bits,
        zero=container.zero,
        quantised=np.broadcast_to(np.uint8(0), (rows, blocks, container.block)),
        scale=scale,
        offset=scale if container.offset else None,
    )


def _size(matrix: Matrix) -> int:
    if isinstance(matrix, Dense):
        return matrix.values.nbytes
    factors = 1 if matrix.offset is None else 2
    return matrix.packed.nbytes + factors * matrix.scale.nbytes


class _PatternGraph(Graph):
    """A graph whose large constants are patterns, repeated when it is loaded.

    Each has a pattern of its own: of two that are made alike the runtime would keep one.
    """

    def __init__(self) -> None:
        super().__init__()
        self._random = np.random.default_rng(0)
        self._patterns: set[str] = set()

    def stack(self, parts: Sequence[Matrix]) -> Matrix:
        rows = sum(part.rows for part in parts)
        first = parts[0]
        if isinstance(first, Dense):
            return _even(rows, first.columns, _Container(32))
        offset = first.offset is not None
        return _even(rows, first.columns, _Container(first.bits, first.block, first.zero, offset))

    def constant(self, name: str, value: NDArray[Any]) -> str:
        if value.nbytes < PAGE_BYTES or any(value.strides):
            return super().constant(name, value)
        if name not in self._patterns:
            self._patterns.add(name)
            pattern = self._pattern(value)
            repeats = [value.shape[0] // pattern.shape[0], *[1] * (value.ndim - 1)]
            initializer = numpy_helper.from_array(pattern, name + ".pattern")
            self.model.graph.initializer.append(initializer)
            self.node("Tile", [name + ".pattern", self.integers(*repeats)], [name])
        return name

    def _pattern(self, value: NDArray[Any]) -> NDArray[Any]:
        """As many rows as are short, and divide the whole."""
        row_bytes = value.nbytes // value.shape[0]
        rows = math.gcd(value.shape[0], 1 << max(_PATTERN_BYTES // row_bytes, 1).bit_length() - 1)
        shape = (rows, *value.shape[1:])
        pattern: NDArray[Any]
        if value.dtype == np.uint8:
            pattern = self._random.integers(0, 256, shape, dtype=np.uint8)
        else:  # small, so that sums over a row stay near what a real model's are
            pattern = self._random.standard_normal(shape, dtype=np.float32) * np.float32(0.01)
        return pattern


class _Weights:
    """The tensors of a stack of ``layers`` layers of a model, none of them in memory."""

    def __init__(self, spec: ModelSpec, layers: int, context_tokens: int) -> None:
        self._spec = spec
        self._groups = _groups_by_role(spec)
        self.shape = _shape(spec, self._groups, layers, context_tokens)
        self._containers = {
            role: list(_by_layer(groups, layers))
            for role, groups in self._groups.items()
            if role in (*_QKV, "attn_qkv", *_OTHERS)
        }
        self._biased = any(group.role == "bias" for group in spec.groups)

    @property
    def parameters(self) -> int:
        return self._spec.parameters

    def has(self, name: str) -> bool:
        if name == HEAD:
            return "embedding" in self._groups
        return name.endswith(".bias") and self._biased

    def matrix(self, name: str) -> Matrix:
        if name in (HEAD, EMBEDDING):
            head = self._groups["lm_head"][0]
            is_table = name == EMBEDDING and self.has(HEAD)
            rows = KNOWN_TOKENS if is_table else head.rows
            return _even(rows, self.shape.hidden, _container(head))
        _, layer, part, _ = name.split(".")
        rows, columns = self._dims(part)
        containers = self._containers.get(part) or self._containers["attn_qkv"]
        return _even(rows, columns, containers[int(layer)])

    def rows(self, name: str, rows: Rows) -> Matrix:
        return self.matrix(name)

    def vector(self, name: str) -> Floats:
        shape = self.shape
        part = name.split(".")[-2]
        widths = dict(zip(_QKV, shape.qkv_widths, strict=True))
        if name.endswith(".bias"):
            return np.zeros(widths[part], dtype=np.float32)
        width = shape.head_dim if part in ("attn_q_norm", "attn_k_norm") else shape.hidden
        return np.ones(width, dtype=np.float32)

    def rope_factors(self) -> Floats | None:
        return None

    def every_matrix(self) -> Iterator[Matrix]:
        """All that the graph holds."""
        yield self.matrix(HEAD)
        for layer in range(self.shape.layers):
            for part in (*_QKV, *_OTHERS):
                yield self.matrix(f"blk.{layer}.{part}.weight")

    def layer_bytes(self) -> int:
        return sum(_size(matrix) for matrix in self.every_matrix()) - _size(self.matrix(HEAD))

    def _dims(self, part: str) -> tuple[int, int]:
        shape = self.shape
        q_width, kv_width, _ = shape.qkv_widths
        return {
            "attn_q": (q_width, shape.hidden),
            "attn_k": (kv_width, shape.hidden),
            "attn_v": (kv_width, shape.hidden),
            "attn_output": (shape.hidden, q_width),
            "ffn_gate": (shape.feed_forward, shape.hidden),
            "ffn_up": (shape.feed_forward, shape.hidden),
            "ffn_down": (shape.hidden, shape.feed_forward),
        }[part]


def _groups_by_role(spec: ModelSpec) -> Mapping[str, list[WeightGroup]]:
    """Raises UsageFault where there is what the graph has no place for, or something is missing."""
    found: dict[str, list[WeightGroup]] = {}
    for group in spec.groups:
        if group.experts is not None or group.role not in _KNOWN:
            _refuse(spec, f"it has weights of the role {group.role!r}")
        found.setdefault(group.role, []).append(group)
    needed = (*(() if "attn_qkv" in found else _QKV), *_OTHERS, "lm_head")
    missing = [role for role in needed if role not in found]
    if missing:
        _refuse(spec, f"it has no {missing[0]}, which the graph needs")
    if any(kind.latent_value for kind in spec.attention.kinds) or len(found["lm_head"]) > 1:
        _refuse(spec, "its attention or its head is of another kind")
    return found


def _shape(
    spec: ModelSpec, groups: Mapping[str, list[WeightGroup]], layers: int, context_tokens: int
) -> DecoderShape:
    first = spec.attention.kinds[0]
    hidden, feed_forward = groups["ffn_up"][0].columns, groups["ffn_up"][0].rows
    sizes = (hidden, feed_forward, first.heads * first.key_dim)
    if any(size % BLOCK for size in sizes) or first.key_dim % 16:
        _refuse(spec, f"widths that are no multiple of {BLOCK} have no kernel")
    head_norms = any(
        norm.columns == first.key_dim and norm.columns != hidden for norm in groups.get("norm", ())
    )
    return DecoderShape(
        architecture="qwen3" if head_norms else "qwen2",
        layers=layers,
        hidden=hidden,
        feed_forward=feed_forward,
        heads=first.heads,
        kv_heads=first.kv_heads,
        head_dim=first.key_dim,
        vocab_size=groups["lm_head"][0].rows,
        context_tokens=context_tokens,
        rms_epsilon=1e-5,
        rope_base=10_000.0,
    )


def _by_layer(groups: Sequence[WeightGroup], layers: int) -> Iterator[_Container]:
    """A container a layer, in the proportion that the model has them."""
    bounds = np.cumsum([group.count for group in groups])
    total = int(bounds[-1])
    for layer in range(layers):
        place = (2 * layer + 1) * total // (2 * layers)
        yield _container(groups[int(np.searchsorted(bounds, place, side="right"))])


def _container(group: WeightGroup) -> _Container:
    """As ``edgeprof convert`` would store it; of types that it does not know, by their width."""
    name = group.storage_name.lower()
    if name in _CONTAINERS:
        return _CONTAINERS[name]
    if name.upper() in REQUANTISABLE:
        return _EIGHT_BITS
    if group.bits_per_weight > 10:
        return _Container(32)
    return _EIGHT_BITS if group.bits_per_weight > 6 else _CONTAINERS["q4_0"]


def _refuse(spec: ModelSpec, why: str) -> None:
    raise UsageFault(
        f"{spec.name}: no stack of its layers can be built: {why}; edgeprof builds dense decoders "
        "with grouped-query attention and a gated feed-forward part"
    )
