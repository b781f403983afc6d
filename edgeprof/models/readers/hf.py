"""Describes the model in a Hugging Face folder, or of a config.json alone.

Where all safetensors files are there their headers give every byte; else the configuration's
dimensions and storage do, and the spec says so.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.quantisation import FormatTable, Role, StorageType
from edgeprof.models.readers.grouping import TensorGroups, missing_layers
from edgeprof.models.readers.hf_config import TextConfig, read_text_config
from edgeprof.models.readers.hf_storage import Stored, read_storage
from edgeprof.models.readers.json_file import read_json_object
from edgeprof.models.readers.safetensors import (
    TYPE_BITS,
    SafeTensor,
    SafetensorsHeader,
    read_safetensors_header,
)
from edgeprof.models.shape import ModelShape, build_spec
from edgeprof.models.spec import Attention, AttentionKind, ExpertUse, ModelSpec

CONFIG_NAME = "config.json"
INDEX_NAME = "model.safetensors.index.json"
_MAX_CONFIG_BYTES = 4 << 20
_MAX_INDEX_BYTES = 32 << 20
_MAX_SHARDS = 4096

# Types whose layers keep a running state though their configuration has no layer_types.
_RECURRENT = ("mamba", "rwkv", "falcon_h1", "nemotron_h", "zamba", "recurrent_gemma", "jamba",
              "bamba", "lfm2", "qwen3_next", "qwen3_5", "granitemoehybrid")  # fmt: skip


def describe_hf(path: Path) -> ModelSpec:
    """The model of a folder with a config.json, or of the file itself."""
    config_path = path / CONFIG_NAME if path.is_dir() else path
    if path.is_dir() and not config_path.is_file():
        raise FileFault(f"{path}: no {CONFIG_NAME} in it, so the shape of the model is not known")
    folder = config_path.parent
    config = read_json_object(config_path, _MAX_CONFIG_BYTES)
    name = folder.resolve().name if config_path.name == CONFIG_NAME else config_path.stem
    text = read_text_config(config, config_path, name)
    files = _Files(folder) if config_path.name == CONFIG_NAME else _Files(None)
    if files.headers:
        return _from_tensors(name, text, _storage_of(config, config_path, exact=True), files)
    return _from_config(name, text, _storage_of(config, config_path, exact=False), files)


class _Files:
    """The safetensors files of a folder: their headers where all are there, and all names."""

    def __init__(self, folder: Path | None) -> None:
        self.headers: list[SafetensorsHeader] = []
        self.names: frozenset[str] = frozenset()
        self.warnings: list[str] = []
        if folder is None:
            return
        index = folder / INDEX_NAME
        if index.is_file():
            self._read_index(index)
        else:
            paths = sorted(folder.glob("*.safetensors"))
            whole = folder / "model.safetensors"
            self._read([whole] if whole in paths else paths)

    def _read_index(self, index: Path) -> None:
        weight_map = read_json_object(index, _MAX_INDEX_BYTES).get("weight_map")
        if not isinstance(weight_map, dict) or not all(map(_is_shard_name, weight_map.values())):
            raise FileFault(f"{index}: weight_map does not name files of this folder")
        self.names = frozenset(weight_map)
        paths = [index.with_name(file) for file in sorted(set(weight_map.values()))]
        missing = [path.name for path in paths if not path.is_file()]
        if missing:
            self.warnings.append(
                f"{index}: {len(missing)} of {len(paths)} files are not there ({missing[0]} ...); "
                "bytes follow from the configuration"
            )
            return
        self._read(paths)

    def _read(self, paths: Sequence[Path]) -> None:
        if len(paths) > _MAX_SHARDS:
            raise FileFault(f"{paths[0].parent}: {len(paths)} safetensors files")
        self.headers = [read_safetensors_header(path) for path in paths]
        self.names |= {tensor.name for header in self.headers for tensor in header.tensors}
        for header in self.headers:
            if header.missing_bytes:
                self.warnings.append(
                    f"{header.path}: truncated: {header.missing_bytes} bytes are missing; no "
                    "engine can load it: fetch it again"
                )

    def tie(self, flag: bool) -> tuple[bool, tuple[str, ...]]:
        """Whether the output head is the embedding: the tensors know better than the flag."""
        has_embedding = any(_role_of(name) == "embedding" for name in self.names)
        has_head = any(_role_of(name) == "lm_head" for name in self.names)
        if not has_embedding or flag is not has_head:
            return flag, ()
        said, found = ("tied", "an lm_head of its own") if flag else ("untied", "no lm_head")
        return not flag, (
            f"the configuration says {said} embeddings, the tensors have {found}: tensors trusted",
        )


def _is_shard_name(file: object) -> bool:
    """Whether an index may name this file: one of its own folder."""
    return (
        isinstance(file, str)
        and len(file) < 256
        and file.isprintable()
        and file.endswith(".safetensors")
        and PurePosixPath(file).name == file
    )


def _storage_of(config: Mapping[str, Any], path: Path, *, exact: bool) -> Stored | None:
    nested = config.get("text_config")
    try:
        return read_storage(config, nested if isinstance(nested, dict) else {}, path)
    except FileFault:
        if not exact:
            raise
        return None  # the tensors say it


def _attention(text: TextConfig) -> Attention:
    shape, latent = text.shape, text.latent_dims
    counts: dict[AttentionKind, int] = {}
    for window, attends in zip(text.windows, text.attending, strict=True):
        if attends:
            kind = AttentionKind(
                layers=1,
                heads=shape.heads,
                # One latent vector and one rotated key for all heads: DeepSeek-V2,
                # arXiv 2405.04434, table 1.
                kv_heads=1 if latent else shape.kv_heads,
                key_dim=sum(latent) if latent else shape.head_dim,
                value_dim=latent[0] if latent else shape.head_dim,
                window_tokens=window,
                latent_value=latent is not None,
            )
            counts[kind] = counts.get(kind, 0) + 1
    return Attention(kinds=tuple(replace(kind, layers=n) for kind, n in counts.items()))


def _finished(spec: ModelSpec, text: TextConfig, warnings: Iterable[str]) -> ModelSpec:
    rewinds = all(text.attending) and not (text.kind or "").startswith(_RECURRENT)
    state = ("some layers keep a running state; what reading and writing it costs is not counted",)
    return replace(
        spec,
        attention=_attention(text),
        architecture=text.kind,
        rewinds=rewinds,
        warnings=(*text.warnings, *warnings, *(() if rewinds else state)),
    )


def _from_config(name: str, text: TextConfig, stored: Stored | None, files: _Files) -> ModelSpec:
    path = text.shape.source
    if text.latent_dims is not None:
        raise FileFault(
            f"{path}: multi-head latent attention: its matrices do not follow from the "
            "configuration; give the folder with the safetensors files, or a GGUF"
        )
    if not all(text.attending) or (text.kind or "").startswith(_RECURRENT):
        raise FileFault(
            f"{path}: some layers are recurrent: their matrices do not follow from the "
            "configuration; give the folder with the safetensors files, or a GGUF"
        )
    assert stored is not None, "read_storage raises where it has no answer"
    tied, warnings = files.tie(text.shape.tied_embeddings)
    table = FormatTable(storage=stored.types, aliases={}, formats={})
    shape = replace(text.shape, tied_embeddings=tied)
    spec = build_spec(name, shape, stored.name, stored.form, table)
    spec = replace(spec, source=f"dimensions in {path}; no tensor was read")
    return _finished(spec, text, (*files.warnings, *warnings))


def _from_tensors(name: str, text: TextConfig, stored: Stored | None, files: _Files) -> ModelSpec:
    tied, warnings = files.tie(text.shape.tied_embeddings)
    folder = files.headers[0].path.parent
    found = {layer for name in files.names if (layer := _layer_of(name)) is not None}
    if found:  # else they are numbered in a way that is not known here
        warnings = (*warnings, *missing_layers(folder, found, text.shape.layers))
    bits = stored.bits if stored else None
    modules = _modules(tensor for header in files.headers for tensor in header.tensors)
    groups = TensorGroups()
    for module in modules.values():
        _add_module(groups, module, text.shape, bits or 4, tied)
    built = groups.build()
    spec = ModelSpec(
        name=name,
        title=text.shape.title,
        quantisation=stored.name if stored else "as-stored",
        quantisation_title=stored.form.title if stored else "as stored",
        groups=built,
        attention=_attention(text),
        layers=text.shape.layers,
        hidden=text.shape.hidden,
        vocab=text.shape.vocab,
        context_tokens=text.shape.context_tokens,
        source=f"headers of {len(files.headers)} safetensors files of {folder}, "
        f"{len(files.names)} tensors",
    )
    counted = (w for w in text.warnings if "NOT counted" not in w)  # the tensors have them
    return _finished(spec, replace(text, warnings=tuple(counted)), (*files.warnings, *warnings))


class _Module(Struct, kw_only=True):
    """The tensors that make one matrix: packed weights, scales, zero points."""

    name: str
    parts: dict[str, SafeTensor]


# Endings of the tensors that belong to a matrix, the one with the weights first.
_WEIGHTS = ("weight", "qweight", "weight_packed", "blocks")
_EXTRAS = ("qzeros", "scales", "g_idx", "weight_scale", "weight_scale_inv", "weight_scale_2",
           "weight_zero_point", "weight_shape", "weight_g_idx", "weight_global_scale",
           "input_scale", "input_global_scale", "input_zero_point", "output_scale")  # fmt: skip
_ENDING = re.compile(r"(.+?)[._](" + "|".join((*_EXTRAS, *_WEIGHTS)) + r")(\..+)?")


def _modules(tensors: Iterable[SafeTensor]) -> dict[str, _Module]:
    modules: dict[str, _Module] = {}
    for tensor in tensors:
        match = _ENDING.fullmatch(tensor.name)
        name, part = (match[1], match[2] + (match[3] or "")) if match else (tensor.name, "weight")
        module = modules.setdefault(name, _Module(name=name, parts={}))
        module.parts[part] = tensor
    return modules


def _add_module(
    groups: TensorGroups, module: _Module, shape: ModelShape, bits: int, tied: bool
) -> None:
    weights = next((module.parts[part] for part in _WEIGHTS if part in module.parts), None)
    if weights is None:  # scales without their weights: kept as what they are
        for tensor in module.parts.values():
            _add_plain(groups, "other", tensor, None)
        return
    role = _role_of(module.name)
    if role == "embedding" and tied and "position" not in module.name and "wpe" not in module.name:
        role = "lm_head"
    layer = _layer_of(module.name)
    if layer is not None and layer >= shape.layers:
        role = "idle"  # layers that predict further tokens: a draft, not decoding
    experts = None
    if shape.experts is not None and re.search(r"\bexperts\b", module.name):
        experts = ExpertUse(count=shape.experts.count, used=shape.experts.used)
    packed = weights.name.endswith(("qweight", "weight_packed", "blocks")) or (
        weights.dtype in ("U8", "I32") and len(module.parts) > 1
    )
    if not packed and len(module.parts) == 1:
        _add_plain(groups, role, weights, experts)
        return
    width = bits if packed else TYPE_BITS[weights.dtype]
    parameters = weights.elements * TYPE_BITS[weights.dtype] // width
    rows = weights.shape[0] if weights.shape else 1
    groups.add(
        role,
        f"int{width}" if packed and width > 4 else f"{width}-bit packed" if packed else "fp8",
        StorageType(block_weights=8, block_bytes=width),
        rows=rows,
        columns=max(parameters // max(rows, 1), 1),
        experts=experts,
        stored_bytes=sum(tensor.byte_length for tensor in module.parts.values()),
    )


def _add_plain(
    groups: TensorGroups, role: Role, tensor: SafeTensor, experts: ExpertUse | None
) -> None:
    shape = tensor.shape
    count = shape[0] if experts is not None and shape and shape[0] == experts.count else 1
    if count > 1:
        shape = shape[1:]
    rows, columns = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, math.prod(shape))
    groups.add(
        role,
        tensor.dtype.lower(),
        StorageType(block_weights=8, block_bytes=TYPE_BITS[tensor.dtype]),
        rows=rows,
        columns=columns,
        count=count,
        experts=experts,
        stored_bytes=tensor.byte_length // count,
    )


# What a matrix is by the last part of its name.
_ROLES: dict[str, Role] = {
    "q_proj": "attn_q", "q_a_proj": "attn_q", "q_b_proj": "attn_q", "wq": "attn_q",
    "k_proj": "attn_k", "kv_a_proj_with_mqa": "attn_k", "wk": "attn_k",
    "v_proj": "attn_v", "kv_b_proj": "attn_v", "wv": "attn_v",
    "qkv_proj": "attn_qkv", "c_attn": "attn_qkv", "query_key_value": "attn_qkv", "Wqkv": "attn_qkv",
    "o_proj": "attn_output", "out_proj": "attn_output", "dense": "attn_output", "wo": "attn_output",
    "gate_proj": "ffn_gate", "w1": "ffn_gate",
    "up_proj": "ffn_up", "w3": "ffn_up", "gate_up_proj": "ffn_up", "c_fc": "ffn_up",
    "fc1": "ffn_up", "dense_h_to_4h": "ffn_up",
    "down_proj": "ffn_down", "w2": "ffn_down", "fc2": "ffn_down", "dense_4h_to_h": "ffn_down",
    "router": "router", "gate": "router", "shared_expert_gate": "router",
    "embed_tokens": "embedding", "wte": "embedding", "word_embeddings": "embedding",
    "tok_embeddings": "embedding", "embed_in": "embedding", "wpe": "embedding",
    "embed_positions": "embedding",
    "lm_head": "lm_head", "embed_out": "lm_head", "output": "lm_head",
}  # fmt: skip
_OTHER_TOWERS = re.compile(
    r"(^|\.)(visual|vision\w*|audio\w*|multi_modal_projector|mm_projector|mtp|talker|code2wav)\."
)


def _role_of(name: str) -> Role:
    """The role of a matrix, or of a tensor with its ending."""
    if _OTHER_TOWERS.search(name):
        return "idle"
    if match := _ENDING.fullmatch(name):
        name = match[1]
    steps = name.split(".")
    last = steps[-1]
    if last.endswith("bias") or last in ("sinks", "A_log", "dt_bias"):
        return "bias"
    if "norm" in last or last.startswith("ln_"):
        return "norm"
    if last == "c_proj":
        return "ffn_down" if "mlp" in steps else "attn_output"
    role = _ROLES.get(last, "other")
    if "experts" in steps and role.startswith("ffn_"):
        return _EXPERT_ROLES[role]
    return role


_EXPERT_ROLES: dict[str, Role] = {
    "ffn_gate": "expert_gate", "ffn_up": "expert_up", "ffn_down": "expert_down"
}  # fmt: skip


def _layer_of(name: str) -> int | None:
    match = re.search(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.", name)
    return int(match[1]) if match else None
