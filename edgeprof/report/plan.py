"""Shows a plan for drafting: sections for a person, one document or rows for a program."""

from collections.abc import Iterator, Sequence
from typing import Any

from edgeprof.analysis.plan import AcceptanceGain, KernelGain, LengthGain, Plan
from edgeprof.hardware.engines import BATCH_POSITIONS
from edgeprof.models.names import ModelName
from edgeprof.quantity import Band
from edgeprof.report.paper_document import fit_document
from edgeprof.report.roofline import fit_section, stood_for, warnings
from edgeprof.report.sections import Row, Section, lines
from edgeprof.report.table import Table
from edgeprof.units import significant

SCHEMA = "edgeprof.plan/1"
_BEYOND = f" What is expected beyond {BATCH_POSITIONS} positions is the cost of as many."
_ROWS = 8  # of draft lengths and pass sizes, as many as a screen takes


def plan_document(result: Plan) -> dict[str, Any]:
    """``edgeprof.plan/1``: the figures of the headline acceptance, then of each one asked for."""
    headline = result.headline
    return {
        "schema": SCHEMA,
        "device": {"name": result.device.profile.name, "mode": result.device.mode.name},
        "target": _model(result.target.name, result.target.quantisation),
        "draft": None
        if result.draft is None
        else _model(result.draft.name, result.draft.quantisation),
        "context_tokens": result.context_tokens,
        "engine": result.engine.name,
        "acceptance": headline.acceptance,
        "draft_cost_ratio": _used_draft_cost(result),
        "draft_cost_ratio_bound": result.draft_cost.bound,
        "draft_cost_ratio_expected": _band_document(result.draft_cost.expected),
        "verify_cost": [
            {
                "tokens": row.tokens,
                "bound": row.bound,
                "expected_low": None if row.expected is None else row.expected.low,
                "expected_high": None if row.expected is None else row.expected.high,
                "measured": row.measured,
            }
            for row in result.verify_cost
        ],
        "compute_bound_from_tokens": result.compute_bound_from_tokens,
        **_gain_document(headline),
        "by_acceptance": [
            {"acceptance": gain.acceptance, **_gain_document(gain)} for gain in result.gains
        ],
        "by_kernel": [_kernel_document(one) for one in result.kernels],
        "fit": fit_document(result.fit),
    }


def plan_rows(results: Sequence[AcceptanceGain]) -> list[Row]:
    """One record an acceptance and draft length."""
    return [
        {
            "acceptance": gain.acceptance,
            "draft_length": one.draft_length,
            "expected_tokens_per_round": one.expected_tokens_per_round,
            "speedup_low": None if one.speedup is None else one.speedup.low,
            "speedup": one.middle_speedup,
            "speedup_high": None if one.speedup is None else one.speedup.high,
            "break_even_acceptance": one.break_even_acceptance,
            "best": one.draft_length == gain.best_draft_length,
        }
        for gain in results
        for one in gain.lengths
    ]


def plan_sections(result: Plan, names: Sequence[ModelName]) -> Iterator[Section]:
    """The whole answer, what does not fit first."""
    target, device = result.target, result.device
    drafter = "A draft" if result.draft is None else result.draft.full_title
    yield Section(
        f"{drafter} for {target.full_title} on {device.profile.title}, {device.mode.name}",
        lines(stood_for(device, names)),
    )
    if not result.fit.fits:
        yield fit_section(result.fit, result.draft is not None)
    yield Section("", lines(warnings(target, result.draft)))
    yield Section("", lines([_answer(result), _draft_line(result), _wall(result), *_hint(result)]))
    yield Section("Cost of a target pass over n tokens, v(n)", [_verify_table(result)])
    if result.kernels and not result.measured_tokens:  # else one cost is all kernels'
        yield Section(_at("By kernel", result), [_kernel_table(result)])
    if result.middle is not None:
        yield Section(_at("By draft length K", result), [_length_table(result.headline)])
        if len(result.gains) > 1:
            yield Section("By acceptance", [_acceptance_table(result.gains)])
    if result.fit.fits:
        yield fit_section(result.fit, result.draft is not None)


def _answer(result: Plan) -> str:
    gain = result.headline
    if gain.best_draft_length is None or gain.best_speedup is None:
        return (
            "What drafting brings is not known: no sustained bandwidth is published for this board;"
            " give --verify-cost and --draft-cost."
        )
    at = f"at acceptance {gain.acceptance:g}"
    if gain.best_draft_length == 0:
        needed = _optional(gain.break_even_acceptance)
        return f"Drafting does not pay {at}: it needs an acceptance of {needed} at least."
    best = gain.lengths[gain.best_draft_length - 1]
    open_question = len(result.kernels) > 1 and not result.measured_tokens
    cap = ", the longest looked at" if gain.best_draft_length == len(gain.lengths) else ""
    return (
        f"Best draft length {gain.best_draft_length}{cap}: {significant(gain.best_speedup)}x"
        f" ({_band(best.speedup)}) {at}; it pays from {_optional(best.break_even_acceptance)} on."
        + (" Which end holds is the kernel's doing: measure v(n)." if open_question else "")
        + (_BEYOND if gain.best_draft_length >= BATCH_POSITIONS and open_question else "")
    )


def _draft_line(result: Plan) -> str:
    cost = result.draft_cost
    parts = []
    if cost.bound is not None:
        parts.append(f"{significant(cost.bound, 2)} by bytes alone")
    if cost.expected is not None:
        parts.append(f"{_band(cost.expected, 2)} expected with the overhead of each token")
    if cost.given is not None:
        parts.append(f"{cost.given:g} as given, which is used")
    return f"A draft pass costs, in plain target passes: {'; '.join(parts)}."


def _wall(result: Plan) -> str:
    if result.roof.flop_per_s is None:
        return "Where verifying turns compute-bound is not known: no peak rate is published."
    tokens = result.compute_bound_from_tokens
    if tokens is None:
        return "Verifying stays memory-bound, on paper, whatever the length."
    by = f"{result.data_type} peak"
    if result.device.peak_bandwidth_bytes_per_s is None:
        by = f"{result.data_type}, as measured"
    return f"On paper verifying turns compute-bound at {tokens} tokens ({by})."


def _hint(result: Plan) -> Iterator[str]:
    """That a v(n) was measured here, and not taken: nobody said of which kernel or model."""
    measured = result.device.measured
    if measured is None or result.measured_tokens:
        return
    timed = [one.name for one in measured.models if len(one.passes) > 1]
    timed += [one.label for one in measured.kernels if len(one.passes) > 1]
    if timed:
        yield (
            f"A probe measured v(n) here, of {', '.join(timed)}: --verify-cost PROFILE"
            " --verify-target NAME takes it in place of what is expected."
        )


def _verify_table(result: Plan) -> Table:
    rows = [row for row in result.verify_cost if row.tokens <= _ROWS + 1]
    kernels = result.kernels
    headers = ["n", "bound", *(one.costs.name for one in kernels), "measured"]
    cells = [
        [
            str(row.tokens),
            significant(row.bound),
            *(_kernel_verify_cost(one, row.tokens) for one in kernels),
            _optional(row.measured, ""),
        ]
        for row in rows
    ]
    if not result.measured_tokens:
        headers.pop()
        cells = [row[:-1] for row in cells]
    return Table(headers, cells)


def _kernel_verify_cost(one: KernelGain, tokens: int) -> str:
    if tokens > one.costs.most_tokens:
        return "not known"
    return _band(one.costs.verify_cost(tokens))


def _kernel_table(result: Plan) -> Table:
    rows = [
        (
            one.costs.title,
            "" if result.draft is None else _band(one.costs.draft_cost, 2),
            str(one.best_draft_length),
            _band(one.best_speedup),
        )
        for one in result.kernels
    ]
    return Table(("kernel", "draft cost", "best K", "speed-up"), rows)


def _length_table(gain: AcceptanceGain) -> Table:
    best = gain.best_draft_length or 0
    rows = [
        (
            f"{one.draft_length}{' *' if one.draft_length == best else ''}",
            significant(one.expected_tokens_per_round),
            _optional(one.middle_speedup, "not known"),
            _band(one.speedup),
            _optional(one.break_even_acceptance, "never"),
        )
        for one in gain.lengths
        if one.draft_length <= max(_ROWS, best)
    ]
    return Table(("K", "tokens a round", "speed-up", "low-high", "pays from"), rows)


def _acceptance_table(gains: Sequence[AcceptanceGain]) -> Table:
    rows = []
    for gain in gains:
        best = _best_length(gain)
        rows.append(
            (
                f"{gain.acceptance:g}",
                "not known" if gain.best_draft_length is None else str(gain.best_draft_length),
                _optional(gain.best_speedup, "not known"),
                "" if best is None else _band(best.speedup),
            )
        )
    return Table(("acceptance", "best K", "speed-up", "low-high"), rows)


def _used_draft_cost(result: Plan) -> float | None:
    return result.draft_cost.given if result.middle is None else result.middle.draft_cost


def _best_length(gain: AcceptanceGain) -> LengthGain | None:
    return gain.lengths[gain.best_draft_length - 1] if gain.best_draft_length else None


def _at(title: str, result: Plan) -> str:
    return f"{title}, at acceptance {result.headline.acceptance:g}"


def _band(band: Band | None, digits: int = 3) -> str:
    if band is None:
        return "not known"
    if band.low == band.high:
        return significant(band.low, digits)
    return f"{significant(band.low, digits)}-{significant(band.high, digits)}"


def _optional(value: float | None, absent: str = "more than 1") -> str:
    return absent if value is None else significant(value)


def _model(name: str, quantisation: str) -> dict[str, str]:
    return {"name": name, "quantisation": quantisation}


def _gain_document(gain: AcceptanceGain) -> dict[str, Any]:
    return {
        "by_draft_length": [
            {
                "draft_length": one.draft_length,
                "expected_tokens_per_round": one.expected_tokens_per_round,
                "speedup": _band_document(one.speedup),
                "break_even_acceptance": one.break_even_acceptance,
            }
            for one in gain.lengths
        ],
        "best_draft_length": gain.best_draft_length,
        "best_speedup": gain.best_speedup,
        "break_even_acceptance": gain.break_even_acceptance,
    }


def _kernel_document(one: KernelGain) -> dict[str, Any]:
    return {
        "kernel": one.costs.name,
        "draft_cost_ratio": _band_document(one.costs.draft_cost),
        "verify_cost": [
            {"tokens": tokens, **_band_document(one.costs.verify_cost(tokens))}
            for tokens in range(1, one.costs.most_tokens + 1)
        ],
        "best_draft_length": one.best_draft_length,
        "best_speedup": _band_document(one.best_speedup),
    }


def _band_document(band: Band | None) -> dict[str, float | None]:
    return {"low": None, "high": None} if band is None else {"low": band.low, "high": band.high}
