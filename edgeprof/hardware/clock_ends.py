"""Between which ends the clocks of a board may move: pinned, as jetson_clocks leaves them, or free.

Reads files and changes none.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from edgeprof.hardware.board_facts import EmcRange
from edgeprof.hardware.board_files import BoardFiles

Part = Literal["memory", "GPU", "CPU"]

_DEVFREQ = "/sys/class/devfreq"
_GPU = re.compile(r"(?:.*\.)?(?:gpu|g[a-z]\d\d[a-z])|gpu-gpc-\d+")
_CPUS = "/sys/devices/system/cpu"
_CPU = re.compile(r"cpu\d{1,4}")
_SAME_CLOCK = 1.005  # nearer ends are one clock, rounded


class ClockEnds(Struct, frozen=True, kw_only=True):
    """The ends of one clock in Hz, where it is now, and the file that tells the upper one;
    ``pinned`` where the two ends are one."""

    part: Part
    low_hz: float
    high_hz: float
    now_hz: float | None
    pinned: bool
    file: str


def read_clock_ends(files: BoardFiles, emc: EmcRange | None) -> list[ClockEnds]:
    """Of memory, GPU and CPU, as far as they can be read. Of several CPU clusters the one that may
    move furthest stands for all."""
    ends = [] if emc is None else [_memory(emc)]
    gpus = [f"{_DEVFREQ}/{name}" for name in files.names(_DEVFREQ) if _GPU.fullmatch(name)]
    ends += [found for folder in gpus[:1] if (found := _devfreq(files, folder)) is not None]
    free = max(_cpus(files), key=lambda cpu: cpu.high_hz / max(cpu.low_hz, 1.0), default=None)
    return ends if free is None else [*ends, free]


def _memory(emc: EmcRange) -> ClockEnds:
    return _ends("memory", emc.low_hz, emc.high_hz, emc.now_hz, emc.file)


def _ends(part: Part, low_hz: float, high_hz: float, now_hz: float | None, file: str) -> ClockEnds:
    return ClockEnds(
        part=part,
        low_hz=low_hz,
        high_hz=high_hz,
        now_hz=now_hz,
        pinned=low_hz * _SAME_CLOCK >= high_hz,
        file=file,
    )


def _devfreq(files: BoardFiles, folder: str) -> ClockEnds | None:
    paths = (f"{folder}/min_freq", f"{folder}/max_freq", f"{folder}/cur_freq")
    return _read(files, "GPU", paths, unit_hz=1.0)


def _cpus(files: BoardFiles) -> Iterator[ClockEnds]:
    for name in files.names(_CPUS):
        if not _CPU.fullmatch(name):
            continue
        ends = f"{_CPUS}/{name}/cpufreq/scaling"
        paths = (f"{ends}_min_freq", f"{ends}_max_freq", f"{ends}_cur_freq")
        if (cpu := _read(files, "CPU", paths, unit_hz=1000.0)) is not None:
            yield cpu


def _read(
    files: BoardFiles, part: Part, paths: tuple[str, str, str], *, unit_hz: float
) -> ClockEnds | None:
    """``paths`` are of the lowest, the highest and the present clock."""
    low, high, now = (files.read_count(path) for path in paths)
    if low is None or high is None or low < 0 or high <= 0:
        return None
    now_hz = None if now is None or now <= 0 else now * unit_hz
    return _ends(part, low * unit_hz, high * unit_hz, now_hz, paths[1])
