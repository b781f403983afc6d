"""The shape of a decoder by its dimensions, and the model that it makes in a format."""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct

from edgeprof.models.quantisation import Count, Format, FormatTable, Place, Role
from edgeprof.models.spec import (
    Attention,
    AttentionKind,
    ExpertUse,
    ModelSpec,
    WeightGroup,
)


class SlidingWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some layers look back ``tokens`` positions only."""

    tokens: Count
    layers: Count


class Experts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mixture of experts in place of the feed-forward part: ``used`` of ``count`` a position.

    ``shared_ffn`` is the width of experts that every position takes; the layers in
    ``dense_layers`` have an ordinary feed-forward part.
    """

    count: Count
    used: Count
    ffn: Count
    shared_ffn: Annotated[int, Meta(ge=0)] = 0
    biases: bool = False
    dense_layers: list[int] = []

    def __post_init__(self) -> None:
        if self.used > self.count:
            raise ValueError(f"uses {self.used} experts of {self.count}")


class ModelShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a decoder, whatever its weights are stored in.

    ``ffn`` and ``vocab`` are None where nothing tells them; those parts are then left out.
    ``positions`` is the length of a table of learned positions; ``sinks`` an attention sink a head.
    """

    title: str
    layers: Count
    hidden: Count
    ffn: Count | None = None
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count | None
    tied_embeddings: bool
    gated_ffn: bool = True
    experts: Experts | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    norm_bias: bool = False
    sinks: bool = False
    positions: Count | None = None
    qk_norm: bool = False
    fused_qkv: bool = False
    norms_per_layer: Annotated[int, Meta(ge=0)] = 2
    sliding_window: SlidingWindow | None = None
    parameters: Count | None = None
    context_tokens: Count | None = None
    tokenizer: str | None = None
    source: str
    notes: str | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}")
        if self.sliding_window and self.sliding_window.layers > self.layers:
            raise ValueError(f"sliding_window has more layers than the model's {self.layers}")


def build_spec(
    name: str, shape: ModelShape, quantisation: str, form: Format, table: FormatTable
) -> ModelSpec:
    """A model of that shape, stored in that format."""
    sharing = shape.heads // shape.kv_heads
    experts = shape.experts
    use = ExpertUse(count=experts.count, used=experts.used) if experts else None
    counts: Counter[tuple[Role, str, int, int, bool]] = Counter()
    for tensor in _tensors(shape):
        place = Place(
            layer=tensor.layer,
            layers=shape.layers,
            sharing=sharing,
            experts=experts.count if experts else 0,
        )
        stored = table.storage_for_row(form.storage_name(tensor.role, place), tensor.columns)
        counts[tensor.role, stored, tensor.rows, tensor.columns, tensor.of_experts] += (
            tensor.matrices
        )
    groups = tuple(
        WeightGroup(
            role=role,
            storage_name=stored,
            storage=table.storage[stored],
            count=count,
            rows=rows,
            columns=columns,
            experts=use if of_experts else None,
        )
        for (role, stored, rows, columns, of_experts), count in counts.items()
    )
    return ModelSpec(
        name=name,
        title=shape.title,
        quantisation=quantisation,
        quantisation_title=form.title,
        groups=groups,
        attention=Attention(kinds=tuple(_attention_kinds(shape))),
        layers=shape.layers,
        hidden=shape.hidden,
        vocab=shape.vocab,
        context_tokens=shape.context_tokens,
        tokenizer=shape.tokenizer,
        source=shape.source,
    )


def _attention_kinds(shape: ModelShape) -> Iterator[AttentionKind]:
    window = shape.sliding_window
    windowed = window.layers if window else 0
    tokens_seen = window.tokens if window else None
    for layers, tokens in ((shape.layers - windowed, None), (windowed, tokens_seen)):
        if layers:
            yield AttentionKind(
                layers=layers,
                heads=shape.heads,
                kv_heads=shape.kv_heads,
                key_dim=shape.head_dim,
                value_dim=shape.head_dim,
                window_tokens=tokens,
            )


class _Tensor(NamedTuple):
    """``matrices`` equal ones of ``rows`` outputs by ``columns`` inputs in one layer."""

    role: Role
    layer: int
    rows: int
    columns: int
    matrices: int = 1
    of_experts: bool = False


def _tensors(shape: ModelShape) -> Iterator[_Tensor]:
    for layer in range(shape.layers):
        yield from _attention_tensors(shape, layer)
        if shape.experts is not None and layer not in shape.experts.dense_layers:
            yield from _expert_tensors(shape, shape.experts, layer)
        elif shape.ffn is not None:
            yield from _feed_forward(shape, layer, shape.ffn)
        for _ in range(shape.norms_per_layer):
            yield from _norm(shape, layer)
    if shape.norms_per_layer:
        yield from _norm(shape, 0)
    if shape.vocab is not None:
        yield _Tensor("lm_head", 0, shape.vocab, shape.hidden)
        if not shape.tied_embeddings:
            yield _Tensor("embedding", 0, shape.vocab, shape.hidden)
    if shape.positions is not None:
        yield _Tensor("embedding", 0, shape.positions, shape.hidden)


def _attention_tensors(shape: ModelShape, layer: int) -> Iterator[_Tensor]:
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.fused_qkv:
        yield _Tensor("attn_qkv", layer, query + 2 * key, shape.hidden)
    else:
        yield _Tensor("attn_q", layer, query, shape.hidden)
        yield _Tensor("attn_k", layer, key, shape.hidden)
        yield _Tensor("attn_v", layer, key, shape.hidden)
    yield _Tensor("attn_output", layer, shape.hidden, query)
    if shape.qk_norm:
        yield _Tensor("norm", layer, 1, shape.head_dim, 2)
    if shape.qkv_bias:
        yield _Tensor("bias", layer, 1, query)
        yield _Tensor("bias", layer, 1, key, 2)
    if shape.output_bias:
        yield _Tensor("bias", layer, 1, shape.hidden)
    if shape.sinks:
        yield _Tensor("bias", layer, 1, shape.heads)


def _feed_forward(shape: ModelShape, layer: int, ffn: int) -> Iterator[_Tensor]:
    if shape.gated_ffn:
        yield _Tensor("ffn_gate", layer, ffn, shape.hidden)
    yield _Tensor("ffn_up", layer, ffn, shape.hidden)
    yield _Tensor("ffn_down", layer, shape.hidden, ffn)
    if shape.ffn_bias:
        yield _Tensor("bias", layer, 1, ffn, 2 if shape.gated_ffn else 1)
        yield _Tensor("bias", layer, 1, shape.hidden)


def _expert_tensors(shape: ModelShape, experts: Experts, layer: int) -> Iterator[_Tensor]:
    count = experts.count
    yield _Tensor("router", layer, count, shape.hidden)
    yield _Tensor("expert_gate", layer, experts.ffn, shape.hidden, count, True)
    yield _Tensor("expert_up", layer, experts.ffn, shape.hidden, count, True)
    yield _Tensor("expert_down", layer, shape.hidden, experts.ffn, count, True)
    if experts.biases:
        yield _Tensor("bias", layer, 1, count)
        yield _Tensor("bias", layer, 1, experts.ffn, 2 * count, True)
        yield _Tensor("bias", layer, 1, shape.hidden, count, True)
    if experts.shared_ffn:
        yield from _feed_forward(shape, layer, experts.shared_ffn)


def _norm(shape: ModelShape, layer: int) -> Iterator[_Tensor]:
    yield _Tensor("norm", layer, 1, shape.hidden)
    if shape.norm_bias:
        yield _Tensor("bias", layer, 1, shape.hidden)
