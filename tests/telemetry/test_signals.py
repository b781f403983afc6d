"""Names and units of signals."""

import pytest

from edgeprof.telemetry.signals import unit_of


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("emc_busy_frac", "1"),
        ("emc_clock_hz", "Hz"),
        ("gpu_busy_frac", "1"),
        ("gpu_clock_hz", "Hz"),
        ("cpu_busy_frac", "1"),
        ("cpu_online", "1"),
        ("dram_bandwidth_bytes_per_s", "B/s"),
        ("ram_used_bytes", "B"),
        ("ram_total_bytes", "B"),
        ("swap_used_bytes", "B"),
        ("power_w.total", "W"),
        ("temp_c.gpu", "deg C"),
    ],
)
def test_every_signal_has_one_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize("name", ["power_w", "power_w.", "emc", "ram_used_bytes.x"])
def test_other_names_are_no_signals(name: str) -> None:
    with pytest.raises(KeyError):
        unit_of(name)
