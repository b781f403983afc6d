"""Draws what a probe found: the measured roofs with a point a number of rows, and v(n) beside what
the rooflines have. At the width of a text column, legible in grey."""

import math
from collections.abc import Sequence
from itertools import cycle

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter
from msgspec import Struct

from edgeprof.hardware.measured import MeasuredProfile, PassCost
from edgeprof.report.figures import PALETTE, style
from edgeprof.report.measured import kernel_roofline_cost, model_roofline_cost

_WIDTH_INCHES = 85 / 25.4
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_GREY = "#777777"


class Line(Struct, frozen=True, kw_only=True):
    """The passes of a kernel or a model: intensity and rate of each, its v(n), and the roofline's;
    ``roof`` is bandwidth and rate, of a kernel only."""

    label: str
    tokens: list[int]
    intensities: list[float]
    rates: list[float]
    costs: list[float]
    predicted: list[float | None]
    roof: tuple[float, float] | None = None


def probe_figure(profile: MeasuredProfile) -> Figure:
    """Two plots, one above the other."""
    series = probe_lines(profile)
    with style(font_size=7, small_font_size=6):
        figure = Figure(figsize=(_WIDTH_INCHES, 5.2), layout="constrained")
        roofs, costs = figure.subplots(2, 1)
        _draw_roofs(roofs, profile, series)
        _draw_costs(costs, series)
        roofs.set_title(profile.machine.name)
        known = [axes.get_legend_handles_labels() for axes in (costs, roofs)]
        handles = [handle for found, _ in known for handle in found]
        labels = [label for _, found in known for label in found]
        figure.legend(handles, labels, loc="outside lower center", ncols=2)
        if not profile.complete or profile.disturbed:
            state = "incomplete" if not profile.complete else "disturbed"
            figure.text(0.99, 0.99, state, ha="right", va="top", fontsize=6)
        return figure


def probe_lines(profile: MeasuredProfile) -> list[Line]:
    """What is drawn, kernels first."""
    lines = [
        _line(
            kernel.label,
            kernel.passes,
            kernel.flop_per_row,
            kernel.weight_bytes,
            [kernel_roofline_cost(kernel, one.tokens) for one in kernel.passes],
            roof=(kernel.bandwidth_bytes_per_s.value, kernel.flop_per_s.value),
        )
        for kernel in profile.kernels
    ]
    return lines + [
        _line(
            model.name,
            model.passes,
            model.flop_per_token,
            model.weight_bytes,
            [model_roofline_cost(profile, model, one.tokens) for one in model.passes],
        )
        for model in profile.models
    ]


def _line(
    label: str,
    passes: Sequence[PassCost],
    flop: int,
    weight_bytes: int,
    predicted: Sequence[float | None],
    roof: tuple[float, float] | None = None,
) -> Line:
    return Line(
        label=label,
        tokens=[one.tokens for one in passes],
        intensities=[one.tokens * flop / weight_bytes for one in passes],
        rates=[one.tokens * flop / one.time_s.value for one in passes],
        costs=[one.cost.value for one in passes],
        predicted=list(predicted),
        roof=roof,
    )


def _draw_roofs(axes: Axes, profile: MeasuredProfile, series: Sequence[Line]) -> None:
    shown = [x for line in series for x in line.intensities]
    ridges = [line.roof[1] / line.roof[0] for line in series if line.roof]
    left = 10 ** math.floor(math.log10(min(shown, default=1.0)))
    right = 10 ** math.ceil(math.log10(2 * max([*shown, *ridges], default=10.0)))
    for line, colour, dash, marker in zip(series, cycle(PALETTE), cycle(_DASHES), cycle(_MARKERS)):
        if line.roof is not None:
            slope, peak = line.roof
            ridge = min(max(peak / slope, left), right)
            axes.plot([left, ridge, right], [slope * left, slope * ridge, max(peak, slope * left)],
                      color=colour, linestyle=dash, linewidth=1)  # fmt: skip
        axes.plot(
            line.intensities, line.rates, marker, color=colour, markersize=3, label=line.label
        )
        axes.annotate(f"n = {line.tokens[0]}", (line.intensities[0], line.rates[0]), (3, -6),
                      textcoords="offset points", fontsize=5)  # fmt: skip
    best = profile.best_bandwidth_bytes_per_s
    if best is not None:
        axes.plot([left, right], [best * left, best * right], color=_GREY, linewidth=0.6,
                  label="most that was read")  # fmt: skip
    top = max([rate for line in series for rate in line.rates] + [line.roof[1] for line in series
              if line.roof], default=1e9)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=(left, right), ylim=(None, 2 * top))
    axes.set_xlabel("intensity (FLOP per byte of weights)")
    axes.set_ylabel("rate (FLOP/s)")


def _draw_costs(axes: Axes, series: Sequence[Line]) -> None:
    for line, colour, marker in zip(series, cycle(PALETTE), cycle(_MARKERS)):
        axes.plot(line.tokens, line.costs, marker=marker, color=colour, markersize=3, linewidth=1,
                  label=line.label)  # fmt: skip
        known = [(n, v) for n, v in zip(line.tokens, line.predicted, strict=True) if v is not None]
        axes.plot([n for n, _ in known], [v for _, v in known], color=colour, linestyle=":",
                  linewidth=0.9)  # fmt: skip
    axes.plot([], [], color=_GREY, linestyle=":", linewidth=0.9, label="roofline's prediction")
    axes.set(xscale="log", yscale="log")
    axes.set_xticks([1, 2, 4, 8, 16, 32, 64])
    axes.set_yticks([1, 2, 4, 8, 16, 32, 64])
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_locator(NullLocator())
    highest = max([cost for line in series for cost in line.costs], default=2.0)
    axes.set_ylim(0.8, 1.2 * highest)
    axes.set_xlabel("rows or tokens in a pass, n")
    axes.set_ylabel("v(n): time over that of one")
