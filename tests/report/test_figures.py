"""The roofline figure: what is drawn, read back from its artists."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from edgeprof.analysis.outlook import outlook
from edgeprof.catalog import find_device, find_kv_type, find_model
from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.report.figures import (
    PALETTE,
    RoofLine,
    RooflinePoint,
    outlook_series,
    roofline_figure,
    save_figure,
)

ROOF = RoofLine(label="board", bandwidth_bytes_per_s=100.0, flop_per_s={"fp16": 5000.0})
POINT = RooflinePoint(
    label="decode", intensity_flop_per_byte=3.0, flop_per_s=250.0, kind="measured"
)


def drawn(line: Line2D) -> tuple[list[float], list[float]]:
    return np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist()


def test_a_roof_bends_at_its_ridge() -> None:
    line, point = roofline_figure([ROOF], [POINT]).axes[0].lines
    x, y = drawn(line)
    # ridge at 5000 / 100 = 50 FLOP a byte; whole decades around 3 and 50
    assert x == [1.0, 50.0, 100.0]
    assert y == [100.0, 5000.0, 5000.0]
    assert drawn(point) == ([3.0], [250.0])
    assert point.get_marker() == "*"


def test_several_ceilings_share_a_colour_and_differ_in_dash() -> None:
    roof = RoofLine(label="b", bandwidth_bytes_per_s=1.0, flop_per_s={"fp16": 10, "int8": 20})
    first, second = roofline_figure([roof], []).axes[0].lines
    assert first.get_color() == second.get_color() == PALETTE[0]
    assert first.get_linestyle() != second.get_linestyle()


def test_a_board_without_a_published_rate_is_a_slope() -> None:
    (line,) = roofline_figure([RoofLine(label="b", bandwidth_bytes_per_s=7.0)], []).axes[0].lines
    x, y = drawn(line)
    assert y == [7.0 * value for value in x]


def test_axes_say_what_they_show() -> None:
    axes = roofline_figure([ROOF], [POINT], "title").axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert "FLOP per byte" in axes.get_xlabel()
    assert "FLOP/s" in axes.get_ylabel()
    assert axes.get_title() == "title"


def test_the_series_of_a_paper_answer() -> None:
    answer = outlook(
        device=find_device("orin-nano"), model=find_model("7b-q4")[0], kv=find_kv_type("f16")
    )
    roofs, points = outlook_series([answer])
    assert roofs[0].label == "orin-nano-8gb 15W"
    assert roofs[0].bandwidth_bytes_per_s == 2133e6 * 2 * 16
    assert [point.kind for point in points] == ["bound"] * 3
    # on the slope: intensity x bandwidth
    assert points[0].flop_per_s == pytest.approx(points[0].intensity_flop_per_byte * 68.256e9)
    # under the flat roof: 8 SMs x 624.75 MHz x 2048
    assert points[2].flop_per_s == pytest.approx(8 * 624.75e6 * 2048)


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_bytes_twice(tmp_path: Path, suffix: str) -> None:
    paths = [tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"]
    for path in paths:
        save_figure(roofline_figure([ROOF], [POINT]), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths


def test_what_cannot_be_saved(tmp_path: Path) -> None:
    figure = roofline_figure([ROOF], [])
    with pytest.raises(UsageFault, match=r"saved as \.svg, \.png or \.pdf"):
        save_figure(figure, tmp_path / "figure.txt")
    with pytest.raises(EnvironmentFault, match="cannot be written: No such file"):
        save_figure(figure, tmp_path / "none" / "figure.svg")
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
