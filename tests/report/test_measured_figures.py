"""Figures of what a board did: what is drawn is read back from the artists."""

import math
from typing import Any

import msgspec
import pytest
from matplotlib.figure import Figure

from edgeprof.analysis.summary import summarise
from edgeprof.report.figures import Spread
from edgeprof.report.measured_figures import (
    ContentionCurve,
    EnergyBar,
    Line,
    Panel,
    Stretch,
    Traffic,
    contention_figure,
    energy_figure,
    timeline_figure,
    traffic_figure,
)
from edgeprof.report.session_figures import energy_bars, origin, stretches_of, timeline_panels
from edgeprof.session.records import Sample, Session, Signal


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def labels(figure: Figure) -> list[str]:
    legends: list[Any] = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    return [text.get_text() for legend in legends if legend for text in legend.get_texts()]


def test_timeline_has_a_panel_a_unit_over_one_time() -> None:
    power = Line(label="power", times_s=[0.0, 1.0, math.nan, 3.0], values=[5.0, 6.0, math.nan, 7.0])
    heat = Line(label="heat", times_s=[0.0, 3.0], values=[40.0, 41.0])
    figure = timeline_figure(
        [Panel(unit="W", lines=[power]), Panel(unit="°C", lines=[heat])],
        [
            Stretch(label="fp32", start_s=0.0, end_s=1.5),
            Stretch(label="int4", start_s=1.5, end_s=3.0),
        ],
    )
    upper, lower = figure.axes
    assert [axes.get_ylabel() for axes in figure.axes] == ["W", "°C"]
    drawn: Any = upper.lines[0].get_ydata()
    assert [value for value in drawn if value == value] == [5.0, 6.0, 7.0]
    assert math.isnan(drawn[2])  # no line over what was not read
    assert texts(figure) == ["fp32", "int4"]
    assert len(upper.patches) == len(lower.patches) == 1  # every second stretch is shaded


def test_short_legs_are_shaded_and_not_named() -> None:
    line = Line(label="power", times_s=[0.0, 50.0], values=[5.0, 6.0])
    legs = [Stretch(label=f"v{n % 2}", start_s=n, end_s=n + 1.0) for n in range(50)]
    figure = timeline_figure([Panel(unit="W", lines=[line])], legs)
    assert texts(figure) == [] and len(figure.axes[0].patches) == 25


def test_traffic_by_phase_in_gigabytes() -> None:
    rows = [
        Traffic(
            label="decode",
            pass_bytes=Spread(value=4e9, low=3.9e9, high=4.2e9),
            bandwidth_bytes_per_s=Spread(value=50e9),
        ),
        Traffic(label="draft", pass_bytes=None, bandwidth_bytes_per_s=None),
    ]
    figure = traffic_figure(rows)
    left, right = figure.axes
    assert [bar.get_width() for bar in left.patches] == [4.0]  # type: ignore[attr-defined]
    assert [bar.get_width() for bar in right.patches] == [50.0]  # type: ignore[attr-defined]
    assert texts(figure) == [" not measured", " not measured"]
    assert [text.get_text() for text in figure.texts] == ["2 entries without a value are not shown"]
    labels = [axes.get_xlabel() for axes in figure.axes]
    assert labels == ["bytes of a pass\n(GB)", "bandwidth\n(GB/s)"]


def test_modelled_traffic_says_so() -> None:
    row = Traffic(
        label="t target 1",
        pass_bytes=Spread(value=0.5e9),
        bandwidth_bytes_per_s=Spread(value=5e9),
        modelled=True,
    )
    labels = [axes.get_xlabel() for axes in traffic_figure([row]).axes]
    assert labels == ["bytes of a pass\n(GB, modelled)", "bandwidth\n(GB/s, modelled)"]


def test_contention_names_kappa_with_its_band() -> None:
    curve = ContentionCurve(
        label="int4 beside copy",
        kappa=Spread(value=1.2, low=1.0, high=1.4),
        points=[(0.0, Spread(value=1.0)), (20e9, Spread(value=0.6, low=0.55, high=0.65))],
        knee_bytes_per_s=8e9,
    )
    figure = contention_figure([curve])
    assert labels(figure) == ["int4 beside copy\nkappa 1.20 [1.00, 1.40]"]
    lines = [line.get_xdata() for line in figure.axes[0].lines]
    assert [0.0, 20.0] in [list(xs) for xs in lines]  # type: ignore[arg-type]
    assert [8.0, 8.0] in [list(xs) for xs in lines]  # type: ignore[arg-type]


def test_energy_above_idle_lies_in_the_bar() -> None:
    bars = [
        EnergyBar(label="int4", per_token_j=Spread(value=0.9), above_idle_j=0.4),
        EnergyBar(label="fp32", per_token_j=Spread(value=2.0)),
    ]
    figure = energy_figure(bars, scope="total rail")
    widths = [bar.get_width() for bar in figure.axes[0].patches]  # type: ignore[attr-defined]
    assert widths == [0.9, 2.0, 0.4]
    assert figure.axes[0].get_xlabel() == "energy of a token (J); total rail"
    assert labels(figure) == ["above idle"]


@pytest.mark.parametrize(
    "figure",
    [timeline_figure([], []), traffic_figure([]), contention_figure([]), energy_figure([])],
)
def test_p04_nothing_to_draw_is_an_empty_figure(figure: Figure) -> None:
    assert figure.axes and not labels(figure)


def with_power(maker: Any) -> Session:
    """One answer of the plain variant while 8 W flow, a sample every 10 ms."""
    maker.signals.append(Signal(id=1, name="power_w.total", unit="W", source="sysfs"))
    start = maker.now
    maker.decode_leg("fp32")
    maker.samples += [
        Sample(signal_id=1, t0_ns=t, t1_ns=t, value=8.0, quality="simulated")
        for t in range(start, maker.now + 1, 10_000_000)
    ]
    session: Session = maker.session()
    return session


def test_series_of_a_session(maker: Any) -> None:
    session = with_power(maker)
    (panel,) = timeline_panels(session)
    assert panel.unit == "power (W)" and set(panel.lines[0].values) == {8.0}
    assert [stretch.label for stretch in stretches_of(session)] == ["fp32"]
    summary = summarise(session)
    # 8 tokens in 160 ms at 8 W
    (bar,) = energy_bars(summary)
    assert bar.per_token_j.value == pytest.approx(8 * 0.160 / 8)


def test_figures_tell_where_they_are_from(maker: Any) -> None:
    session = with_power(maker)
    device = {**session.info.device, "name": "Paper board"}
    session = msgspec.structs.replace(
        session, info=msgspec.structs.replace(session.info, device=device)
    )
    day = session.info.created_utc[:10]
    assert origin(summarise(session)) == f"Paper board, {day}, simulated samples"


def test_readings_that_are_held_together_are_one_line(maker: Any) -> None:
    (panel,) = timeline_panels(with_power(maker))
    assert not any(math.isnan(value) for value in panel.lines[0].values)


def test_rows_of_traffic_keep_their_names(tmp_path: Any) -> None:
    from edgeprof.report.figures import save_figure

    rows = [
        Traffic(label=name, pass_bytes=Spread(value=4e9), bandwidth_bytes_per_s=Spread(value=5e10))
        for name in ("decode", "draft")
    ]
    figure = traffic_figure(rows)
    save_figure(figure, tmp_path / "traffic.svg")
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["decode", "draft"]
