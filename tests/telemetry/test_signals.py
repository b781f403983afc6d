"""Names and units of signals."""

import pytest

from edgeprof.telemetry.signals import rail_signal, unit_of, zone_signal


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
        ("cooling_state.pwm_fan", "1"),
        ("throttle_events.oc1", "1"),
    ],
)
def test_every_signal_has_one_unit(name: str, unit: str) -> None:
    assert unit_of(name) == unit


@pytest.mark.parametrize("name", ["power_w", "power_w.", "emc", "ram_used_bytes.x"])
def test_other_names_are_no_signals(name: str) -> None:
    with pytest.raises(KeyError):
        unit_of(name)


@pytest.mark.parametrize(
    ("rail", "signal"),
    [
        ("VDD_IN", "power_w.total"),
        ("POM_5V_IN", "power_w.total"),
        ("VIN", "power_w.total"),
        ("VIN_SYS_5V0", "power_w.VIN_SYS_5V0"),
        ("VDDQ_VDD2_1V8AO", "power_w.VDDQ_VDD2_1V8AO"),
        ("NC", None),
        ("", None),
        ("sum of shunt voltages", None),
    ],
)
def test_the_total_rail_is_told_from_the_others(rail: str, signal: str | None) -> None:
    assert rail_signal(rail) == signal


@pytest.mark.parametrize(
    ("zone", "signal"),
    [
        ("cpu-thermal", "temp_c.cpu"),
        ("CPU-therm", "temp_c.cpu"),
        ("CPU", "temp_c.cpu"),
        ("soc012-thermal", "temp_c.soc012"),
        ("Tboard_tegra", "temp_c.tboard"),
        ("thermal-fan-est", "temp_c.thermal"),
        ("PMIC-Die", None),
        ("\x1b[31m", None),
    ],
)
def test_zones_have_one_name_in_every_release(zone: str, signal: str | None) -> None:
    assert zone_signal(zone) == signal
