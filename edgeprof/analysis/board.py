"""What the board's samples say about legs: memory, temperatures, clocks.

Suspect channels are left out; unknown stays unknown.
"""

import statistics
from collections.abc import Iterable, Sequence

from msgspec import Struct

from edgeprof.analysis.channels import Channel, chosen_channels
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg

# Where a clock differs by more than this, a difference in speed says nothing about the variant.
_CLOCK_TOLERANCE = 0.02
_CLOCKS = ("emc_clock_hz", "gpu_clock_hz", "cpu_clock_hz")


class Memory(Struct, frozen=True, kw_only=True):
    """Of the whole machine; ``process_peak_bytes`` alone is what the decoder itself held."""

    available_before_bytes: Quantity | None
    peak_used_bytes: Quantity | None
    swap_growth_bytes: Quantity | None
    process_peak_bytes: Quantity | None
    major_faults: int | None


class Temperature(Struct, frozen=True, kw_only=True):
    """One zone over the whole session."""

    zone: str
    start_c: float
    end_c: float
    highest_c: float


class ClockRange(Struct, frozen=True, kw_only=True):
    """Between which ends a clock moved, by that source."""

    lowest_hz: float
    highest_hz: float
    source: str


class Readings:
    """By name the readings of the channel that stands for a signal, in order of time."""

    def __init__(self, channels: Iterable[Channel]) -> None:
        self._by_name = chosen_channels(channels)

    def names(self) -> Iterable[str]:
        return self._by_name

    def channel(self, name: str) -> Channel | None:
        """Where the readings of a signal come from; None where nothing gave any to believe."""
        return self._by_name.get(name)

    def values(self, name: str, leg: Leg | None = None) -> list[float]:
        """All values of a signal, or those read while a leg ran."""
        channel = self._by_name.get(name)
        if channel is None:
            return []
        if leg is None:
            every: list[float] = channel.values.tolist()
            return every
        ended_ns = int(channel.times_ns[-1]) if leg.t1_ns is None else leg.t1_ns
        return channel.between(leg.t0_ns, ended_ns)


def memory_of(legs: Sequence[Leg], readings: Readings, total_bytes: int | None) -> Memory | None:
    """From what the decoder read at both ends of each leg, and from the samples between; None where
    there is neither."""
    told = [memory for leg in legs if (memory := _told(leg))]
    used = [values for leg in legs if (values := readings.values("ram_used_bytes", leg))]
    swap = [values for leg in legs if (values := readings.values("swap_used_bytes", leg))]
    if not told and not used and not swap:
        return None
    return Memory(
        available_before_bytes=_available(told, used, readings, total_bytes),
        peak_used_bytes=_peak(told, used),
        swap_growth_bytes=_swap_growth(told, swap),
        process_peak_bytes=_measured(
            max(_of(told, "process_peak_bytes"), default=None),
            len(_of(told, "process_peak_bytes")),
            "most that the decoder held resident during a leg",
        ),
        major_faults=sum(_of(told, "major_faults")) if _of(told, "major_faults") else None,
    )


def _available(
    told: list[dict[str, int]],
    used: list[list[float]],
    readings: Readings,
    total_bytes: int | None,
) -> Quantity | None:
    if found := _of(told, "available_before_bytes"):
        return _measured(found[0], 1, "available memory when the first leg started")
    totals = readings.values("ram_total_bytes")
    total = totals[0] if totals else total_bytes
    return _measured(
        total - used[0][0] if used and total is not None else None,
        1,
        "memory of the machine less the use when the first leg started",
    )


def _peak(told: list[dict[str, int]], used: list[list[float]]) -> Quantity | None:
    """A sample may miss what lasts only a moment, and the decoder does not see its neighbours: the
    larger of the two, which the true peak is not below."""
    sampled = max((max(values) for values in used), default=None)
    ends = [
        memory["used_before_bytes"] + memory["process_growth_bytes"]
        for memory in told
        if {"used_before_bytes", "process_growth_bytes"} <= memory.keys()
    ]
    grown = max(ends, default=None)
    if grown is not None and (sampled is None or grown > sampled):
        source = "use of the machine when a leg started and the growth of the decoder in it"
        return _measured(grown, len(ends), source)
    source = "largest sample of the machine's use during the legs"
    return _measured(sampled, sum(map(len, used)), source)


def _swap_growth(told: list[dict[str, int]], swap: list[list[float]]) -> Quantity | None:
    ends = _of(told, "swap_growth_bytes")
    grown = [*ends, *(max(values) - values[0] for values in swap)]
    n = len(ends) + sum(map(len, swap))
    return _measured(max(grown, default=None), n, "largest rise of swap within a leg")


def _told(leg: Leg) -> dict[str, int]:
    """What the decoder wrote down; attributes are free JSON, so only numbers are taken."""
    memory = leg.attrs.get("memory")
    found = memory.items() if isinstance(memory, dict) else ()
    return {name: value for name, value in found if type(value) is int}


def _of(told: list[dict[str, int]], name: str) -> list[int]:
    return [memory[name] for memory in told if name in memory]


def temperatures_of(readings: Readings) -> list[Temperature]:
    """Every zone that was read."""
    prefix = "temp_c."
    zones = [name for name in readings.names() if name.startswith(prefix)]
    found = []
    for name in zones:
        values = readings.values(name)
        found.append(
            Temperature(
                zone=name.removeprefix(prefix),
                start_c=values[0],
                end_c=values[-1],
                highest_c=max(values),
            )
        )
    return found


def clock_change(
    ours: Sequence[Leg],
    theirs: Sequence[Leg],
    readings: Readings,
    their_readings: Readings | None = None,
) -> str | None:
    """Which clock ran at another rate in one set of legs than in the other, if any did; the others
    may be of another session, with readings of its own."""
    for name in _CLOCKS:
        here = [value for leg in ours for value in readings.values(name, leg)]
        others = readings if their_readings is None else their_readings
        there = [value for leg in theirs for value in others.values(name, leg)]
        if not here or not there:
            continue
        base = statistics.fmean(there)
        change = statistics.fmean(here) / base - 1 if base else 0.0
        if abs(change) > _CLOCK_TOLERANCE:
            return (
                f"{name} was {abs(100 * change):.1f} % {'higher' if change > 0 else 'lower'} than "
                f"in the baseline's legs; above {100 * _CLOCK_TOLERANCE:.0f} % nothing is compared"
            )
    return None


def leg_clock_change(legs: Sequence[Leg], readings: Readings) -> str | None:
    """Which clock did not run alike in all of these legs, or moved within one, if any did."""
    for name in _CLOCKS:
        means: list[tuple[float, str]] = []
        for leg in legs:
            values = readings.values(name, leg)
            halves = values[: len(values) // 2], values[len(values) // 2 :]
            means += [(statistics.fmean(half), leg.name) for half in halves if half]
        if not means:
            continue
        (lowest, slow), (highest, fast) = min(means), max(means)
        if highest > lowest * (1 + _CLOCK_TOLERANCE):
            return (
                f"{name} differs by {100 * (highest / lowest - 1):.1f} %: {lowest / 1e6:.0f} MHz "
                f"in {slow}, {highest / 1e6:.0f} MHz in {fast}; above "
                f"{100 * _CLOCK_TOLERANCE:.0f} % nothing is compared"
            )
    return None


def emc_clock_range(readings: Readings) -> ClockRange | None:
    """None where the memory's clock stood still, or is not known."""
    channel = readings.channel("emc_clock_hz")
    if channel is None:
        return None
    lowest_hz, highest_hz = float(channel.values.min()), float(channel.values.max())
    if highest_hz <= lowest_hz * (1 + _CLOCK_TOLERANCE):
        return None
    source = channel.signal.source
    return ClockRange(lowest_hz=lowest_hz, highest_hz=highest_hz, source=source)


def _measured(value: float | None, n: int, source: str) -> Quantity | None:
    return None if value is None else Quantity(value=value, n=n, kind="measured", source=source)
