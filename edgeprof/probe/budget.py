"""How much memory a part of a probe may take: what machine, container and shell allow."""

import resource
from pathlib import Path

from edgeprof.hardware.memory_state import read_memory_state

# Of what is available: the rest is for what grows meanwhile.
_TAKEN_SHARE = 0.8
# A process with the runtime in it, and what a product's rows and results take.
_PROCESS_BYTES = 256 << 20
# Address space of such a process: mostly libraries and stacks of threads, hardly any of it memory.
_PROCESS_ADDRESSES = 1 << 30
# Weights at their most, over what is stored: as made, and as the kernels pack them. Measured at
# 2.3 with 4 bits and at 1.9 with fp32, onnxruntime 1.32 on x86.
LOADING_FACTOR = 2.5
_CGROUP = Path("sys/fs/cgroup")
# What is streamed through a cache of which fewer fit is no measure of the memory.
FEWEST_CACHES = 2


def beyond_cache_bytes(cache_bytes: int, caches: int, least_bytes: int, most_bytes: int) -> int:
    """So many times the last level of cache between the two sizes, and never less than twice it."""
    many = min(caches * cache_bytes, most_bytes)
    return max(many, FEWEST_CACHES * cache_bytes, least_bytes)


def affordable_bytes(root: Path = Path("/")) -> int | None:
    """What weights may take as they are stored; None where the system tells nothing of memory."""
    limits = []
    available = read_memory_state(root).available_bytes
    if available is not None:
        limits.append(_TAKEN_SHARE * available - _PROCESS_BYTES)
    addresses = resource.getrlimit(resource.RLIMIT_AS)[0]
    if addresses != resource.RLIM_INFINITY:
        limits.append(addresses - _PROCESS_ADDRESSES)
    group = _group_room(root)
    if group is not None:
        limits.append(_TAKEN_SHARE * group - _PROCESS_BYTES)
    return max(int(min(limits) / LOADING_FACTOR), 0) if limits else None


def _group_room(root: Path) -> int | None:
    """What is left of the limit of the control group, as a container has one."""
    values = []
    for name in ("memory.max", "memory.current"):
        try:
            values.append(int((root / _CGROUP / name).read_text()))
        except (OSError, ValueError):  # "max": no limit
            return None
    return values[0] - values[1]
