"""Processor load, clock and memory, from /proc and cpufreq of the board."""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean

from edgeprof.session.records import WindowBasis, WindowKind
from edgeprof.telemetry.nodes import Node, Nodes
from edgeprof.telemetry.source import Channel, Offer, Reader, Reading
from edgeprof.telemetry.sources.sysfs_polling import absent

_STAT, _MEMINFO = "/proc/stat", "/proc/meminfo"
_CLOCK = "/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq"
_PROCESSOR_HZ, _CLOCK_HZ, _MEMORY_HZ = 5, 2, 2
_MOST_BYTES = 1 << 16  # the lines of 500 cores
_CORE = re.compile(rb"^cpu([0-9]{1,5})((?: +[0-9]{1,20}){5,16}) *$", re.MULTILINE)
_AMOUNT = re.compile(rb"^(MemTotal|MemAvailable|SwapTotal|SwapFree): *([0-9]{1,15}) kB", re.M)
_COUNTED = 8  # user, nice, system, idle, iowait, irq, softirq, steal; user holds what follows
_NOW: WindowKind = "instantaneous"
_DOCUMENTED: WindowBasis = "documented"


def open_proc(nodes: Nodes) -> Offer:
    readers, absences = [], []
    if (stat := nodes.first([_STAT], size=_MOST_BYTES)) is not None:
        readers.append(_processor(stat))
    else:
        absences += [absent(name, f"no {_STAT}") for name in ("cpu_busy_frac", "cpu_online")]
    clocks = nodes.every(_CLOCK.format(core=core) for core in _core_numbers(stat))
    if clocks:
        readers.append(_clock(clocks))
    else:
        absences.append(absent("cpu_clock_hz", "the kernel shows no clock of the processors"))
    if (meminfo := nodes.first([_MEMINFO], size=_MOST_BYTES)) is not None:
        readers.append(_memory(meminfo))
    else:
        absences += [absent(name, f"no {_MEMINFO}") for name in _memory_readings({})]
    return Offer(readers=readers, absences=absences)


def _processor(stat: Node) -> Reader:
    before: dict[bytes, tuple[int, int]] = {}

    def read() -> Mapping[str, Reading]:
        nonlocal before
        cores = _cores(stat.read() or b"")
        shares = [
            share
            for core, ticks in cores.items()
            if core in before and (share := _share(before[core], ticks)) is not None
        ]
        before = cores
        return {
            "cpu_busy_frac": Reading(fmean(shares) if shares else None, reason=stat.reason),
            "cpu_online": Reading(len(cores) or None, reason=stat.reason),
        }

    # The load since the read before: the window is the time between two reads.
    busy = Channel(name="cpu_busy_frac", node=_STAT, window_kind="boxcar", window_basis=_DOCUMENTED)
    online = Channel(name="cpu_online", node=_STAT, window_kind=_NOW, window_basis=_DOCUMENTED)
    return Reader(
        source="sysfs",
        name="processor load",
        channels=[busy, online],
        rate_hz=_PROCESSOR_HZ,
        read=read,
    )


def _clock(clocks: Sequence[Node]) -> Reader:
    """The highest of the cores: work is on those that are fast, and one that idles slows down."""

    def read() -> Mapping[str, Reading]:
        khz = [number for node in clocks if (number := node.number()) is not None]
        hz = 1000 * max(khz) if khz else None
        return {"cpu_clock_hz": Reading(hz, reason=clocks[0].reason)}

    highest = Channel(
        name="cpu_clock_hz",
        node=_CLOCK.format(core="*"),
        window_kind=_NOW,
        window_basis=_DOCUMENTED,
        note="the highest of the cores",
    )
    return Reader(
        source="sysfs", name="processor clock", channels=[highest], rate_hz=_CLOCK_HZ, read=read
    )


def _core_numbers(stat: Node | None) -> list[int]:
    """Those that are on now."""
    found = _CORE.findall((None if stat is None else stat.read()) or b"")
    return [int(core) for core, _ in found]


def _cores(stat: bytes) -> dict[bytes, tuple[int, int]]:
    """Ticks of all kinds and idle ones, by the core; a core that is off has no line."""
    cores = {}
    for core, numbers in _CORE.findall(stat):
        ticks = [int(number) for number in numbers.split()[:_COUNTED]]
        cores[core] = (sum(ticks), ticks[3] + ticks[4])
    return cores


def _share(before: tuple[int, int], now: tuple[int, int]) -> float | None:
    """The share of the ticks that were not idle. Idle ticks may be counted back by the kernel."""
    ticks, idle = now[0] - before[0], now[1] - before[1]
    return 1 - idle / ticks if 0 <= idle <= ticks and ticks > 0 else None


def _memory(meminfo: Node) -> Reader:
    def read() -> Mapping[str, Reading]:
        amounts = _AMOUNT.findall(meminfo.read() or b"")
        return _memory_readings({name: int(kib) << 10 for name, kib in amounts})

    return Reader(
        source="sysfs",
        name="memory",
        channels=[
            Channel(name=name, node=_MEMINFO, window_kind=_NOW, window_basis=_DOCUMENTED)
            for name in _memory_readings({})
        ],
        rate_hz=_MEMORY_HZ,
        read=read,
    )


def _memory_readings(amounts: Mapping[bytes, int]) -> dict[str, Reading]:
    total = amounts.get(b"MemTotal")
    return {
        # What programs cannot have; the page cache, which they can, is not counted.
        "ram_used_bytes": Reading(_less(total, amounts.get(b"MemAvailable"))),
        "ram_total_bytes": Reading(total),
        "swap_used_bytes": Reading(_less(amounts.get(b"SwapTotal"), amounts.get(b"SwapFree"))),
    }


def _less(total: int | None, free: int | None) -> int | None:
    return None if total is None or free is None else total - free
