"""What other programs took, from a /proc that is written by hand."""

import os
from pathlib import Path

import pytest

from edgeprof.profiling.process_load import watch_processor

TICK = os.sysconf("SC_CLK_TCK")


def write(proc: Path, busy_s: float, stolen_s: float = 0.0, *, name: str = "cpu") -> None:
    """User and system share what is busy; waiting for a disk is not."""
    half, stolen = round(busy_s * TICK / 2), round(stolen_s * TICK)
    (proc / "stat").write_text(f"{name}  {half} 0 {half} 999 12345 0 0 {stolen} 7 7\ncpu0 1 2 3\n")


def test_what_others_took_is_the_rest(tmp_path: Path) -> None:
    write(tmp_path, 100.0, 1.0)
    since = watch_processor(tmp_path)
    write(tmp_path, 103.0, 1.5)
    told = since()
    assert told["stolen_s"] == pytest.approx(0.5)
    assert told["own_s"] + told["others_s"] == pytest.approx(3.0)
    assert 0 <= told["own_s"] < 1


def test_less_than_this_process_took_is_nothing(tmp_path: Path) -> None:
    write(tmp_path, 100.0)
    since = watch_processor(tmp_path)
    assert since()["others_s"] == 0.0


def test_a_system_that_does_not_tell(tmp_path: Path) -> None:
    assert watch_processor(tmp_path)() == {}
    write(tmp_path, 1.0, name="intr")
    assert watch_processor(tmp_path)() == {}
    (tmp_path / "stat").write_text("cpu 1 2 x 4 5 6 7 8")
    assert watch_processor(tmp_path)() == {}
    (tmp_path / "stat").write_text("cpu 1 2 3")
    assert watch_processor(tmp_path)() == {}


def test_this_machine_tells() -> None:
    if not Path("/proc/stat").exists():
        pytest.skip("no /proc")
    assert watch_processor()().keys() == {"own_s", "others_s", "stolen_s"}
