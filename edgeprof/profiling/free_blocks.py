"""Is memory free but in pieces? A driver that needs a large block then fails though there is room.

tegrastats shows the largest pieces as ``lfb 3x4MB``; this is the same figure from /proc/buddyinfo.
"""

import mmap
import re
from pathlib import Path
from typing import NamedTuple

_WHOLE_BYTES = 4 << 20  # the largest block that Linux keeps a list of, and the unit of lfb
_ZONE = re.compile(r"^Node\s+\d+,\s+zone\s+\S+\s+([\d\s]+)$", re.MULTILINE)
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_ENOUGH = 16  # times the largest block: with less available, there is just little memory


class FreeBlocks(NamedTuple):
    """``blocks`` of ``size_bytes`` each are the largest free ones."""

    blocks: int
    size_bytes: int


def memory_in_pieces(proc: Path = Path("/proc")) -> str | None:
    """One sentence with the way out, where memory is available but in small pieces; else None."""
    largest, available = largest_free_blocks(proc), _available_bytes(proc)
    if largest is None or available is None or largest.size_bytes >= _WHOLE_BYTES:
        return None
    if available < _ENOUGH * largest.size_bytes:
        return None
    return (
        f"{available / 2**30:.1f} GiB are available but in pieces (largest free blocks, lfb in "
        f"tegrastats: {largest.blocks}x{_block(largest.size_bytes)}), which lasts until caches are "
        "dropped or the board is started anew"
    )


def largest_free_blocks(proc: Path = Path("/proc")) -> FreeBlocks | None:
    """None where the system does not tell, or nothing is free."""
    free: dict[int, int] = {}
    for zone in _ZONE.findall(_read(proc / "buddyinfo")):
        for order, count in enumerate(zone.split()[:32]):
            size = mmap.PAGESIZE << order
            free[size] = free.get(size, 0) + int(count)
    sizes = [size for size, count in free.items() if count]
    return FreeBlocks(free[max(sizes)], max(sizes)) if sizes else None


def _available_bytes(proc: Path) -> int | None:
    match = _AVAILABLE.search(_read(proc / "meminfo"))
    return int(match[1]) * 1024 if match else None


def _block(size_bytes: int) -> str:
    return f"{size_bytes >> 20}MB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10}kB"


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
