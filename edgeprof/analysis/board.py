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


class Memory(Struct, frozen=True, kw_only=True):
    """Of the whole machine, not of edgeprof alone."""

    available_before_bytes: Quantity | None
    peak_used_bytes: Quantity | None
    swap_growth_bytes: Quantity | None


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
            return channel.values
        ended_ns = channel.times_ns[-1] if leg.t1_ns is None else leg.t1_ns
        return channel.between(leg.t0_ns, ended_ns)


def memory_of(legs: Sequence[Leg], readings: Readings, total_bytes: int | None) -> Memory | None:
    """None where no sample of memory falls into the legs."""
    used = [values for leg in legs if (values := readings.values("ram_used_bytes", leg))]
    swap = [values for leg in legs if (values := readings.values("swap_used_bytes", leg))]
    if not used and not swap:
        return None
    totals = readings.values("ram_total_bytes")
    total = totals[0] if totals else total_bytes
    return Memory(
        available_before_bytes=_measured(
            total - used[0][0] if used and total is not None else None,
            1,
            "memory of the machine less the use when the first leg started",
        ),
        peak_used_bytes=_measured(
            max((max(values) for values in used), default=None),
            sum(map(len, used)),
            "largest sample of the machine's use during the legs",
        ),
        swap_growth_bytes=_measured(
            max((max(values) - values[0] for values in swap), default=None),
            sum(map(len, swap)),
            "largest rise of swap within a leg",
        ),
    )


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


def clock_change(ours: Sequence[Leg], theirs: Sequence[Leg], readings: Readings) -> str | None:
    """Which clock ran at another rate in one set of legs than in the other, if any did."""
    for name in ("emc_clock_hz", "gpu_clock_hz", "cpu_clock_hz"):
        here = [value for leg in ours for value in readings.values(name, leg)]
        there = [value for leg in theirs for value in readings.values(name, leg)]
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


def emc_clock_range(readings: Readings) -> ClockRange | None:
    """None where the memory's clock stood still, or is not known."""
    channel = readings.channel("emc_clock_hz")
    if channel is None:
        return None
    lowest_hz, highest_hz = min(channel.values), max(channel.values)
    if highest_hz <= lowest_hz * (1 + _CLOCK_TOLERANCE):
        return None
    source = channel.signal.source
    return ClockRange(lowest_hz=lowest_hz, highest_hz=highest_hz, source=source)


def _measured(value: float | None, n: int, source: str) -> Quantity | None:
    return None if value is None else Quantity(value=value, n=n, kind="measured", source=source)
