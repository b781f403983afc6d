"""How weights are stored: block types of exact size, and what a format such as Q4_K_M puts where.

"q4" is a recipe, not a width: a Q4_K_M file mixes types by the role of a matrix, its layer and the
length of its rows. Knows nothing of whole models or devices.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Role = Literal[
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "lm_head",
    "embedding",
    "norm",
    "bias",
]
LayerRule = Literal["all", "first-4", "first-eighth", "more-bits", "of-80-gqa"]
Count = Annotated[int, Meta(gt=0)]


class StorageType(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A weight or cache type: ``block_bytes`` hold ``block_weights`` elements of one row.

    ``row_bytes`` come on top once a row (scales kept by row). ``fallback`` is the type taken
    instead for rows that are no multiple of the block.
    """

    block_weights: Count
    block_bytes: Count
    row_bytes: Annotated[int, Meta(ge=0)] = 0
    fallback: str | None = None

    def bytes_of_row(self, columns: int) -> int:
        """The exact size of one row; a last block that is not full is padded."""
        return -(-columns // self.block_weights) * self.block_bytes + self.row_bytes


class Raised(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule that stores some matrices in some layers in another type than the base."""

    roles: list[Role]
    layers: LayerRule
    storage: str


class Format(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A named way to store a whole model, by names of storage types.

    ``head`` is for lm_head and for a table that is tied to it; ``embedding`` for an untied input
    embedding (the base where not given); ``vectors`` for norms and biases.
    """

    title: str
    base: str
    head: str
    embedding: str | None = None
    vectors: str
    raised: list[Raised] = []
    source: str
    notes: str | None = None

    def storage_name(self, role: Role, layer: int, layers: int, grouped_query: bool) -> str:
        """The type that the recipe gives to a matrix, the length of its rows aside."""
        if role == "lm_head":
            return self.head
        if role == "embedding":
            return self.embedding or self.base
        if role in ("norm", "bias"):
            return self.vectors
        for rule in self.raised:
            if role in rule.roles and _holds(rule.layers, layer, layers, grouped_query):
                return rule.storage
        return self.base


class FormatTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that the formats file says."""

    storage: dict[str, StorageType]
    aliases: dict[str, str]
    formats: dict[str, Format]

    def storage_for_row(self, name: str, columns: int) -> str:
        """The type that rows of this length really get: ``name`` or what it falls back to."""
        storage = self.storage[name]
        if columns % storage.block_weights and storage.fallback is not None:
            return self.storage_for_row(storage.fallback, columns)
        return name


def more_bits(layer: int, layers: int) -> bool:
    """Whether llama.cpp's _M recipes spend more on a layer: the ends, and every third between."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def _holds(rule: LayerRule, layer: int, layers: int, grouped_query: bool) -> bool:
    if rule == "first-4":
        return layer < 4
    if rule == "first-eighth":
        return layer < layers // 8
    if rule == "more-bits":
        return more_bits(layer, layers)
    if rule == "of-80-gqa":
        return layers == 80 and grouped_query
    return True
