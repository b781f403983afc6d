"""Free memory in pieces, from files written as /proc has them."""

import mmap
from pathlib import Path

import pytest

from edgeprof.profiling.free_blocks import FreeBlocks, largest_free_blocks, memory_in_pieces

ORDERS = (1 << 20) // mmap.PAGESIZE  # pages of the largest block below: 1 MiB


def proc(folder: Path, *zones: list[int], available_kb: int) -> Path:
    lines = [
        f"Node 0, zone {name:>8} {' '.join(map(str, zone))}"
        for name, zone in zip(("DMA", "Normal"), zones, strict=False)
    ]
    (folder / "buddyinfo").write_text("\n".join(lines) + "\n")
    (folder / "meminfo").write_text(f"MemFree: 420000 kB\nMemAvailable:   {available_kb} kB\n")
    return folder


def test_the_largest_blocks_of_all_zones_are_counted(tmp_path: Path) -> None:
    zones = ([9, 0, 3], [50, 2, 4])
    found = largest_free_blocks(proc(tmp_path, *zones, available_kb=1))
    assert found == FreeBlocks(7, 4 * mmap.PAGESIZE)
    assert largest_free_blocks(proc(tmp_path, [0, 0], available_kb=1)) is None


def test_r42_pieces_are_told_with_what_mends_it(tmp_path: Path) -> None:
    order = ORDERS.bit_length() - 1
    in_pieces = [900] * order + [1] + [0] * 2  # one block of 1 MiB is the largest
    told = memory_in_pieces(proc(tmp_path, in_pieces, available_kb=2 << 20))
    assert told is not None and told.startswith("2.0 GiB are available but in pieces")
    assert "1x1MB" in told and "lfb" in told and "started anew" in told


@pytest.mark.parametrize(
    ("whole", "available_kb"),
    [(1, 2 << 20), (0, 8 << 10)],  # a block of 4 MiB is free; or there is little memory at all
)
def test_r42_no_pieces_no_word(tmp_path: Path, whole: int, available_kb: int) -> None:
    order = ORDERS.bit_length() - 1
    zone = [900] * order + [1, 0, whole]
    assert memory_in_pieces(proc(tmp_path, zone, available_kb=available_kb)) is None


def test_a_system_that_does_not_tell_has_no_pieces(tmp_path: Path) -> None:
    assert memory_in_pieces(tmp_path) is None
    (tmp_path / "buddyinfo").write_text("garbage\nNode 0, zone x 1 2 three\n")
    (tmp_path / "meminfo").write_text("MemAvailable: many kB\n")
    assert memory_in_pieces(tmp_path) is None
