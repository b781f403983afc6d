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
    "router",
    "expert_gate",
    "expert_up",
    "expert_down",
    "lm_head",
    "embedding",
    "norm",
    "bias",
    "other",
    "idle",
]
LayerRule = Literal[
    "all",
    "first-2",
    "first-4",
    "first-eighth",
    "first-sixteenth",
    "more-bits",
    "of-80-gqa",
    "gqa-4",
    "8-experts",
    "dense",
]
Count = Annotated[int, Meta(gt=0)]
_Share = Annotated[float, Meta(ge=0, le=1)]


class Requantised(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was rounded to 8 bits because no container holds it exactly.

    ``relative_rms_error`` is the root mean square of the errors over that of these weights;
    ``largest_error_of_block`` the largest error over the largest weight of its block of 32.
    """

    storages: list[str]
    weights: Annotated[int, Meta(ge=1, le=1 << 50)]
    relative_rms_error: _Share
    largest_error_of_block: _Share

    def __str__(self) -> str:
        return (
            f"rounded {self.weights} weights stored as {', '.join(self.storages)} to 8 bits: "
            f"relative error {self.relative_rms_error:.2%} (root mean square), at most "
            f"{self.largest_error_of_block:.2%} of the largest weight of a block"
        )


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
    embedding (the base where not given); ``experts`` for expert matrices (as other matrices where
    not given); ``vectors`` for norms, biases and the router of a mixture of experts.
    """

    title: str
    base: str
    head: str
    embedding: str | None = None
    experts: str | None = None
    vectors: str
    raised: list[Raised] = []
    source: str
    notes: str | None = None

    def storage_name(self, role: Role, place: "Place") -> str:
        """The type that the recipe gives to a matrix, the length of its rows aside."""
        if role == "lm_head":
            return self.head
        if role == "embedding":
            return self.embedding or self.base
        if role in ("norm", "bias", "router"):
            return self.vectors
        if role.startswith("expert_") and self.experts is not None:
            return self.experts
        # What holds for the feed-forward matrices of a dense layer holds for those of experts.
        dense_role = role.replace("expert_", "ffn_")
        for rule in self.raised:
            if dense_role in rule.roles and _holds(rule.layers, place):
                return rule.storage
        return self.base


class Place(Struct, frozen=True, kw_only=True):
    """Where in a model a matrix stands: what the recipes' rules look at.

    ``sharing`` is the number of query heads that share a KV head.
    """

    layer: int
    layers: int
    sharing: int = 1
    experts: int = 0


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


def _holds(rule: LayerRule, place: Place) -> bool:
    layer, layers = place.layer, place.layers
    return {
        "all": True,
        "first-2": layer < 2,
        "first-4": layer < 4,
        "first-eighth": layer < layers // 8,
        "first-sixteenth": layer < layers // 16,
        "more-bits": more_bits(layer, layers),
        "of-80-gqa": layers == 80 and place.sharing > 1,
        "gqa-4": place.sharing >= 4,
        "8-experts": place.experts == 8,
        "dense": place.experts == 0,
    }[rule]
