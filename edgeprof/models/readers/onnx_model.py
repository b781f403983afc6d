"""Describes the decoder in an ONNX file, tensor by tensor, from its graph alone.

Roles come from how a tensor is used (looked up, multiplied, added) and from the names that
exporters give. Packed weights count with their scales and zero points; a table that is both looked
up and multiplied is tied and counts once.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import read_decoder_folder
from edgeprof.models.quantisation import Role, StorageType
from edgeprof.models.readers.grouping import TensorGroups, main_storage
from edgeprof.models.readers.onnx_graph import (
    OnnxGraph,
    OnnxNode,
    OnnxTensor,
    OnnxValue,
    read_onnx_graph,
    require_external_data,
)
from edgeprof.models.spec import Attention, AttentionKind, ExpertUse, ModelSpec, WeightGroup

# Operations that hand a constant on, its scale and zero point beside it.
_PASSING = ("Cast", "Transpose", "Reshape", "Identity", "Unsqueeze", "Squeeze", "DequantizeLinear")
_PRODUCTS = ("MatMul", "Gemm", "FusedMatMul", "MatMulInteger", "DynamicQuantizeMatMul", "Einsum",
             "QGemm", "QLinearMatMul", "MatMulIntegerToFloat", "GemmFloat8")  # fmt: skip
_EXPERTS = ("MoE", "QMoE")
_INDEX_TYPES = ("i64", "i32", "bool", "string", "u64", "u32")  # shapes and indices, no weights

_KNOWN_INPUTS = ("input_ids", "inputs_embeds", "attention_mask", "position_ids", "token_type_ids",
                 "use_cache_branch", "cache_position", "seqlens_k", "total_sequence_length",
                 "past_sequence_length", "past_seq_len", "num_logits_to_keep", "keep_from",
                 "beam_width", "cache_indirection")  # fmt: skip
_STATES = re.compile(r"conv|ssm|recurrent|rwkv|state", re.IGNORECASE)
_CACHE = re.compile(r"past|cache|(^|[._])(key|value)s?[._]?\d", re.IGNORECASE)

_NAMES: tuple[tuple[str, Role], ...] = (
    ("lm_head", "lm_head"), ("embed_out", "lm_head"),
    ("qkv", "attn_qkv"), ("c_attn", "attn_qkv"), ("query_key_value", "attn_qkv"),
    ("q_proj", "attn_q"), ("attn_q.", "attn_q"), ("k_proj", "attn_k"), ("attn_k.", "attn_k"),
    ("v_proj", "attn_v"), ("attn_v.", "attn_v"),
    ("o_proj", "attn_output"), ("attn_output", "attn_output"), ("out_proj", "attn_output"),
    ("attn.dense", "attn_output"), ("attn/c_proj", "attn_output"), ("attn.c_proj", "attn_output"),
    ("gate_up", "ffn_up"), ("gate_proj", "ffn_gate"), ("ffn_gate.", "ffn_gate"),
    ("up_proj", "ffn_up"), ("ffn_up", "ffn_up"), ("c_fc", "ffn_up"), ("fc1", "ffn_up"),
    ("down_proj", "ffn_down"), ("ffn_down", "ffn_down"), ("mlp/c_proj", "ffn_down"),
    ("mlp.c_proj", "ffn_down"), ("fc2", "ffn_down"),
    ("router", "router"), ("mlp.gate", "router"), ("moe/gate", "router"),
)  # fmt: skip


class Hints(Struct, frozen=True, kw_only=True):
    """What a folder's configuration knows that the graph may not say."""

    name: str
    vocab: int | None = None
    context_tokens: int | None = None
    heads: int | None = None


def describe_genai_folder(path: Path) -> ModelSpec:
    """The decoder of a folder laid out for onnxruntime-genai."""
    folder = read_decoder_folder(path)
    hints = Hints(
        name=path.resolve().name,
        vocab=folder.vocab_size,
        context_tokens=folder.context_tokens,
        heads=folder.manifest.heads if folder.manifest else None,
    )
    return describe_onnx(folder.onnx_path, hints)


def describe_onnx(path: Path, hints: Hints | None = None) -> ModelSpec:
    """The decoder in the file. Its external data must be there in full, but is not read."""
    graph = read_onnx_graph(path)
    require_external_data(graph)
    hints = hints or Hints(name=path.stem)
    caches = _caches(graph)
    matrices = _Matrices(graph)
    groups = matrices.groups()
    attention, warnings = _attention(graph, caches, matrices, hints)
    ids = next((value.storage for value in graph.inputs if value.name == "input_ids"), "none")
    main = main_storage(groups)
    return ModelSpec(
        name=hints.name,
        title=hints.name,
        quantisation=main,
        quantisation_title=f"ONNX, mostly {main}",
        groups=groups,
        attention=attention,
        layers=attention.layers,
        vocab=hints.vocab or _vocab(graph),
        context_tokens=hints.context_tokens,
        rewinds=not any(_STATES.search(value.name) for value in graph.inputs),
        cache_storage=caches[0].storage,
        source=f"graph of {path}, {len(graph.tensors)} constants; input_ids {ids}, cache "
        f"{caches[0].storage}",
        warnings=(*warnings, *_unknown_inputs(graph)),
    )


def _caches(graph: OnnxGraph) -> list[OnnxValue]:
    """The inputs that hold the cache, in the graph's order: keys and values by turns."""
    caches = [
        value
        for value in graph.inputs
        if value.name not in _KNOWN_INPUTS
        and _CACHE.search(value.name)
        and not _STATES.search(value.name)
    ]
    if any("encoder" in value.name for value in graph.inputs):
        raise FileFault(f"{graph.path}: an encoder-decoder; edgeprof describes decoders alone")
    if any(len(value.shape) == 5 for value in caches):
        raise FileFault(
            f"{graph.path}: input {caches[0].name!r} holds keys and values in one tensor; edgeprof "
            "needs them apart: export the model with one input for each"
        )
    if not caches:
        names = ", ".join(repr(value.name) for value in graph.inputs[:8]) or "none"
        raise FileFault(
            f"{graph.path}: no cache among its inputs ({names}); export it as a decoder with past"
        )
    if len(caches) % 2 or any(len(value.shape) != 4 for value in caches):
        raise FileFault(
            f"{graph.path}: {len(caches)} cache inputs such as {caches[0].name!r} of shape "
            f"{list(caches[0].shape)} are not pairs of four-dimensional keys and values"
        )
    return caches


def _attention(
    graph: OnnxGraph, caches: Sequence[OnnxValue], matrices: "_Matrices", hints: Hints
) -> tuple[Attention, list[str]]:
    """Like layers counted together, and what had to be assumed."""
    users = {name: node for node in graph.nodes for name in node.inputs}
    heads = hints.heads or matrices.query_heads(caches[0].shape[3])
    counts: dict[tuple[int, int, int, int | None], int] = {}
    warnings = []
    for key in _keys(caches):
        node = users.get(key.name)
        numbers: Mapping[str, int] = node.numbers if node else {}
        kv_heads = _static(key.shape[1]) or _static(key.shape[2]) or numbers.get("kv_num_heads")
        head_dim = _static(key.shape[3])
        if not kv_heads or not head_dim or max(kv_heads, head_dim) > 1 << 24:
            raise FileFault(
                f"{graph.path}: cache {key.name!r} of shape {list(key.shape)} does not say how "
                "many heads of which width it has"
            )
        query_heads = numbers.get("num_heads") or heads
        if query_heads is None or not 0 < query_heads <= 1 << 24:
            query_heads = kv_heads
            warnings = [f"{graph.path}: query heads not known; as many as KV heads taken"]
        window = numbers.get("local_window_size", -1)
        kind = (query_heads, kv_heads, head_dim, window if window > 0 else None)
        counts[kind] = counts.get(kind, 0) + 1
    kinds = (
        AttentionKind(
            layers=layers,
            heads=query_heads,
            kv_heads=kv_heads,
            key_dim=head_dim,
            value_dim=head_dim,
            window_tokens=window,
        )
        for (query_heads, kv_heads, head_dim, window), layers in counts.items()
    )
    return Attention(kinds=tuple(kinds)), warnings


def _keys(caches: Sequence[OnnxValue]) -> Iterator[OnnxValue]:
    """One cache a layer: those named keys, or by turns where names do not tell."""
    named = [c for c in caches if "value" not in c.name.replace("past_key_values", "").lower()]
    yield from named if len(named) == len(caches) // 2 else caches[::2]


def _static(size: int | None) -> int | None:
    return size if size is not None and size > 0 else None


def _vocab(graph: OnnxGraph) -> int | None:
    logits = next((value for value in graph.outputs if value.name == "logits"), None)
    return _static(logits.shape[-1]) if logits is not None and logits.shape else None


def _unknown_inputs(graph: OnnxGraph) -> Iterator[str]:
    names = [
        repr(value.name)
        for value in graph.inputs
        if value.name not in _KNOWN_INPUTS
        and not _CACHE.search(value.name)
        and not _STATES.search(value.name)
    ]
    if names:
        yield (
            f"{graph.path}: inputs that edgeprof does not know: {', '.join(names[:8])}; the "
            "exporter left them behind: export the model again"
        )


class _Matrix(Struct, kw_only=True):
    """A constant that is looked up or multiplied, with the scales that belong to it."""

    main: OnnxTensor
    parts: dict[str, OnnxTensor]
    rows: int
    columns: int
    bits: int
    role: Role | None = None
    multiplied: bool = False
    looked_up: bool = False
    experts: ExpertUse | None = None


class _Matrices:
    """What the constants of a graph are used for."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph
        self._roots: dict[str, tuple[str, ...]] = {}  # what a name stands for, first the weights
        self._found: dict[str, _Matrix] = {}
        self._vectors: dict[str, Role] = {}
        for node in graph.nodes:
            self._visit(node)

    def query_heads(self, head_dim: int | None) -> int | None:
        """Rows of a query projection over the width of a head."""
        rows = {m.rows for m in self._found.values() if m.role == "attn_q"}
        if not head_dim or len(rows) != 1:
            return None
        return rows.pop() // head_dim or None

    def groups(self) -> tuple[WeightGroup, ...]:
        groups = TensorGroups()
        claimed: set[str] = set()
        for matrix in self._found.values():
            parts = [part for part in matrix.parts.values() if part.name not in claimed]
            claimed |= matrix.parts.keys()
            groups.add(
                self._role(matrix),
                _storage_name(matrix),
                StorageType(block_weights=8, block_bytes=matrix.bits),
                rows=matrix.rows,
                columns=matrix.columns,
                experts=matrix.experts,
                stored_bytes=sum(part.byte_length for part in parts),
            )
        for tensor in self._graph.tensors.values():
            if tensor.name not in claimed and tensor.byte_length:
                self._add_vector(groups, tensor)
        return groups.build()

    def _add_vector(self, groups: TensorGroups, tensor: OnnxTensor) -> None:
        role = self._vectors.get(tensor.name, "idle")
        rows = tensor.dims[0] if role == "embedding" and len(tensor.dims) > 1 else 1
        groups.add(
            "idle" if tensor.storage in _INDEX_TYPES else role,
            tensor.storage,
            StorageType(block_weights=8, block_bytes=tensor.bits),
            rows=rows,
            columns=tensor.elements // rows if rows else 0,
            stored_bytes=tensor.byte_length,
        )

    def _role(self, matrix: _Matrix) -> Role:
        if matrix.looked_up:
            return "lm_head" if matrix.multiplied else "embedding"
        return matrix.role or "other"

    def _constants(self, name: str) -> list[OnnxTensor]:
        """The constants that a name stands for: itself, or what was handed on under it."""
        names = self._roots.get(name, (name,))
        return [self._graph.tensors[one] for one in names if one in self._graph.tensors]

    def _visit(self, node: OnnxNode) -> None:
        inputs = [self._constants(name) for name in node.inputs]
        if node.kind in _PASSING and inputs and inputs[0]:
            parts = inputs if node.kind == "DequantizeLinear" else inputs[:1]
            names = tuple(tensor.name for part in parts for tensor in part)
            self._roots.update(dict.fromkeys(node.outputs, names))
        elif node.kind == "MatMulNBits" and len(inputs) > 2 and inputs[1]:
            self._packed_product(node, inputs)
        elif node.kind == "GatherBlockQuantized" and len(inputs) > 2 and inputs[0]:
            self._packed_lookup(node, inputs)
        elif node.kind in _EXPERTS:
            self._expert_node(node, inputs)
        elif node.kind in _PRODUCTS:
            self._product(node, inputs)
        elif node.kind == "Gather" and inputs and inputs[0] and len(inputs[0][0].dims) == 2:
            self._lookup(inputs[0])
        else:
            self._vector_use(node, inputs)

    def _matrix(self, parts: Sequence[OnnxTensor], rows: int, columns: int, bits: int) -> _Matrix:
        main = parts[0]
        matrix = self._found.setdefault(
            main.name, _Matrix(main=main, parts={}, rows=rows, columns=columns, bits=bits)
        )
        matrix.parts.update((part.name, part) for part in parts)
        return matrix

    def _packed_product(self, node: OnnxNode, inputs: Sequence[list[OnnxTensor]]) -> None:
        main = inputs[1][0]
        bits = node.numbers.get("bits", 4)
        weights = main.elements * main.bits // bits if 0 < bits <= 32 else 0
        rows, columns = node.numbers.get("N", 0), node.numbers.get("K", 0)
        blocks = node.numbers.get("block_size", 0)
        if min(rows, columns, blocks) <= 0 or not (
            0 < rows * columns <= weights <= rows * (columns + blocks)
        ):
            raise FileFault(
                f"{self._graph.path}: MatMulNBits {node.name!r} claims {rows} x {columns} weights "
                f"of {bits} bits; {main.name!r} holds {weights}"
            )
        parts = [tensor for part in inputs[1:5] for tensor in part]
        matrix = self._matrix(parts, rows, columns, bits)
        matrix.multiplied = True
        matrix.role = matrix.role or self._product_role(node, main, rows)
        for bias in inputs[5] if len(inputs) > 5 else ():
            self._vectors[bias.name] = "bias"

    def _packed_lookup(self, node: OnnxNode, inputs: Sequence[list[OnnxTensor]]) -> None:
        main = inputs[0][0]
        bits = node.numbers.get("bits", main.bits)
        rows = main.dims[0] if main.dims else 1
        weights = main.elements * main.bits // bits if 0 < bits <= 32 else 0
        parts = [tensor for part in (inputs[0], *inputs[2:4]) for tensor in part]
        self._matrix(parts, rows, weights // max(rows, 1), bits).looked_up = True

    def _product(self, node: OnnxNode, inputs: Sequence[list[OnnxTensor]]) -> None:
        for position, parts in enumerate(inputs):
            if not parts:
                continue
            main = parts[0]
            if len(main.dims) < 2:
                role: Role = "bias" if position > 1 else "other"
                self._vectors.setdefault(main.name, role)
                continue
            rows = main.dims[0] if node.numbers.get("transB") else main.dims[-1]
            matrix = self._matrix(parts, rows, main.elements // max(rows, 1), main.bits)
            matrix.multiplied = True
            matrix.role = matrix.role or self._product_role(node, main, rows)

    def _lookup(self, parts: Sequence[OnnxTensor]) -> None:
        main = parts[0]
        rows = main.dims[0]
        self._matrix(parts, rows, main.elements // max(rows, 1), main.bits).looked_up = True

    def _expert_node(self, node: OnnxNode, inputs: Sequence[list[OnnxTensor]]) -> None:
        """All constants of the node belong to experts; the first dimension counts those."""
        used = node.numbers.get("k", 1)
        for parts in inputs:
            for tensor in parts:
                count = tensor.dims[0] if tensor.dims else 0
                if not 0 < used <= count:
                    raise FileFault(
                        f"{self._graph.path}: {node.kind} {node.name!r} uses {used} of {count} "
                        "experts"
                    )
                weights = tensor.storage in ("u8", "u4", "i4", "i8") or len(tensor.dims) == 3
                bits = node.numbers.get("expert_weight_bits", 4) if tensor.storage == "u8" else 0
                bits = bits if 0 < bits <= 8 else tensor.bits
                elements = tensor.elements * tensor.bits // bits
                matrix = self._matrix([tensor], count, elements // max(count, 1), bits)
                matrix.role = "expert_up" if weights else "bias"
                matrix.experts = ExpertUse(count=count, used=used)

    def _vector_use(self, node: OnnxNode, inputs: Sequence[list[OnnxTensor]]) -> None:
        for parts in inputs:
            for tensor in parts:
                self._vectors.setdefault(tensor.name, _vector_role(node, tensor))

    def _product_role(self, node: OnnxNode, tensor: OnnxTensor, rows: int) -> Role:
        for text in (tensor.name, node.name):
            for part, role in _NAMES:
                if part in text:
                    return role
        return "lm_head" if rows == _vocab(self._graph) else "other"


def _vector_role(node: OnnxNode, tensor: OnnxTensor) -> Role:
    if "Norm" in node.kind or "norm" in tensor.name.lower():
        return "norm"
    if node.kind in ("GroupQueryAttention", "RotaryEmbedding") and len(tensor.dims) == 2:
        return "embedding"  # sines and cosines: a row a position
    if re.search(r"cos|sin", tensor.name.lower()) and len(tensor.dims) == 2:
        return "embedding"
    if node.kind == "Add" and len(tensor.dims) == 1:
        return "bias"
    return "other"


def _storage_name(matrix: _Matrix) -> str:
    if len(matrix.parts) == 1 and matrix.main.bits == matrix.bits:
        return matrix.main.storage
    return f"int{matrix.bits}"
