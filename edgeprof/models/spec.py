"""What a model is to the memory bus: groups of weights, each stored in its own type, and a cache.

Sizes are exact bytes. Knows nothing of devices, time or files.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from edgeprof.models.quantisation import Count, Format, FormatTable, Role, StorageType

# Read by position (embedding) or added, not multiplied: no matrix product.
_NO_PRODUCT = ("embedding", "norm", "bias")


class SlidingWindow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some layers look back ``tokens`` positions only."""

    tokens: Count
    layers: Count


class ModelShape(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape of a decoder with a gated feed-forward part, whatever its weights are stored in."""

    title: str
    layers: Count
    hidden: Count
    ffn: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    vocab: Count
    tied_embeddings: bool
    qkv_bias: bool = False
    qk_norm: bool = False
    fused_qkv: bool = False
    norms_per_layer: Annotated[int, Meta(ge=0)] = 2
    sliding_window: SlidingWindow | None = None
    parameters: Count
    source: str
    notes: str | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}")
        if self.sliding_window and self.sliding_window.layers > self.layers:
            raise ValueError(f"sliding_window has more layers than the model's {self.layers}")


class WeightGroup(Struct, frozen=True, kw_only=True):
    """``count`` matrices of one role and one type, ``rows`` outputs by ``columns`` inputs."""

    role: Role
    storage_name: str
    storage: StorageType
    count: int
    rows: int
    columns: int

    @property
    def parameters(self) -> int:
        return self.count * self.rows * self.columns

    @property
    def bytes(self) -> int:
        return self.count * self.rows * self.storage.bytes_of_row(self.columns)

    @property
    def multiplies(self) -> bool:
        """Whether each position is multiplied with these weights."""
        return self.role not in _NO_PRODUCT


class Attention(Struct, frozen=True, kw_only=True):
    """The geometry that cache traffic and attention arithmetic follow from."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    window: SlidingWindow | None = None

    def layer_tokens(self, tokens: int) -> int:
        """Sum over the layers of the cached tokens each reads when ``tokens`` are there."""
        if self.window is None:
            return self.layers * tokens
        windowed = self.window.layers
        return (self.layers - windowed) * tokens + windowed * min(tokens, self.window.tokens)


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model in a format. Bytes are read from here and nowhere else."""

    name: str
    title: str
    quantisation: str
    quantisation_title: str
    groups: tuple[WeightGroup, ...]
    attention: Attention

    @property
    def parameters(self) -> int:
        return sum(group.parameters for group in self.groups)

    @property
    def resident_weight_bytes(self) -> int:
        """What the weights occupy in memory."""
        return sum(group.bytes for group in self.groups)

    @property
    def streamed_groups(self) -> tuple[WeightGroup, ...]:
        """What every pass reads in full: all but an untied input embedding."""
        return tuple(group for group in self.groups if group.role != "embedding")

    @property
    def streamed_weight_bytes(self) -> int:
        """What every pass reads, however many positions it has."""
        return sum(group.bytes for group in self.streamed_groups)

    @property
    def embedding_row_bytes(self) -> int:
        """What one position picks from an untied input embedding; a tied table is read anyway."""
        return sum(
            group.storage.bytes_of_row(group.columns)
            for group in self.groups
            if group.role == "embedding"
        )

    def kv_bytes_per_layer_token(self, kv: StorageType) -> int:
        """Keys and values of one token in one layer: of the KV heads, block scales included."""
        return 2 * kv.bytes_of_row(self.attention.kv_heads * self.attention.head_dim)

    def kv_bytes_per_token(self, kv: StorageType) -> int:
        """What the cache grows by with each token."""
        return self.attention.layers * self.kv_bytes_per_layer_token(kv)

    def kv_read_bytes(self, context_tokens: int, kv: StorageType) -> int:
        """What a pass reads of a cache of that many tokens, windows respected."""
        return self.attention.layer_tokens(context_tokens) * self.kv_bytes_per_layer_token(kv)


def build_spec(
    name: str, shape: ModelShape, quantisation: str, form: Format, table: FormatTable
) -> ModelSpec:
    """A model of that shape, stored in that format."""
    grouped_query = shape.kv_heads < shape.heads
    counts: Counter[tuple[Role, str, int, int]] = Counter()
    for role, layer, rows, columns in _tensors(shape):
        wanted = form.storage_name(role, layer, shape.layers, grouped_query)
        counts[role, table.storage_for_row(wanted, columns), rows, columns] += 1
    groups = tuple(
        WeightGroup(
            role=role,
            storage_name=stored,
            storage=table.storage[stored],
            count=count,
            rows=rows,
            columns=columns,
        )
        for (role, stored, rows, columns), count in counts.items()
    )
    return ModelSpec(
        name=name,
        title=shape.title,
        quantisation=quantisation,
        quantisation_title=form.title,
        groups=groups,
        attention=Attention(
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            window=shape.sliding_window,
        ),
    )


def _tensors(shape: ModelShape) -> Iterator[tuple[Role, int, int, int]]:
    """Role, layer, rows (outputs) and columns (inputs) of every tensor of the model."""
    for layer in range(shape.layers):
        for role, rows, columns in _layer_matrices(shape):
            yield role, layer, rows, columns
        for role, length in _layer_vectors(shape):
            yield role, layer, 1, length
    yield "norm", 0, 1, shape.hidden
    yield "lm_head", 0, shape.vocab, shape.hidden
    if not shape.tied_embeddings:
        yield "embedding", 0, shape.vocab, shape.hidden


def _layer_matrices(shape: ModelShape) -> Iterator[tuple[Role, int, int]]:
    query, key = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    if shape.fused_qkv:
        yield "attn_qkv", query + 2 * key, shape.hidden
    else:
        yield "attn_q", query, shape.hidden
        yield "attn_k", key, shape.hidden
        yield "attn_v", key, shape.hidden
    yield "attn_output", shape.hidden, query
    yield "ffn_gate", shape.ffn, shape.hidden
    yield "ffn_up", shape.ffn, shape.hidden
    yield "ffn_down", shape.hidden, shape.ffn


def _layer_vectors(shape: ModelShape) -> Iterator[tuple[Role, int]]:
    for _ in range(shape.norms_per_layer):
        yield "norm", shape.hidden
    if shape.qk_norm:
        yield "norm", shape.head_dim
        yield "norm", shape.head_dim
    if shape.qkv_bias:
        yield "bias", shape.heads * shape.head_dim
        yield "bias", shape.kv_heads * shape.head_dim
        yield "bias", shape.kv_heads * shape.head_dim
