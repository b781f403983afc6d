"""Figures on ``matplotlib.figure.Figure``: no display, no global state, the same bytes twice.

Each figure is a function of plain series, so that what is drawn can be read back from its artists.
"""

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text
from matplotlib.ticker import FixedFormatter, FuncFormatter
from msgspec import Struct

from edgeprof.analysis.statistics import standard_deviation
from edgeprof.errors import UsageFault
from edgeprof.report.whole_file import whole_file

WIDTH_INCHES = 85 / 25.4  # a column of text, at which figures are to be read
FONT, SMALL_FONT = 7.0, 6.0  # points; what is set smaller cannot be read at this width
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
HATCHES = ("", "////", "\\\\\\\\", "xxxx", "----", "||||")

# Okabe and Ito's palette, which stays apart for colour-blind readers; black last.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_STYLE: Any = {  # matplotlib types its keys one by one
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "hatch.linewidth": 0.5,
    "svg.hashsalt": "edgeprof",
    "svg.fonttype": "path",
}
_LONGEST_LABEL = 30
_STAMP_LETTERS = 70  # of a small font in the width of a column
_LACKING = "(? stands for characters that the font lacks)"
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


class RoofLine(Struct, frozen=True, kw_only=True):
    """A board: its bandwidth, and its peak rates by data type (none where not published)."""

    label: str
    bandwidth_bytes_per_s: float
    flop_per_s: dict[str, float] = {}


@contextmanager
def style(font_size: float = FONT, small_font_size: float = SMALL_FONT) -> Iterator[None]:
    """The common look of all figures; the small size is for legends."""
    sizes = {
        "font.size": font_size,
        "axes.titlesize": font_size,
        "legend.fontsize": small_font_size,
    }
    with rc_context(_STYLE | sizes):
        yield


def save_figure(figure: Figure, path: Path, *, force: bool = False) -> None:
    """Writes the figure as its suffix says; an existing file is kept unless ``force``."""
    suffix = path.suffix.lower()
    if suffix not in _METADATA:
        raise UsageFault(f"{path}: a figure is saved as .svg, .png or .pdf")
    with whole_file(path) as unfinished:
        if path.exists() and not force:
            raise UsageFault(f"{path} exists already; choose another name or pass --force")
        make_legible(figure)
        with style():
            figure.savefig(unfinished, dpi=300, metadata=_METADATA[suffix])


def stamp(figure: Figure, text: str) -> None:
    """Where a figure is from, below all of it: it may be looked at without its report."""
    lines = [part for line in text.split("\n") for part in textwrap.wrap(line, _STAMP_LETTERS)]
    with style():
        figure.supxlabel("\n".join(lines), x=0.99, ha="right", fontsize=SMALL_FONT, color="#777777")


def make_legible(figure: Figure) -> None:
    """Names come from outside: none is read as a formula, and characters that the font lacks (it
    knows no Chinese and no emoji) become question marks, with one note that says so."""
    glyphs = get_font(findfont(FontProperties())).get_charmap()

    def drawable(text: str) -> str:
        return "".join(c if ord(c) in glyphs or c == "\n" else "?" for c in text)

    for text in _legend_texts(figure):
        text.set_text("\n".join(_fitting(line) for line in text.get_text().split("\n")))
    lacking = False
    for text in _texts(figure):
        shown = text.get_text()
        text.set_parse_math(False)
        text.set_text(drawable(shown))
        lacking |= drawable(shown) != shown
    for axis in _named_axes(figure):
        labels = axis.get_ticklabels()
        names = [_fitting(label.get_text().replace(r"\$", "$")) for label in labels]
        lacking |= any(drawable(name) != name for name in names)
        escaped = [drawable(name).replace("$", r"\$") for name in names]
        axis.set_ticks(axis.get_majorticklocs(), labels=escaped)
    if lacking:
        stamp(figure, f"{_LACKING}\n{figure.get_supxlabel()}")


def _texts(figure: Figure) -> Iterator[Text]:
    """All texts but those at the ticks."""
    yield from figure.texts
    yield from _legend_texts(figure)
    for axes in figure.axes:
        yield from (child for child in axes.get_children() if isinstance(child, Text))
        yield from (axes.xaxis.label, axes.yaxis.label)


def _legend_texts(figure: Figure) -> Iterator[Text]:
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        if legend is not None:
            yield from legend.get_texts()


def _fitting(name: str) -> str:
    """A name too long for a column loses its middle: two of them often differ at the end."""
    if len(name) <= _LONGEST_LABEL:
        return name
    kept = _LONGEST_LABEL // 2
    return f"{name[:kept]}…{name[-kept:]}"


def _named_axes(figure: Figure) -> Iterator[Axis]:
    """Axes whose ticks bear names, not numbers."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), (FixedFormatter, FuncFormatter)):
                yield axis


def _draw_roof(axes: Axes, roof: RoofLine, colour: str, left: float, right: float) -> None:
    """The slope of memory up to each ceiling, then flat; the slope alone where none is known."""
    slope = roof.bandwidth_bytes_per_s
    if not roof.flop_per_s:
        axes.plot([left, right], [slope * left, slope * right], color=colour, label=roof.label)
    for position, (data_type, peak) in enumerate(sorted(roof.flop_per_s.items())):
        ridge = min(max(peak / slope, left), right)
        axes.plot(
            [left, ridge, right],
            [min(slope * left, peak), min(slope * ridge, peak), peak],
            color=colour,
            linestyle=("-", "--", ":", "-.")[position % 4],
            label=f"{roof.label}, {data_type}",
        )


def _span(roofs: Sequence[RoofLine], intensities: Sequence[float]) -> tuple[float, float]:
    """Whole decades that hold every point and every ridge, with room beside them."""
    ridges = [
        peak / roof.bandwidth_bytes_per_s for roof in roofs for peak in roof.flop_per_s.values()
    ]
    shown = [*intensities, *ridges]
    low, high = min(shown, default=1.0), max(shown, default=100.0)
    return 10.0 ** math.floor(math.log10(low)), 10.0 ** math.ceil(math.log10(high * 2))


class PassSeries(Struct, frozen=True, kw_only=True):
    """One model's passes of growing size: (tokens, intensity, FLOP/s)."""

    label: str
    points: list[tuple[int, float, float]]


class Spread(Struct, frozen=True, kw_only=True):
    """A figure and its band, where there is one."""

    value: float
    low: float | None = None
    high: float | None = None


def session_roofline_figure(roofs: Sequence[RoofLine], series: Sequence[PassSeries]) -> Figure:
    """Measured passes, one line a model with the pass size beside each point, under the roofs."""
    shown = [
        PassSeries(label=one.label, points=[p for p in one.points if p[1] > 0 and p[2] > 0])
        for one in series
    ]
    hidden = sum(len(one.points) for one in series) - sum(len(one.points) for one in shown)
    with style():
        figure = Figure(figsize=(WIDTH_INCHES, 2.6), layout="constrained")
        axes = figure.add_subplot()
        left, right = _span(roofs, [x for one in shown for _, x, _ in one.points])
        for index, roof in enumerate(roofs):
            _draw_roof(axes, roof, PALETTE[index % len(PALETTE)], left, right)
        for index, one in enumerate(shown):
            _draw_series(
                axes,
                one,
                PALETTE[(len(roofs) + index) % len(PALETTE)],
                MARKERS[index % len(MARKERS)],
            )
        axes.set(xscale="log", yscale="log", xlim=(left, right))
        axes.set_xlabel("intensity (FLOP per byte)")
        axes.set_ylabel("rate (FLOP/s)")
        if roofs or shown:
            figure.legend(loc="outside upper left", ncols=2)
        footnote(figure, hidden)
        return figure


def rates_figure(rates: Mapping[str, Sequence[float]]) -> Figure:
    """Decode tokens/s of each variant: a bar at the mean with a whisker of one standard deviation,
    and a dot for every repeat."""
    shown = {name: values for name, values in rates.items() if values}
    with style():
        figure = Figure(figsize=(WIDTH_INCHES, bars_height(shown)), layout="constrained")
        axes = figure.add_subplot()
        for row, values in enumerate(shown.values()):
            mean, spread = sum(values) / len(values), standard_deviation(values)
            axes.barh(row, mean, height=0.6, color=PALETTE[0], alpha=0.35)
            if spread is not None:
                axes.errorbar(
                    mean, row, xerr=spread, fmt="none", ecolor="black", capsize=2, linewidth=0.8
                )
            label = "one repeat" if row == 0 else None
            axes.plot(values, [row] * len(values), "o", markersize=3, color=PALETTE[0], label=label)
        name_rows(axes, list(shown))
        axes.set_xlabel("decode tokens/s")
        axes.set_xlim(left=0)
        if shown:
            figure.legend(loc="outside upper left")
        footnote(figure, len(rates) - len(shown))
        return figure


def time_share_figure(shares: Mapping[str, Mapping[str, float]]) -> Figure:
    """Where each variant's decode time went, as parts of one bar."""
    parts = list(dict.fromkeys(part for values in shares.values() for part in values))
    with style():
        figure = Figure(figsize=(WIDTH_INCHES, bars_height(shares)), layout="constrained")
        axes = figure.add_subplot()
        for row, values in enumerate(shares.values()):
            left = 0.0
            for index, part in enumerate(parts):
                width = 100 * values.get(part, 0.0)
                label = part if row == 0 else None
                colour = PALETTE[index % len(PALETTE)]
                hatch = HATCHES[index % len(HATCHES)]
                axes.barh(
                    row, width, left=left, height=0.6, color=colour, hatch=hatch,
                    edgecolor="white", linewidth=0, label=label,
                )  # fmt: skip
                left += width
        name_rows(axes, list(shares))
        axes.set_xlabel("share of decode time (%)")
        axes.set_xlim(0, 100)
        if shares:
            figure.legend(loc="outside upper left", ncols=4)
        return figure


def acceptance_figure(per_position: Mapping[str, Sequence[float]]) -> Figure:
    """The share of rounds whose token at each drafted position was accepted."""
    longest = max((len(values) for values in per_position.values()), default=1)
    with style():
        figure = Figure(figsize=(WIDTH_INCHES, 2.1), layout="constrained")
        axes = figure.add_subplot()
        for index, (name, values) in enumerate(per_position.items()):
            positions = list(range(1, len(values) + 1))
            colour = PALETTE[index % len(PALETTE)]
            marker, dash = MARKERS[index % len(MARKERS)], DASHES[index % len(DASHES)]
            axes.plot(
                positions, list(values), marker=marker, markersize=3, linestyle=dash, color=colour,
                label=name,
            )  # fmt: skip
        axes.set(ylim=(0, 1), xticks=list(range(1, longest + 1)))
        axes.set_xlabel("drafted position")
        axes.set_ylabel("share of rounds accepted")
        if per_position:
            figure.legend(loc="outside upper left", ncols=2)
        return figure


def verify_cost_figure(costs: Mapping[str, Mapping[int, Spread]]) -> Figure:
    """v(n) of each target with its band; flat at 1 is the memory wall, the slope is arithmetic."""
    sizes = sorted({size for values in costs.values() for size in values})
    with style():
        figure = Figure(figsize=(WIDTH_INCHES, 2.1), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(1.0, color="#888888", linewidth=0.8)
        for index, (name, values) in enumerate(costs.items()):
            axes.errorbar(
                list(values),
                [spread.value for spread in values.values()],
                yerr=error_bars(list(values.values())),
                marker=MARKERS[index % len(MARKERS)],
                markersize=3,
                linestyle=DASHES[index % len(DASHES)],
                capsize=2,
                color=PALETTE[index % len(PALETTE)],
                label=name,
            )
        axes.set_xlabel("tokens in one target pass, n")
        axes.set_ylabel("v(n): time over v(1)")
        axes.set_ylim(bottom=0)
        axes.set_xticks(sizes)
        if costs:
            figure.legend(loc="outside upper left", ncols=2)
        return figure


def _draw_series(axes: Axes, series: PassSeries, colour: str, marker: str) -> None:
    axes.plot(
        [x for _, x, _ in series.points],
        [y for _, _, y in series.points],
        marker=marker,
        markersize=3,
        linewidth=0.8,
        color=colour,
        label=f"{series.label} (measured)",
    )
    for tokens, x, y in series.points:
        axes.annotate(str(tokens), (x, y), (3, 3), textcoords="offset points", fontsize=SMALL_FONT)


def error_bars(spreads: Sequence[Spread]) -> list[list[float]]:
    """Lengths below and above; none where there is no band, or where it lies to the other side."""
    below = [max(s.value - (s.value if s.low is None else s.low), 0.0) for s in spreads]
    above = [max((s.value if s.high is None else s.high) - s.value, 0.0) for s in spreads]
    return [below, above]


def bars_height(rows: Mapping[str, object]) -> float:
    return 0.95 + 0.2 * max(len(rows), 1)


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names beside horizontal bars, the first at the top."""
    axes.set_yticks(range(len(names)), labels=list(names))
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def footnote(figure: Figure, hidden: int) -> None:
    """A point that an axis cannot show is counted, not dropped in silence."""
    if hidden:
        verb = "is" if hidden == 1 else "are"
        noun = "entry" if hidden == 1 else "entries"
        figure.text(
            0.01, 0.005, f"{hidden} {noun} without a value {verb} not shown", fontsize=SMALL_FONT
        )
