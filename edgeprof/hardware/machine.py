"""What any machine tells of its processor, be it a board or not."""

import os
import re
from pathlib import Path

_SIZE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def usable_cores() -> int:
    """How many cores this process may run on."""
    return len(allowed_cores())


def allowed_cores() -> set[int]:
    """The numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def pin(cores: set[int]) -> None:
    """Keep this process, and the threads that it starts from now on, to these cores; where the
    system cannot, it stays as it is."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def cpu_model(root: Path = Path("/")) -> str | None:
    """The processor's name, where the kernel knows one."""
    try:
        text = (root / "proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def last_level_cache_bytes(root: Path = Path("/")) -> int | None:
    """The size of the highest cache of core 0."""
    sizes: dict[int, int] = {}
    for folder in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = _first_line(folder / "level"), _first_line(folder / "size")
        match = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if match and level and level.isdigit():
            sizes[int(level)] = int(match[1]) * _SIZE_UNITS[match[2]]
    return sizes[max(sizes)] if sizes else None


def _first_line(path: Path) -> str | None:
    """The file's first line; the device tree ends its strings with a zero byte."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return None
    return text.split("\n")[0].strip("\0 ") or None
