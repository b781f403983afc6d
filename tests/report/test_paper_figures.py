"""The paper figures: what is drawn, read back from the artists, and whether it can be read."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from edgeprof.analysis.observation import Observation
from edgeprof.analysis.outlook import Outlook, outlook
from edgeprof.analysis.plan import Plan, plan
from edgeprof.catalog import engines, find_device, find_engine, find_kv_type, find_model
from edgeprof.quantity import Band
from edgeprof.report.figures import WIDTH_INCHES, make_legible
from edgeprof.report.paper import outlook_figure, plan_figure
from edgeprof.report.paper_figures import (
    gains_figure,
    map_figure,
    memory_figure,
    rates_figure,
    roofline_figure,
)
from edgeprof.report.paper_series import (
    GainLine,
    GainMap,
    GainsByLength,
    MemoryBar,
    MemoryBars,
    Point,
    RateLine,
    RatePoint,
    RatesByContext,
    Roof,
    Roofline,
    roofline_rows,
    roofline_series,
)


def drawn(line: Any) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def labelled(figure: Figure, label: str) -> Any:
    lines = [line for line in figure.axes[0].lines if line.get_label() == label]
    return lines[0]


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def point(intensity: float, rate: float, series: str = "decode 1", kind: str = "bound") -> Point:
    return Point(
        series=series,
        roof=0,
        label=series,
        kind=kind,
        intensity_flop_per_byte=intensity,
        flop_per_s=rate,
    )


BOARD = Roof(
    label="board",
    bandwidth_bytes_per_s=100.0,
    sustained_bytes_per_s=Band(low=70.0, high=80.0),
    ceilings=(("fp16", 5000.0), ("int8", 10_000.0)),
)


def test_a_roof_bends_at_the_ridge_of_each_ceiling() -> None:
    figure = roofline_figure(Roofline(title="", roofs=(BOARD,), points=(point(3, 250),)))
    slope, fp16, int8 = figure.axes[0].lines[:3]
    # ridges at 5000 / 100 and 10 000 / 100 FLOP a byte; whole decades around 3 and 100
    assert drawn(slope) == ([1.0, 100.0], [100.0, 10_000.0])
    assert drawn(fp16) == ([50.0, 1000.0], [5000.0, 5000.0])
    assert drawn(int8) == ([100.0, 1000.0], [10_000.0, 10_000.0])
    assert drawn(figure.axes[0].lines[3]) == ([3.0], [250.0])
    ceilings = [text.get_text() for text in figure.axes[0].texts]
    assert ceilings == ["fp16: 5.00 kFLOP/s", "int8: 10.0 kFLOP/s"]


def test_the_sustained_roof_is_a_band_below_the_peak() -> None:
    figure = roofline_figure(Roofline(title="", roofs=(BOARD,), points=(point(3, 250),)))
    (band,) = figure.axes[0].collections
    corners = {(x, y) for x, y in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert {(1.0, 70.0), (1.0, 80.0), (100.0, 7000.0), (100.0, 8000.0)} <= corners


def test_a_board_without_a_published_rate_is_a_slope() -> None:
    roof = Roof(label="b", bandwidth_bytes_per_s=7.0)
    figure = roofline_figure(Roofline(title="", roofs=(roof,), points=(point(3, 21),)))
    x, y = drawn(figure.axes[0].lines[0])
    assert y == [7.0 * value for value in x]


def test_measured_points_are_told_from_bounds() -> None:
    points = (point(3, 250), point(3, 200, "MLC", "measured"))
    figure = roofline_figure(Roofline(title="", roofs=(BOARD,), points=points))
    assert legend(figure)[-2:] == ["decode 1 (at best)", "MLC (measured)"]
    assert labelled(figure, "MLC (measured)").get_marker() == "*"


def test_p04_points_that_a_log_axis_cannot_show_are_counted() -> None:
    points = (point(3, 250), point(0, 250), point(3, 0), point(3, float("nan")))
    figure = roofline_figure(Roofline(title="", roofs=(BOARD,), points=points))
    assert legend(figure)[-1] == "3 points without a value are not shown"
    assert drawn(figure.axes[0].lines[3]) == ([3.0], [250.0])


def test_rates_end_where_memory_does() -> None:
    def at(depth: int, rate: float, fits: bool) -> RatePoint:
        return RatePoint(
            context_tokens=depth,
            bound_tokens_per_s=rate,
            expected_tokens_per_s=Band(low=rate / 4, high=rate / 2),
            fits=fits,
        )

    line = RateLine(label="board", points=(at(0, 16, True), at(10, 12, True), at(20, 8, False)))
    figure = rates_figure(RatesByContext(title="", lines=(line,)))
    assert drawn(labelled(figure, "board, at best")) == ([0, 10], [16, 12])
    assert drawn(labelled(figure, "does not fit in memory")) == ([20], [8])
    (band,) = figure.axes[0].collections
    corners = {(x, y) for x, y in np.asarray(band.get_paths()[0].vertices).tolist()}
    assert {(0.0, 4.0), (0.0, 8.0), (20.0, 2.0), (20.0, 4.0)} <= corners


def test_the_best_length_is_filled_and_one_acceptance_has_its_band() -> None:
    bands = (Band(low=1.0, high=2.0), Band(low=1.5, high=3.0), Band(low=0.5, high=1.0))
    line = GainLine(
        acceptance=0.8, lengths=(1, 2, 3), speedups=(1.4, 2.0, 0.7), bands=bands, best=2
    )
    figure = gains_figure(GainsByLength(title="", lines=(line,)))
    curve = labelled(figure, "acceptance 0.8")
    assert drawn(curve) == ([1, 2, 3], [1.4, 2.0, 0.7])
    best = figure.axes[0].lines[-1]
    assert drawn(best) == ([2], [2.0])
    assert best.get_markerfacecolor() == curve.get_color()
    assert curve.get_markerfacecolor() == "white"
    assert len(figure.axes[0].collections) == 1
    both = gains_figure(GainsByLength(title="", lines=(line, line)))
    assert not both.axes[0].collections


def test_the_map_shows_the_pair_where_it_lies() -> None:
    series = GainMap(
        title="",
        draft_costs=(0.0, 0.25, 0.5),
        acceptances=(0.0, 0.5, 1.0),
        speedups=((1, 1, 1), (2, 1.3, 1), (17, 4, 2)),
        best_draft_lengths=((0, 0, 0), (16, 1, 0), (16, 16, 4)),
        acceptance=0.7,
        draft_cost=Band(low=0.03, high=0.1),
    )
    figure = map_figure(series)
    assert drawn(labelled(figure, "this pair")) == ([0.03, 0.1], [0.7, 0.7])
    assert legend(figure) == ["break-even", "this pair"]
    axes, bar = figure.axes
    assert axes.get_xlim() == (0.0, 0.5)
    assert bar.get_ylabel() == "speed-up at the best K"


def test_a_map_gets_darker_with_the_speedup_even_in_grey() -> None:
    from edgeprof.report.paper_figures import _grade

    greys = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in map(_grade, (0, 0.25, 0.5, 0.9))]
    assert greys == sorted(greys, reverse=True)
    assert greys[0] - greys[-1] > 0.5


def test_memory_is_stacked_and_told_apart_by_hatch() -> None:
    gib = 2**30
    bar = MemoryBar(
        label="board", parts={"weights": 4 * gib, "KV cache": 2 * gib}, dram_bytes=5 * gib
    )
    figure = memory_figure(MemoryBars(title="", bars=(bar,)))
    patches: Any = figure.axes[0].patches
    first, second = patches
    assert (first.get_x(), first.get_width()) == (0.0, 4.0)
    assert (second.get_x(), second.get_width()) == (4.0, 2.0)
    assert first.get_hatch() != second.get_hatch()
    assert drawn(labelled(figure, "visible memory"))[0] == [5.0, 5.0]
    assert "6.00 GiB of 5.00 GiB, does not fit" in figure.axes[0].texts[0].get_text()


def test_lines_of_several_boards_differ_by_more_than_colour() -> None:
    roofs = [Roof(label=f"b{n}", bandwidth_bytes_per_s=10.0 * n) for n in range(1, 5)]
    figure = roofline_figure(Roofline(title="", roofs=tuple(roofs), points=(point(3, 21),)))
    slopes = figure.axes[0].lines[:4]
    assert len({line.get_color() for line in slopes}) == 4
    assert len({str(line.get_linestyle()) for line in slopes}) == 4


def ask(devices: str, contexts: tuple[int, ...] = (0,)) -> list[Outlook]:
    return [
        outlook(
            device=find_device(name),
            model=find_model("qwen2.5-7b")[0],
            draft=find_model("qwen2.5-0.5b:q8_0")[0],
            kv=find_kv_type("f16"),
            contexts=contexts,
        )
        for name in devices.split()
    ]


def ask_plan(*acceptances: float) -> Plan:
    table = engines()
    return plan(
        device=find_device("orin-nano"),
        target=find_model("qwen2.5-7b")[0],
        draft=find_model("qwen2.5-0.5b:q8_0")[0],
        kv=find_kv_type("f16"),
        engine=find_engine(),
        kernels=table.kernels,
        acceptances=acceptances,
    )


def test_series_of_a_paper_answer() -> None:
    (result,) = ask("orin-nano")
    seen = [Observation(label="MLC", tokens_per_s=10.0)]
    series = roofline_series([result], seen)
    (roof,) = series.roofs
    assert roof.label == "orin-nano-8gb 15W"
    assert roof.bandwidth_bytes_per_s == 68.256e9
    # 8 SMs x 624.75 MHz x 256, 2048, 4096, 8192
    assert [name for name, _ in roof.ceilings] == ["fp32", "fp16, bf16", "int8", "int4"]
    assert roof.ceilings[1][1] == pytest.approx(8 * 624.75e6 * 2048)
    decode, measured = series.points[0], series.points[-1]
    # on the slope: intensity x bandwidth; measured: the FLOP of a token x 10
    assert decode.flop_per_s == pytest.approx(decode.intensity_flop_per_byte * 68.256e9)
    assert measured.flop_per_s == result.passes[0].cost.flop * 10
    assert measured.intensity_flop_per_byte == decode.intensity_flop_per_byte
    rows = roofline_rows(series)
    assert [row["kind"] for row in rows] == ["ridge"] * 4 + ["bound"] * 4 + ["measured"]


def every_figure() -> Iterator[tuple[str, Figure]]:
    """As people will have them: with real names, one board and several."""
    one, several = ask("orin-nano", (0, 32_768)), ask("orin-nano orin-nx agx-orin thor@MAXN")
    seen = [Observation(label="MLC, measured", tokens_per_s=14.2)]
    yield "roofline", outlook_figure("roofline", one, seen).draw()
    yield "rooflines", outlook_figure("roofline", several, seen).draw()
    yield "context", outlook_figure("context", one).draw()
    yield "contexts", outlook_figure("context", several).draw()
    yield "fit", outlook_figure("fit", one).draw()
    yield "fits", outlook_figure("fit", several).draw()
    yield "speedups", plan_figure("speedup", ask_plan(0.5, 0.6, 0.7, 0.8, 0.9)).draw()
    yield "speedup", plan_figure("speedup", ask_plan(0.7)).draw()
    yield "map", plan_figure("map", ask_plan(0.7)).draw()
    yield "plan fit", plan_figure("fit", ask_plan(0.7)).draw()


FIGURES = dict(every_figure())


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_legible_in_a_column_of_85_mm(name: str) -> None:
    figure = FIGURES[name]
    assert figure.get_figwidth() == pytest.approx(85 / 25.4) == WIDTH_INCHES
    make_legible(figure)
    boxes = dict(text_boxes(figure))
    page = figure.bbox
    for text, box in boxes.items():
        assert float(text.get_fontsize()) >= 6, text
        assert page.x0 <= box.x0 and box.x1 <= page.x1, f"{text} leaves the page"
        assert page.y0 <= box.y0 and box.y1 <= page.y1, f"{text} leaves the page"
    for (one, first), (other, second) in combinations(boxes.items(), 2):
        assert not overlap(first, second), f"{one} lies over {other}"


@pytest.mark.parametrize("name", FIGURES)
def test_axes_have_names_and_units(name: str) -> None:
    axes = FIGURES[name].axes[0]
    assert "(" in axes.get_xlabel()
    assert axes.get_ylabel() or not axes.get_yticks().size


def text_boxes(figure: Figure) -> Iterator[tuple[Text, Bbox]]:
    """Every text that is to be seen and where it lies, in pixels."""
    canvas: Any = FigureCanvasAgg(figure)  # matplotlib leaves some of its methods untyped
    canvas.draw()
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        shown = text.get_visible() and text.get_text().strip()
        box = text.get_window_extent(canvas.get_renderer()) if shown else None
        if box is not None and on_axis(figure, text):
            yield text, box


def on_axis(figure: Figure, text: Text) -> bool:
    """Labels of ticks beyond the limits exist but are not drawn."""
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if text in (tick.label1, tick.label2):
                    return bool(min(limits) <= tick.get_loc() <= max(limits)) and (
                        text.get_visible()
                    )
    return True


def overlap(first: Bbox, second: Bbox) -> bool:
    """Whether they share more than a hair of room."""
    width = min(first.x1, second.x1) - max(first.x0, second.x0)
    height = min(first.y1, second.y1) - max(first.y0, second.y0)
    return bool(width > 0.5 and height > 0.5)


def test_p03_a_model_of_any_name_can_be_drawn() -> None:
    series = Roofline(title="通义千问-7B $x_ 🚀", roofs=(BOARD,), points=(point(3, 250),))
    figure = roofline_figure(series)
    make_legible(figure)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()  # a warning of matplotlib would be an error here
    assert figure.axes[0].get_title(loc="left") == "????-7B $x_ ?"
    assert figure.get_supxlabel() == "(? stands for characters that the font lacks)"
