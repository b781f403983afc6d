"""How figures are saved, whatever they show."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.report.figures import make_legible, rates_figure, save_figure, stamp

RATES = {"fp32": [50.0, 40.0], "int4": [100.0]}


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_bytes_twice(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"]
    for path in paths:
        save_figure(rates_figure(RATES), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    figure = rates_figure(RATES)
    with pytest.raises(UsageFault, match=r"saved as \.svg, \.png or \.pdf"):
        save_figure(figure, tmp_path / "figure.txt")
    with pytest.raises(EnvironmentFault, match="cannot be written: No such file"):
        save_figure(figure, tmp_path / "none" / "figure.svg")
    with pytest.raises(EnvironmentFault, match="cannot be written: File name too long"):
        save_figure(figure, tmp_path / f"{'a' * 300}.svg")
    existing = tmp_path / "figure.svg"
    existing.write_text("mine")
    with pytest.raises(UsageFault, match="exists already"):
        save_figure(figure, existing)
    assert existing.read_text() == "mine"
    save_figure(figure, existing, force=True)
    assert existing.read_text().startswith("<?xml")


def test_without_display_and_with_no_home(tmp_path: Path) -> None:
    target = tmp_path / "figure.png"
    nowhere = tmp_path / "file" / "home"  # below a file, so that not even root can make it
    nowhere.parent.touch()
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in ("DISPLAY", "WAYLAND_DISPLAY", "MPLCONFIGDIR", "XDG_CONFIG_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-m", "edgeprof", "roofline", "--device=orin-nano", "--model=7b-q4",
         f"--plot={target}"],
        env=environment | {"HOME": str(nowhere), "XDG_CACHE_HOME": str(nowhere)},
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    assert "Traceback" not in done.stderr


def test_p03_names_that_the_font_lacks_are_marked_with_one_note(tmp_path: Path) -> None:
    figure = rates_figure({"通义千问-7B": [50.0], "a $ and a _$": [40.0]})
    save_figure(figure, tmp_path / "figure.png")  # a warning of matplotlib would be an error here
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == ["????-7B", r"a \$ and a _\$"]  # escaped: no formula
    assert figure.axes[0].get_xlabel() == "decode tokens/s"
    assert figure.get_supxlabel() == "(? stands for characters that the font lacks)"


def test_p03_what_can_be_drawn_is_left_alone() -> None:
    figure = rates_figure({"Größe": [50.0]})
    make_legible(figure)
    assert figure.axes[0].get_yticklabels()[0].get_text() == "Größe"
    assert figure.axes[0].get_xlabel() == "decode tokens/s"


def test_what_stands_below_a_figure_lies_within_it() -> None:
    """The name of a real board, and names that the font lacks beside a narrow chart."""
    board = "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super"
    names = {f"通义千问 and a name as long as it gets k={k}": [50.0] for k in (1, 2)}
    for figure in (rates_figure(names), rates_figure({"fp32": [50.0]})):
        stamp(figure, f"{board}, 2026-11-30, simulated and replayed samples")
        make_legible(figure)
        canvas: Any = FigureCanvasAgg(figure)
        canvas.draw()
        (below,) = (one for one in figure.findobj(Text) if board[:20] in one.get_text())
        drawn, whole = below.get_window_extent(), figure.bbox
        assert whole.x0 <= drawn.x0 and drawn.x1 <= whole.x1 and whole.y0 <= drawn.y0


def test_names_too_long_for_a_column_lose_their_middle(tmp_path: Path) -> None:
    figure = rates_figure({f"{'a' * 300} k={k}": [float(k)] for k in (4, 5)})
    save_figure(figure, tmp_path / "f.svg")  # where the rest has room, matplotlib has no warning
    names = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert names == [f"{'a' * 15}…{'a' * 11} k={k}" for k in (4, 5)]
