"""Figures of what a board did: the timeline, traffic by phase, contention, energy.

Like those of ``figures``, each is a function of plain series and draws at the width of a column.
"""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from msgspec import Struct

from edgeprof.report.figures import (
    DASHES,
    HATCHES,
    MARKERS,
    PALETTE,
    SMALL_FONT,
    WIDTH_INCHES,
    Spread,
    bars_height,
    error_bars,
    footnote,
    name_rows,
    style,
)

_PANEL_INCHES = 0.75
_NAMED_SHARE = 0.04  # of the time; shorter stretches have no room for a name
_LONGEST_NAME = 20
_GREY = "#777777"


class Line(Struct, frozen=True, kw_only=True):
    """A channel over time, NaN where nothing was read."""

    label: str
    times_s: Sequence[float]
    values: Sequence[float]


class Panel(Struct, frozen=True, kw_only=True):
    """Channels of one unit."""

    unit: str
    lines: list[Line]


class Stretch(Struct, frozen=True, kw_only=True):
    """A time in which one thing was done: a leg, a phase."""

    label: str
    start_s: float
    end_s: float


class Traffic(Struct, frozen=True, kw_only=True):
    """One kind of pass: bytes it moves, and the bandwidth while it is held. ``modelled``: by the
    model's size, where no counter told them."""

    label: str
    pass_bytes: Spread | None
    bandwidth_bytes_per_s: Spread | None
    modelled: bool = False


class ContentionCurve(Struct, frozen=True, kw_only=True):
    """The target's speed beside an antagonist of growing demand: (bytes/s taken, retained)."""

    label: str
    kappa: Spread | None
    points: list[tuple[float, Spread]]
    knee_bytes_per_s: float | None = None


class EnergyBar(Struct, frozen=True, kw_only=True):
    """Energy of one emitted token, and how much of it is above idle."""

    label: str
    per_token_j: Spread
    above_idle_j: float | None = None


def timeline_figure(panels: Sequence[Panel], stretches: Sequence[Stretch]) -> Figure:
    """One panel a unit under each other over the same time, what was done shaded behind them."""
    with style():
        height = 0.75 + _PANEL_INCHES * max(len(panels), 1)
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        rows = figure.subplots(max(len(panels), 1), 1, sharex=True, squeeze=False)[:, 0]
        for axes, panel in zip(rows, panels, strict=False):
            _draw_panel(axes, panel)
        for axes in rows:
            _shade(axes, stretches)
        _name_stretches(rows[0], stretches)
        ends = [t for panel in panels for line in panel.lines for t in line.times_s if t == t]
        ends += [t for stretch in stretches for t in (stretch.start_s, stretch.end_s)]
        if ends and min(ends) < max(ends):
            rows[-1].set_xlim(min(ends), max(ends))
        rows[-1].set_xlabel("time (s)")
        figure.align_ylabels()
        return figure


def traffic_figure(rows: Sequence[Traffic]) -> Figure:
    """Bytes of one pass and bandwidth, phase by phase, with their bands."""
    with style():
        height = bars_height({row.label: row for row in rows})
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        left, right = figure.subplots(1, 2)
        hidden = _draw_bars(left, [row.pass_bytes for row in rows], 1e9, PALETTE[0])
        hidden += _draw_bars(right, [row.bandwidth_bytes_per_s for row in rows], 1e9, PALETTE[1])
        name_rows(left, [row.label for row in rows])
        name_rows(right, [""] * len(rows))
        modelled = ", modelled" if any(row.modelled for row in rows) else ""
        left.set_xlabel(f"bytes of a pass\n(GB{modelled})")
        right.set_xlabel(f"bandwidth\n(GB/s{modelled})")
        footnote(figure, hidden)
        return figure


def contention_figure(curves: Sequence[ContentionCurve]) -> Figure:
    """What is left of the target's speed over the bandwidth that an antagonist takes."""
    with style():
        figure = Figure(figsize=(WIDTH_INCHES, 2.3), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(1.0, color=_GREY, linewidth=0.8)
        for index, curve in enumerate(curves):
            colour = PALETTE[index % len(PALETTE)]
            axes.errorbar(
                [x / 1e9 for x, _ in curve.points],
                [spread.value for _, spread in curve.points],
                yerr=error_bars([spread for _, spread in curve.points]),
                marker=MARKERS[index % len(MARKERS)],
                markersize=3,
                linestyle=DASHES[index % len(DASHES)],
                capsize=2,
                color=colour,
                label=f"{curve.label}{_kappa(curve.kappa)}",
            )
            if curve.knee_bytes_per_s is not None:
                axes.axvline(curve.knee_bytes_per_s / 1e9, color=colour, linewidth=0.6, ls=":")
        axes.set_xlabel("bandwidth of the antagonist (GB/s)")
        axes.set_ylabel("target's speed,\nshare of alone")
        highest = max((spread.value for curve in curves for _, spread in curve.points), default=1.0)
        axes.set_ylim(0, 1.3 * max(highest, 1.0))  # a wide band goes on beyond the frame
        axes.set_xlim(left=0)
        if curves:
            figure.legend(loc="outside upper left", ncols=1)
        return figure


def energy_figure(bars: Sequence[EnergyBar], *, scope: str = "") -> Figure:
    """Energy of an emitted token, the part above idle hatched; ``scope`` names the rail."""
    with style():
        height = bars_height({bar.label: bar for bar in bars})
        figure = Figure(figsize=(WIDTH_INCHES, height), layout="constrained")
        axes = figure.add_subplot()
        _draw_bars(axes, [bar.per_token_j for bar in bars], 1.0, PALETTE[4])
        named = False
        for row, bar in enumerate(bars):
            if bar.above_idle_j is not None:
                axes.barh(
                    row, bar.above_idle_j, height=0.6, color="none", edgecolor="black",
                    hatch=HATCHES[1], linewidth=0, label=None if named else "above idle",
                )  # fmt: skip
                named = True
        name_rows(axes, [bar.label for bar in bars])
        axes.set_xlabel(f"energy of a token (J){f'; {scope}' if scope else ''}")
        axes.set_xlim(left=0)
        if named:
            figure.legend(loc="outside upper left")
        return figure


def _draw_panel(axes: Axes, panel: Panel) -> None:
    for index, line in enumerate(panel.lines):
        axes.plot(
            list(line.times_s),
            list(line.values),
            color=PALETTE[index % len(PALETTE)],
            linestyle=DASHES[index % len(DASHES)],
            linewidth=0.8,
            label=line.label,
        )
    axes.set_ylabel(panel.unit)
    highest = max((v for line in panel.lines for v in line.values if v == v), default=1.0)
    axes.set_ylim(0, 1.45 * highest if highest > 0 else 1.0)  # room for the names above the lines
    legend = axes.legend(
        loc="upper left", ncols=3, borderaxespad=0.1, handlelength=1.4, columnspacing=1.0
    )
    legend.set_in_layout(False)  # a long name must not make the panels narrow


def _shade(axes: Axes, stretches: Sequence[Stretch]) -> None:
    """Every second one in grey, so that neighbours are told apart."""
    for stretch in stretches[1::2]:
        axes.axvspan(stretch.start_s, stretch.end_s, color="#000000", alpha=0.08, linewidth=0)


def _name_stretches(axes: Axes, stretches: Sequence[Stretch]) -> None:
    """Above the topmost panel, those that are long enough."""
    whole_s = sum(stretch.end_s - stretch.start_s for stretch in stretches)
    for stretch in stretches:
        if stretch.end_s - stretch.start_s < _NAMED_SHARE * whole_s:
            continue
        axes.annotate(
            stretch.label[:_LONGEST_NAME],
            ((stretch.start_s + stretch.end_s) / 2, 1.0),
            (0, 2),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            rotation=30,
            fontsize=SMALL_FONT,
        )


def _draw_bars(axes: Axes, spreads: Sequence[Spread | None], unit: float, colour: str) -> int:
    """Horizontal bars with whiskers; how many have no value."""
    for row, spread in enumerate(spreads):
        if spread is None:
            axes.text(0, row, " not measured", va="center", fontsize=SMALL_FONT, color=_GREY)
            continue
        axes.barh(row, spread.value / unit, height=0.6, color=colour, alpha=0.6)
        whisker = [[side[0] / unit] for side in error_bars([spread])]
        axes.errorbar(
            spread.value / unit, row, xerr=whisker, fmt="none", ecolor="black", capsize=2,
            linewidth=0.8,
        )  # fmt: skip
    axes.set_xlim(left=0)
    return sum(spread is None for spread in spreads)


def _kappa(kappa: Spread | None) -> str:
    if kappa is None:
        return ""
    if kappa.low is None or kappa.high is None:
        return f"\nkappa {kappa.value:.2f}"
    return f"\nkappa {kappa.value:.2f} [{kappa.low:.2f}, {kappa.high:.2f}]"
