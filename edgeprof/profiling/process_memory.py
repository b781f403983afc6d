"""What a leg does to memory: read at its start and its end, by the process that runs it.

The sampler sees the whole machine a few times a second and may miss a short leg; this sees every
one. Knows nothing of models.
"""

import resource
from collections.abc import Callable
from pathlib import Path

_KIB = 1024
_PROC = Path("/proc")
_RESET_PEAK = "5"  # proc(5), clear_refs: the peak of resident memory starts anew


def watch_memory(proc: Path = _PROC) -> Callable[[], dict[str, int]]:
    """Starts to watch; the function that is returned tells what happened since. Bytes, but for
    ``major_faults``, the number of pages that had to be read from disk. What the system does not
    tell is left out.

    ``available_before_bytes`` and ``used_before_bytes`` are the machine's, ``swap_growth_bytes``
    too; ``process_peak_bytes`` is the most that this process held resident,
    ``process_growth_bytes`` by how much that is more than at the start.
    """
    peak_starts_here = _reset_peak(proc)
    before = _machine(proc)
    resident = _kib_lines(proc / "self/status").get("VmRSS")
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt

    def since() -> dict[str, int]:
        found = {f"{name}_before_bytes": before[name] for name in before if name != "swap"}
        now_faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        found["major_faults"] = now_faults - faults
        swap = _machine(proc).get("swap")
        if swap is not None and "swap" in before:
            found["swap_growth_bytes"] = max(swap - before["swap"], 0)
        peak = _kib_lines(proc / "self/status").get("VmHWM")
        if peak is not None and resident is not None and peak_starts_here:
            found["process_peak_bytes"] = peak
            found["process_growth_bytes"] = max(peak - resident, 0)
        return found

    return since


def _reset_peak(proc: Path) -> bool:
    """Whether the peak is from now on, not from the start of the process."""
    try:
        (proc / "self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _machine(proc: Path) -> dict[str, int]:
    """``available``, ``used`` and ``swap`` of the machine, as far as it tells."""
    lines = _kib_lines(proc / "meminfo")
    found = {}
    if "MemAvailable" in lines:
        found["available"] = lines["MemAvailable"]
    if "MemTotal" in lines and "MemAvailable" in lines:
        found["used"] = lines["MemTotal"] - lines["MemAvailable"]
    if "SwapTotal" in lines and "SwapFree" in lines:
        found["swap"] = lines["SwapTotal"] - lines["SwapFree"]
    return found


def _kib_lines(path: Path) -> dict[str, int]:
    """The lines ``Name:  123 kB`` of a file of /proc, in bytes."""
    try:
        text = path.read_text()
    except OSError:
        return {}
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        number, _, unit = value.strip().partition(" ")
        if unit == "kB" and number.isdigit():
            found[name] = int(number) * _KIB
    return found
