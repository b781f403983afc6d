"""The tables of a session's report as headers and rows of text; text and Markdown lay them out."""

from collections.abc import Sequence
from pathlib import PurePath

from edgeprof.analysis.comparison import Output
from edgeprof.analysis.latency import TimeShare
from edgeprof.analysis.phase_shares import PhaseShares
from edgeprof.analysis.statistics import standard_deviation
from edgeprof.analysis.summary import Comparison, Summary, VariantFigures
from edgeprof.quantity import Quantity
from edgeprof.report.headline import ratio
from edgeprof.report.table import Table
from edgeprof.units import show

_NOT_RECORDED = "not recorded"
_NONE = "-"


def variant_table(summary: Summary) -> Table:
    """The main table: how fast each variant was, and whether its output is the reference's."""
    compared = {comparison.variant: comparison for comparison in summary.comparisons}
    headers = ("variant", "tokens/s", "n", "speed-up", "predicted", "output")
    rows = [_variant_row(leg, compared.get(leg.variant)) for leg in decoded(summary)]
    return Table(headers, rows)


def synthetic_table(summary: Summary) -> Table:
    """The synthetic tests, as llama-bench lists its own."""
    rows = [
        (leg.name, leg.target, rate(leg), str(len(leg.tokens_per_s_by_repeat)))
        for leg in summary.legs
        if leg.kind == "test"
    ]
    return Table(("test", "model", "tokens/s", "n"), rows, left=2)


def bench_table(summary: Summary) -> Table:
    """The same rates in the columns of llama-bench, to paste beside its tables. A variant's test is
    ``tg`` with the tokens asked for, and what drafted."""
    headers = ("model", "size", "params", "backend", "threads", "test", "t/s", "n")
    rows = []
    for leg in summary.legs:
        model = summary.models.get(leg.target)
        if model is None:
            continue
        size, parameters = model.resident_weight_bytes, model.parameters
        rows.append(
            (
                f"{PurePath(model.source).name} {leg.target}",
                _NONE if size is None else f"{size / 2**30:.2f} GiB",
                _NONE if parameters is None else f"{parameters / 1e9:.2f} B",
                model.provider,
                str(model.threads),
                leg.name if leg.kind == "test" else _test_name(summary, leg),
                rate(leg),
                str(len(leg.tokens_per_s_by_repeat)),
            )
        )
    return Table(headers, rows)


def _test_name(summary: Summary, leg: VariantFigures) -> str:
    asked = summary.session.recipe.get("new_tokens")
    name = "tg" if asked is None else f"tg{asked}"
    if leg.drafter is None:
        return name
    length = "" if leg.draft_tokens is None else f" k={leg.draft_tokens}"
    return f"{name} +spec {leg.drafter}{length}"


def decoded(summary: Summary) -> list[VariantFigures]:
    """The variants that answered prompts."""
    return [leg for leg in summary.legs if leg.kind != "test"]


def share_table(summary: Summary) -> Table:
    """What a round gave, and where time, memory traffic and energy of decoding went."""
    headers = ("variant", "share of", "tokens a round", "draft", "verify", "decode", "other")
    rows = []
    for leg in decoded(summary):
        acceptance = leg.acceptance
        length = 1.0 if acceptance is None else acceptance.mean_acceptance_length
        for what, share in _shared(leg):
            if share is None or share.draft is None:
                continue
            parts = [getattr(share, part) for part in ("draft", "verify", "decode", "other")]
            cells = (_percent(part.value) for part in parts)
            rows.append((leg.variant, what, f"{length:.2f}", *cells))
    return Table(headers, rows, left=2)


def share_notes(summary: Summary) -> list[str]:
    """Why there are no shares of the traffic or the energy, where there are none."""
    missing: dict[tuple[str, str], list[str]] = {}
    for leg in decoded(summary):
        for what, share in _shared(leg):
            if isinstance(share, PhaseShares) and share.reason is not None:
                missing.setdefault((what, share.reason), []).append(leg.variant)
    every = [leg.variant for leg in decoded(summary) if _shared(leg)]
    lines = []
    for (what, reason), variants in missing.items():
        whose = "" if variants == every else f" of {', '.join(variants)}"
        lines.append(f"No shares of the {what}{whose}: {reason}.")
    return lines


def _shared(leg: VariantFigures) -> tuple[tuple[str, TimeShare | PhaseShares | None], ...]:
    """Nothing was decoded where there are no shares of the time."""
    if leg.time_share is None:
        return ()
    return (
        ("time", leg.time_share),
        ("memory traffic", leg.traffic_share),
        ("energy", leg.energy_share),
    )


def rate(leg: VariantFigures) -> str:
    """``45.0 ± 7.1``, mean and standard deviation of the repeats; a single one has no spread."""
    quantity = leg.tokens_per_s
    if quantity is None or quantity.value is None:
        return "n/a"
    deviation = standard_deviation(leg.tokens_per_s_by_repeat)
    return (
        f"{quantity.value:.1f}" if deviation is None else f"{quantity.value:.1f} ± {deviation:.1f}"
    )


def latency_table(summary: Summary) -> Table:
    """Time to first token and between tokens, in ms."""
    headers = (
        "variant", "TTFT (ms)", "TPOT (ms)", "gap p50 (ms)", "gap p90 (ms)", "gap p99 (ms)",
        "target GB/s (modelled)",
    )  # fmt: skip
    rows = []
    for leg in decoded(summary):
        gaps = leg.itl_s
        percentiles = (None, None, None) if gaps is None else (gaps.p50, gaps.p90, gaps.p99)
        bandwidth = _scaled(leg.bandwidth, 1e-9)
        times = [_scaled(q, 1e3) for q in (leg.ttft_s, leg.tpot_s, *percentiles)]
        rows.append((leg.variant, *times, bandwidth))
    return Table(headers, rows)


def repeat_table(summary: Summary) -> Table:
    """Tokens/s of each repeat, so that a drift shows; empty for a single repeat."""
    count = max((len(leg.tokens_per_s_by_repeat) for leg in decoded(summary)), default=0)
    if count < 2:
        return Table((), [])
    headers = ("variant", *(f"repeat {index + 1}" for index in range(count)))
    rows = []
    for leg in decoded(summary):
        rates = [f"{rate:.1f}" for rate in leg.tokens_per_s_by_repeat]
        rows.append((leg.variant, *rates, *[_NONE] * (count - len(rates))))
    return Table(headers, rows)


def acceptance_table(summary: Summary) -> Table:
    """The three numbers called acceptance, apart, and acceptance by position."""
    headers = (
        "variant", "accepted / drafted", "accepted / evaluated", "tokens a round",
        "accepted at position 1, 2, ...", "given all before", "rounds by accepted 0, 1, ...",
    )  # fmt: skip
    rows = []
    for leg in decoded(summary):
        acceptance = leg.acceptance
        if acceptance is None:
            continue
        rows.append(
            (
                leg.variant,
                _fraction(acceptance.draft_acceptance_rate),
                _fraction(acceptance.conditional_acceptance),
                f"{acceptance.mean_acceptance_length:.2f}",
                " ".join(map(_fraction, acceptance.per_position)),
                " ".join(map(_fraction, acceptance.conditional_per_position)),
                " ".join(map(str, acceptance.histogram)),
            )
        )
    return Table(headers, rows)


def round_table(summary: Summary) -> Table:
    """Where a round's time goes, in plain tokens."""
    headers = ("variant", "tokens a round", "draft", "target", "other", "cost a round", "speed-up")
    rows = []
    for comparison in summary.comparisons:
        cost = comparison.round_cost
        if cost is None:
            continue
        parts = (cost.tokens, cost.draft, cost.target, cost.other, cost.total)
        figures = [f"{part:.2f}" for part in parts]
        rows.append((comparison.variant, *figures, ratio(comparison.decode_speedup)))
    return Table(headers, rows)


def term_table(summary: Summary) -> Table:
    """The terms of a round, which with 1 make what it costs; rejected work is a part of them."""
    headers = (
        "variant", "tokens a round", "draft", "verification", "fixed", "in situ",
        "of which rejected", "speed-up",
    )  # fmt: skip
    rows = []
    for comparison in summary.comparisons:
        terms = comparison.round_terms
        if terms is None:
            continue
        parts = (
            terms.tokens, terms.draft, terms.verification, terms.fixed, terms.in_situ,
            terms.rejected,
        )  # fmt: skip
        figures = [_NONE if part is None else f"{part:.2f}" for part in parts]
        rows.append((comparison.variant, *figures, f"{terms.speedup:.2f}x"))
    return Table(headers, rows)


def verify_table(summary: Summary, *, bands: bool) -> Table:
    """v(n) of every target, one column a size, and the draft's c; empty where none was held."""
    cell = _band if bands else _ratio
    sizes = sorted({cost.tokens for cost in summary.verify_cost})
    targets = dict.fromkeys(cost.target for cost in summary.verify_cost)
    found = {(cost.target, cost.tokens): cost.measured for cost in summary.verify_cost}
    rows = []
    for target in targets:
        drafts = [
            f"{draft.drafter} {draft.ratio.value:.2f}"
            for draft in summary.draft_cost
            if draft.target == target
        ]
        costs = [cell(found.get((target, size))) for size in sizes]
        rows.append((target, *costs, ", ".join(drafts) or _NONE))
    headers = ("target", *(f"v({size})" for size in sizes), "draft step c")
    return Table(headers, rows)


def ceiling_table(summary: Summary) -> Table:
    """What each kernel was seen to stream and to compute."""
    rows = [
        (
            ceiling.kernel,
            _NONE if ceiling.threads is None else str(ceiling.threads),
            _rate(ceiling.bandwidth_bytes_per_s, "B/s"),
            _rate(ceiling.flop_per_s, "FLOP/s"),
        )
        for ceiling in summary.ceilings
    ]
    return Table(("kernel", "threads", "streaming", "arithmetic"), rows)


def pass_table(summary: Summary) -> Table:
    """The held passes under the ceilings of their kernel."""
    headers = (
        "model", "tokens", "time", "FLOP/B", "bandwidth", "of ceiling", "arithmetic",
        "of ceiling",
    )  # fmt: skip
    rows = [
        (
            point.model,
            str(point.tokens),
            _rate(point.time_s, "s"),
            f"{point.intensity_flop_per_byte:.2f}",
            _rate(point.bandwidth_bytes_per_s, "B/s"),
            _percent(point.bandwidth_share),
            _rate(point.flop_per_s, "FLOP/s"),
            _percent(point.flop_share),
        )
        for point in summary.pass_points
    ]
    return Table(headers, rows)


def output_table(summary: Summary) -> Table:
    """Is every speculative answer the reference's, token for token?"""
    headers = ("variant", "answers equal", "tokens compared", "first difference", "logit gap there")
    rows = []
    for comparison in summary.comparisons:
        output = comparison.output
        first, gap = output.first_divergence, output.logit_gap
        rows.append(
            (
                comparison.variant,
                f"{output.answers_identical} of {output.answers_compared}",
                str(output.tokens_compared),
                "none" if output.identical else _NONE if first is None else f"position {first}",
                _NONE if gap is None else f"{gap:.2g}",
            )
        )
    return Table(headers, rows)


def memory_table(summary: Summary) -> Table:
    """What each variant and test found and took, in GiB."""
    headers = (
        "variant", "available before", "peak in use", "swap growth", "peak of the decoder",
        "major faults",
    )  # fmt: skip
    rows = []
    for leg in summary.legs:
        memory = leg.memory
        if memory is None:
            continue
        figures = (
            memory.available_before_bytes,
            memory.peak_used_bytes,
            memory.swap_growth_bytes,
            memory.process_peak_bytes,
        )
        faults = _NONE if memory.major_faults is None else str(memory.major_faults)
        name = leg.name if leg.kind != "test" else f"{leg.name} {leg.target}"
        rows.append((name, *(_gib(figure) for figure in figures), faults))
    return Table(headers, rows)


def model_table(summary: Summary) -> Table:
    """Which weights ran, where, through which kernel."""
    headers = (
        "model", "role", "file", "weights", "kernel", "provider", "threads", "streamed a pass",
        "SHA-256",
    )  # fmt: skip
    rows = [
        (
            name,
            model.role,
            PurePath(model.source).name,
            model.weights,
            model.kernel or _NOT_RECORDED,
            model.provider,
            str(model.threads),
            show(model.streamed_weight_bytes, "B"),
            model.sha256[:12] if model.sha256 else _NOT_RECORDED,
        )
        for name, model in summary.models.items()
    ]
    return Table(headers, rows, left=6)


def _variant_row(leg: VariantFigures, comparison: Comparison | None) -> Sequence[str]:
    repeats = _NONE if leg.tokens_per_s is None else str(leg.tokens_per_s.n)
    if comparison is None:
        return (leg.variant, rate(leg), repeats, _NONE, _NONE, "reference")
    return (
        leg.variant,
        rate(leg),
        repeats,
        ratio(comparison.decode_speedup),
        _plain_ratio(comparison.predicted_speedup),
        _output(comparison.output),
    )


def _output(output: Output) -> str:
    if output.identical is None:
        return "not compared"
    return f"{output.answers_identical} of {output.answers_compared} equal"


def _scaled(quantity: Quantity | None, factor: float) -> str:
    if quantity is None or quantity.value is None:
        return _NONE
    return f"{quantity.value * factor:.1f}"


def _gib(quantity: Quantity | None) -> str:
    if quantity is None or quantity.value is None:
        return _NONE
    return f"{quantity.value / 2**30:.2f}"


def _rate(quantity: Quantity | None, unit: str) -> str:
    return _NONE if quantity is None else show(quantity.value, unit)


def _ratio(quantity: Quantity | None) -> str:
    return _NONE if quantity is None or quantity.value is None else f"{quantity.value:.2f}"


def _band(quantity: Quantity | None) -> str:
    if quantity is None or quantity.low is None or quantity.low == quantity.high:
        return _ratio(quantity)
    return f"{quantity.value:.2f} [{quantity.low:.2f}, {quantity.high:.2f}]"


def _plain_ratio(quantity: Quantity | None) -> str:
    return _NONE if quantity is None or quantity.value is None else f"{quantity.value:.2f}x"


def _fraction(value: float | None) -> str:
    return _NONE if value is None else f"{value:.2f}"


def _percent(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.0f} %"
