"""From what an EMC (memory controller) counter says to busy share and bytes a second.

The counter counts every client of the memory, reads and writes together, at the memory's side.
"""

from collections.abc import Mapping

from edgeprof.telemetry.source import Reading


def from_activity(
    activity_khz: float | None,
    clock_hz: float | None,
    bytes_per_clock: float | None,
    *,
    raw: str | None = None,
) -> Mapping[str, Reading]:
    """For nodes that count busy clocks a millisecond (kHz): bandwidth needs no clock at all."""
    activity_hz = _product(activity_khz, 1000.0)
    busy_frac = activity_hz / clock_hz if activity_hz is not None and clock_hz else None
    return _readings(busy_frac, clock_hz, _product(activity_hz, bytes_per_clock), raw)


def from_busy(
    busy_frac: float | None,
    clock_hz: float | None,
    bytes_per_clock: float | None,
    *,
    raw: str | None = None,
) -> Mapping[str, Reading]:
    """For sources that tell the share of the running clock that was busy."""
    bandwidth = _product(_product(busy_frac, clock_hz), bytes_per_clock)
    return _readings(busy_frac, clock_hz, bandwidth, raw)


def _readings(
    busy_frac: float | None, clock_hz: float | None, bandwidth: float | None, raw: str | None
) -> Mapping[str, Reading]:
    return {
        "emc_busy_frac": Reading(busy_frac, raw),
        "emc_clock_hz": Reading(clock_hz),
        "dram_bandwidth_bytes_per_s": Reading(bandwidth, raw),
    }


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
