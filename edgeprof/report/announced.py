"""Shows what can be said of a model on a board that is only announced: no figure is made up."""

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from edgeprof.analysis.outlook import Outline
from edgeprof.analysis.roofline import PassCost
from edgeprof.hardware.profile import DataType
from edgeprof.models.names import ModelName
from edgeprof.report.paper_document import fit_document, model_document, work_document
from edgeprof.report.sections import Row, Section, lines
from edgeprof.report.table import Table, key_values
from edgeprof.units import show, show_gib, significant


def announced_document(result: Outline, schema: str) -> dict[str, Any]:
    """The keys of every roofline document; what is not published is null."""
    board = result.board
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
        "model": model_document(result.model, result.kv),
        "passes": [_pass_document(cost) for cost in result.passes],
        "fit": fit_document(result.resident),
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
    yield Section(f"{model.full_title} on {board.title}", lines(short))
    yield Section("", [no_roofline(result)])
    origin = (board.notes or "", f"{board.source} ({board.status})")
    yield Section("", [key_values(("notes", "source"), origin)])
    headers = ("pass", "tokens", "depth", "bytes", "FLOP/B", "tokens/s")
    yield Section("Passes", [Table(headers, rows)])
    needed = show_gib(kept.total_bytes)
    yield Section("", [f"Needs {needed} of memory; whether that fits is not published."])


def announced_rows(result: Outline) -> list[Row]:
    """The rows of a roofline; what is not published is empty."""
    unknown = (
        "ridge_flop_per_byte",
        "bound",
        "time_s",
        "tokens_per_s",
        "expected_tokens_per_s_low",
        "expected_tokens_per_s_high",
        "fits",
    )
    return [
        {
            "device": result.board.name,
            "mode": None,
            "model": result.model.name,
            "quantisation": result.model.quantisation,
            **work_document(cost),
            **dict.fromkeys(unknown),
        }
        for cost in result.passes
    ]


def no_roofline(result: Outline) -> str:
    """Why there are no rates."""
    return f"NO ROOFLINE: {result.board.missing}."


def _pass_document(cost: PassCost) -> dict[str, Any]:
    return {
        **work_document(cost),
        "ridge_flop_per_byte": None,
        "bound": None,
        "time_s": None,
        "tokens_per_s": None,
        "expected_tokens_per_s": {"low": None, "high": None},
    }
