"""What any Linux machine tells of itself, through psutil. Knows no board."""

import re
from collections.abc import Iterator, Mapping

from edgeprof.session.records import WindowBasis, WindowKind
from edgeprof.telemetry.source import Absence, Channel, Offer, Reader, Reading

_PLAUSIBLE_DEG_C = (-40.0, 150.0)


def open_host() -> Offer:
    """Processor load five times a second, memory twice, temperatures once."""
    import psutil

    counted = None

    def processor() -> Mapping[str, Reading]:
        nonlocal counted
        before, counted = counted, psutil.cpu_times()
        stands = counted == before  # counters that stand still, as in some containers, say nothing
        return {
            "cpu_busy_frac": Reading(None if stands else psutil.cpu_percent() / 100),
            "cpu_online": Reading(psutil.cpu_count()),
        }

    def memory() -> Mapping[str, Reading]:
        ram = psutil.virtual_memory()
        return {
            # What programs cannot have; the page cache, which they can, is not counted.
            "ram_used_bytes": Reading(ram.total - ram.available),
            "ram_total_bytes": Reading(ram.total),
            "swap_used_bytes": Reading(psutil.swap_memory().used),
        }

    def temperatures() -> Mapping[str, Reading]:
        try:
            return dict(_zones(psutil.sensors_temperatures()))
        except (AttributeError, OSError):  # not on this system; a sensor that is going away
            return {}

    now: WindowKind = "instantaneous"
    documented: WindowBasis = "documented"
    readers = [
        Reader(
            source="host",
            name="processor load",
            # The load since the read before: the window is the time between two reads.
            channels=[
                Channel(name="cpu_busy_frac", window_kind="boxcar", window_basis=documented),
                Channel(name="cpu_online", window_kind=now, window_basis=documented),
            ],
            rate_hz=5,
            read=processor,
        ),
        Reader(
            source="host",
            name="memory",
            channels=[
                Channel(name=name, window_kind=now, window_basis=documented)
                for name in ("ram_used_bytes", "ram_total_bytes", "swap_used_bytes")
            ],
            rate_hz=2,
            read=memory,
        ),
    ]
    zones = list(temperatures())
    if not zones:
        reason = "the system shows no temperature"
        return Offer(
            readers=readers, absences=[Absence(signal="temp_c", source="host", reason=reason)]
        )
    readers.append(
        Reader(
            source="host",
            name="temperatures",
            channels=[Channel(name=name) for name in zones],
            rate_hz=1,
            read=temperatures,
        )
    )
    return Offer(readers=readers)


def _zones(chips: Mapping[str, list[object]]) -> Iterator[tuple[str, Reading]]:
    """``temp_c.<zone>`` and its reading; a second zone of one name is numbered. That of a Jetson's
    power chip (PMIC) is a constant, and left out."""
    seen: dict[str, int] = {}
    for chip, entries in chips.items():
        for entry in entries:
            zone = re.sub(r"[^a-z0-9]+", "_", (getattr(entry, "label", "") or chip).lower())
            if zone.startswith("pmic"):
                continue
            seen[zone] = seen.get(zone, 0) + 1
            name = f"temp_c.{zone}" if seen[zone] == 1 else f"temp_c.{zone}_{seen[zone]}"
            value = getattr(entry, "current", None)
            low, high = _PLAUSIBLE_DEG_C
            yield name, Reading(value if value is not None and low < value < high else None)
