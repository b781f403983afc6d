"""What the machine does while it is probed: other programs, clocks, heat, throttling."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from edgeprof.hardware.measured import Conditions, Range
from edgeprof.hardware.memory_state import read_memory_state
from edgeprof.session.records import Event, Sample, Signal

_CLOCK_FILES = "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"
_KEPT = ("emc_clock_hz", "gpu_clock_hz", "temp_c.", "power_w.", "cooling_state.", "swap_used")
# Of all cores: what is less changes a median by less than it spreads anyway.
_BUSY_OTHERS, _STOLEN = 0.05, 0.02
_MOVED = 0.02
_CPU_MOVED = 0.10  # a processor's clock is told in coarse steps, and not of one time
_SWAPPED_BYTES = 16 << 20
_TELLING = ("throttling", "suspend", "power_mode")


class Watcher:
    """Keeps what was seen. ``tick`` is to be called a few times a second; ``timing`` says whether
    something was timed since the last call: clocks between the parts do not matter."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._clock_files = sorted(root.glob(_CLOCK_FILES))
        self._names: dict[int, str] = {}
        self._ranges: dict[str, tuple[float, float]] = {}
        self._events: Counter[str] = Counter()
        self._timing = False
        self._load = os.getloadavg()[0]
        self._available = read_memory_state(root).available_bytes
        self._before: float | None = None
        self._start = _Processor()

    def look_before(self, seconds: float) -> None:
        """What others take while nothing of ours runs."""
        start = _Processor()
        time.sleep(seconds)
        self._before = start.since()[0]
        self._start = _Processor()

    def tick(self, *, timing: bool) -> None:
        self._timing = timing
        if timing:
            for file in self._clock_files:
                try:
                    self._note("cpu_clock_hz", 1000.0 * int(file.read_text()))
                except (OSError, ValueError):  # a core that is off
                    continue

    def take(self, record: Signal | Sample | Event) -> None:
        """What the sampler says."""
        if isinstance(record, Signal):
            self._names[record.id] = record.name
        elif isinstance(record, Event):
            if record.kind in _TELLING:
                self._events[record.kind] += 1
        elif record.value is not None and record.quality == "ok" and self._timing:
            name = self._names.get(record.signal_id, "")
            if name.startswith(_KEPT):
                self._note(name, record.value)

    def conditions(self) -> Conditions:
        others, stolen = self._start.since()
        ranges = {name: Range(low=low, high=high) for name, (low, high) in self._ranges.items()}
        return Conditions(
            load_average_before=self._load,
            available_memory_bytes=self._available,
            others_cpu_share_before=self._before,
            others_cpu_share=others,
            stolen_cpu_share=stolen,
            cpu_clock_hz=ranges.pop("cpu_clock_hz", None),
            signals=dict(sorted(ranges.items())),
            events=dict(self._events),
        )

    def _note(self, name: str, value: float) -> None:
        low, high = self._ranges.get(name, (value, value))
        self._ranges[name] = min(low, value), max(high, value)


class _Processor:
    """The processor's time until now, and this process's with its children's."""

    def __init__(self) -> None:
        self._all = _all_times()
        self._own = _own_s()

    def since(self) -> tuple[float, float | None]:
        """The shares of all cores that others took, and that a hypervisor took away."""
        now = _all_times()
        passed = {name: now[name] - self._all[name] for name in now}
        total = sum(passed.values())
        if total <= 0:
            return 0.0, None
        idle = passed.get("idle", 0.0) + passed.get("iowait", 0.0)
        stolen = passed.get("steal")
        others = total - idle - (stolen or 0.0) - (_own_s() - self._own)
        return _share(others / total), None if stolen is None else _share(stolen / total)


def _all_times() -> Mapping[str, float]:
    """Without guests, whose time counts as the user's already."""
    times: Any = psutil.cpu_times()._asdict()
    return {name: value for name, value in times.items() if not name.startswith("guest")}


def _own_s() -> float:
    """Of this process, of its children that have ended and of those that live."""
    total = sum(os.times()[:4])
    for child in psutil.Process().children(recursive=True):
        try:
            times = child.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
        except psutil.Error:
            continue
    return total


def disturbances(found: Conditions, provider: str) -> Iterator[str]:
    """What makes the figures those of a moment, a sentence each."""
    for share, when in (
        (found.others_cpu_share_before, "before it began"),
        (found.others_cpu_share, "while it ran"),
    ):
        if share is not None and share > _BUSY_OTHERS:
            yield f"other programs took {100 * share:.0f} % of the processor {when}"
    if found.stolen_cpu_share is not None and found.stolen_cpu_share > _STOLEN:
        yield f"the hypervisor took away {100 * found.stolen_cpu_share:.0f} % of the processor"
    clocks = {"the memory clock": (found.signals.get("emc_clock_hz"), _MOVED)}
    if provider == "cpu":
        clocks["the processor's clock"] = (found.cpu_clock_hz, _CPU_MOVED)
    else:
        clocks["the GPU's clock"] = (found.signals.get("gpu_clock_hz"), _MOVED)
    for what, (clock, tolerance) in clocks.items():
        if clock is not None and clock.high > (1 + tolerance) * clock.low:
            low, high = clock.low / 1e6, clock.high / 1e6
            yield f"{what} moved between {low:.0f} and {high:.0f} MHz while it was timed"
    swap = found.signals.get("swap_used_bytes")
    if swap is not None and swap.high - swap.low > _SWAPPED_BYTES:
        yield f"{(swap.high - swap.low) / 2**20:.0f} MiB were swapped out"
    for kind, count in found.events.items():
        yield f"{kind.replace('_', ' ')}: told {count} times" if count > 1 else f"there was {kind}"


def _share(value: float) -> float:
    return min(max(value, 0.0), 1.0)
