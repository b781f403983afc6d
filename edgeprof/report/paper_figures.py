"""Draws the paper figures at the width of a text column: legible at 85 mm, in grey and to the
colour-blind. What lines are is told by dash, marker and hatch as well as by colour."""

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.lines import Line2D

from edgeprof.report.figures import (
    DASHES,
    FONT,
    MARKERS,
    PALETTE,
    SMALL_FONT,
    WIDTH_INCHES,
    style,
)
from edgeprof.report.paper_series import (
    GainLine,
    GainMap,
    GainsByLength,
    MemoryBar,
    MemoryBars,
    Point,
    RateLine,
    RatesByContext,
    Roof,
    Roofline,
)
from edgeprof.units import show, show_gib

_LINE_INCHES = 0.125  # of a legend or title
_HATCHES = ("", "///", "\\\\\\", "xxx", "---", "|||")
_LIGHT = ("#9ECAE1", "#FDD0A2", "#FFFFFF", "#DADAEB", "#BDBDBD", "#636363")  # below dark hatches
_GREY = "#777777"
_ROOMY = 0.55  # of the axis, left of which the name of a ceiling has room to its right
_MAP_LEVELS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, 33.0, 65.0)
_PAYS = 1.0001  # the map holds exactly 1 wherever drafting does not


def roofline_figure(series: Roofline) -> Figure:
    """Rate over intensity, both logarithmic: the boards' roofs, and the passes below them."""
    shown = [p for p in series.points if _positive(p.intensity_flop_per_byte, p.flop_per_s)]
    groups = list(dict.fromkeys((point.series, point.kind) for point in shown))
    entries = 2 * len(series.roofs) + len(groups)
    with _column(series.title, 2.3, entries) as (figure, axes):
        left, right = _decades(series.roofs, shown)
        for roof, colour, dash in zip(series.roofs, cycle(PALETTE), cycle(DASHES)):
            _draw_roof(axes, roof, colour, dash, left, right, named=len(series.roofs) == 1)
        markers = cycle(MARKERS)
        for name, kind in groups:
            points = [p for p in shown if (p.series, p.kind) == (name, kind)]
            colours = ["black"] if len(series.roofs) == 1 else PALETTE
            _draw_points(axes, points, "*" if kind == "measured" else next(markers), colours)
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        axes.set_xlabel("intensity (FLOP per byte of DRAM traffic)")
        axes.set_ylabel("rate (FLOP/s)")
        _legend(figure, axes, hidden=len(series.points) - len(shown))
        return figure


def rates_figure(series: RatesByContext) -> Figure:
    """Decoding rate over depth: the bound as a line, what is to be expected as a band."""
    with _column(series.title, 2.0, 2 * len(series.lines) + 1) as (figure, axes):
        for line, colour, dash in zip(series.lines, cycle(PALETTE), cycle(DASHES)):
            _draw_rates(axes, line, colour, dash)
        axes.set_xlabel("depth of the cache (tokens)")
        axes.set_ylabel("decoding (tokens/s)")
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        _legend(figure, axes)
        return figure


def gains_figure(series: GainsByLength) -> Figure:
    """Speed-up over draft length; the best length of each acceptance is filled."""
    with _column(series.title, 2.0, len(series.lines) + 1) as (figure, axes):
        axes.axhline(1.0, color=_GREY, linewidth=0.8)
        for line, colour, marker in zip(series.lines, cycle(PALETTE), cycle(MARKERS)):
            _draw_gains(axes, line, colour, marker, band=len(series.lines) == 1)
        longest = max((max(line.lengths) for line in series.lines), default=1)
        axes.set_xticks(range(1, longest + 1, max(1, math.ceil(longest / 8))))
        axes.set_xlabel("draft length K (tokens)")
        axes.set_ylabel("speed-up over plain decoding")
        axes.set_ylim(bottom=0)
        _legend(figure, axes)
        return figure


def map_figure(series: GainMap) -> Figure:
    """Speed-up at the best draft length over draft cost and acceptance, and where the pair lies."""
    with _column(series.title, 2.3, 2) as (figure, axes):
        if series.speedups:
            _draw_map(figure, axes, series)
        if series.draft_cost is not None:
            ends = [series.draft_cost.low, series.draft_cost.high]
            height = [series.acceptance] * 2
            axes.plot(ends, height, color="black", linewidth=3.5, solid_capstyle="round")
            axes.plot(ends, height, color="white", linewidth=1.5, marker="o", markersize=3,
                      label="this pair")  # fmt: skip
        axes.set_xlabel("cost of a draft pass (target passes)")
        axes.set_ylabel("acceptance (accepted of evaluated)")
        axes.set_xlim(series.draft_costs[0], series.draft_costs[-1])
        axes.set_ylim(0, 1)
        legend = _legend(figure, axes)
        legend.get_frame().set(facecolor=_LIGHT[4], edgecolor="none", alpha=1.0)
        legend.set_frame_on(True)
        return figure


def memory_figure(series: MemoryBars) -> Figure:
    """What must be resident, stacked, against the memory that is visible."""
    parts = list(dict.fromkeys(part for bar in series.bars for part in bar.parts))
    looks = {
        part: (colour, hatch) for part, colour, hatch in zip(parts, cycle(_LIGHT), cycle(_HATCHES))
    }
    with _column(series.title, 0.7 + 0.4 * len(series.bars), len(parts) + 1) as (figure, axes):
        for row, bar in enumerate(series.bars):
            _draw_bar(axes, row, bar, looks)
        axes.set_yticks([])
        axes.set_ylim(len(series.bars) - 0.6, -1.0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("memory (GiB)")
        axes.set_xlim(left=0)
        _legend(figure, axes)
        return figure


@contextmanager
def _column(title: str, height: float, entries: int) -> Iterator[tuple[Figure, Axes]]:
    """A figure as wide as a column and as high as its axes, title and legend want."""
    lines = textwrap.wrap(title, 56)
    height += _LINE_INCHES * (len(lines) + entries)
    with style(font_size=FONT, small_font_size=SMALL_FONT):
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.add_subplot()
        axes.tick_params(labelsize=SMALL_FONT)
        axes.set_title("\n".join(lines), loc="left", parse_math=False)
        yield figure, axes


def _legend(figure: Figure, axes: Axes, hidden: int = 0) -> Legend:
    """Below the axes, where it covers nothing; what could not be drawn is counted there."""
    found: dict[str, Artist] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        found.setdefault(label, handle)
    if hidden:
        noun, verb = ("point", "is") if hidden == 1 else ("points", "are")
        found[f"{hidden} {noun} without a value {verb} not shown"] = Line2D(
            [], [], linestyle="none"
        )
    columns = 2 if max(map(len, found), default=0) <= 24 else 1
    legend = figure.legend(
        list(found.values()),
        list(found),
        loc="outside lower left",
        ncols=columns,
        handlelength=3.2,  # long enough to tell one dash from another
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def _draw_roof(
    axes: Axes, roof: Roof, colour: str, dash: Any, left: float, right: float, *, named: bool
) -> None:
    """The slope of memory up to the highest ceiling, and each ceiling from its ridge on."""
    slope = roof.bandwidth_bytes_per_s
    top = max((peak for _, peak in roof.ceilings), default=math.inf)
    end = min(max(top / slope, left), right)
    axes.plot([left, end], [slope * left, slope * end], color=colour, linestyle=dash,
              label=f"{roof.label}: {show(slope, 'B/s')} peak")  # fmt: skip
    if roof.sustained_bytes_per_s is not None:
        low, high = roof.sustained_bytes_per_s.low, roof.sustained_bytes_per_s.high
        axes.fill_between(
            [left, end], [low * left, low * end], [high * left, high * end], color=colour,
            alpha=0.25, linewidth=0, label=f"{show(low, 'B/s')} to {show(high, 'B/s')} sustained",
        )  # fmt: skip
    for name, peak in roof.ceilings:
        ridge = min(max(peak / slope, left), right)
        axes.plot([ridge, right], [peak, peak], color=colour, linestyle=dash)
        if named:
            early = math.log(ridge / left) < _ROOMY * math.log(right / left)
            axes.annotate(f"{name}: {show(peak, 'FLOP/s')}", (ridge if early else right, peak),
                          (10 if early else 0, 1), ha="left" if early else "right",
                          textcoords="offset points", fontsize=SMALL_FONT)  # fmt: skip


def _draw_points(axes: Axes, points: Sequence[Point], marker: str, colours: Sequence[str]) -> None:
    """One kind of pass, in the colours of the roofs; its name is in the legend once, in black."""
    measured = points[0].kind == "measured"
    look: dict[str, Any] = {"linestyle": "none", "marker": marker, "zorder": 3}
    look |= {"markersize": 7 if measured else 5}
    for roof in dict.fromkeys(point.roof for point in points):
        colour, mine = colours[roof % len(colours)], [p for p in points if p.roof == roof]
        axes.plot(
            [point.intensity_flop_per_byte for point in mine],
            [point.flop_per_s for point in mine],
            color=colour,
            markerfacecolor=colour if measured else "white",
            **look,
        )
    name = f"{points[0].series} ({'measured' if measured else 'at best'})"
    filling = "black" if measured else "white"
    axes.plot([], [], color="black", markerfacecolor=filling, label=name, **look)


def _draw_rates(axes: Axes, line: RateLine, colour: str, dash: Any) -> None:
    for fits, look in (
        (True, {"color": colour, "linestyle": dash, "label": f"{line.label}, at best"}),
        (False, {"color": _GREY, "linestyle": (0, (1, 3)), "label": "does not fit in memory"}),
    ):
        part = [point for point in line.points if point.fits is fits]
        if part:
            depths = [point.context_tokens for point in part]
            axes.plot(depths, [point.bound_tokens_per_s for point in part], **look)
    known = [(p.context_tokens, p.expected_tokens_per_s) for p in line.points]
    band = [(depth, expected) for depth, expected in known if expected is not None]
    if band:
        axes.fill_between(
            [depth for depth, _ in band],
            [expected.low for _, expected in band],
            [expected.high for _, expected in band],
            facecolor=colour, edgecolor=colour, alpha=0.3, linestyle=dash,
            label=f"{line.label}, expected",
        )  # fmt: skip


def _draw_gains(axes: Axes, line: GainLine, colour: str, marker: str, *, band: bool) -> None:
    axes.plot(line.lengths, line.speedups, color=colour, marker=marker, markersize=4,
              markerfacecolor="white", label=f"acceptance {line.acceptance:g}")  # fmt: skip
    if line.best:
        best = line.lengths.index(line.best)
        axes.plot([line.best], [line.speedups[best]], color=colour, marker=marker, markersize=6,
                  markeredgecolor="black", linestyle="none")  # fmt: skip
    if band:
        axes.fill_between(line.lengths, [b.low for b in line.bands], [b.high for b in line.bands],
                          color=colour, alpha=0.25, linewidth=0,
                          label="fastest to slowest kernels")  # fmt: skip


def _draw_map(figure: Figure, axes: Axes, series: GainMap) -> None:
    most = max(max(row) for row in series.speedups)
    top = next((i for i, level in enumerate(_MAP_LEVELS) if level >= most), len(_MAP_LEVELS) - 1)
    levels = _MAP_LEVELS[: max(top, 1) + 1]
    steps = [*range(len(levels))]
    colours = [_grade(step / len(steps)) for step in steps[:-1]]
    drawn = axes.contourf(series.draft_costs, series.acceptances, series.speedups, levels=levels,
                          colors=colours, extend="neither")  # fmt: skip
    axes.contour(series.draft_costs, series.acceptances, series.speedups, levels=[_PAYS],
                 colors="black", linewidths=1.2, linestyles="--")  # fmt: skip
    axes.plot([], [], color="black", linestyle="--", linewidth=1.2, label="break-even")
    bar = figure.colorbar(drawn, ax=axes, spacing="uniform")
    bar.ax.tick_params(labelsize=SMALL_FONT)
    bar.set_label("speed-up at the best K")


def _draw_bar(axes: Axes, row: int, bar: MemoryBar, looks: dict[str, tuple[str, str]]) -> None:
    gib, left = 2.0**30, 0.0
    for part, size in bar.parts.items():
        colour, hatch = looks[part]
        axes.barh(row, size / gib, left=left, height=0.5, facecolor=colour, edgecolor="black",
                  linewidth=0.5, hatch=hatch, label=part)  # fmt: skip
        left += size / gib
    visible = bar.dram_bytes / gib
    axes.plot([visible, visible], [row - 0.35, row + 0.35], color=PALETTE[1], linewidth=2.5,
              label="visible memory")  # fmt: skip
    total = sum(bar.parts.values())
    verdict = "fits" if total <= bar.dram_bytes else "does not fit"
    axes.text(0, row - 0.4, f"{bar.label}: {show_gib(total)} of {show_gib(bar.dram_bytes)},"
              f" {verdict}", fontsize=SMALL_FONT, va="bottom", parse_math=False)  # fmt: skip


def _grade(share: float) -> tuple[float, float, float]:
    """From light to dark, blue in between: its order survives grey and colour blindness."""
    return (0.95 - 0.9 * share, 0.97 - 0.75 * share, 1.0 - 0.5 * share)


def _positive(*values: float | None) -> bool:
    """Whether a logarithmic axis can show them all."""
    return all(value is not None and math.isfinite(value) and value > 0 for value in values)


def _decades(roofs: Sequence[Roof], points: Sequence[Point]) -> tuple[float, float]:
    """Whole decades that hold every point and every ridge, with room beside them."""
    intensities = [point.intensity_flop_per_byte for point in points]
    intensities += [
        peak / roof.bandwidth_bytes_per_s for roof in roofs for _, peak in roof.ceilings
    ]
    low, high = min(intensities, default=1.0), max(intensities, default=100.0)
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high * 2))
