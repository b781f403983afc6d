"""Shows a paper roofline: as text for a person and as one document for a program."""

from collections.abc import Sequence
from typing import Any

from edgeprof.analysis.outlook import Outlook
from edgeprof.analysis.roofline import ENGINE_CLASSES, Band, PassTime, expected_time
from edgeprof.models.names import ModelName
from edgeprof.models.spec import ModelSpec
from edgeprof.report.table import fold, key_values, table
from edgeprof.units import show, show_gib, significant

SCHEMA = "edgeprof.roofline/1"
SET_SCHEMA = "edgeprof.roofline-set/1"

# Where the bytes go, in the words of the field.
_PARTS = {
    "attention": ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output"),
    "feed-forward": ("ffn_gate", "ffn_up", "ffn_down"),
    "lm_head": ("lm_head",),
    "norms, biases": ("norm", "bias"),
}


def document(result: Outlook) -> dict[str, Any]:
    """``edgeprof.roofline/1``: SI units in the keys, unknown is null."""
    profile, mode, model = result.device.profile, result.device.mode, result.model
    return {
        "schema": SCHEMA,
        "device": {
            "name": profile.name,
            "mode": mode.name,
            "peak_bandwidth_bytes_per_s": profile.peak_bandwidth_bytes_per_s(mode),
            "sustained_bandwidth_bytes_per_s": profile.sustained_bandwidth_bytes_per_s(mode),
            "peak_flop_per_s": profile.peak_flop_per_s(mode),
            "dram_bytes": profile.dram_bytes,
        },
        "model": {
            "name": model.name,
            "quantisation": model.quantisation,
            "parameters": model.parameters,
            "resident_weight_bytes": model.resident_weight_bytes,
            "streamed_weight_bytes": model.streamed_weight_bytes,
            "kv_bytes_per_token": model.kv_bytes_per_token(result.kv),
        },
        "passes": [_pass_document(one) for one in result.passes],
        "fit": {
            "weights_bytes": result.fit.weights_bytes,
            "kv_bytes": result.fit.kv_bytes,
            "draft_weights_bytes": result.fit.draft_weights_bytes,
            "draft_kv_bytes": result.fit.draft_kv_bytes,
            "runtime_bytes": result.fit.runtime_bytes,
            "system_bytes": result.fit.system_bytes,
            "total_bytes": result.fit.total_bytes,
            "dram_bytes": result.fit.dram_bytes,
            "fits": result.fit.fits,
        },
    }


def set_document(results: Sequence[Outlook]) -> dict[str, Any]:
    """Several boards or modes in one document."""
    return {"schema": SET_SCHEMA, "results": [document(result) for result in results]}


def text(result: Outlook, names: Sequence[ModelName], width: int) -> str:
    """The whole answer on one screen."""
    model, device = result.model, result.device
    title = (
        f"{model.title} {model.quantisation_title} on {device.profile.title}, {device.mode.name}"
    )
    sections = [
        "\n".join([title, *_stood_for(result, names)]),
        _board_and_model(result),
        f"Bytes of one decoded token\n{_bytes_table(result.passes[0], model, width)}",
        f"Passes\n{_pass_table(result.passes, width)}",
        _verdict(result),
        _fit_line(result),
    ]
    if not result.fit.fits:
        sections.insert(1, "DOES NOT FIT: the rates below are hypothetical.")
    return fold("\n\n".join(sections), width)


def _pass_document(one: PassTime) -> dict[str, Any]:
    cost, expected = one.cost, one.expected_tokens_per_s
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
        "ridge_flop_per_byte": one.ridge_flop_per_byte,
        "bound": one.bound,
        "time_s": one.time_s,
        "tokens_per_s": one.tokens_per_s,
        "expected_tokens_per_s": {
            "low": None if expected is None else expected.low,
            "high": None if expected is None else expected.high,
        },
    }


def _stood_for(result: Outlook, names: Sequence[ModelName]) -> list[str]:
    lines = []
    device = result.device
    if device.alias is not None:
        lines.append(f"{device.alias} = {device.profile.name} in mode {device.mode.name}")
    lines += [f"{name.asked} = {name.full}" for name in names if name.is_short]
    return lines


def _board_and_model(result: Outlook) -> str:
    profile, mode = result.device.profile, result.device.mode
    model, roof = result.model, result.roof
    return key_values(
        ("memory", "arithmetic", "model", "draft"),
        (
            f"{show(roof.bandwidth_bytes_per_s, 'B/s')} peak"
            f" (EMC {mode.emc_mhz:g} MHz x 2 x {profile.dram.bus_width_bits} bit),"
            f" {_sustained(roof.sustained_bytes_per_s)}",
            f"{_rate(roof.flop_per_s)} {result.data_type} dense{_units_on(result)}",
            _model_line(model, result),
            "" if result.draft is None else _model_line(result.draft, result),
        ),
    )


def _sustained(band: Band | None) -> str:
    if band is None:
        return "sustained not known"
    return f"{show(band.low, 'B/s')} to {show(band.high, 'B/s')} sustained"


def _rate(flop_per_s: float | None) -> str:
    return "no published rate for" if flop_per_s is None else show(flop_per_s, "FLOP/s")


def _units_on(result: Outlook) -> str:
    mode, gpu = result.device.mode, result.device.profile.gpu
    if mode.sms is None or mode.gpu_mhz is None:
        return ""
    return f" ({mode.sms} of {gpu.sms} SMs on, {mode.gpu_mhz:g} MHz)"


def _model_line(model: ModelSpec, result: Outlook) -> str:
    return (
        f"{model.title} {model.quantisation_title}:"
        f" {show(model.parameters, '').strip()} parameters,"
        f" {show(model.resident_weight_bytes, 'B')} resident,"
        f" {show(model.streamed_weight_bytes, 'B')} read every pass,"
        f" KV {show(model.kv_bytes_per_token(result.kv), 'B')} a token"
    )


def _bytes_table(decode: PassTime, model: ModelSpec, width: int) -> str:
    total = decode.cost.total_bytes
    rows = []
    for part, roles in _PARTS.items():
        groups = [group for group in model.streamed_groups if group.role in roles]
        size = sum(group.bytes for group in groups)
        if size:
            types = sorted({group.storage_name.upper() for group in groups})
            rows.append((part, " + ".join(types), show(size, "B"), _percent(size / total)))
    kv = decode.cost.kv_read_bytes + decode.cost.kv_write_bytes
    rows.append(
        ("KV cache", f"at {decode.cost.context_tokens} tokens", show(kv, "B"), _percent(kv / total))
    )
    rows.append(("sum", "", show(total, "B", 4), ""))
    return table(("part", "stored as", "bytes", "share"), rows, left=2, width=width)


def _percent(share: float) -> str:
    return "< 0.1 %" if share < 0.001 else f"{100 * share:.1f} %"


def _pass_table(passes: Sequence[PassTime], width: int) -> str:
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
    return table(headers, rows, width=width)


def _band(band: Band | None) -> str:
    return "not known" if band is None else f"{significant(band.low)}-{significant(band.high)}"


def _verdict(result: Outlook) -> str:
    """Which wall decoding hits, and what the classes of engines make of it."""
    decode, roof = result.passes[0], result.roof
    lines = [f"Decoding is {decode.bound}-bound: {_why(decode)}."]
    lines.append("At best is the bound at peak; nothing beats it. Expected for decoding:")
    for engine in ENGINE_CLASSES:
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


def _fit_line(result: Outlook) -> str:
    fit = result.fit
    parts = [
        f"weights {show_gib(fit.weights_bytes)}",
        f"KV {show_gib(fit.kv_bytes)}",
        f"runtime {show_gib(fit.runtime_bytes)}",
        f"system {show_gib(fit.system_bytes)}",
    ]
    if result.draft is not None:
        parts[2:2] = [
            f"draft {show_gib(fit.draft_weights_bytes)} + KV {show_gib(fit.draft_kv_bytes)}"
        ]
    word = "Fits" if fit.fits else "Does not fit"
    relation = "of" if fit.fits else "against"
    total = f"{show_gib(fit.total_bytes)} {relation} {show_gib(fit.dram_bytes)} visible"
    return f"{word}: {total} ({', '.join(parts)})"
