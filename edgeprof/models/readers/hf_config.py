"""Reads the shape of a decoder out of a Hugging Face config.json, under whatever names it is there.

Composite models keep it in a nested object; old ones use GPT-2's key names; flags of the outer and
the nested object may disagree, and then the nested one is right.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.shape import Experts, ModelShape, SlidingWindow

MAX_LAYERS = 4096
MAX_WIDTH = 1 << 24

# Where composite models keep the text decoder's configuration.
_NESTS = ("text_config", "llm_config", "language_config", "language_model_config", "language_model",
          "llm", "thinker_config", "text_model", "decoder")  # fmt: skip

_NAMES: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model", "dim"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads",
                 "multi_query_group_num"),
    "head_dim": ("head_dim", "kv_channels"),
    "ffn": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "vocab": ("vocab_size", "padded_vocab_size"),
    "context": ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "seq_length",
                "max_sequence_length"),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    "used": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk"),
    "expert_ffn": ("moe_intermediate_size", "expert_ffn_hidden_size"),
}  # fmt: skip


class _Family(Struct, frozen=True, kw_only=True):
    """What the models of one type have that their configuration does not say."""

    gated: bool = True
    biases: bool = False  # on every matrix and norm
    qkv_bias: bool = False
    qk_norm: bool = False
    norms: int = 2
    fused_qkv: bool = False
    positions: bool = False
    tied: bool = False
    sinks: bool = False
    period: int | None = None  # every n-th layer has no window; None: all have one


_GPT2 = _Family(gated=False, biases=True, fused_qkv=True, positions=True, tied=True)
_GEMMA3 = _Family(qk_norm=True, norms=4, tied=True, period=6)
_QWEN3 = _Family(qk_norm=True)
_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(),
    "mixtral": _Family(),
    "qwen2": _Family(qkv_bias=True),
    "qwen2_moe": _Family(qkv_bias=True),
    "qwen2_5_vl": _Family(qkv_bias=True),
    "qwen2_5_vl_text": _Family(qkv_bias=True),
    "qwen2_vl": _Family(qkv_bias=True),
    "qwen2_vl_text": _Family(qkv_bias=True),
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "gemma": _Family(tied=True),
    "gemma2": _Family(norms=4, tied=True, period=2),
    "gemma3": _GEMMA3,
    "gemma3_text": _GEMMA3,
    "phi3": _Family(fused_qkv=True),
    "gpt_oss": _Family(sinks=True),
    "cohere2": _Family(norms=1, tied=True, period=4),
    "cohere": _Family(norms=1, tied=True),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "smollm3": _Family(),
    "granite": _Family(),
    "olmo2": _Family(qk_norm=True),
    "gpt_neox": _Family(gated=False, biases=True, fused_qkv=True),
    "falcon": _Family(gated=False, fused_qkv=True, tied=True),
    "starcoder2": _Family(gated=False, biases=True),
}


class TextConfig(Struct, frozen=True, kw_only=True):
    """What a configuration says of its text decoder. ``kind`` is the type of the model;
    ``latent_dims`` are the widths of a cache of latent vectors (the vector, the rotated key)."""

    kind: str | None
    shape: ModelShape
    warnings: tuple[str, ...]
    windows: tuple[int | None, ...]
    attending: tuple[bool, ...]
    latent_dims: tuple[int, int] | None


def read_text_config(config: Mapping[str, Any], path: Path, title: str) -> TextConfig:
    """The text decoder's shape; FileFault with the key's name for what cannot be."""
    return _Reader(config, path).read(title)


class _Reader:
    """One configuration file."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._path = path
        self._outer = config
        self._text = self._text_object(config)
        self._kind = self._model_type()
        self.warnings: list[str] = []
        self._family = self._family_of()

    def read(self, title: str) -> TextConfig:
        heads = self._needed("heads")
        layers = self._needed("layers", MAX_LAYERS)
        hidden = self._needed("hidden")
        head_dim = self._head_dim(hidden, heads)
        windows = self._windows(layers)
        windowed = [window for window in windows if window is not None]
        family, experts = self._family, self._experts(layers)
        attention_bias = bool(self._value("attention_bias"))
        try:
            shape = ModelShape(
                title=title,
                layers=layers,
                hidden=hidden,
                ffn=self._ffn(hidden, experts),
                heads=heads,
                kv_heads=self._kv_heads(heads),
                head_dim=head_dim,
                vocab=self._vocab(),
                tied_embeddings=self._tied(),
                gated_ffn=family.gated,
                experts=experts,
                qkv_bias=family.qkv_bias or family.biases or attention_bias,
                output_bias=family.biases or attention_bias,
                ffn_bias=family.biases,
                norm_bias=family.biases,
                sinks=family.sinks,
                positions=self._count("context") if family.positions else None,
                qk_norm=family.qk_norm,
                fused_qkv=family.fused_qkv,
                norms_per_layer=family.norms,
                sliding_window=SlidingWindow(tokens=windowed[0], layers=len(windowed))
                if windowed
                else None,
                context_tokens=self._count("context"),
                source=f"{self._path}",
            )
        except ValueError as error:
            raise FileFault(f"{self._path}: {error}") from error
        return TextConfig(
            kind=self._kind,
            shape=shape,
            warnings=tuple(self.warnings),
            windows=tuple(windows),
            attending=tuple(self._attending(layers)),
            latent_dims=self._latent_dims(),
        )

    def _text_object(self, config: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object that has the dimensions: the outer one, or one nested up to two deep."""
        nested = list(self._nested(config, depth=2))
        # With text_config beside dimensions of its own, the outer object is another model's.
        first = config.get("text_config")
        if self._has_dimensions(config) and not (first in nested and isinstance(first, dict)):
            return config
        if nested:
            return nested[0]
        if any(name in config for name in _NAMES["hidden"]):
            return config  # something is missing; the fault will name it
        keys = ", ".join(sorted(map(repr, config))[:12]) or "none"
        self._fail(f"no dimensions of a text decoder in it; keys found: {keys}")

    def _nested(self, config: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
        for nest in _NESTS:
            inner = config.get(nest)
            if isinstance(inner, dict):
                if self._has_dimensions(inner):
                    yield inner
                if depth > 1:
                    yield from self._nested(inner, depth - 1)

    @staticmethod
    def _has_dimensions(config: Mapping[str, Any]) -> bool:
        return all(any(name in config for name in _NAMES[what]) for what in ("layers", "hidden"))

    def _model_type(self) -> str | None:
        kind = self._text.get("model_type", self._outer.get("model_type"))
        return kind if isinstance(kind, str) and kind.isprintable() else None

    def _family_of(self) -> _Family:
        if self._kind in _FAMILIES:
            return _FAMILIES[self._kind]
        if self._kind is None and "n_embd" in self._text:
            return _GPT2
        near = [kind for kind in _FAMILIES if (self._kind or "").startswith(kind)]
        relative = max(near, key=len, default="llama")
        known = "no model_type" if self._kind is None else f"model_type {self._kind!r} is not known"
        self.warnings.append(f"{self._path}: {known}; taken for a decoder like {relative}'s")
        return _FAMILIES[relative]

    def _fail(self, what: str) -> NoReturn:
        raise FileFault(f"{self._path}: {what}")

    def _value(self, key: str) -> Any:
        """A value of the text decoder, or of the outer object where the nested one has none."""
        return self._text.get(key, self._outer.get(key))

    def _count(self, what: str, limit: int = MAX_WIDTH) -> int | None:
        """The first of the names of ``what`` that has a value, as a positive whole number."""
        for name in _NAMES[what]:
            value = self._text.get(name)
            if value is not None:
                return self._checked(name, value, 1, limit)
        return None

    def _needed(self, what: str, limit: int = MAX_WIDTH) -> int:
        value = self._count(what, limit)
        if value is None:
            self._fail(f"{' or '.join(_NAMES[what][:2])} is missing")
        return value

    def _checked(self, name: str, value: Any, least: int, limit: int) -> int:
        if type(value) is not int or not least <= value <= limit:
            self._fail(f"{name} is {repr(value)[:60]}, not a whole number from {least} to {limit}")
        return value

    def _flag(self, name: str) -> bool | None:
        value = self._text.get(name)
        if value is not None and not isinstance(value, bool):
            self._fail(f"{name} is {str(value)[:60]}, neither true nor false")
        return value

    def _head_dim(self, hidden: int, heads: int) -> int:
        stated = self._count("head_dim")
        if stated is not None:
            return stated
        if self._latent_dims() is not None:
            return max(hidden // heads, 1)
        if hidden % heads:
            self._fail(f"no head_dim, and hidden size {hidden} is no multiple of {heads} heads")
        self.warnings.append(
            f"{self._path}: no head_dim; {hidden} / {heads} = {hidden // heads} taken"
        )
        return hidden // heads

    def _kv_heads(self, heads: int) -> int:
        if self._flag("multi_query") and not self._value("new_decoder_architecture"):
            return 1
        return self._count("kv_heads") or heads

    def _ffn(self, hidden: int, experts: Experts | None) -> int | None:
        width = self._count("ffn")
        if width is None and not self._family.gated:
            return 4 * hidden
        if width is None and experts is None:
            self.warnings.append(
                f"{self._path}: no intermediate_size; the feed-forward weights are NOT counted"
            )
        return width

    def _vocab(self) -> int | None:
        size = self._count("vocab")
        if size is None:
            self.warnings.append(
                f"{self._path}: no vocab_size; lm_head and embedding are NOT counted"
            )
        return size

    def _tied(self) -> bool:
        """The nested flag where there is one: the outer one is about another model."""
        own = self._flag("tie_word_embeddings")
        if own is not None:
            return own
        outer = self._outer.get("tie_word_embeddings")
        return outer if isinstance(outer, bool) else self._family.tied

    def _experts(self, layers: int) -> Experts | None:
        count = self._count("experts")
        if count is None or count == 1:
            return None
        ffn = self._count("expert_ffn") or self._count("ffn")
        used = self._count("used")
        if ffn is None or used is None:
            missing = "moe_intermediate_size" if ffn is None else "num_experts_per_tok"
            self._fail(f"{count} experts, but {missing} is missing")
        shared = self._text.get("shared_expert_intermediate_size")
        several = self._text.get("n_shared_experts")
        if shared is None and several is not None:
            shared = ffn * self._checked("n_shared_experts", several, 0, 1 << 12)
        try:
            return Experts(
                count=count,
                used=used,
                ffn=ffn,
                shared_ffn=self._checked("shared expert width", shared or 0, 0, MAX_WIDTH),
                biases=self._family.sinks,  # of the known families, gpt-oss alone has both
                dense_layers=list(self._dense_layers(layers)),
            )
        except ValueError as error:
            raise FileFault(f"{self._path}: {error}") from error

    def _dense_layers(self, layers: int) -> Sequence[int]:
        listed = self._text.get("mlp_only_layers") or []
        first = self._text.get("first_k_dense_replace") or 0
        step = self._text.get("decoder_sparse_step") or 1
        if not isinstance(listed, list) or len(listed) > MAX_LAYERS:
            self._fail("mlp_only_layers is no list of layers")
        self._checked("first_k_dense_replace", first, 0, MAX_LAYERS)
        self._checked("decoder_sparse_step", step, 1, MAX_LAYERS)
        return [
            layer
            for layer in range(layers)
            if layer < first or layer in listed or (layer + 1) % step
        ]

    def _layer_types(self, layers: int) -> list[str] | None:
        types = self._text.get("layer_types") or self._text.get("layers_block_type")
        if types is None:
            return None
        if not isinstance(types, list) or not types or not all(isinstance(t, str) for t in types):
            self._fail("layer_types is not a list of words")
        if len(types) != layers:
            self._fail(f"layer_types has {len(types)} entries for {layers} layers")
        return types

    def _windows(self, layers: int) -> list[int | None]:
        """The window of each layer."""
        window = self._text.get("sliding_window", self._text.get("window_size"))
        if window is None or self._flag("use_sliding_window") is False:
            return [None] * layers
        window = self._checked("sliding_window", window, 1, 1 << 31)
        types = self._layer_types(layers)
        if types is not None:
            return [window if kind.startswith(("sliding", "local")) else None for kind in types]
        if self._kind in ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe"):
            # Off unless use_sliding_window is set; then from max_window_layers on.
            if not self._flag("use_sliding_window"):
                return [None] * layers
            first = self._checked(
                "max_window_layers", self._text.get("max_window_layers", 0), 0, MAX_LAYERS
            )
            return [window if layer >= first else None for layer in range(layers)]
        period = self._text.get("sliding_window_pattern") or self._family.period
        if period is None:
            return [window] * layers
        self._checked("sliding_window_pattern", period, 1, MAX_LAYERS)
        return [window if (layer + 1) % period else None for layer in range(layers)]

    def _attending(self, layers: int) -> list[bool]:
        """Whether each layer attends to a cache; others keep a running state."""
        types = self._layer_types(layers)
        if types is None:
            return [True] * layers
        return ["attention" in kind and not kind.startswith("linear") for kind in types]

    def _latent_dims(self) -> tuple[int, int] | None:
        latent = self._text.get("kv_lora_rank")
        if latent is None:
            return None
        return (
            self._checked("kv_lora_rank", latent, 1, MAX_WIDTH),
            self._checked("qk_rope_head_dim", self._text.get("qk_rope_head_dim"), 0, MAX_WIDTH),
        )
