"""EMC arithmetic, with figures worked out by hand."""

import pytest

from edgeprof.telemetry.emc import from_activity, from_busy


def test_an_orin_nano_at_eighty_per_cent() -> None:
    # 2133 MHz x 32 B = 68.256 GB/s; 1 706 400 kHz of 2 133 000 is 0.8; 0.8 x 68.256 = 54.6048.
    readings = from_activity(1_706_400, 2_133_000_000, 32, raw="1706400")
    assert readings["emc_busy_frac"].value == pytest.approx(0.8)
    assert readings["emc_clock_hz"].value == 2_133_000_000
    assert readings["dram_bandwidth_bytes_per_s"].value == pytest.approx(54.6048e9)
    assert readings["dram_bandwidth_bytes_per_s"].raw == "1706400"


def test_bytes_need_no_clock_where_clocks_are_counted() -> None:
    readings = from_activity(1_706_400, None, 32)
    assert readings["emc_busy_frac"].value is None
    assert readings["dram_bandwidth_bytes_per_s"].value == pytest.approx(54.6048e9)


def test_s40_a_percentage_is_of_the_running_clock() -> None:
    # 128 bit: 32 B a clock. 0.9 x 665 MHz x 32 = 19.152 GB/s; 0.3 x 2133 MHz x 32 = 20.4768 GB/s.
    low = from_busy(0.90, 665e6, 32)["dram_bandwidth_bytes_per_s"].value
    assert low == pytest.approx(19.152e9)
    high = from_busy(0.30, 2133e6, 32)["dram_bandwidth_bytes_per_s"].value
    assert high == pytest.approx(20.4768e9)


@pytest.mark.parametrize("clock_hz, bytes_per_clock", [(None, 32.0), (665e6, None)])
def test_no_clock_or_no_known_bus_gives_no_bytes(
    clock_hz: float | None, bytes_per_clock: float | None
) -> None:
    readings = from_busy(0.14, clock_hz, bytes_per_clock)
    assert readings["emc_busy_frac"].value == 0.14
    assert readings["dram_bandwidth_bytes_per_s"].value is None
    assert from_activity(5.0, 0.0, 32)["emc_busy_frac"].value is None
