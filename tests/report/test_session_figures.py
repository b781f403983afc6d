"""The plots of a session: what is drawn is read back from the artists."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from edgeprof.analysis.summary import Summary, summarise
from edgeprof.report import session_figures
from edgeprof.report.figures import (
    PassSeries,
    RoofLine,
    Spread,
    acceptance_figure,
    rates_figure,
    session_roofline_figure,
    time_share_figure,
    verify_cost_figure,
)
from edgeprof.session.records import Session

ROOF = RoofLine(label="kernel", bandwidth_bytes_per_s=30e9, flop_per_s={"measured": 200e9})


def axes_of(figure: Figure) -> Any:
    """The one pair of axes; matplotlib types too little of what it holds."""
    (axes,) = figure.axes
    return axes


@pytest.fixture(scope="module")
def summary(made_session: Session) -> Summary:
    return summarise(made_session)


def test_bars_are_means_and_dots_are_repeats() -> None:
    axes = axes_of(rates_figure({"fp32": [50.0, 40.0], "int4": [100.0]}))
    assert [bar.get_width() for bar in axes.patches] == [45.0, 100.0]
    dots, single = (line for line in axes.lines if line.get_marker() == "o")
    assert list(dots.get_xdata()) == [50.0, 40.0] and list(single.get_xdata()) == [100.0]
    # the whisker is one standard deviation of two values, 10 / sqrt(2); a single one has none
    (whisker,) = axes.collections[0].get_paths()
    assert whisker.vertices[:, 0].tolist() == pytest.approx([45 - 50**0.5, 45 + 50**0.5])
    assert len(axes.collections) == 1


def test_p04_variant_without_a_rate_is_counted_not_drawn() -> None:
    figure = rates_figure({"fp32": [50.0], "dead": []})
    assert len(figure.axes[0].patches) == 1
    assert [text.get_text() for text in figure.texts] == ["1 entry without a value is not shown"]


def test_p04_points_that_a_log_axis_cannot_show_are_counted() -> None:
    series = PassSeries(label="fp32", points=[(1, 1.0, 3e10), (2, 0.0, 3e10), (3, 3.0, 0.0)])
    figure = session_roofline_figure([ROOF], [series])
    assert [text.get_text() for text in figure.texts] == ["2 entries without a value are not shown"]
    measured = axes_of(figure).lines[-1]
    assert list(measured.get_xdata()) == [1.0]


def test_roofline_bends_at_the_measured_ridge() -> None:
    series = PassSeries(label="fp32", points=[(1, 1.0909, 30e9), (3, 3.27, 90e9)])
    axes = axes_of(session_roofline_figure([ROOF], [series]))
    roof, passes = axes.lines
    assert roof.get_xdata()[1] == pytest.approx(200 / 30)
    assert roof.get_ydata()[1] == pytest.approx(200e9)
    assert list(passes.get_ydata()) == [30e9, 90e9]
    assert [text.get_text() for text in axes.texts] == ["1", "3"]


def test_time_shares_follow_each_other() -> None:
    axes = axes_of(time_share_figure({"v": {"draft": 0.2, "verify": 0.7, "other": 0.1}}))
    starts = [bar.get_x() for bar in axes.patches]
    assert starts == pytest.approx([0, 20, 90])


def test_acceptance_positions_count_from_one() -> None:
    axes = axes_of(acceptance_figure({"v": [0.75, 0.25]}))
    assert list(axes.lines[0].get_xdata()) == [1, 2]
    assert list(axes.lines[0].get_ydata()) == [0.75, 0.25]


def test_verify_cost_with_and_without_bands() -> None:
    costs = {"fp32": {1: Spread(value=1.0), 3: Spread(value=1.2, low=1.1, high=1.4)}}
    axes = axes_of(verify_cost_figure(costs))
    ends = [path.vertices[:, 1].tolist() for path in axes.collections[0].get_paths()]
    assert ends[0] == [1.0, 1.0]
    assert ends[1] == pytest.approx([1.1, 1.4])


def test_a_band_beside_its_value_is_drawn_not_refused() -> None:
    verify_cost_figure({"fp32": {2: Spread(value=1.0, low=1.1, high=1.2)}})


@pytest.mark.parametrize(
    "draw",
    [
        lambda: rates_figure({}),
        lambda: time_share_figure({}),
        lambda: acceptance_figure({}),
        lambda: verify_cost_figure({}),
        lambda: session_roofline_figure([], []),
    ],
)
def test_nothing_to_draw_is_an_empty_figure(draw: Callable[[], Any]) -> None:
    assert len(draw().axes) == 1


def test_series_of_the_session(summary: Summary) -> None:
    assert session_figures.accepted_by_position(summary)["fp32+draft k=2"] == [0.75, 0.25]
    shares = session_figures.time_shares(summary)["int4+draft k=2"]
    expected = {"draft": 6 / 26, "verify": 18 / 26, "decode": 0.0, "other": 2 / 26}
    assert shares == pytest.approx(expected)
    spread = session_figures.verify_spreads(summary)["int4"][3]
    assert spread.value == pytest.approx(1.8)
    roofs = {roof.label: roof for roof in session_figures.roof_lines(summary)}
    assert roofs["fp32 MatMul ceiling"].bandwidth_bytes_per_s == pytest.approx(30e9)
    row = session_figures.traffic_rows(summary)[0]  # no counter: by the model's size
    assert row.label == "fp32 target 1" and row.modelled
    assert row.pass_bytes is not None and row.bandwidth_bytes_per_s is not None
    assert row.pass_bytes.value == pytest.approx(500e6 + 1000 * 50e3)  # weights, keys and values
    assert row.bandwidth_bytes_per_s.value == pytest.approx(550e6 / 0.020)
    fp32 = session_figures.pass_series(summary)[0]
    assert [tokens for tokens, _, _ in fp32.points] == [1, 3, 5]


def test_plots_of_a_session(made_session: Session, summary: Summary, tmp_path: Path) -> None:
    names = session_figures.save_plots(made_session, summary, tmp_path, "svg")
    assert sorted(names) == sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 7
    assert (tmp_path / "roofline.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_the_same_session_gives_the_same_bytes(
    made_session: Session, summary: Summary, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in session_figures.save_plots(made_session, summary, tmp_path / "a", "svg"):
        session_figures.save_plots(made_session, summary, tmp_path / "b", "svg")
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
        break


def test_session_without_held_passes_has_fewer_plots(maker: Any, tmp_path: Path) -> None:
    maker.decode_leg("fp32")
    session = maker.session()
    names = session_figures.save_plots(session, summarise(session), tmp_path, "svg")
    assert names == ["tokens-per-second.svg", "time-share.svg"]
