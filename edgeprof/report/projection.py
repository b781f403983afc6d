"""Shows a projection: sections for a person, one document or rows for a program."""

from collections.abc import Iterator
from typing import Any

from edgeprof.analysis.projection import ProjectedLength, ProjectedPair, Projection
from edgeprof.quantity import Band
from edgeprof.report.paper_document import fit_document
from edgeprof.report.roofline import fit_section
from edgeprof.report.sections import Row, Section, lines
from edgeprof.report.table import Table

SCHEMA = "edgeprof.projection/1"
CARRIED_OVER = (
    "which drafted tokens stood, round by round, on the prompts of the session",
    "the bytes and operations of a pass of the files that ran, and the mean depth of the cache",
)
MODELLED = (
    "the time of every pass: once at the peak of the board's mode, and as a band from what the "
    "board sustains and what the class of engines and its kernels reach; overhead that all passes "
    "have makes several tokens a pass cheaper, so the band may lie above the speed-up at the peak",
)
NOT_INCLUDED = (
    "time outside passes, what alternating costs, throttling, other programs",
    "another quantisation or engine than that of the session would stream other bytes",
)


def projection_document(result: Projection, session_id: str) -> dict[str, Any]:
    """``edgeprof.projection/1``."""
    device = result.device
    return {
        "schema": SCHEMA,
        "session": session_id,
        "device": {"name": device.profile.name, "mode": device.mode.name},
        "engine": result.engine.name,
        "compute": result.data_type,
        "pairs": [_pair_document(pair) for pair in result.pairs],
        "carried_over": list(CARRIED_OVER),
        "modelled": list(MODELLED),
        "not_included": list(NOT_INCLUDED),
    }


def projection_rows(result: Projection) -> list[Row]:
    """One record a pair and draft length."""
    return [
        {
            "target": pair.target,
            "drafter": pair.drafter,
            "draft_length": one.draft_length,
            "expected_tokens_per_round": one.expected_tokens_per_round,
            "speedup_at_peak": one.speedup_at_peak,
            "speedup_low": None if one.speedup is None else one.speedup.low,
            "speedup_high": None if one.speedup is None else one.speedup.high,
        }
        for pair in result.pairs
        for one in pair.by_draft_length
    ]


def projection_sections(result: Projection, machine: str) -> Iterator[Section]:
    """The answer of every pair, then where each figure comes from."""
    device = result.device
    yield Section(
        f"{machine}, projected to {device.profile.title}, {device.mode.name}",
        lines([_answer(pair) for pair in result.pairs]),
    )
    for pair in result.pairs:
        title = (
            f"{pair.target}+{pair.drafter}: speed-up by draft length, acceptance of {pair.variant}"
        )
        yield Section(title, [_table(pair)])
        yield fit_section(pair.fit, with_draft=pair.fit.draft_weights_bytes > 0)
    yield Section("Carried over from the session", lines(CARRIED_OVER))
    yield Section("Modelled", lines(MODELLED))
    yield Section("In neither", lines(NOT_INCLUDED))


def _answer(pair: ProjectedPair) -> str:
    here = "" if pair.measured_here is None else f" ({pair.measured_here:.2f}x was measured here)"
    plain = (
        f"plain decoding at most {pair.plain_tokens_per_s_bound:.1f} tokens/s"
        f"{_expected(pair.plain_tokens_per_s, '.1f')}"
    )
    if not pair.best_draft_length:
        return f"{pair.target}+{pair.drafter}: drafting is not expected to pay{here}; {plain}"
    return (
        f"{pair.target}+{pair.drafter}: best at K = {pair.best_draft_length}"
        f"{_expected(pair.best_speedup, '.2f', 'x')}{here}; {plain}"
    )


def _expected(band: Band | None, form: str, unit: str = "") -> str:
    if band is None:
        return ", nothing is expected: what the board sustains or its clock is not known"
    return f", expected {band.low:{form}}{unit} to {band.high:{form}}{unit}"


def _table(pair: ProjectedPair) -> Table:
    rows = [_row(one) for one in pair.by_draft_length]
    return Table(("K", "tokens a round", "at the peak", "expected"), rows, left=0)


def _row(one: ProjectedLength) -> tuple[str, ...]:
    band = one.speedup
    expected = "-" if band is None else f"{band.low:.2f}x to {band.high:.2f}x"
    tokens, bound = one.expected_tokens_per_round, one.speedup_at_peak
    return str(one.draft_length), f"{tokens:.2f}", f"{bound:.2f}x", expected


def _pair_document(pair: ProjectedPair) -> dict[str, Any]:
    return {
        "target": pair.target,
        "drafter": pair.drafter,
        "variant": pair.variant,
        "answers": pair.answers,
        "measured_here": pair.measured_here,
        "context_tokens": pair.context_tokens,
        "plain_tokens_per_s": {
            "bound": pair.plain_tokens_per_s_bound,
            "expected": _band(pair.plain_tokens_per_s),
        },
        "draft_cost_ratio": {"bound": pair.draft_cost_bound, "expected": _band(pair.draft_cost)},
        "by_draft_length": [
            {
                "draft_length": one.draft_length,
                "expected_tokens_per_round": one.expected_tokens_per_round,
                "speedup_at_peak": one.speedup_at_peak,
                "speedup": _band(one.speedup),
            }
            for one in pair.by_draft_length
        ],
        "best_draft_length": pair.best_draft_length,
        "best_speedup": _band(pair.best_speedup),
        "fit": fit_document(pair.fit),
    }


def _band(band: Band | None) -> dict[str, float] | None:
    return None if band is None else {"low": band.low, "high": band.high}
