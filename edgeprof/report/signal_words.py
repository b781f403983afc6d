"""Signals as people say and write them: names, units, digits. Needs no numpy."""

from typing import NamedTuple


class Scale(NamedTuple):
    """From an SI unit to the one that people use: factor, its name, digits after the point."""

    factor: float
    unit: str
    digits: int


_NONE = "-"
_LABELS = {
    "dram_bandwidth_bytes_per_s": "DRAM bandwidth",
    "emc_busy_frac": "EMC busy",
    "emc_clock_hz": "EMC clock",
    "gpu_busy_frac": "GPU busy",
    "gpu_clock_hz": "GPU clock",
    "cpu_busy_frac": "CPU busy",
    "cpu_clock_hz": "CPU clock",
    "cpu_online": "CPU cores on",
    "ram_used_bytes": "memory used",
    "ram_total_bytes": "memory in all",
    "swap_used_bytes": "swap used",
}
_FAMILIES = {
    "power_w": "power",
    "temp_c": "temperature",
    "cooling_state": "cooling",
    "throttle_events": "throttling",
}
# The end of a signal's name, its member apart -> how people write its values.
_SCALES = {
    "_frac": Scale(100.0, "%", 0),
    "_bytes_per_s": Scale(1e-9, "GB/s", 1),
    "_hz": Scale(1e-6, "MHz", 0),
    "_bytes": Scale(2.0**-30, "GiB", 2),
    "power_w": Scale(1.0, "W", 2),
    "temp_c": Scale(1.0, "°C", 1),
}


def label(name: str) -> str:
    """``temp_c.gpu`` as people say it."""
    family, _, member = name.partition(".")
    return _LABELS.get(name) or f"{_FAMILIES.get(family, family)} {member}".strip()


def label_absent(signal: str, source: str | None) -> str:
    """What is absent: a signal, or all that a source has, which is called by the source's name."""
    return source if source is not None and signal in ("*", source) else label(signal)


def scale(name: str) -> Scale:
    """The unit that people use for a signal; one that is not known stays as it is."""
    family = name.partition(".")[0]
    return next((unit for end, unit in _SCALES.items() if family.endswith(end)), Scale(1.0, "", -1))


def shown(name: str, value: float | None) -> str:
    """A value of a signal in the unit that people use for it."""
    if value is None:
        return _NONE
    factor, unit, digits = scale(name)
    return f"{factor * value:.{digits}f} {unit}" if unit else f"{value:.4g}"
