"""Shows the profile that a probe made: sections for a person, a document or rows for a program."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from edgeprof.analysis.measured_passes import roofline_cost
from edgeprof.hardware.measured import (
    SCHEMA,
    Figure,
    MeasuredKernel,
    MeasuredModel,
    MeasuredProfile,
    PassCost,
)
from edgeprof.report.sections import Row, Section, lines
from edgeprof.report.table import Table
from edgeprof.units import show, significant

_SHOWN_SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32, 64)
_NONE = "-"


def probe_document(profile: MeasuredProfile) -> dict[str, Any]:
    """``edgeprof.probe/1``: what the file holds, unknown as null, with what follows from it."""
    content = _full(profile)
    for kernel, shown in zip(profile.kernels, content["kernel"], strict=True):
        shown["label"], shown["ridge_rows"] = kernel.label, kernel.ridge_rows
        for one, row in zip(kernel.passes, shown["pass"], strict=True):
            row["roofline_cost"] = kernel_roofline_cost(kernel, one.tokens)
    for model, shown in zip(profile.models, content["model"], strict=True):
        for one, row in zip(model.passes, shown["pass"], strict=True):
            row["roofline_cost"] = model_roofline_cost(profile, model, one.tokens)
    return {"schema": SCHEMA, **content}


def ceilings_document(profile: MeasuredProfile) -> dict[str, Any]:
    """What a roofline shows of a profile beside the datasheet's."""
    return {
        "created_utc": profile.created_utc,
        "provider": profile.provider,
        "threads": profile.threads,
        "disturbed": profile.disturbed,
        "read_bandwidth_bytes_per_s": profile.best_bandwidth_bytes_per_s,
        "kernels": [
            {
                "label": kernel.label,
                "bandwidth_bytes_per_s": _full(kernel.bandwidth_bytes_per_s),
                "flop_per_s": _full(kernel.flop_per_s),
                "ridge_rows": kernel.ridge_rows,
            }
            for kernel in profile.kernels
        ],
    }


def probe_rows(profile: MeasuredProfile) -> list[Row]:
    """One record a pass of a kernel or of a model."""
    return [
        row
        for kernel in profile.kernels
        for row in _pass_rows(
            kernel.label, kernel.weight_bytes, kernel.flop_per_row, kernel.passes,
            [kernel_roofline_cost(kernel, one.tokens) for one in kernel.passes],
        )
    ] + [
        row
        for model in profile.models
        for row in _pass_rows(
            model.name, model.weight_bytes, model.flop_per_token, model.passes,
            [model_roofline_cost(profile, model, one.tokens) for one in model.passes],
        )
    ]  # fmt: skip


def probe_sections(profile: MeasuredProfile) -> Iterator[Section]:
    """The whole profile; what makes it doubtful comes first."""
    machine = profile.machine
    runtime = profile.versions.get("onnxruntime", "of unknown version")
    yield Section(
        f"{machine.name}: what onnxruntime {runtime} reaches on {profile.provider} with"
        f" {profile.threads} threads",
        lines([_made(profile), *_doubts(profile)]),
    )
    if profile.streams:
        yield Section("Memory, read and copied (bytes read plus written)", [_stream_table(profile)])
    yield from ceiling_sections(profile, title="Kernels: one large product a weight format")
    if profile.kernels:
        yield Section(
            "v(n): the time of n rows over that of one; below it, what the kernel's own roofline"
            " would have",
            [_cost_table(profile.kernels)],
        )
    for model in profile.models:
        yield from _model_sections(profile, model)
    yield from _emc_sections(profile)
    yield Section("", lines(_conditions(profile)))
    if profile.missing:
        causes = [f"{one.part}: {one.cause}" for one in profile.missing]
        yield Section("Not measured", lines(causes))


def ceilings_title(profile: MeasuredProfile) -> str:
    """Of the table of kernels where it stands beside other figures."""
    doubt = ", DISTURBED" if profile.disturbed else ""
    return (
        f"What edgeprof probe measured on this machine{doubt} ({profile.provider},"
        f" {profile.threads} threads, {profile.created_utc}): lower bounds of the hardware"
    )


def ceiling_sections(profile: MeasuredProfile, title: str | None = None) -> Iterator[Section]:
    """What each kernel streams and computes; lower bounds of the hardware."""
    if profile.kernels:
        yield Section(title or ceilings_title(profile), [kernel_table(profile)])


def kernel_table(profile: MeasuredProfile) -> Table:
    """A row a kernel."""
    rows = [
        (
            kernel.label,
            kernel.operator,
            _rate(kernel.bandwidth_bytes_per_s, "B/s"),
            _rate(kernel.flop_per_s, "FLOP/s"),
            significant(kernel.ridge_rows),
            "NO" if kernel.bandwidth_bytes_per_s.unstable or kernel.flop_per_s.unstable else "yes",
        )
        for kernel in profile.kernels
    ]
    headers = ("weights", "kernel", "one row reads", "many rows compute", "ridge, rows", "steady")
    return Table(headers, rows, left=2)


def kernel_roofline_cost(kernel: MeasuredKernel, tokens: int) -> float:
    """v(n) by this kernel's own bandwidth and rate."""
    return roofline_cost(
        tokens,
        kernel.weight_bytes,
        kernel.flop_per_row,
        kernel.bandwidth_bytes_per_s.value,
        kernel.flop_per_s.value,
    )


def model_roofline_cost(
    profile: MeasuredProfile, model: MeasuredModel, tokens: int
) -> float | None:
    """v(n) by the ceilings of the kernel that stores a weight in as many bytes as the model does;
    None where no kernel was measured."""
    if not profile.kernels:
        return None
    bytes_per_flop = model.weight_bytes / model.flop_per_token
    kernel = min(
        profile.kernels,
        key=lambda one: (
            abs(one.weight_bytes / one.flop_per_row - bytes_per_flop),
            -one.flop_per_s.value,
        ),
    )
    return roofline_cost(
        tokens,
        model.weight_bytes,
        model.flop_per_token,
        kernel.bandwidth_bytes_per_s.value,
        kernel.flop_per_s.value,
    )


def _full(value: Any) -> Any:
    """As plain data, what is not known as None."""
    if isinstance(value, Struct):
        fields = msgspec.structs.fields(value)
        return {one.encode_name: _full(getattr(value, one.name)) for one in fields}
    if isinstance(value, dict):
        return {key: _full(one) for key, one in value.items()}
    return [_full(one) for one in value] if isinstance(value, list) else value


def _pass_rows(
    label: str,
    weight_bytes: int,
    flop: int,
    passes: Sequence[PassCost],
    predicted: Sequence[float | None],
) -> Iterator[Row]:
    for one, roofline in zip(passes, predicted, strict=True):
        time_s = one.time_s.value
        yield {
            "label": label,
            "n_tokens": one.tokens,
            "time_s": time_s,
            "time_s_low": one.time_s.low,
            "time_s_high": one.time_s.high,
            "pass_cost_vs_1": one.cost.value,
            "roofline_cost": roofline,
            "intensity_flop_per_byte": one.tokens * flop / weight_bytes,
            "flop_per_s": one.tokens * flop / time_s,
            "unstable": one.time_s.unstable,
        }


def _made(profile: MeasuredProfile) -> str:
    board = f", L4T {profile.machine.l4t}" if profile.machine.l4t else ""
    mode = f", {profile.machine.power_mode}" if profile.machine.power_mode else ""
    return (
        f"made {profile.created_utc} in {profile.duration_s:.0f} s by edgeprof"
        f" {profile.edgeprof_version}; {profile.machine.cores} cores{board}{mode}"
    )


def _doubts(profile: MeasuredProfile) -> Iterator[str]:
    if not profile.complete:
        yield f"INCOMPLETE: {profile.ended_reason or 'it was ended before it was through'}."
    for one in profile.disturbed:
        yield f"DISTURBED: {one}."


def _stream_table(profile: MeasuredProfile) -> Table:
    rows = [
        (
            one.kind,
            show(one.size_bytes, "B"),
            _rate(one.bandwidth_bytes_per_s, "B/s"),
            str(one.bandwidth_bytes_per_s.n),
            "NO" if one.bandwidth_bytes_per_s.unstable else "yes",
        )
        for one in profile.streams
    ]
    return Table(("pass", "size", "rate", "runs", "steady"), rows)


def _cost_table(kernels: Sequence[MeasuredKernel]) -> Table:
    measured = sorted({one.tokens for kernel in kernels for one in kernel.passes})
    sizes = [size for size in measured if size in _SHOWN_SIZES] or measured[:8]
    rows = []
    for kernel in kernels:
        costs = {one.tokens: one.cost for one in kernel.passes}
        rows.append((kernel.label, *(_cost(costs.get(size)) for size in sizes)))
        roofline = (f"{kernel_roofline_cost(kernel, size):.2f}" for size in sizes)
        rows.append(("  roofline", *roofline))
    return Table(("weights", *(f"v({size})" for size in sizes)), rows)


def _model_sections(profile: MeasuredProfile, model: MeasuredModel) -> Iterator[Section]:
    rate = model.decode_tokens_per_s
    stack = (
        f"all {model.layers} layers"
        if model.kind == "measured"
        else f"{model.layers_measured} of {model.layers} layers, scaled by their bytes"
    )
    told = [
        f"decoding: {significant(rate.value)} tokens/s [{significant(rate.low)},"
        f" {significant(rate.high)}] after {model.context_tokens} tokens"
        f"{', NOT STEADY' if rate.unstable else ''} ({stack})",
        f"a pass reads {show(model.weight_bytes, 'B')} of weights as the runtime stores them",
    ]
    title = f"{model.title}, synthetic weights ({model.name})"
    yield Section(title, [*lines(told), _model_table(profile, model)])
    if model.best:
        yield Section(
            "Best draft length with this v(n), and the speed-up, by acceptance",
            [_best_table(model)],
        )


def _model_table(profile: MeasuredProfile, model: MeasuredModel) -> Table:
    passes = [one for one in model.passes if one.tokens in _SHOWN_SIZES] or model.passes[:8]
    predicted = [model_roofline_cost(profile, model, one.tokens) for one in passes]
    rows = [
        ("time, ms", *(significant(1e3 * one.time_s.value) for one in passes)),
        ("v(n)", *(_cost(one.cost) for one in passes)),
        ("roofline", *(_NONE if value is None else f"{value:.2f}" for value in predicted)),
    ]
    return Table(("n", *(str(one.tokens) for one in passes)), rows)


def _best_table(model: MeasuredModel) -> Table:
    acceptances = sorted({one.acceptance for one in model.best})
    rows = []
    for draft_cost in sorted({one.draft_cost for one in model.best}):
        mine = {one.acceptance: one for one in model.best if one.draft_cost == draft_cost}
        cells = [
            f"K {mine[a].draft_length}, {mine[a].speedup:.2f}x"
            if mine[a].draft_length
            else "none pays"
            for a in acceptances
        ]
        rows.append((f"c = {draft_cost:g}", *cells))
    return Table(("draft pass", *(f"{acceptance:g}" for acceptance in acceptances)), rows)


def _emc_sections(profile: MeasuredProfile) -> Iterator[Section]:
    if not profile.emc:
        return
    rows = []
    for one in profile.emc:
        window = (
            one.window_kind if one.window_s is None else f"{one.window_kind} {one.window_s:.3g} s"
        )
        scale = one.bytes_per_s_per_unit
        rows.append(
            (
                one.node,
                window,
                f"{scale.value:.4g} [{scale.low:.4g}, {scale.high:.4g}]",
                f"{100 * one.explained_share:.1f} %",
            )
        )
    where = f"{profile.emc[0].board}, L4T {profile.emc[0].l4t}"
    yield Section(
        f"EMC counters of {where}, calibrated by a known load",
        [Table(("node", "window", "B/s a unit", "explained"), rows, left=2)],
    )


def _conditions(profile: MeasuredProfile) -> list[str]:
    found = profile.conditions
    told = []
    if found.others_cpu_share is not None and found.others_cpu_share_before is not None:
        told.append(
            f"other programs took {100 * found.others_cpu_share_before:.0f} % of the processor"
            f" before and {100 * found.others_cpu_share:.0f} % meanwhile"
        )
    if found.cpu_clock_hz is not None:
        low, high = found.cpu_clock_hz.low / 1e6, found.cpu_clock_hz.high / 1e6
        told.append(f"processor clock {low:.0f} to {high:.0f} MHz")
    for name in ("emc_clock_hz", "gpu_clock_hz"):
        if (clock := found.signals.get(name)) is not None:
            told.append(f"{name} {clock.low / 1e6:.0f} to {clock.high / 1e6:.0f} MHz")
    hot = {name: one.high for name, one in found.signals.items() if name.startswith("temp_c.")}
    if hot:
        told.append(f"hottest {max(hot.values()):.0f} deg C")
    return ["Meanwhile: " + "; ".join(told) + "."] if told else []


def _rate(figure: Figure, unit: str) -> str:
    low, high = show(figure.low, unit).split()[0], show(figure.high, unit).split()[0]
    if show(figure.low, unit).split()[1] != show(figure.high, unit).split()[1]:
        low, high = show(figure.low, unit), show(figure.high, unit)
    return f"{show(figure.value, unit)} [{low}, {high}]"


def _cost(cost: Figure | None) -> str:
    if cost is None:
        return _NONE
    return f"{cost.value:.2f}{'~' if cost.unstable else ''}"
