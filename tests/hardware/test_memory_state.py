"""What is free, from files of a board."""

import os
from pathlib import Path

import pytest

from edgeprof.hardware.memory_state import (
    MemoryState,
    SwapState,
    read_memory_state,
    read_swap_state,
)

MEMINFO = """MemTotal:        7620000 kB
MemFree:          420000 kB
MemAvailable:    5600000 kB
"""
BUDDYINFO = """Node 0, zone      DMA      1      0      1      0      2      1      1      0      1
Node 0, zone    DMA32    759    572    791    475    194     45     12      0      0
Node 0, zone   Normal   4381   1093    185   1530    567    102      4      3      0
"""


def tree(root: Path, **files: str) -> Path:
    (root / "proc").mkdir()
    for name, text in files.items():
        (root / "proc" / name).write_text(text)
    return root


def test_r08_r42_available_memory_and_the_largest_free_blocks(tmp_path: Path) -> None:
    state = read_memory_state(tree(tmp_path, meminfo=MEMINFO, buddyinfo=BUDDYINFO))
    # the ninth column is order 8, 256 pages: one such block, in zone DMA
    block_bytes = 256 * os.sysconf("SC_PAGE_SIZE")
    assert state == MemoryState(
        available_bytes=5_600_000 * 1024, largest_block_bytes=block_bytes, largest_blocks=1
    )
    assert str(state).startswith("5.34 GiB are available, the largest free blocks are 1 of ")


def test_zones_are_added_up(tmp_path: Path) -> None:
    text = "Node 0, zone A 1 2 0\nNode 0, zone B 5 3 0\n"
    state = read_memory_state(tree(tmp_path, buddyinfo=text))
    assert state.largest_blocks == 5 and state.available_bytes is None


@pytest.mark.parametrize(
    "text", ["", "nonsense", "Node 0, zone A", "Node 0, zone A 0 0", "\0" * 99]
)
def test_what_cannot_be_read_is_unknown(tmp_path: Path, text: str) -> None:
    state = read_memory_state(tree(tmp_path, meminfo=text, buddyinfo=text))
    assert state == MemoryState(available_bytes=None, largest_block_bytes=None, largest_blocks=None)
    assert str(state) == "what is available cannot be read"


def test_swap_and_the_part_of_it_that_lies_in_memory(tmp_path: Path) -> None:
    swaps = """Filename				Type		Size		Used		Priority
/dev/zram0                              partition	650240		0		5
/dev/zram1                              partition	650240		0		5
/mnt/16GB.swap                          file		16777212	0		-2
"""
    meminfo = "SwapTotal: 18077692 kB\nSwapFree: 18000000 kB\n"
    state = read_swap_state(tree(tmp_path, meminfo=meminfo, swaps=swaps))
    assert state == SwapState(
        total_bytes=18_077_692 * 1024,
        used_bytes=77_692 * 1024,
        zram_bytes=2 * 650_240 * 1024,
    )


def test_swap_that_nobody_tells_of_is_unknown(tmp_path: Path) -> None:
    assert read_swap_state(tmp_path) == SwapState(total_bytes=None, used_bytes=None, zram_bytes=0)


@pytest.mark.parametrize(
    ("files", "available"),
    [
        # 2 GB allowed, 1.5 GB taken, of which 0.3 GB are pages of files that can go
        ({"max": "2000000000", "current": "1500000000", "stat": "anon 5"}, 500_000_000),
        (
            {
                "max": "2000000000",
                "current": "1500000000",
                "stat": "a 1\ninactive_file 300000000\n",
            },
            800_000_000,
        ),
        ({"max": "1000", "current": "5000", "stat": ""}, 0),
        ({"max": "max", "current": "1500000000", "stat": ""}, 5_600_000 * 1024),
        ({"max": "9000000000", "current": "0", "stat": ""}, 5_600_000 * 1024),
        ({"max": "-1", "current": "x", "stat": ""}, 5_600_000 * 1024),
    ],
)
def test_r08_a_container_s_limit_counts_too(
    tmp_path: Path, files: dict[str, str], available: int
) -> None:
    """Whoever goes beyond it is killed, whatever the board has left."""
    root = tree(tmp_path, meminfo=MEMINFO)
    group = root / "sys/fs/cgroup"
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / f"memory.{name}").write_text(text + "\n")
    assert read_memory_state(root).available_bytes == available


def test_r08_a_container_s_limit_of_the_first_version(tmp_path: Path) -> None:
    root = tree(tmp_path, meminfo=MEMINFO)
    group = root / "sys/fs/cgroup/memory"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("3000000000\n")
    (group / "memory.usage_in_bytes").write_text("1000000000\n")
    (group / "memory.stat").write_text("cache 4\ninactive_file 200000000\ntotal_cache 4\n")
    assert read_memory_state(root).available_bytes == 2_200_000_000
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # no limit
    assert read_memory_state(root).available_bytes == 5_600_000 * 1024
