"""Shows what can be said of a model on a board that is only announced: no figure is made up."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from edgeprof.analysis.outlook import Outline
from edgeprof.analysis.roofline import PassCost
from edgeprof.hardware.profile import DataType
from edgeprof.models.names import ModelName
from edgeprof.report.sections import Section, lines
from edgeprof.report.table import Table, key_values
from edgeprof.units import show, show_gib, significant


def announced_document(result: Outline, schema: str) -> dict[str, Any]:
    """The keys of every roofline document; what is not published is null."""
    board, model, kept = result.board, result.model, result.resident
    return {
        "schema": schema,
        "device": {
            "name": board.name,
            "mode": None,
            "peak_bandwidth_bytes_per_s": None,
            "sustained_bandwidth_bytes_per_s": None,
            "peak_flop_per_s": dict.fromkeys(get_args(DataType)),
            "dram_bytes": None,
        },
        "model": {
            "name": model.name,
            "quantisation": model.quantisation,
            "parameters": model.parameters,
            "resident_weight_bytes": model.resident_weight_bytes,
            "streamed_weight_bytes": model.streamed_weight_bytes,
            "kv_bytes_per_token": model.kv_bytes_per_token(result.kv),
        },
        "passes": [_pass_document(cost) for cost in result.passes],
        "fit": {
            "weights_bytes": kept.weights_bytes,
            "kv_bytes": kept.kv_bytes,
            "draft_weights_bytes": kept.draft_weights_bytes,
            "draft_kv_bytes": kept.draft_kv_bytes,
            "runtime_bytes": kept.runtime_bytes,
            "system_bytes": kept.system_bytes,
            "total_bytes": kept.total_bytes,
            "dram_bytes": None,
            "fits": None,
        },
        "not_published": board.not_published,
    }


def announced_sections(result: Outline, names: Sequence[ModelName]) -> Iterator[Section]:
    """What is not published first, then what the model needs of any board."""
    board, model, kept = result.board, result.model, result.resident
    rows = [
        (
            cost.phase,
            str(cost.tokens),
            str(cost.context_tokens),
            show(cost.total_bytes, "B"),
            significant(cost.intensity_flop_per_byte),
            "not published",
        )
        for cost in result.passes
    ]
    short = [f"{name.asked} = {name.full}" for name in names if name.is_short]
    yield Section(f"{model.title} {model.quantisation_title} on {board.title}", lines(short))
    yield Section("", [no_roofline(result)])
    origin = (board.notes or "", f"{board.source} ({board.status})")
    yield Section("", [key_values(("notes", "source"), origin)])
    headers = ("pass", "tokens", "depth", "bytes", "FLOP/B", "tokens/s")
    yield Section("Passes", [Table(headers, rows)])
    needed = show_gib(kept.total_bytes)
    yield Section("", [f"Needs {needed} of memory; whether that fits is not published."])


def no_roofline(result: Outline) -> str:
    """Why there are no rates."""
    return f"NO ROOFLINE: {result.board.missing}."


def _pass_document(cost: PassCost) -> dict[str, Any]:
    return {
        "phase": cost.phase,
        "tokens": cost.tokens,
        "context_tokens": cost.context_tokens,
        "weight_bytes": cost.weight_bytes,
        "kv_read_bytes": cost.kv_read_bytes,
        "kv_write_bytes": cost.kv_write_bytes,
        "total_bytes": cost.total_bytes,
        "flop": cost.flop,
        "intensity_flop_per_byte": cost.intensity_flop_per_byte,
        "ridge_flop_per_byte": None,
        "bound": None,
        "time_s": None,
        "tokens_per_s": None,
        "expected_tokens_per_s": {"low": None, "high": None},
    }
