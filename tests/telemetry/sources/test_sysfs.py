"""The files of a whole board: temperatures, processor, memory, faults, and who may read them."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import psutil
import pytest
from emulated.boards import BOARDS
from emulated.tree import build
from handmade_tree import absences, channels, put, readings, values
from msgspec import Struct

import edgeprof
from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.source import BoardFigures, Offer
from edgeprof.telemetry.sources.sysfs import open_sysfs

THERMAL, HWMON = "/sys/class/thermal", "/sys/class/hwmon"


def offer_of(root: Path) -> Offer:
    return open_sysfs(BoardFigures(root=str(root)))


# Temperatures, cooling, counters


def put_zones(root: Path, *zones: tuple[str, str]) -> None:
    for number, (kind, temperature) in enumerate(zones):
        zone = f"{THERMAL}/thermal_zone{number}"
        put(root, {f"{zone}/type": kind, f"{zone}/temp": temperature})


def test_zones_of_every_spelling(tmp_path: Path) -> None:
    put_zones(tmp_path, ("cpu-thermal", "48500"), ("GPU-therm", "37500"), ("tj-thermal", "-5250"))
    offer = offer_of(tmp_path)
    assert values(offer) == {"temp_c.cpu": 48.5, "temp_c.gpu": 37.5, "temp_c.tj": -5.25}
    assert channels(offer)["temp_c.cpu"].node == f"{THERMAL}/thermal_zone0/temp"
    assert readings(offer)["temp_c.cpu"].raw == "48500"
    assert [reader.rate_hz for reader in offer.readers] == [1]


def test_a_part_that_is_off_has_no_temperature(tmp_path: Path) -> None:
    put_zones(tmp_path, ("cpu-thermal", "48500"), ("cv0-thermal", ""), ("cv1-thermal", "-256000"))
    offer = offer_of(tmp_path)
    assert values(offer) == {"temp_c.cpu": 48.5}
    assert readings(offer)["temp_c.cv0"].value is None
    assert readings(offer)["temp_c.cv1"][:2] == (None, "-256000")


def test_zones_of_one_name_are_numbered_in_the_boards_order(tmp_path: Path) -> None:
    put_zones(tmp_path, *((f"soc-{number}", f"{number}000") for number in range(12)))
    named = values(offer_of(tmp_path))
    assert named["temp_c.soc"] == 0
    assert named["temp_c.soc_2"] == 1
    assert named["temp_c.soc_12"] == 11


def test_the_power_chips_constant_and_nameless_zones_are_left_out(tmp_path: Path) -> None:
    put_zones(tmp_path, ("PMIC-Die", "100000"), ("", "1000"), ("\x1b[2J", "1000"), ("tj", "1000"))
    assert set(channels(offer_of(tmp_path))) == {"temp_c.tj"}


def test_cooling_devices_by_type(tmp_path: Path) -> None:
    for number, (kind, state) in enumerate(
        [("pwm-fan", "2"), ("17000000.gpu", "0"), ("cpu throttle\x07", "1"), ("pwm-fan", "3")]
    ):
        device = f"{THERMAL}/cooling_device{number}"
        put(tmp_path, {f"{device}/type": kind, f"{device}/cur_state": state})
    assert values(offer_of(tmp_path)) == {
        "cooling_state.pwm-fan": 2,
        "cooling_state.17000000.gpu": 0,
        "cooling_state.cpu_throttle_": 1,
        "cooling_state.pwm-fan_2": 3,
    }


def test_over_current_counters(tmp_path: Path) -> None:
    put(tmp_path, {f"{HWMON}/hwmon0/name": "pwmfan", f"{HWMON}/hwmon3/name": "soctherm_oc"})
    put(tmp_path, {f"{HWMON}/hwmon3/oc1_event_cnt": "0", f"{HWMON}/hwmon3/oc3_event_cnt": "37"})
    put(tmp_path, {f"{HWMON}/hwmon3/oc1_throt_en": "1"})
    offer = offer_of(tmp_path)
    assert values(offer) == {"throttle_events.oc1": 0, "throttle_events.oc3": 37}
    put(tmp_path, {f"{HWMON}/hwmon3/oc3_event_cnt": "38"})
    assert values(offer)["throttle_events.oc3"] == 38


# Processor and memory


def put_stat(root: Path, **cores: str) -> None:
    lines = [f"{core} {ticks}" for core, ticks in cores.items()]
    put(root, {"/proc/stat": "\n".join(["cpu  9 9 9 9 9 9 9 9 9 9", *lines, "intr 1 2 3"])})


def test_s14_the_load_is_the_mean_over_cores_that_are_on(tmp_path: Path) -> None:
    # user nice system idle iowait irq softirq steal guest guest_nice
    put_stat(tmp_path, cpu0="0 0 0 0 0 0 0 0 0 0", cpu1="50 0 0 50 0 0 0 0 0 0")
    offer = offer_of(tmp_path)
    assert readings(offer)["cpu_busy_frac"].value is None  # it takes two readings
    assert readings(offer)["cpu_online"].value == 2
    # cpu0: 10 + 5 + 5 + 2 + 2 + 1 = 25 of 100, guest being part of user; cpu1: 75 of 100.
    put_stat(tmp_path, cpu0="10 5 5 70 5 2 2 1 9 0", cpu1="125 0 0 75 0 0 0 0 0 0")
    assert readings(offer)["cpu_busy_frac"].value == pytest.approx(0.5)


def test_s14_a_core_that_goes_off_or_comes_back_costs_one_reading_of_its_own(
    tmp_path: Path,
) -> None:
    put_stat(tmp_path, cpu0="0 0 0 0 0", cpu1="0 0 0 0 0", cpu10="0 0 0 0 0")
    offer = offer_of(tmp_path)
    readings(offer)
    put_stat(tmp_path, cpu0="20 0 0 80 0", cpu10="40 0 0 60 0")
    now = readings(offer)
    assert now["cpu_busy_frac"].value == pytest.approx(0.3)
    assert now["cpu_online"].value == 2
    put_stat(tmp_path, cpu0="30 0 0 170 0", cpu1="900 0 0 0 0", cpu10="50 0 0 150 0")
    now = readings(offer)
    assert now["cpu_busy_frac"].value == pytest.approx(0.1)
    assert now["cpu_online"].value == 3


def put_clocks(root: Path, **khz: int) -> None:
    cpu = "/sys/devices/system/cpu"
    put(root, {f"{cpu}/{core}/cpufreq/scaling_cur_freq": f"{n}\n" for core, n in khz.items()})


def test_the_processors_clock_is_the_highest_of_the_cores(tmp_path: Path) -> None:
    put_stat(tmp_path, cpu0="0 0 0 0 0", cpu1="0 0 0 0 0", cpu12="0 0 0 0 0")
    put_clocks(tmp_path, cpu0=729_600, cpu1=1_510_400, cpu12=1_200_000)
    offer = offer_of(tmp_path)
    assert readings(offer)["cpu_clock_hz"].value == 1_510_400_000
    put_clocks(tmp_path, cpu1=115_200)
    assert readings(offer)["cpu_clock_hz"].value == 1_200_000_000


def test_processors_without_a_clock_say_so(tmp_path: Path) -> None:
    put_stat(tmp_path, cpu0="0 0 0 0 0")
    offer = offer_of(tmp_path)
    assert "cpu_clock_hz" not in readings(offer)
    (told,) = [one for one in offer.absences if one.signal == "cpu_clock_hz"]
    assert told.reason == "the kernel shows no clock of the processors"


def test_idle_ticks_that_are_counted_back_give_no_share(tmp_path: Path) -> None:
    put_stat(tmp_path, cpu0="0 0 0 100 50", cpu1="0 0 0 0 0")
    offer = offer_of(tmp_path)
    readings(offer)
    put_stat(tmp_path, cpu0="40 0 0 110 20", cpu1="60 0 0 40 0")
    assert readings(offer)["cpu_busy_frac"].value == pytest.approx(0.6)
    put_stat(tmp_path, cpu0="40 0 0 110 20", cpu1="60 0 0 40 0")
    assert readings(offer)["cpu_busy_frac"].value is None  # no tick since


def test_columns_of_the_processor_file_may_be_padded(tmp_path: Path) -> None:
    put_stat(tmp_path, cpu0="     0  0 0      0 0   ", cpu1="0 0 0 0 none", cpu2="0 0 0 0")
    offer = offer_of(tmp_path)
    assert readings(offer)["cpu_online"].value == 1
    put_stat(tmp_path, cpu0="    25  0 0     75 0   ")
    assert readings(offer)["cpu_busy_frac"].value == pytest.approx(0.25)


def test_a_processor_file_of_many_cores_is_read_whole(tmp_path: Path) -> None:
    put_stat(tmp_path, **{f"cpu{number}": "1234567 0 234567 98765432 0" for number in range(256)})
    assert values(offer_of(tmp_path))["cpu_online"] == 256


def test_memory_is_what_programs_cannot_have(tmp_path: Path) -> None:
    put(tmp_path, {"/proc/meminfo": MEMINFO})
    offer = offer_of(tmp_path)
    assert values(offer) == {
        "ram_used_bytes": 3_120_000 * 1024,
        "ram_total_bytes": 7_800_000 * 1024,
        "swap_used_bytes": 900_000 * 1024,
    }
    put(tmp_path, {"/proc/meminfo": MEMINFO.replace("MemAvailable", "MemSomething")})
    assert set(values(offer)) == {"ram_total_bytes", "swap_used_bytes"}
    put(tmp_path, {"/proc/meminfo": ""})
    assert values(offer) == {}


MEMINFO = """MemTotal:        7800000 kB
MemFree:          300000 kB
MemAvailable:    4680000 kB
SwapCached:        10000 kB
SwapTotal:       3900000 kB
SwapFree:        3000000 kB"""


# Whole boards

BOARD = {
    "/proc/device-tree/compatible": "nvidia,p3767-0005\0nvidia,tegra234\0",
    "/proc/meminfo": MEMINFO,
    "/proc/stat": "cpu  1 1 1 1 1\ncpu0 1 1 1 1 1",
    "/sys/kernel/debug/cactmon/mc_all": "1706400",
    "/sys/kernel/debug/cactmon/sample_period_usec": "1000",
    "/sys/kernel/debug/bpmp/debug/clk/emc/rate": "2133000000",
    "/sys/class/devfreq/17000000.gpu/cur_freq": "306000000",
    "/sys/class/devfreq/17000000.gpu/device/load": "553",
    "/sys/class/hwmon/hwmon3/name": "ina3221",
    "/sys/class/hwmon/hwmon3/in1_label": "VDD_IN",
    "/sys/class/hwmon/hwmon3/in1_input": "5000",
    "/sys/class/hwmon/hwmon3/curr1_input": "1000",
    "/sys/class/hwmon/hwmon4/oc1_event_cnt": "2",
    "/sys/class/thermal/thermal_zone0/type": "cpu-thermal",
    "/sys/class/thermal/thermal_zone0/temp": "48500",
    "/sys/class/thermal/cooling_device0/type": "pwm-fan",
    "/sys/class/thermal/cooling_device0/cur_state": "1",
}


def board_of(root: Path) -> BoardFigures:
    return BoardFigures(root=str(root), bytes_per_emc_clock=32.0)


def test_every_signal_has_a_unit_and_every_reading_is_marked_simulated(tmp_path: Path) -> None:
    offer = open_sysfs(board_of(put(tmp_path, BOARD)))
    assert len(channels(offer)) == sum(len(reader.channels) for reader in offer.readers) == 14
    for reader in offer.readers:
        now = reader.read()
        for channel in reader.channels:
            unit_of(channel.name)  # raises for what is no signal
            assert now[channel.name].quality == "simulated"
    for path in BOARD:
        (tmp_path / path[1:]).unlink()
    for name in channels(offer):
        assert readings(offer)[name].quality == "simulated"


def test_this_machine_is_not_simulated() -> None:
    offer = open_sysfs(BoardFigures())
    now = readings(offer)
    assert {reading.quality for reading in now.values()} == {"ok"}
    assert now["ram_total_bytes"].value == psutil.virtual_memory().total
    assert now["cpu_online"].value == psutil.cpu_count()
    assert channels(offer)["cpu_busy_frac"].window_kind == "boxcar"


def test_a_machine_without_sensors_is_no_error(tmp_path: Path) -> None:
    offer = offer_of(put(tmp_path, {"/proc/stat": BOARD["/proc/stat"], "/proc/meminfo": MEMINFO}))
    assert [reader.name for reader in offer.readers] == ["processor load", "memory"]
    assert set(absences(offer)) == {
        "emc_busy_frac",
        "dram_bandwidth_bytes_per_s",
        "emc_clock_hz",
        "gpu_busy_frac",
        "gpu_clock_hz",
        "cpu_clock_hz",
        "power_w",
        "temp_c",
        "cooling_state",
        "throttle_events",
    }
    assert not any(absence.fix for absence in offer.absences)


def test_an_empty_root_offers_nothing_and_says_so(tmp_path: Path) -> None:
    offer = offer_of(tmp_path / "none")
    assert list(offer.readers) == []
    assert "ram_used_bytes" in absences(offer)
    assert absences(offer)["cpu_busy_frac"].reason == "no /proc/stat"


@pytest.mark.parametrize("fault", ["removed", "emptied", "nonsense", "folder"])
def test_a_node_that_fails_in_a_run_costs_its_own_signal_only(tmp_path: Path, fault: str) -> None:
    offer = open_sysfs(board_of(put(tmp_path, BOARD)))
    before = values(offer)
    assert before["gpu_busy_frac"] == 0.553
    for path in (
        "/sys/class/devfreq/17000000.gpu/device/load",
        "/sys/class/hwmon/hwmon3/in1_input",
    ):
        file = tmp_path / path[1:]
        if fault in ("removed", "folder"):
            file.unlink()
        if fault == "folder":
            file.mkdir()
        if fault in ("emptied", "nonsense"):
            file.write_text("" if fault == "emptied" else "\x1b[2J\0none")
    lost = ("gpu_busy_frac", "power_w.total")
    assert values(offer) == {name: v for name, v in before.items() if name not in lost}


# Who may read debugfs

NOBODY = 65534
EMC = {"emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"}
# Imports first: the interpreter may lie where the other user cannot go. Lent descriptors come as
# PATH=NUMBER behind the root.
AS_ANOTHER_USER = f"""
import encodings.utf_8_sig, json, os, sys
from edgeprof.telemetry.source import BoardFigures
from edgeprof.telemetry.sources.sysfs import open_sysfs

if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
times_asked = 0

def inode(descriptor):
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None

pairs = (argument.split("=") for argument in sys.argv[2:])
lent = {{path: int(number) for path, number in pairs}}
inodes = {{path: inode(descriptor) for path, descriptor in lent.items()}}

def lend():
    global times_asked
    times_asked += 1
    return lent

offer = open_sysfs(BoardFigures(root=sys.argv[1], bytes_per_emc_clock=32.0), lend)
now = [reading for reader in offer.readers for reading in reader.read().items()]
print(json.dumps({{
    "times_asked": times_asked,
    "kept": [path for path, descriptor in lent.items() if inode(descriptor) == inodes[path]],
    "values": {{name: reading.value for name, reading in now}},
    "absences": {{a.signal: (a.reason, a.fix) for a in offer.absences}},
}}))
"""


class Seen(Struct):
    """What a user sees who may not enter debugfs."""

    times_asked: int
    kept: list[str]
    values: dict[str, float | None]
    absences: dict[str, tuple[str, str | None]]


@pytest.fixture
def guarded_board() -> Iterator[Path]:
    """A board whose debugfs is its owner's alone, in a folder that everybody can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        root = put(Path(folder), BOARD)
        yield root
        os.chmod(root / "sys/kernel/debug", 0o700)


def seen_without_rights(root: Path, lent: Mapping[str, int]) -> Seen:
    """By nobody, or by whoever runs the tests where that is not root."""
    (root / "sys/kernel/debug").chmod(0o700 if os.geteuid() == 0 else 0)
    child = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, str(root)]
        + [f"{path}={number}" for path, number in lent.items()],
        pass_fds=tuple(lent.values()),
        env={**os.environ, "PYTHONPATH": str(Path(edgeprof.__file__).parents[1])},
        capture_output=True,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr.decode()
    return msgspec.json.decode(child.stdout, type=Seen)


def test_without_root_and_sensor_the_remedy_is_named(guarded_board: Path) -> None:
    seen = seen_without_rights(guarded_board, {})
    assert seen.times_asked == 1
    assert EMC.isdisjoint(seen.values)
    assert seen.values["gpu_busy_frac"] == 0.553
    assert set(seen.absences) >= EMC
    for signal in EMC:
        reason, fix = seen.absences[signal]
        assert reason.startswith("only root can open the EMC")
        assert fix == "edgeprof sensor (it prints the sudo command)"


def test_without_root_what_the_sensor_lends_is_read(guarded_board: Path) -> None:
    debug = "/sys/kernel/debug"
    read = [f"{debug}/cactmon/mc_all", f"{debug}/bpmp/debug/clk/emc/rate"]
    read_once, not_read = (
        f"{debug}/cactmon/sample_period_usec",
        f"{debug}/bpmp/debug/clk/emc/max_rate",
    )
    put(guarded_board, {not_read: "3199000000"})
    lent = {
        path: os.open(guarded_board / path[1:], os.O_RDONLY)
        for path in (*read, read_once, not_read)
    }
    try:
        seen = seen_without_rights(guarded_board, lent)
    finally:
        for number in lent.values():
            os.close(number)
    assert seen.times_asked == 1
    assert seen.values["emc_busy_frac"] == pytest.approx(0.8)
    assert seen.values["dram_bandwidth_bytes_per_s"] == pytest.approx(54.6048e9)
    assert EMC.isdisjoint(seen.absences)
    assert seen.kept == read


def test_a_sensor_without_the_counter_is_not_asked_for_again(guarded_board: Path) -> None:
    clock = "/sys/kernel/debug/bpmp/debug/clk/emc/rate"
    number = os.open(guarded_board / clock[1:], os.O_RDONLY)
    try:
        seen = seen_without_rights(guarded_board, {clock: number})
    finally:
        os.close(number)
    assert seen.values["emc_clock_hz"] == 2_133_000_000
    reason, fix = seen.absences["emc_busy_frac"]
    assert reason.endswith("the kernel module tegra_cactmon_mc_all is not loaded")
    assert fix == "sudo modprobe tegra_cactmon_mc_all"


@pytest.mark.parametrize("board", list(BOARDS))
def test_every_window_that_is_stated_is_stated_on_some_ground(tmp_path: Path, board: str) -> None:
    build(tmp_path, board)
    told = channels(offer_of(tmp_path))
    assert {"cpu_busy_frac", "ram_used_bytes", "gpu_clock_hz"} <= told.keys()
    for channel in told.values():
        assert (channel.window_basis is None) == (channel.window_kind == "unknown"), channel.name
    # /proc/stat counts ticks since the start: a difference of two reads is of the time between.
    busy = told["cpu_busy_frac"]
    assert (busy.window_kind, busy.window_basis) == ("boxcar", "documented")
