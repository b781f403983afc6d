"""From what an EMC (memory controller) counter says to busy share and bytes a second.

The counter counts every client of the memory, reads and writes together, at the memory's side. The
clock stands first, as the others are believed only beside a clock that is.
"""

from collections.abc import Mapping

from edgeprof.session.records import Quality
from edgeprof.telemetry.source import Reading

_SAME_CLOCK = 0.02
# What is said wherever a source cannot tell the memory's load.
SENSOR = "edgeprof sensor (it prints the sudo command)"
NO_BUS_WIDTH = "the bus width of this board is not known"
NAME_THE_BOARD = "name the board with --device; edgeprof devices lists those that are known"

_BUSY, _CLOCK, _BANDWIDTH = "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"


def from_activity(
    activity_khz: float | None,
    clock_hz: float | None,
    bytes_per_clock: float | None,
    *,
    raw: str | None = None,
    no_activity: str | None = None,
    no_clock: str | None = None,
) -> Mapping[str, Reading]:
    """For nodes that count busy clocks a millisecond (kHz): bandwidth needs no clock at all.

    ``no_activity`` and ``no_clock`` say why the one or the other is None.
    """
    activity_hz = _product(activity_khz, 1000.0)
    busy_frac = activity_hz / clock_hz if activity_hz is not None and clock_hz else None
    bandwidth = _product(activity_hz, bytes_per_clock)
    return {
        _CLOCK: _reading(clock_hz, None, no_clock),
        _BUSY: _reading(busy_frac, raw, no_activity or no_clock),
        _BANDWIDTH: _reading(bandwidth, raw, no_activity),
    }


def from_traffic(
    bandwidth: float | None,
    clock_hz: float | None,
    bytes_per_clock: float | None,
    *,
    calibrated_hz: float | None,
    raw: str | None = None,
    no_activity: str | None = None,
    no_clock: str | None = None,
) -> Mapping[str, Reading]:
    """For nodes whose scale was found by a known load, which gives bytes a second at once.

    Whether the scale follows the clock is not known: at another one than ``calibrated_hz`` what
    comes out is kept, but suspect.
    """
    most = None if clock_hz is None or bytes_per_clock is None else clock_hz * bytes_per_clock
    busy_frac = bandwidth / most if bandwidth is not None and most else None
    quality: Quality = "suspect" if _differ(clock_hz, calibrated_hz) else "ok"
    return {
        _CLOCK: _reading(clock_hz, None, no_clock),
        _BUSY: _reading(busy_frac, raw, no_activity or no_clock)._replace(quality=quality),
        _BANDWIDTH: _reading(bandwidth, raw, no_activity)._replace(quality=quality),
    }


def _differ(one_hz: float | None, other_hz: float | None) -> bool:
    """Whether both are known and are more than rounded forms of one clock."""
    if one_hz is None or other_hz is None:
        return False
    return abs(one_hz / other_hz - 1) > _SAME_CLOCK


def from_busy(
    busy_frac: float | None,
    clock_hz: float | None,
    bytes_per_clock: float | None,
    *,
    raw: str | None = None,
) -> Mapping[str, Reading]:
    """For sources that tell the share of the running clock that was busy."""
    bandwidth = _product(_product(busy_frac, clock_hz), bytes_per_clock)
    return {
        _CLOCK: Reading(clock_hz),
        _BUSY: Reading(busy_frac, raw),
        _BANDWIDTH: Reading(bandwidth, raw),
    }


def _reading(value: float | None, raw: str | None, reason: str | None) -> Reading:
    return Reading(value, raw, reason=reason if value is None else None)


def _product(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one * other
