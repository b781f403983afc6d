"""Shows models: the list of known ones, and one with all that its bytes follow from."""

from collections.abc import Sequence
from typing import Any

from edgeprof.models.names import ModelName, ModelTable
from edgeprof.models.quantisation import FormatTable, StorageType
from edgeprof.models.shape import ModelShape
from edgeprof.models.spec import AttentionKind, ModelSpec, WeightGroup
from edgeprof.report.table import fold, key_values, table
from edgeprof.units import show, significant

LIST_SCHEMA = "edgeprof.models/1"
SCHEMA = "edgeprof.model/1"


def list_document(models: ModelTable, formats: FormatTable) -> dict[str, Any]:
    """``edgeprof.models/1``: what is known by name."""
    return {
        "schema": LIST_SCHEMA,
        "models": [
            {
                "name": name,
                "title": shape.title,
                "parameters": shape.parameters,
                "layers": shape.layers,
                "vocab_size": shape.vocab,
                "source": shape.source,
                "notes": shape.notes,
            }
            for name, shape in models.models.items()
        ],
        "formats": [
            {"name": name, "title": form.title, "source": form.source, "notes": form.notes}
            for name, form in formats.formats.items()
        ],
        "aliases": {"models": models.aliases, "formats": formats.aliases},
    }


def list_text(models: ModelTable, formats: FormatTable, width: int) -> str:
    """The names, and what a model has."""
    headers = ("model", "parameters", "layers", "heads", "vocabulary", "")
    rows = [
        (
            name,
            show(shape.parameters, "").strip(),
            str(shape.layers),
            f"{shape.heads}/{shape.kv_heads}",
            "-" if shape.vocab is None else str(shape.vocab),
            _special(shape),
        )
        for name, shape in models.models.items()
    ]
    lines = [
        table(headers, rows, width=width),
        "",
        "heads: of queries and of the cache. A path to a model is taken as well as a name.",
        f"Formats: {', '.join(formats.formats)}",
        f"Short names: {', '.join(f'{a} = {b}' for a, b in models.aliases.items())};"
        f" {', '.join(f'{a} = {b}' for a, b in formats.aliases.items() if ' ' not in a)}",
    ]
    return fold("\n".join(lines), width)


def _special(shape: ModelShape) -> str:
    parts = []
    if shape.experts is not None:
        parts.append(f"{shape.experts.used} of {shape.experts.count} experts")
    if shape.sliding_window is not None:
        window = shape.sliding_window
        parts.append(f"window {window.tokens}")
    if shape.tied_embeddings:
        parts.append("tied")
    return ", ".join(parts)


def document(spec: ModelSpec, kv_name: str, kv: StorageType) -> dict[str, Any]:
    """``edgeprof.model/1``: SI units in the keys, unknown is null."""
    return {
        "schema": SCHEMA,
        "name": spec.name,
        "title": spec.title,
        "quantisation": spec.quantisation,
        "architecture": spec.architecture,
        "source": spec.source,
        "warnings": list(spec.warnings),
        "parameters": spec.parameters,
        "used_parameters": spec.used_parameters,
        "resident_weight_bytes": spec.resident_weight_bytes,
        "streamed_weight_bytes": spec.streamed_weight_bytes,
        "bits_per_weight": bits_per_weight(spec),
        "kv_type": kv_name,
        "kv_bytes_per_token": spec.kv_bytes_per_token(kv),
        "layers": spec.layers,
        "hidden_size": spec.hidden,
        "vocab_size": spec.vocab,
        "context_tokens": spec.context_tokens,
        "can_roll_back": spec.rewinds,
        "cache_storage": spec.cache_storage,
        "attention": [_attention_document(kind) for kind in spec.attention.kinds],
        "groups": [_group_document(group) for group in spec.groups],
    }


def text(spec: ModelSpec, name: ModelName, kv_name: str, kv: StorageType, width: int) -> str:
    """One model on a screen."""
    head = key_values(
        ("model", "stands for", "read from", "architecture", "weights", "a token", "cache",
         "context", "roll-back"),
        (
            f"{spec.title}, {spec.quantisation_title}",
            name.full if name.is_short else "",
            spec.source,
            _architecture(spec),
            f"{show(spec.parameters, '').strip()} parameters in"
            f" {show(spec.resident_weight_bytes, 'B', 4)} resident,"
            f" {significant(bits_per_weight(spec))} bits each",
            f"{show(spec.streamed_weight_bytes, 'B', 4)} read, {_share(spec)} of the weights;"
            f" multiplied with {show(spec.used_parameters, '').strip()} of them",
            f"{spec.kv_bytes_per_token(kv)} B a token in {kv_name}"
            + (f" (the graph's own: {spec.cache_storage})" if spec.cache_storage else ""),
            "" if spec.context_tokens is None else f"{spec.context_tokens} tokens",
            "by length" if spec.rewinds else "not by length: some layers keep a running state",
        ),
    )  # fmt: skip
    headers = ("weights", "stored as", "count", "shape", "bits", "resident", "read a token")
    rows = [_row(group) for group in spec.groups]
    return fold(f"{head}\n\n{table(headers, rows, left=2, width=width)}", width)


def bits_per_weight(spec: ModelSpec) -> float:
    """What a weight really takes, over the whole model."""
    return 8 * spec.resident_weight_bytes / spec.parameters


def _share(spec: ModelSpec) -> str:
    return f"{100 * spec.streamed_weight_bytes / spec.resident_weight_bytes:.1f} %"


def _architecture(spec: ModelSpec) -> str:
    parts = [spec.architecture] if spec.architecture else []
    parts.append(f"{spec.layers} layers")
    parts += [] if spec.hidden is None else [f"hidden {spec.hidden}"]
    parts += [] if spec.vocab is None else [f"vocabulary {spec.vocab}"]
    parts += [_kind_text(kind) for kind in spec.attention.kinds]
    return ", ".join(parts)


def _kind_text(kind: AttentionKind) -> str:
    heads = f"{kind.heads} heads on "
    heads += (
        f"one latent of {kind.key_dim}"
        if kind.latent_value
        else f"{kind.kv_heads} KV heads of {kind.key_dim}"
    )
    window = "" if kind.window_tokens is None else f", window {kind.window_tokens}"
    return f"{kind.layers} x ({heads}{window})"


def _row(group: WeightGroup) -> Sequence[str]:
    experts = "" if group.experts is None else f" ({group.experts.used} of {group.experts.count})"
    return (
        group.role + experts,
        group.storage_name.upper(),
        str(group.count),
        f"{group.rows} x {group.columns}",
        significant(group.bits_per_weight),
        show(group.bytes, "B"),
        show(_read_bytes(group), "B"),
    )


def _read_bytes(group: WeightGroup) -> int:
    """What one decoded token reads of a group."""
    if group.role == "idle":
        return 0
    return group.row_bytes if group.role == "embedding" else group.streamed_bytes(1)


def _group_document(group: WeightGroup) -> dict[str, Any]:
    return {
        "role": group.role,
        "storage": group.storage_name,
        "count": group.count,
        "rows": group.rows,
        "columns": group.columns,
        "parameters": group.parameters,
        "bytes": group.bytes,
        "streamed_bytes": _read_bytes(group),
        "bits_per_weight": group.bits_per_weight,
        "experts": group.experts and group.experts.count,
        "experts_used": group.experts and group.experts.used,
    }


def _attention_document(kind: AttentionKind) -> dict[str, Any]:
    return {
        "layers": kind.layers,
        "heads": kind.heads,
        "kv_heads": kind.kv_heads,
        "key_dim": kind.key_dim,
        "value_dim": kind.value_dim,
        "window_tokens": kind.window_tokens,
        "latent": kind.latent_value,
    }
