"""EMC activity and clock of every generation, with figures worked out by hand."""

from pathlib import Path

import pytest
from handmade_tree import absences, channels, link, put, readings, values

from edgeprof.telemetry.source import BoardFigures, Offer
from edgeprof.telemetry.sources.sysfs import open_sysfs

BUSY, CLOCK, BANDWIDTH = "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"
DEBUG = "/sys/kernel/debug"
CACTMON = f"{DEBUG}/cactmon/mc_all"
ACTMON = "/sys/kernel/actmon_avg_activity/mc_all"
BPMP_CLOCK = f"{DEBUG}/bpmp/debug/clk/emc/rate"
LAST_PERIOD = f"{DEBUG}/bpmp/debug/actmon/mc_all_last_prd_activity"
AVERAGE = f"{DEBUG}/bpmp/debug/actmon/mc_all_avg_activity"
COMPATIBLE = "/proc/device-tree/compatible"
ORIN = {COMPATIBLE: "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0"}
XAVIER = {COMPATIBLE: "nvidia,p3668-0000\0nvidia,tegra194\0"}


def offer_of(root: Path, bytes_per_clock: float | None = 32.0) -> Offer:
    return open_sysfs(BoardFigures(root=str(root), bytes_per_emc_clock=bytes_per_clock))


def test_orin_with_jetpack_6(tmp_path: Path) -> None:
    # 1 706 400 kHz of 2 133 000 kHz is 0.8; x 1000 x 32 B is 54.6048 GB/s.
    put(tmp_path, {CACTMON: "1706400", BPMP_CLOCK: "2133000000"})
    put(tmp_path, {f"{DEBUG}/cactmon/sample_period_usec": "1000"})
    offer = offer_of(tmp_path)
    assert values(offer)[BUSY] == pytest.approx(0.8)
    assert values(offer)[CLOCK] == 2_133_000_000
    assert values(offer)[BANDWIDTH] == pytest.approx(54.6048e9)
    told = channels(offer)
    assert told[BUSY].node == told[BANDWIDTH].node == CACTMON
    assert told[CLOCK].node == BPMP_CLOCK
    # Its exponent is unknown: no seconds; the kind is taken from the driver, not documented.
    assert (told[BUSY].window_kind, told[BUSY].window_s) == ("exponential", None)
    assert told[BUSY].window_basis == "assumed"
    assert "1 ms" in (told[BUSY].note or "")
    assert readings(offer)[BUSY].raw == "1706400"
    assert {BUSY, CLOCK, BANDWIDTH}.isdisjoint(absences(offer))


def test_a_counter_and_its_clock_are_read_together_at_20_hz(tmp_path: Path) -> None:
    put(tmp_path, {CACTMON: "1706400", BPMP_CLOCK: "2133000000"})
    (reader,) = (reader for reader in offer_of(tmp_path).readers if reader.name == "EMC activity")
    assert reader.rate_hz == 20
    assert {channel.name for channel in reader.channels} == {BUSY, CLOCK, BANDWIDTH}


@pytest.mark.parametrize(
    "clock_node, clock_hz, activity_khz, bytes_per_clock, busy, bandwidth",
    [
        # Xavier NX, and Orin with JetPack 5: half of 1600 MHz x 32 B.
        (BPMP_CLOCK, 1_600_000_000, 800_000, 32, 0.5, 25.6e9),
        # Nano: a quarter of 1600 MHz x 16 B.
        (f"{DEBUG}/clk/override.emc/clk_rate", 1_600_000_000, 400_000, 16, 0.25, 6.4e9),
        (f"{DEBUG}/clk/emc/clk_rate", 1_600_000_000, 400_000, 16, 0.25, 6.4e9),
        # AGX Xavier: 2133 MHz x 64 B in full.
        (BPMP_CLOCK, 2_133_000_000, 2_133_000, 64, 1.0, 136.512e9),
    ],
)
def test_boards_before_cactmon(
    tmp_path: Path,
    clock_node: str,
    clock_hz: int,
    activity_khz: int,
    bytes_per_clock: float,
    busy: float,
    bandwidth: float,
) -> None:
    put(tmp_path, {ACTMON: str(activity_khz), clock_node: str(clock_hz)})
    offer = offer_of(tmp_path, bytes_per_clock)
    assert values(offer)[BUSY] == pytest.approx(busy)
    assert values(offer)[BANDWIDTH] == pytest.approx(bandwidth)
    told = channels(offer)[BANDWIDTH]
    # 128 samples of 7 ms.
    assert told.window_s == pytest.approx(0.896)
    assert (told.window_kind, told.window_basis) == ("exponential", "assumed")
    assert channels(offer)[CLOCK].node == clock_node


def test_thor_tells_a_raw_number_and_no_share(tmp_path: Path) -> None:
    clock = "/sys/devices/platform/bwmgr/devfreq/bwmgr"
    put(tmp_path, {LAST_PERIOD: "68256000", AVERAGE: "1234", f"{clock}/cur_freq": "4266000000"})
    link(tmp_path, "/sys/class/devfreq/bwmgr", clock)
    offer = offer_of(tmp_path, 64.0)
    assert readings(offer)[BUSY][:2] == (None, "68256000")
    assert readings(offer)[BANDWIDTH][:2] == (None, "68256000")
    assert values(offer)[CLOCK] == 4_266_000_000
    told = channels(offer)[BANDWIDTH]
    assert (told.window_s, told.window_kind, told.window_basis) == (0.020, "boxcar", "assumed")
    assert "undocumented scale" in (told.note or "")
    for signal in (BUSY, BANDWIDTH):
        assert "must be calibrated on this board" in absences(offer)[signal].reason
    assert CLOCK not in absences(offer)


def test_the_firmwares_average_is_the_last_resort(tmp_path: Path) -> None:
    offer = offer_of(put(tmp_path, {AVERAGE: "1234", BPMP_CLOCK: "3199000000"}))
    assert readings(offer)[BUSY][:2] == (None, "1234")
    assert channels(offer)[BUSY].window_kind == "unknown"
    assert channels(offer)[BUSY].window_s is None


def test_a_counter_in_khz_goes_before_one_without_scale(tmp_path: Path) -> None:
    put(tmp_path, {CACTMON: "319900", LAST_PERIOD: "9", AVERAGE: "9", BPMP_CLOCK: "3199000000"})
    offer = offer_of(tmp_path)
    assert channels(offer)[BUSY].node == CACTMON
    assert values(offer)[BUSY] == pytest.approx(0.1)


@pytest.mark.parametrize("clock", ["0", "1", "1000000", "-1", "", "unknown"])
def test_a_clock_that_the_firmware_does_not_know_is_unknown(tmp_path: Path, clock: str) -> None:
    offer = offer_of(put(tmp_path, {CACTMON: "1706400", BPMP_CLOCK: clock}))
    now = readings(offer)
    assert now[CLOCK].value is None
    assert now[BUSY].value is None
    assert now[BANDWIDTH].value == pytest.approx(54.6048e9)  # busy clocks need no clock


def test_a_measured_zero_is_zero(tmp_path: Path) -> None:
    offer = offer_of(put(tmp_path, {CACTMON: "0", BPMP_CLOCK: "2133000000"}))
    assert values(offer)[BUSY] == 0
    assert values(offer)[BANDWIDTH] == 0


def test_s40_the_share_is_of_the_running_clock(tmp_path: Path) -> None:
    # 0.9 of 665 MHz is 598 500 kHz, x 32 B = 19.152 GB/s; 0.3 of 2133 MHz is 639 900, 20.4768 GB/s.
    offer = offer_of(put(tmp_path, {CACTMON: "598500", BPMP_CLOCK: "665000000"}))
    assert values(offer)[BUSY] == pytest.approx(0.9)
    assert values(offer)[BANDWIDTH] == pytest.approx(19.152e9)
    put(tmp_path, {CACTMON: "639900", BPMP_CLOCK: "2133000000"})
    assert values(offer)[BUSY] == pytest.approx(0.3)
    assert values(offer)[BANDWIDTH] == pytest.approx(20.4768e9)


def test_without_a_clock_bytes_are_told_and_the_share_is_not(tmp_path: Path) -> None:
    offer = offer_of(put(tmp_path, {ACTMON: "800000", **XAVIER, f"{DEBUG}/x": ""}))
    assert values(offer)[BANDWIDTH] == pytest.approx(25.6e9)
    assert {BUSY, CLOCK}.isdisjoint(channels(offer))
    missing = absences(offer)
    assert missing[CLOCK].reason == "there is no EMC clock among the files of this board"
    assert missing[BUSY].reason.startswith("busy is a share of the running clock")


def test_an_unknown_bus_gives_a_share_and_no_bytes(tmp_path: Path) -> None:
    put(tmp_path, {CACTMON: "1706400", BPMP_CLOCK: "2133000000"})
    offer = offer_of(tmp_path, None)
    assert values(offer)[BUSY] == pytest.approx(0.8)
    assert BANDWIDTH not in channels(offer)
    missing = absences(offer)[BANDWIDTH]
    assert missing.reason == "the bus width of this board is not known"
    assert "--device" in (missing.fix or "")


def test_a_clock_alone_is_told_by_itself(tmp_path: Path) -> None:
    offer = offer_of(put(tmp_path, {BPMP_CLOCK: "2133000000", **ORIN}))
    assert [reader.name for reader in offer.readers] == ["EMC clock"]
    assert values(offer) == {CLOCK: 2_133_000_000}
    for signal in (BUSY, BANDWIDTH):
        assert absences(offer)[signal].reason.endswith(
            "the kernel module tegra_cactmon_mc_all is not loaded"
        )
        assert absences(offer)[signal].fix == "sudo modprobe tegra_cactmon_mc_all"


@pytest.mark.parametrize("extra", [{}, {f"{DEBUG}": None}])
def test_debugfs_that_is_not_mounted_is_named(tmp_path: Path, extra: dict[str, None]) -> None:
    put(tmp_path, ORIN)
    for folder in extra:
        (tmp_path / folder[1:]).mkdir(parents=True)
    for signal in (BUSY, CLOCK, BANDWIDTH):
        missing = absences(offer_of(tmp_path))[signal]
        assert missing.reason.endswith("debugfs is not mounted")
        assert missing.fix == "sudo mount -t debugfs debugfs /sys/kernel/debug"


def test_a_container_without_device_tree_is_known_by_its_chip(tmp_path: Path) -> None:
    put(tmp_path, {"/sys/devices/soc0/family": "Tegra"})
    assert absences(offer_of(tmp_path))[BUSY].reason.endswith("debugfs is not mounted")


def test_a_machine_that_is_no_tegra_is_told_no_remedy(tmp_path: Path) -> None:
    put(tmp_path, {COMPATIBLE: "raspberrypi,5-model-b\0brcm,bcm2712\0", f"{DEBUG}/x": ""})
    put(tmp_path, {"/sys/devices/soc0/family": "Samsung Exynos"})
    for signal in (BUSY, CLOCK, BANDWIDTH):
        missing = absences(offer_of(tmp_path))[signal]
        assert missing.reason.startswith("this machine has no EMC")
        assert missing.fix is None
