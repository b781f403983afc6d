"""What a leg did to the processor, and what other programs did meanwhile: read at both ends, by the
process that runs it. Knows nothing of models.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

_PROC = Path("/proc")
_BUSY = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq: proc(5), stat
_STOLEN = 7


def watch_processor(proc: Path = _PROC) -> Callable[[], dict[str, float]]:
    """Starts to watch; the function that is returned tells what happened since, in seconds of a
    core: ``own_s`` of this process, ``others_s`` of all other programs, ``stolen_s`` what a host
    gave to other machines. Empty where the system does not tell."""
    before, own_before_s = _machine(proc), time.process_time()

    def since() -> dict[str, float]:
        now, own_s = _machine(proc), time.process_time() - own_before_s
        if before is None or now is None:
            return {}
        busy_s, stolen_s = now[0] - before[0], now[1] - before[1]
        return {"own_s": own_s, "others_s": max(busy_s - own_s, 0.0), "stolen_s": stolen_s}

    return since


def _machine(proc: Path) -> tuple[float, float] | None:
    """Seconds of all cores that were busy, and stolen, since the start of the machine."""
    try:
        first = (proc / "stat").read_text().partition("\n")[0].split()
        ticks = [int(word) for word in first[1:]]
    except (OSError, ValueError):
        return None
    if first[:1] != ["cpu"] or len(ticks) <= _STOLEN:
        return None
    second = os.sysconf("SC_CLK_TCK")
    return sum(ticks[i] for i in _BUSY) / second, ticks[_STOLEN] / second
