"""The signals of a board: one name and one unit, whatever the source."""

UNITS = {
    "emc_busy_frac": "1",
    "emc_clock_hz": "Hz",
    "dram_bandwidth_bytes_per_s": "B/s",
    "gpu_busy_frac": "1",
    "gpu_clock_hz": "Hz",
    "cpu_busy_frac": "1",
    "cpu_online": "1",
    "ram_used_bytes": "B",
    "ram_total_bytes": "B",
    "swap_used_bytes": "B",
}
FAMILIES = {"power_w": "W", "temp_c": "deg C"}  # followed by a dot and the rail or zone


def unit_of(name: str) -> str:
    """The unit of a signal. Raises KeyError for a name that is not a signal's."""
    family, dot, member = name.partition(".")
    return FAMILIES[family] if dot and member else UNITS[name]
