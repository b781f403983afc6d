"""Shows a paper roofline: sections for a person, one document or rows for a program.

One board in full; several boards, modes or depths side by side in one table.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from edgeprof.analysis.memory import Fit
from edgeprof.analysis.observation import Comparison, Observation, compare
from edgeprof.analysis.outlook import Outline, Outlook
from edgeprof.analysis.roofline import PassTime, expected_time
from edgeprof.catalog import AnyDevice, MeasuredDevice
from edgeprof.models.names import ModelName
from edgeprof.models.spec import ModelSpec
from edgeprof.quantity import Band
from edgeprof.report.announced import (
    announced_document,
    announced_rows,
    announced_sections,
    no_roofline,
)
from edgeprof.report.explain import Term
from edgeprof.report.measured import ceiling_sections, ceilings_document
from edgeprof.report.paper_document import fit_document, model_document, work_document
from edgeprof.report.sections import Row, Section, lines
from edgeprof.report.table import Table, key_values
from edgeprof.units import show, show_gib, significant

SCHEMA = "edgeprof.roofline/1"
SET_SCHEMA = "edgeprof.roofline-set/1"

# Where the bytes go, in the words of the field.
_PARTS = {
    "attention": ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"),
    "feed-forward": ("ffn_gate", "ffn_up", "ffn_down"),
    "experts": ("expert_gate", "expert_up", "expert_down"),
    "lm_head": ("lm_head",),
    "router": ("router",),
    "norms, biases": ("norm", "bias"),
    "other": ("other",),
}


def document(
    result: Outlook | Outline, observations: Sequence[Observation] = (), terms: Sequence[Term] = ()
) -> dict[str, Any]:
    """``edgeprof.roofline/1``: SI units in the keys, unknown is null."""
    if isinstance(result, Outline):
        return announced_document(result, SCHEMA)
    profile, mode = result.device.profile, result.device.mode
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "device": {
            "name": profile.name,
            "mode": mode.name,
            "peak_bandwidth_bytes_per_s": result.device.peak_bandwidth_bytes_per_s,
            "sustained_bandwidth_bytes_per_s": result.device.sustained_bandwidth_bytes_per_s,
            "peak_flop_per_s": {}
            if isinstance(result.device, MeasuredDevice)
            else result.device.rates_flop_per_s,
            "dram_bytes": profile.dram_bytes,
        },
        "model": model_document(result.model, result.kv),
        "passes": [_pass_document(one) for one in result.passes],
        "fit": fit_document(result.fit),
    }
    if result.device.measured is not None:
        content["probe"] = ceilings_document(result.device.measured)
    if observations:
        content["measured"] = [
            _measured_document(compare(seen, result.passes[0])) for seen in observations
        ]
    if terms:
        content["explain"] = terms
    return content


def set_document(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several boards or modes in one document."""
    return {"schema": SET_SCHEMA, "results": list(documents)}


def roofline_rows(results: Sequence[Outlook | Outline]) -> list[Row]:
    """One record a board, mode and pass; empty where nothing is published."""
    return [
        row
        for result in results
        for row in (
            announced_rows(result) if isinstance(result, Outline) else _outlook_rows(result)
        )
    ]


def roofline_sections(
    results: Sequence[Outlook | Outline],
    names: Sequence[ModelName],
    observations: Sequence[Observation] = (),
) -> Iterator[Section]:
    """The whole answer; what does not fit comes first, and so do boards without figures."""
    published = [result for result in results if isinstance(result, Outlook)]
    announced = [result for result in results if isinstance(result, Outline)]
    if len(results) == len(published) == 1:
        yield from _one_board(published[0], names, observations)
    elif published:
        yield from _side_by_side(published, announced, names, observations)
    else:
        for result in announced:
            yield from announced_sections(result, names)


def stood_for(device: AnyDevice, names: Sequence[ModelName]) -> list[str]:
    """What short names stood for, one a line."""
    lines = []
    if device.alias is not None:
        lines.append(f"{device.alias} = {device.profile.name} in mode {device.mode.name}")
    lines += [f"{name.asked} = {name.full}" for name in names if name.is_short]
    return lines


def warnings(*models: ModelSpec | None) -> list[str]:
    """What is not as it should be in the models' files."""
    return [
        f"Warning: {model.name}: {warning}."
        for model in models
        if model is not None
        for warning in model.warnings
    ]


def fit_section(held: Fit, with_draft: bool) -> Section:
    """One line where a model fits; part by part where a draft comes with it, or it does not fit."""
    parts = [
        ("weights", held.weights_bytes),
        ("KV", held.kv_bytes),
        *([("draft weights", held.draft_weights_bytes)] if with_draft else []),
        *([("draft KV", held.draft_kv_bytes)] if with_draft else []),
        ("runtime", held.runtime_bytes),
        ("system", held.system_bytes),
    ]
    if not held.fits:
        title = (
            f"DOES NOT FIT: {show_gib(held.total_bytes)} against {show_gib(held.dram_bytes)}"
            " visible; all rates are hypothetical."
        )
    else:
        title = f"Fits: {show_gib(held.total_bytes)} of {show_gib(held.dram_bytes)} visible"
        if not with_draft:
            listed = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in parts)
            return Section("", [f"{title} ({listed})"])
    rows = [(name, show_gib(size)) for name, size in (*parts, ("sum", held.total_bytes))]
    return Section(title, [Table(("resident", "memory"), rows)])


def _one_board(
    result: Outlook, names: Sequence[ModelName], observations: Sequence[Observation]
) -> Iterator[Section]:
    fit = fit_section(result.fit, result.draft is not None)
    board = f"{result.device.profile.title}, {result.device.mode.name}"
    yield Section(f"{result.model.full_title} on {board}", lines(stood_for(result.device, names)))
    if not result.fit.fits:
        yield fit
    yield Section("", [_board_and_model(result)])
    yield Section("", lines(warnings(result.model, result.draft)))
    yield Section("Bytes of one decoded token", [_bytes_table(result.passes[0], result.model)])
    yield Section("Passes", [_pass_table(result.passes)])
    if result.device.measured is not None:
        yield from ceiling_sections(result.device.measured)
    yield Section("", [_verdict(result)])
    if observations:
        yield Section("", lines(list(_measured(result, observations))))
    if result.fit.fits:
        yield fit


def _side_by_side(
    results: Sequence[Outlook],
    announced: Sequence[Outline],
    names: Sequence[ModelName],
    observations: Sequence[Observation],
) -> Iterator[Section]:
    devices = {result.device.alias: result.device for result in results if result.device.alias}
    short = [f"{alias} = {device.profile.name}" for alias, device in devices.items()]
    short += [f"{name.asked} = {name.full}" for name in names if name.is_short]
    boards = len(results) + len(announced)
    yield Section(f"{results[0].model.full_title} on {boards} boards or modes", lines(short))
    if announced:
        yield Section("", lines([no_roofline(result) for result in announced]))
    if missing := [result for result in results if not result.fit.fits]:
        needs = [
            f"{_board(one)}: {show_gib(one.fit.total_bytes)} against"
            f" {show_gib(one.fit.dram_bytes)} visible"
            for one in missing
        ]
        yield Section("DOES NOT FIT; these rates are hypothetical:", lines(needs))
    yield Section("", [_comparison_table(results)])
    yield Section("", [_legend(results)])
    if observations:
        seen = ((one, line) for one in results for line in _measured(one, observations))
        yield Section("", lines([f"{_board(one)}: {line}" for one, line in seen]))


def _comparison_table(results: Sequence[Outlook]) -> Table:
    verify = next(one for one in results[0].passes if one.cost.phase == "verify")
    headers = (
        "device", "mode", "GB/s", "depth", "decode", "expected", f"verify {verify.cost.tokens}",
        "prefill", "GiB", "fits",
    )  # fmt: skip
    rows = [row for result in results for row in _comparison_rows(result, verify.cost.tokens)]
    return Table(headers, rows, left=2)


def _comparison_rows(result: Outlook, verified: int) -> Iterator[Sequence[str]]:
    prefill = next(one for one in result.passes if one.cost.phase == "prefill")
    for decode in (one for one in result.passes if one.cost.phase == "decode"):
        depth = decode.cost.context_tokens
        verify = next(
            one
            for one in result.passes
            if (one.cost.phase, one.cost.tokens, one.cost.context_tokens)
            == ("verify", verified, depth)
        )
        yield (
            result.device.profile.name,
            result.device.mode.name,
            f"{result.roof.bandwidth_bytes_per_s / 1e9:.1f}",
            str(depth),
            _walled(decode),
            _band(decode.expected_tokens_per_s),
            _walled(verify),
            "not known" if prefill.ridge_flop_per_byte is None else _walled(prefill),
            f"{result.fit.total_bytes / 2**30:.2f}",
            "yes" if result.fit.fits else "NO",
        )


def _walled(one: PassTime) -> str:
    return f"{significant(one.tokens_per_s)} {one.bound[0]}"


def _legend(results: Sequence[Outlook]) -> str:
    result = results[0]
    prefill = next(one for one in result.passes if one.cost.phase == "prefill")
    return (
        f"Tokens/s at best: nothing beats them{_but_here(results)}; m: memory-bound,"
        f" c: compute-bound ({result.data_type}). Expected is for decoding; the prefill is of"
        f" {prefill.cost.tokens} tokens; GiB at the deepest."
    )


def _but_here(results: Sequence[Outlook]) -> str:
    measured = [one for one in results if one.device.peak_bandwidth_bytes_per_s is None]
    return " (of here: what large kernels were measured to reach)" if measured else ""


def _measured(result: Outlook, observations: Sequence[Observation]) -> Iterator[str]:
    """What was measured, and a rate above the bound as the finding that it is."""
    for seen in observations:
        found = compare(seen, result.passes[0])
        rate = f"{seen.label}: {significant(seen.tokens_per_s)} tokens/s decoding"
        share = significant(found.bound_share)
        if found.standing == "above the bound":
            yield (
                f"ABOVE THE BOUND: {rate} is {share} times what is possible: the board, its power"
                " mode or the bytes are not those that were measured."
            )
        else:
            yield f"{rate}, {share} of the bound, {found.standing}."


def _measured_document(found: Comparison) -> dict[str, Any]:
    return {
        "label": found.observation.label,
        "tokens_per_s": found.observation.tokens_per_s,
        "bound_share": found.bound_share,
        "standing": found.standing,
    }


def _board(result: Outlook) -> str:
    return f"{result.device.profile.name} {result.device.mode.name}"


def _pass_document(one: PassTime) -> dict[str, Any]:
    expected = one.expected_tokens_per_s
    return {
        **_pass_costs(one),
        "expected_tokens_per_s": {
            "low": None if expected is None else expected.low,
            "high": None if expected is None else expected.high,
        },
    }


def _outlook_rows(result: Outlook) -> list[Row]:
    return [
        {
            "device": result.device.profile.name,
            "mode": result.device.mode.name,
            "model": result.model.name,
            "quantisation": result.model.quantisation,
            **_pass_row(one),
            "fits": result.fit.fits,
        }
        for one in result.passes
    ]


def _pass_row(one: PassTime) -> Row:
    expected = one.expected_tokens_per_s
    return {
        **_pass_costs(one),
        "expected_tokens_per_s_low": None if expected is None else expected.low,
        "expected_tokens_per_s_high": None if expected is None else expected.high,
    }


def _pass_costs(one: PassTime) -> dict[str, Any]:
    return {
        **work_document(one.cost),
        "ridge_flop_per_byte": one.ridge_flop_per_byte,
        "bound": one.bound,
        "time_s": one.time_s,
        "tokens_per_s": one.tokens_per_s,
    }


def _board_and_model(result: Outlook) -> str:
    model = result.model
    return key_values(
        ("memory", "arithmetic", "model", "draft"),
        (
            _memory_line(result),
            _arithmetic_line(result),
            _model_line(model, result),
            ""
            if result.draft is None
            else f"{result.draft.full_title}, {_model_line(result.draft, result)}",
        ),
    )


def _memory_line(result: Outlook) -> str:
    device, roof = result.device, result.roof
    if isinstance(device, MeasuredDevice):
        return f"{show(roof.bandwidth_bytes_per_s, 'B/s')}, the most that a probe read here"
    return (
        f"{show(roof.bandwidth_bytes_per_s, 'B/s')} peak"
        f" (EMC {device.mode.emc_mhz:g} MHz x 2 x {device.profile.dram.bus_width_bits} bit),"
        f" {_sustained(roof.sustained_bytes_per_s)}"
    )


def _arithmetic_line(result: Outlook) -> str:
    if isinstance(result.device, MeasuredDevice):
        reached = _rate(result.roof.flop_per_s)
        return f"{reached}, the most that a probe reached here with {result.data_type} weights"
    return f"{_rate(result.roof.flop_per_s)} {result.data_type} dense{_units_on(result)}"


def _sustained(band: Band | None) -> str:
    if band is None:
        return "sustained not known"
    return f"{show(band.low, 'B/s')} to {show(band.high, 'B/s')} sustained"


def _rate(flop_per_s: float | None) -> str:
    return "no published rate for" if flop_per_s is None else show(flop_per_s, "FLOP/s")


def _units_on(result: Outlook) -> str:
    if isinstance(result.device, MeasuredDevice):
        return ""
    mode, gpu = result.device.mode, result.device.profile.gpu
    if gpu is None or mode.sms is None or mode.gpu_mhz is None:
        return ""
    return f" ({mode.sms} of {gpu.sms} SMs on, {mode.gpu_mhz:g} MHz)"


def _model_line(model: ModelSpec, result: Outlook) -> str:
    return (
        f"{show(model.parameters, '').strip()} parameters,"
        f" {show(model.resident_weight_bytes, 'B')} resident,"
        f" {show(model.streamed_weight_bytes, 'B')} read every pass,"
        f" KV {show(model.kv_bytes_per_token(result.kv), 'B')} a token"
    )


def _bytes_table(decode: PassTime, model: ModelSpec) -> Table:
    total = decode.cost.total_bytes
    rows = []
    for part, roles in _PARTS.items():
        groups = [group for group in model.streamed_groups if group.role in roles]
        size = sum(one.bytes for one in decode.cost.parts if one.name in roles)
        if size:
            types = sorted({group.storage_name.upper() for group in groups})
            rows.append((part, " + ".join(types), show(size, "B"), _percent(size / total)))
    kv = decode.cost.kv_read_bytes + decode.cost.kv_write_bytes
    rows.append(
        ("KV cache", f"at {decode.cost.context_tokens} tokens", show(kv, "B"), _percent(kv / total))
    )
    rows.append(("sum", "", show(total, "B", 4), ""))
    return Table(("part", "stored as", "bytes", "share"), rows, left=2)


def _percent(share: float) -> str:
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _pass_table(passes: Sequence[PassTime]) -> Table:
    headers = (
        "pass", "tokens", "depth", "bytes", "FLOP/B", "wall", "at best", "tokens/s", "expected",
    )  # fmt: skip
    rows = [
        (
            one.cost.phase,
            str(one.cost.tokens),
            str(one.cost.context_tokens),
            show(one.cost.total_bytes, "B"),
            significant(one.cost.intensity_flop_per_byte),
            one.bound,
            show(one.time_s, "s"),
            significant(one.tokens_per_s),
            _band(one.expected_tokens_per_s),
        )
        for one in passes
    ]
    return Table(headers, rows)


def _band(band: Band | None) -> str:
    return "not known" if band is None else f"{significant(band.low)}-{significant(band.high)}"


def _verdict(result: Outlook) -> str:
    """Which wall decoding hits, and what the classes of engines make of it."""
    decode, roof = result.passes[0], result.roof
    lines = [f"Decoding is {decode.bound}-bound: {_why(decode)}."]
    if result.device.peak_bandwidth_bytes_per_s is None:
        lines.append(
            "At best is by what large kernels were measured to reach here, which does not bound the"
            " hardware. Expected for decoding:"
        )
    else:
        lines.append("At best is the bound at peak; nothing beats it. Expected for decoding:")
    for engine in result.engines:
        time = expected_time(decode.cost, roof, engine)
        if time is None:
            return "\n".join(
                [*lines[:1], "Expected rates are not known: no sustained bandwidth is published."]
            )
        band = Band(low=decode.cost.tokens / time.high, high=decode.cost.tokens / time.low)
        lines.append(f"  {_band(band)} tokens/s, {engine.name} kernels ({engine.engines})")
    return "\n".join(lines)


def _why(decode: PassTime) -> str:
    intensity = significant(decode.cost.intensity_flop_per_byte)
    if decode.ridge_flop_per_byte is None:
        return f"{intensity} FLOP a byte; where arithmetic takes over is not known"
    relation = "below" if decode.bound == "memory" else "above"
    ridge = significant(decode.ridge_flop_per_byte)
    return f"{intensity} FLOP a byte, {relation} the ridge at {ridge}"
