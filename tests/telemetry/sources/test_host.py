"""The host source on the machine at hand."""

from types import SimpleNamespace

import psutil
import pytest

from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.sources.host import open_host


def test_the_machine_at_hand_gives_plausible_values() -> None:
    readers = open_host().readers
    values = {n: reading.value for reader in readers for n, reading in reader.read().items()}
    assert values.keys() == {channel.name for reader in readers for channel in reader.channels}
    for name in values:
        unit_of(name)  # every one is a signal
    total, used = values["ram_total_bytes"], values["ram_used_bytes"]
    assert total == psutil.virtual_memory().total
    assert total is not None and used is not None and 0 < used < total
    busy = values["cpu_busy_frac"]
    assert busy is not None and 0 <= busy <= 1
    assert values["cpu_online"] == psutil.cpu_count()


def test_zones_are_named_apart_and_nonsense_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def zone(label: str, current: float | None) -> SimpleNamespace:
        return SimpleNamespace(label=label, current=current)

    chips = {
        "thermal-fan-est": [zone("", 41.5)],
        "coretemp": [zone("Core 0", 50.0), zone("Core 0", 51.0)],
        "tj": [zone("", -256.0)],
        "pmic_die": [zone("", 100.0)],
        "vrm": [zone("", None)],
    }
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: chips)
    readings = open_host().readers[-1].read()
    assert {name: reading.value for name, reading in readings.items()} == {
        "temp_c.thermal_fan_est": 41.5,
        "temp_c.core_0": 50.0,
        "temp_c.core_0_2": 51.0,
        "temp_c.tj": None,
        "temp_c.vrm": None,
    }


def test_counters_that_stand_still_are_no_idle_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = psutil.cpu_times()
    monkeypatch.setattr(psutil, "cpu_times", lambda: frozen)
    read = open_host().readers[0].read
    read()
    assert read()["cpu_busy_frac"].value is None
