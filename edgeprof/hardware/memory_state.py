"""What memory Linux could give now, the sum and the largest piece, and what swap there is. Knows
nothing of who asks."""

import os
import re
from pathlib import Path

from msgspec import Struct

from edgeprof.hardware.board_files import BoardFiles

_MOST_ORDERS = 32
# Of a container, versions 2 and 1 of its control group: the limit, what counts to it now, and what
# of that are file pages that can go.
_CONTAINERS = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)


class MemoryState(Struct, frozen=True, kw_only=True):
    """``available_bytes`` is what programs can have without swapping, page cache that may go
    included, and no more than the limit of a container leaves; ``largest_block_bytes`` the largest
    free piece without a gap, of which there are ``largest_blocks``."""

    available_bytes: int | None
    largest_block_bytes: int | None
    largest_blocks: int | None

    def __str__(self) -> str:
        parts = []
        if self.available_bytes is not None:
            parts.append(f"{self.available_bytes / 2**30:.2f} GiB are available")
        if self.largest_block_bytes is not None:
            size = _block_text(self.largest_block_bytes)
            parts.append(f"the largest free blocks are {self.largest_blocks} of {size}")
        return ", ".join(parts) or "what is available cannot be read"


class SwapState(Struct, frozen=True, kw_only=True):
    """``zram_bytes`` is the part of the total that lies in memory itself, compressed."""

    total_bytes: int | None
    used_bytes: int | None
    zram_bytes: int


def read_swap_state(root: Path = Path("/")) -> SwapState:
    """From meminfo and swaps below ``root``."""
    files = BoardFiles(root)
    meminfo = files.read("/proc/meminfo") or ""
    total, free = (_meminfo_bytes(meminfo, name) for name in ("SwapTotal", "SwapFree"))
    zram = re.findall(r"^/dev/zram\d+\s+\S+\s+(\d{1,15})", files.read("/proc/swaps") or "", re.M)
    return SwapState(
        total_bytes=total,
        used_bytes=None if total is None or free is None else total - free,
        zram_bytes=sum(int(kib) << 10 for kib in zram),
    )


def read_memory_state(root: Path = Path("/")) -> MemoryState:
    """From meminfo, buddyinfo and the container's limit below ``root``; what cannot be read is
    None."""
    files = BoardFiles(root)
    available = _meminfo_bytes(files.read("/proc/meminfo") or "", "MemAvailable")
    rooms = [room for room in (available, _left_of_container(files)) if room is not None]
    order, count = _largest_blocks(files.read("/proc/buddyinfo") or "")
    return MemoryState(
        available_bytes=min(rooms, default=None),
        largest_block_bytes=None if order is None else os.sysconf("SC_PAGE_SIZE") << order,
        largest_blocks=count,
    )


def _meminfo_bytes(meminfo: str, name: str) -> int | None:
    match = re.search(rf"^{name}:\s{{1,40}}(\d{{1,15}}) kB", meminfo, re.M)
    return int(match[1]) << 10 if match else None


def _left_of_container(files: BoardFiles) -> int | None:
    """What the container's limit leaves; None where there is no limit."""
    for names in _CONTAINERS:
        limit, used, details = (files.read(f"/sys/fs/cgroup/{name}") or "" for name in names)
        if re.fullmatch(r"\d{1,18}\s*", limit) and re.fullmatch(r"\d{1,18}\s*", used):
            pages = re.search(r"^inactive_file (\d{1,18})$", details, re.M)
            freed = int(pages[1]) if pages else 0
            return max(int(limit) - max(int(used) - freed, 0), 0)
    return None


def _largest_blocks(buddyinfo: str) -> tuple[int | None, int | None]:
    """The highest order of pages with free blocks, over all zones, and how many there are."""
    counts: dict[int, int] = {}
    for line in buddyinfo.splitlines():
        match = re.match(r"Node\s+\d+, zone\s+\S+\s+([\d ]+)$", line)
        for order, text in enumerate((match[1].split() if match else [])[:_MOST_ORDERS]):
            counts[order] = counts.get(order, 0) + int(text[:12])
    free = [order for order, count in counts.items() if count]
    return (max(free), counts[max(free)]) if free else (None, None)


def _block_text(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"
