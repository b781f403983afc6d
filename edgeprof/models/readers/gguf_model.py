"""Describes the model in a GGUF file, tensor by tensor, from the headers of its parts alone.

Tensors that no role is known for are kept as ``other``: they are read with every pass. What the
keys mean: the GGUF specification and ggml-org/llama.cpp gguf-py/gguf/constants.py.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.quantisation import Role, StorageType
from edgeprof.models.readers.gguf import STORAGE_TYPES, GgufHeader, GgufTensor, Value, read_header
from edgeprof.models.readers.grouping import TensorGroups, main_storage, missing_layers
from edgeprof.models.spec import Attention, AttentionKind, ExpertUse, ModelSpec, WeightGroup

MAX_LAYERS = 4096
MAX_WIDTH = 1 << 24  # of a head count, a head or a hidden state
MAX_PARTS = 4096
_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)")

_STORAGE = {
    name: StorageType(block_weights=weights, block_bytes=size)
    for name, weights, size in STORAGE_TYPES.values()
}

# general.file_type, as llama.cpp numbers it.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE",
}  # fmt: skip

# What a tensor is by its name behind "blk.N." and before ".weight".
_ROLES: dict[str, Role] = {
    "attn_q": "attn_q",
    "attn_k": "attn_k",
    "attn_v": "attn_v",
    "attn_qkv": "attn_qkv",
    "attn_output": "attn_output",
    # multi-head latent attention
    "attn_q_a": "attn_q",
    "attn_q_b": "attn_q",
    "attn_kv_a_mqa": "attn_k",
    "attn_kv_b": "attn_v",
    "attn_k_b": "attn_k",
    "attn_v_b": "attn_v",
    "ffn_gate": "ffn_gate",
    "ffn_up": "ffn_up",
    "ffn_down": "ffn_down",
    "ffn_gate_shexp": "ffn_gate",
    "ffn_up_shexp": "ffn_up",
    "ffn_down_shexp": "ffn_down",
    "ffn_gate_exps": "expert_gate",
    "ffn_up_exps": "expert_up",
    "ffn_gate_up_exps": "expert_up",
    "ffn_down_exps": "expert_down",
    "ffn_gate_inp": "router",
    "ffn_gate_inp_shexp": "router",
}
_OLD_EXPERT = re.compile(r"ffn_(gate|up|down)\.\d+")  # one tensor an expert, in files of 2023
_EMBEDDINGS = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
_STATE = ("ssm_", "time_mix", "shortconv")  # layers that keep a running state
_NO_DECODER = {
    "clip": "the vision part of a model",
    "bert": "an encoder",
    "nomic-bert": "an encoder",
    "jina-bert-v2": "an encoder",
    "t5encoder": "an encoder",
}

# Windowed layers by architecture where the file does not list them: all but every n-th
# (llama.cpp src/llama-model.cpp).
_WINDOW_PERIODS = {
    "gemma2": 2, "gemma3": 6, "gemma3n": 5, "cohere2": 4, "gpt-oss": 2, "exaone4": 4, "olmo2": 4,
}  # fmt: skip


def describe_gguf(path: Path) -> ModelSpec:
    """The model that the file, or the set of parts it belongs to, holds."""
    headers = read_parts(path)
    keys = _Keys(headers[0])
    if keys.architecture in _NO_DECODER:
        keys.fail(f"it holds {_NO_DECODER[keys.architecture]}, not a model that decodes text")
    tensors = [tensor for header in headers for tensor in header.tensors]
    if not tensors:
        keys.fail("it holds no tensors, so no model")
    layers = keys.count("block_count", MAX_LAYERS)
    hidden = keys.count("embedding_length", MAX_WIDTH)
    warnings = [*_missing(headers), *missing_layers(path, _parts_by_layer(tensors), layers)]
    attention = _Attention(keys, tensors, layers, hidden)
    groups = _groups(keys, tensors, layers)
    named = keys.value("general.file_type", None)
    form = _FILE_TYPES.get(named) if isinstance(named, int) else None
    title = keys.value("general.name", None)
    context = keys.value(f"{keys.architecture}.context_length", None)
    return ModelSpec(
        name=_stem(path),
        title=title if isinstance(title, str) and title.isprintable() and title else _stem(path),
        quantisation=(form or main_storage(groups)).lower(),
        quantisation_title=form or f"mostly {main_storage(groups).upper()}",
        groups=groups,
        attention=Attention(kinds=tuple(attention.kinds())),
        architecture=keys.architecture,
        layers=layers,
        hidden=hidden,
        vocab=next((t.dims[-1] for t in tensors if t.name == "token_embd.weight" and t.dims), None),
        context_tokens=context if isinstance(context, int) and context > 0 else None,
        rewinds=not attention.has_state,
        source=f"GGUF header of {path}, {len(tensors)} tensors"
        + (f" in {len(headers)} files" if len(headers) > 1 else ""),
        warnings=(*warnings, *attention.warnings),
    )


def read_parts(path: Path) -> list[GgufHeader]:
    """The headers of all files that the model is split into; of one where it is not split."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [read_header(path, allow_missing_data=True)]
    count = int(match["count"])
    if not 0 < count <= MAX_PARTS or not 0 < int(match["number"]) <= count:
        raise FileFault(f"{path}: the name says part {match['number']} of {match['count']}")
    paths = [
        path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf")
        for number in range(1, count + 1)
    ]
    missing = [part.name for part in paths if not part.is_file()]
    if missing:
        shown = ", ".join(missing[:3]) + (" ..." if len(missing) > 3 else "")
        raise FileFault(
            f"{path}: {len(missing)} of the {count} parts of this model are missing: {shown}"
        )
    headers = [read_header(part, allow_missing_data=True) for part in paths]
    _check_parts(headers)
    return headers


def _check_parts(headers: Sequence[GgufHeader]) -> None:
    names: Counter[str] = Counter()
    for number, header in enumerate(headers):
        names.update(tensor.name for tensor in header.tensors)
        for key, expected in (("split.count", len(headers)), ("split.no", number)):
            found = header.metadata.get(key, expected)
            if found != expected:
                raise FileFault(
                    f"{header.path}: {key} is {found}, its name says {expected}: the parts are "
                    "not those of one model"
                )
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise FileFault(f"{headers[0].path}: tensor {twice[0]!r} is in more than one part")


def _missing(headers: Sequence[GgufHeader]) -> Iterator[str]:
    for header in headers:
        if header.missing_bytes:
            yield (
                f"{header.path}: truncated: {header.missing_bytes} of "
                f"{header.byte_length + header.missing_bytes} bytes are missing; the header is "
                "whole and describes the model, but no engine can load the file: fetch it again"
            )


def _stem(path: Path) -> str:
    match = _PART.fullmatch(path.name)
    return match["stem"] if match else path.stem


class _Keys:
    """The metadata, asked for by what is expected of a key."""

    def __init__(self, header: GgufHeader) -> None:
        self._header = header
        architecture = header.metadata.get("general.architecture")
        if not isinstance(architecture, str) or not architecture.isprintable():
            self.fail("general.architecture is missing: it does not say what model it holds")
        self.architecture = architecture

    def fail(self, what: str) -> NoReturn:
        raise FileFault(f"{self._header.path}: {what}")

    def value(self, key: str, default: "Value | None") -> "Value | None":
        return self._header.metadata.get(key, default)

    def count(self, key: str, limit: int, default: int | None = None) -> int:
        """A positive whole number behind ``ARCHITECTURE.key``."""
        full = f"{self.architecture}.{key}"
        value = self.value(full, default)
        if value is None:
            self.fail(f"key {full} is missing")
        return self._checked(full, value, 1, limit)

    def per_layer(self, key: str, layers: int, default: Sequence[int] | None) -> list[int]:
        """A number a layer; the file gives one for all or a list. Layers without it have 0."""
        full = f"{self.architecture}.{key}"
        value = self.value(full, None)
        if value is None:
            if default is None:
                self.fail(f"key {full} is missing")
            return list(default)
        if not isinstance(value, tuple):
            return [self._checked(full, value, 1, MAX_WIDTH)] * layers
        if len(value) < layers:
            self.fail(f"{full} has {len(value)} values for {layers} layers")
        return [self._checked(full, one, 0, MAX_WIDTH) for one in value[:layers]]

    def _checked(self, key: str, value: Value, least: int, limit: int) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= limit:
            self.fail(f"{key} is {value!r}, not a whole number from {least} to {limit}")
        return value


class _Attention:
    """Which layers keep what cache."""

    def __init__(
        self, keys: _Keys, tensors: Sequence[GgufTensor], layers: int, hidden: int
    ) -> None:
        self._keys = keys
        self._layers = layers
        parts = _parts_by_layer(tensors)
        self.has_state = any(part.startswith(_STATE) for names in parts.values() for part in names)
        self._cached = [_keeps_cache(parts.get(layer, set())) for layer in range(layers)]
        self._latent = [
            any(part.startswith("attn_kv_a_mqa") for part in parts.get(layer, ()))
            for layer in range(layers)
        ]
        # A model without attention has no heads, and its file need not name them.
        none = None if any(self._cached) else [0] * layers
        self._heads = none or keys.per_layer("attention.head_count", layers, None)
        self._kv_heads = none or keys.per_layer("attention.head_count_kv", layers, self._heads)
        self._hidden = hidden
        self.warnings: list[str] = []
        self._windows = list(self._windowed())
        if self.has_state:
            self.warnings.append(
                "some layers keep a running state; what reading and writing it costs is not counted"
            )
        shared = keys.value(f"{keys.architecture}.attention.shared_kv_layers", 0)
        if isinstance(shared, int) and 0 < shared < layers:
            self._cached[layers - shared :] = [False] * shared
            self.warnings.append(f"the last {shared} layers share caches; counted once")

    def kinds(self) -> Iterator[AttentionKind]:
        """Like layers counted together."""
        found: Counter[AttentionKind] = Counter()
        for layer in range(self._layers):
            if self._cached[layer] and self._heads[layer] and self._kv_heads[layer]:
                found[self._kind(layer)] += 1
        for kind, layers in found.items():
            yield AttentionKind(
                layers=layers,
                heads=kind.heads,
                kv_heads=kind.kv_heads,
                key_dim=kind.key_dim,
                value_dim=kind.value_dim,
                window_tokens=kind.window_tokens,
                latent_value=kind.latent_value,
            )

    def _kind(self, layer: int) -> AttentionKind:
        heads, kv_heads, window = self._heads[layer], self._kv_heads[layer], self._windows[layer]
        if self._latent[layer]:
            # The cache holds one latent vector and one rotated key for all heads:
            # DeepSeek-V2, arXiv 2405.04434, table 1.
            latent = self._keys.count("attention.kv_lora_rank", MAX_WIDTH)
            rotated = self._keys.count("rope.dimension_count", MAX_WIDTH)
            kv_heads, key_dim, value_dim = 1, latent + rotated, latent
        else:
            if heads % kv_heads:
                self._keys.fail(f"{heads} heads are no multiple of {kv_heads} KV heads")
            derived = max(self._hidden // heads, 1)
            ending = "" if window is None else "_swa"
            key_dim, value_dim = (
                self._keys.count(
                    f"attention.{part}_length{ending}",
                    MAX_WIDTH,
                    self._keys.count(f"attention.{part}_length", MAX_WIDTH, derived),
                )
                for part in ("key", "value")
            )
        return AttentionKind(
            layers=1,
            heads=heads,
            kv_heads=kv_heads,
            key_dim=key_dim,
            value_dim=value_dim,
            window_tokens=window,
            latent_value=self._latent[layer],
        )

    def _windowed(self) -> Iterator[int | None]:
        """The window of each layer."""
        keys, architecture = self._keys, self._keys.architecture
        if not keys.value(f"{architecture}.attention.sliding_window", 0):
            yield from [None] * self._layers
            return
        window = keys.count("attention.sliding_window", 1 << 31)
        pattern = keys.value(f"{architecture}.attention.sliding_window_pattern", None)
        if isinstance(pattern, tuple) and len(pattern) >= self._layers:
            yield from (window if pattern[layer] else None for layer in range(self._layers))
            return
        period = pattern if isinstance(pattern, int) else _WINDOW_PERIODS.get(architecture)
        if period is None:
            self.warnings.append(
                f"a window of {window} tokens is taken for all layers: the file does not say which"
            )
        for layer in range(self._layers):
            full = period is not None and period > 0 and layer % period == period - 1
            yield None if full else window


def _parts_by_layer(tensors: Sequence[GgufTensor]) -> dict[int, set[str]]:
    parts: dict[int, set[str]] = {}
    for tensor in tensors:
        if match := _BLOCK.fullmatch(tensor.name):
            parts.setdefault(int(match[1]), set()).add(match[2])
    return parts


def _keeps_cache(parts: set[str]) -> bool:
    """Whether a layer with these tensors attends; a fused projection beside a state does not."""
    names = {part.rpartition(".")[0] for part in parts}
    if names & {"attn_k", "attn_kv_a_mqa"}:
        return True
    return "attn_qkv" in names and not any(part.startswith(_STATE) for part in parts)


class _Routing(Struct, frozen=True):
    """The experts of the model, and the layers from which on decoding uses none."""

    experts: ExpertUse | None
    decoding_layers: int


def _groups(keys: _Keys, tensors: Sequence[GgufTensor], layers: int) -> tuple[WeightGroup, ...]:
    tied = not any(tensor.name == "output.weight" for tensor in tensors)
    draft_layers = keys.value(f"{keys.architecture}.nextn_predict_layers", 0)
    routing = _Routing(
        _expert_use(keys, tensors),
        layers - draft_layers if isinstance(draft_layers, int) else layers,
    )
    groups = TensorGroups()
    for tensor in tensors:
        role = _role(tensor, tied, routing)
        columns = tensor.dims[0] if tensor.dims else 1
        rows, count, experts = math.prod(tensor.dims[1:]), 1, None
        if routing.experts is not None and _is_experts(tensor.name):
            experts = routing.experts
            if len(tensor.dims) > 1 and tensor.dims[-1] == experts.count:
                count, rows = experts.count, rows // experts.count
        groups.add(
            role,
            tensor.storage.lower(),
            _STORAGE[tensor.storage],
            rows=rows,
            columns=columns,
            count=count,
            experts=experts,
        )
    return groups.build()


def _expert_use(keys: _Keys, tensors: Sequence[GgufTensor]) -> ExpertUse | None:
    if not any(_is_experts(tensor.name) for tensor in tensors):
        return None
    count = keys.count("expert_count", MAX_WIDTH)
    return ExpertUse(count=count, used=keys.count("expert_used_count", count))


def _is_experts(name: str) -> bool:
    return "_exps." in name or _OLD_EXPERT.search(name) is not None


def _role(tensor: GgufTensor, tied: bool, routing: _Routing) -> Role:
    stem, _, kind = tensor.name.rpartition(".")
    match = _BLOCK.fullmatch(stem)
    part = match[2] if match else stem
    if match and int(match[1]) >= routing.decoding_layers:
        return "idle"  # layers that predict further tokens: a draft, not decoding
    if part == "output" or (part == "token_embd" and tied):
        return "lm_head" if kind == "weight" else "bias"
    if part in _EMBEDDINGS:
        return "embedding"
    if "norm" in part:
        return "norm"
    if kind == "bias":
        return "bias"
    if old := _OLD_EXPERT.fullmatch(part):
        return _ROLES[f"ffn_{old[1]}_exps"]
    return _ROLES.get(part, "other")
