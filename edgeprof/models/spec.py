"""What a model is to the memory bus: groups of weights, each stored in its own type, and a cache.

Sizes are exact bytes. Knows nothing of devices, time or files.
"""

from msgspec import Struct

from edgeprof.models.quantisation import Role, StorageType

# Read by position (embedding), added, or not used in decoding (idle): no matrix product.
_NO_PRODUCT = ("embedding", "norm", "bias", "idle")


class ExpertUse(Struct, frozen=True, kw_only=True):
    """How many of how many experts a position takes."""

    count: int
    used: int

    def share(self, tokens: int) -> float:
        """The part of the experts that a pass reads: the expected union, 1 - (1 - k/E)^T, for
        positions that choose evenly and independently. Real ones repeat themselves: it is an upper
        estimate."""
        return 1 - (1 - self.used / self.count) ** tokens


class WeightGroup(Struct, frozen=True, kw_only=True):
    """``count`` matrices of one role and one type, ``rows`` outputs by ``columns`` inputs.

    ``stored_bytes`` is what they occupy together where that is known and does not follow from the
    type, as with weights whose scales lie in tensors of their own.
    """

    role: Role
    storage_name: str
    storage: StorageType
    count: int
    rows: int
    columns: int
    experts: ExpertUse | None = None
    stored_bytes: int | None = None

    @property
    def parameters(self) -> int:
        return self.count * self.rows * self.columns

    @property
    def bytes(self) -> int:
        if self.stored_bytes is not None:
            return self.stored_bytes
        return self.count * self.rows * self.storage.bytes_of_row(self.columns)

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.bytes / self.parameters

    @property
    def row_bytes(self) -> int:
        """What one row occupies."""
        if self.stored_bytes is not None:
            return -(-self.stored_bytes // (self.count * self.rows))
        return self.storage.bytes_of_row(self.columns)

    @property
    def multiplies(self) -> bool:
        """Whether each position is multiplied with these weights."""
        return self.role not in _NO_PRODUCT and self.rows > 1

    @property
    def used_parameters(self) -> int:
        """What one position is multiplied with: of experts, those it takes."""
        if not self.multiplies:
            return 0
        if self.experts is None:
            return self.parameters
        return self.parameters * self.experts.used // self.experts.count

    def streamed_bytes(self, tokens: int) -> int:
        """What a pass over that many positions reads."""
        if self.experts is None:
            return self.bytes
        if tokens == 1:
            return self.bytes * self.experts.used // self.experts.count
        return round(self.bytes * self.experts.share(tokens))


class AttentionKind(Struct, frozen=True, kw_only=True):
    """Layers whose attention is alike. ``latent_value`` (multi-head latent attention): the values
    are the first ``value_dim`` elements of the cached keys, so that no value is cached apart."""

    layers: int
    heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    window_tokens: int | None = None
    latent_value: bool = False

    def cached_bytes_per_token(self, kv: StorageType) -> int:
        """Keys and values of one token in one layer: of the KV heads, block scales included."""
        keys = kv.bytes_of_row(self.kv_heads * self.key_dim)
        return keys if self.latent_value else keys + kv.bytes_of_row(self.kv_heads * self.value_dim)

    def seen_tokens(self, tokens: int) -> int:
        return tokens if self.window_tokens is None else min(tokens, self.window_tokens)


class Attention(Struct, frozen=True, kw_only=True):
    """The geometry that cache traffic and attention arithmetic follow from."""

    kinds: tuple[AttentionKind, ...]

    @property
    def layers(self) -> int:
        """Layers that keep a cache."""
        return sum(kind.layers for kind in self.kinds)

    @property
    def windowed_layers(self) -> int:
        return sum(kind.layers for kind in self.kinds if kind.window_tokens is not None)


class ModelSpec(Struct, frozen=True, kw_only=True):
    """A model in a format. Bytes are read from here and nowhere else.

    ``source`` says where the figures come from and ``warnings`` what is not as it should be.
    ``rewinds`` is False where layers keep a running state that cannot be rolled back by length;
    ``cache_storage`` is the type that a graph fixes for its cache.
    """

    name: str
    title: str
    quantisation: str
    quantisation_title: str
    groups: tuple[WeightGroup, ...]
    attention: Attention
    architecture: str | None = None
    layers: int
    hidden: int | None = None
    vocab: int | None = None
    context_tokens: int | None = None
    tokenizer: str | None = None
    rewinds: bool = True
    cache_storage: str | None = None
    source: str
    warnings: tuple[str, ...] = ()

    @property
    def full_title(self) -> str:
        """The model and how it is stored, for a person."""
        return f"{self.title} {self.quantisation_title}"

    @property
    def parameters(self) -> int:
        return sum(group.parameters for group in self.groups)

    @property
    def used_parameters(self) -> int:
        """What one decoded token is multiplied with."""
        return sum(group.used_parameters for group in self.groups)

    @property
    def resident_weight_bytes(self) -> int:
        """What the weights occupy in memory."""
        return sum(group.bytes for group in self.groups)

    @property
    def streamed_groups(self) -> tuple[WeightGroup, ...]:
        """What a pass reads by the matrix: all but an untied input embedding and what decoding
        does not use."""
        return tuple(group for group in self.groups if group.role not in ("embedding", "idle"))

    @property
    def streamed_weight_bytes(self) -> int:
        """What one decoded token reads."""
        return self.streamed_bytes(1)

    def streamed_bytes(self, tokens: int) -> int:
        """What a pass over that many positions reads; the more, the more experts it needs."""
        return sum(group.streamed_bytes(tokens) for group in self.streamed_groups)

    @property
    def embedding_row_bytes(self) -> int:
        """What one position picks from an untied input embedding; a tied table is read anyway."""
        return sum(group.row_bytes for group in self.groups if group.role == "embedding")

    def kv_bytes_per_token(self, kv: StorageType) -> int:
        """What the cache grows by with each token."""
        return sum(kind.layers * kind.cached_bytes_per_token(kv) for kind in self.attention.kinds)

    def kv_read_bytes(self, context_tokens: int, kv: StorageType) -> int:
        """What a pass reads of a cache of that many tokens, windows respected."""
        return sum(
            kind.layers * kind.seen_tokens(context_tokens) * kind.cached_bytes_per_token(kv)
            for kind in self.attention.kinds
        )
