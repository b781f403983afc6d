"""Memory over a stretch of time: of this very process, and from files written as /proc has them."""

import mmap
from pathlib import Path

import pytest

from edgeprof.profiling.process_memory import watch_memory

MIB = 1 << 20


def test_what_was_held_for_a_moment_is_in_the_peak_and_only_in_its_own() -> None:
    since = watch_memory()
    with mmap.mmap(-1, 64 * MIB) as held:
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
    found = since()
    # Linux counts some pages late, at most 64 a core
    assert 62 * MIB <= found["process_growth_bytes"] < 96 * MIB
    assert found["process_peak_bytes"] > found["process_growth_bytes"]
    assert found["available_before_bytes"] > 0 and found["major_faults"] >= 0
    assert watch_memory()()["process_growth_bytes"] < 32 * MIB


def proc(folder: Path, *, available: int, swap_free: int, peak: int) -> None:
    """Figures in kB."""
    (folder / "self").mkdir(exist_ok=True)
    (folder / "self" / "status").write_text(f"Name:\tx\nVmHWM:\t  {peak} kB\nVmRSS:\t 500 kB\n")
    (folder / "self" / "clear_refs").touch()
    (folder / "meminfo").write_text(
        f"MemTotal:  8000 kB\nMemFree:  10 kB\nMemAvailable:  {available} kB\n"
        f"SwapTotal:  4000 kB\nSwapFree:  {swap_free} kB\n"
    )


def test_r09_swap_that_grows_is_told_and_the_machine_as_it_was_before(tmp_path: Path) -> None:
    proc(tmp_path, available=6000, swap_free=3900, peak=500)
    since = watch_memory(tmp_path)
    assert (tmp_path / "self" / "clear_refs").read_text() == "5"
    proc(tmp_path, available=100, swap_free=2700, peak=5500)
    found = since()
    assert found.pop("major_faults") >= 0
    assert found == {
        "available_before_bytes": 6000 * 1024,
        "used_before_bytes": 2000 * 1024,
        "swap_growth_bytes": 1200 * 1024,
        "process_peak_bytes": 5500 * 1024,
        "process_growth_bytes": 5000 * 1024,
    }
    proc(tmp_path, available=6000, swap_free=4000, peak=500)
    assert since()["swap_growth_bytes"] == 0  # swap that is given back is no growth


@pytest.mark.parametrize("content", ["", "MemAvailable: x kB\n", "MemAvailable: 12\n\0\n:::"])
def test_what_the_system_does_not_tell_is_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "meminfo").write_text(content)
    assert set(watch_memory(tmp_path)()) == {"major_faults"}


def test_a_peak_that_cannot_be_reset_is_not_that_of_the_leg(tmp_path: Path) -> None:
    proc(tmp_path, available=6000, swap_free=3900, peak=900)
    (tmp_path / "self" / "clear_refs").unlink()
    (tmp_path / "self" / "clear_refs").mkdir()  # as where it may not be written
    assert "process_peak_bytes" not in watch_memory(tmp_path)()
