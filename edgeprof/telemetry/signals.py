"""The signals of a board: one name and one unit, whatever the source."""

import re

UNITS = {
    "emc_busy_frac": "1",
    "emc_clock_hz": "Hz",
    "dram_bandwidth_bytes_per_s": "B/s",
    "gpu_busy_frac": "1",
    "gpu_clock_hz": "Hz",
    "cpu_busy_frac": "1",
    "cpu_clock_hz": "Hz",
    "cpu_online": "1",
    "ram_used_bytes": "B",
    "ram_total_bytes": "B",
    "swap_used_bytes": "B",
}
FAMILIES = {  # followed by a dot and the rail, zone, device or counter
    "power_w": "W",
    "temp_c": "deg C",
    "cooling_state": "1",
    "throttle_events": "1",
}
MODULE_SUM = "power_w.module_sum"

_TOTAL_RAILS = ("VDD_IN", "POM_5V_IN", "VIN")
_PARTS = re.compile(r"[-_ ]")


def unit_of(name: str) -> str:
    """The unit of a signal. Raises KeyError for a name that is not a signal's."""
    family, dot, member = name.partition(".")
    return FAMILIES[family] if dot and member else UNITS[name]


def rail_signal(rail: str) -> str | None:
    """The signal of a power rail by the name that the board gives it.

    None for what is no rail: an unconnected channel (NC), the sum of shunt voltages. A 5 V input
    of the carrier such as VIN_SYS_5V0 is a rail among others, not the total.
    """
    name = rail.strip()
    if name in _TOTAL_RAILS:
        return "power_w.total"
    if not re.fullmatch(r"\w{1,64}", name, re.ASCII) or name == "NC":
        return None
    return f"power_w.{name}"


def zone_signal(zone: str) -> str | None:
    """The signal of a thermal zone: ``cpu-thermal``, ``CPU-therm`` and ``CPU`` are one.

    None for the power chip's zone (PMIC), which is a constant on these boards.
    """
    name = _PARTS.split(zone.strip(), maxsplit=1)[0].lower()
    if not re.fullmatch(r"[a-z0-9]{1,64}", name) or name == "pmic":
        return None
    return f"temp_c.{name}"
