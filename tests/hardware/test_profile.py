"""Board profiles: those shipped are complete and sourced, peaks follow, errors name the place."""

import csv
from pathlib import Path

import pytest

from edgeprof.catalog import DEVICES_FOLDER, device_names, find_board, find_device
from edgeprof.errors import EdgeprofError, FileFault, UsageFault
from edgeprof.hardware.profile import (
    AnnouncedBoard,
    DeviceProfile,
    Gpu,
    load_board,
    load_profile,
)

# Clocks, peaks in GB/s and dense TFLOPS or TOPS of public tables, a row a board and mode.
FIGURES = Path(__file__).parent.parent / "data" / "board_figures.csv"


@pytest.mark.parametrize("name", device_names())
def test_every_shipped_profile_loads_and_is_sourced(name: str) -> None:
    profile = load_board(DEVICES_FOLDER / f"{name}.toml")
    assert profile.source and profile.status
    if isinstance(profile, AnnouncedBoard):
        return
    assert profile.gpu is None or profile.gpu.rates_source
    for mode in profile.modes:
        assert mode.emc_mhz <= profile.dram.emc_max_mhz
        peak = profile.peak_bandwidth_bytes_per_s(mode)
        sustained = profile.sustained_bandwidth_bytes_per_s(mode)
        assert sustained is None or 0.5 * peak < sustained < peak
    assert profile.visible_dram_bytes < profile.dram_bytes


def test_the_families_are_complete() -> None:
    boards = [load_board(DEVICES_FOLDER / f"{name}.toml") for name in device_names()]
    profiles = [board for board in boards if isinstance(board, DeviceProfile)]
    assert (len(boards), len(profiles)) == (26, 24)  # two are only announced
    # Orin Nano 2+4+3+3, Orin NX 4+5+4+5, AGX Orin 4+4+1, Thor 4+1, Xavier NX 2x9, AGX 3x8+1,
    # Nano 2, TX2 and TX2 NX 4 each, DGX Spark and Raspberry Pi 1 each
    assert sum(len(profile.modes) for profile in profiles) == 12 + 18 + 9 + 5 + 18 + 25 + 12


def rows_of_public_figures() -> list[dict[str, str]]:
    with FIGURES.open(newline="") as file:
        return list(csv.DictReader(file))


def number(text: str) -> float | None:
    return float(text) if text else None


@pytest.mark.parametrize(
    "row", rows_of_public_figures(), ids=lambda r: f"{r['device']}@{r['mode']}"
)
def test_every_row_of_the_public_table(row: dict[str, str]) -> None:
    board = find_board(row["device"])
    if isinstance(board, AnnouncedBoard):
        assert row["peak_gb_per_s"] == row["fp16_tflops"] == row["mode"] == ""
        return
    mode = board.mode(row["mode"])
    assert mode.name == row["mode"]
    assert (board.default_mode == mode.name) == (row["default"] == "1" or len(board.modes) == 1)
    assert (mode.emc_mhz, board.dram.bus_width_bits, board.dram.size_gib) == (
        float(row["emc_mhz"]),
        int(row["bus_width_bits"]),
        float(row["dram_gib"]),
    )
    assert (mode.sms, mode.gpu_mhz) == (number(row["sms"]), number(row["gpu_mhz"]))
    peak, rates = board.peak_bandwidth_bytes_per_s(mode), board.peak_flop_per_s(mode)
    assert peak / 1e9 == pytest.approx(float(row["peak_gb_per_s"]), abs=0.0051)
    for data_type, column in (("fp16", "fp16_tflops"), ("int8", "int8_tops")):
        rate = rates.get(data_type)
        tera = None if rate is None else rate / 1e12
        assert tera == (
            None if row[column] == "" else pytest.approx(float(row[column]), abs=0.0051)
        )


def test_an_announced_board_has_no_profile() -> None:
    with pytest.raises(EdgeprofError, match=r"T3000 .*not published: memory size") as caught:
        find_device("thor-t3000")
    assert caught.value.exit_code == 1


def test_an_announced_board_is_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "thor-t3000.toml"
    text = (DEVICES_FOLDER / "thor-t3000.toml").read_text()
    path.write_text(text.replace("soc =", "sok ="))
    with pytest.raises(FileFault, match="unknown key 'sok'; did you mean 'soc'"):
        load_board(path)


def test_either_half_names_a_mode_with_a_slash() -> None:
    assert find_device("nano@MAXN").mode.name == "MAXN/10W"
    assert find_device("nano@10w").mode.name == "MAXN/10W"
    assert find_device("nano@maxn/10w").mode.name == "MAXN/10W"


def test_the_formula_by_hand() -> None:
    device = find_device("orin-nano-8gb@15W")
    # 2133 MHz x 2 transfers x 128 bit / 8
    assert device.profile.peak_bandwidth_bytes_per_s(device.mode) == 2133e6 * 2 * 16
    # 8 SMs x 624.75 MHz x 2048
    assert device.profile.peak_flop_per_s(device.mode)["fp16"] == 8 * 624.75e6 * 2048
    # 0.85 of 68.256 GB/s
    assert device.profile.sustained_bandwidth_bytes_per_s(device.mode) == pytest.approx(58.0176e9)
    assert device.profile.visible_dram_bytes == 7620 * 2**20


def gpu_of(name: str) -> Gpu:
    gpu = find_device(name).profile.gpu
    assert gpu is not None
    return gpu


def test_what_is_not_known_is_none() -> None:
    thor = find_device("thor@90W")
    assert thor.profile.peak_flop_per_s(thor.mode)["fp16"] is None
    assert "fp8" not in gpu_of("orin-nano").flop_per_clock_per_sm
    assert "bf16" not in gpu_of("xavier-nx-8").flop_per_clock_per_sm
    assert "int8" not in gpu_of("nano").flop_per_clock_per_sm
    pi = find_device("rpi5")
    assert pi.profile.peak_flop_per_s(pi.mode) == {}
    nano = find_device("orin-nano-4gb")
    assert nano.profile.sustained_bandwidth_bytes_per_s(nano.mode) is None


def test_modes_by_name_in_any_spelling_never_by_id() -> None:
    profile = find_device("agx-orin").profile
    for spelling in ("MODE_30W", "mode-30w", "30W"):
        assert profile.mode(spelling).name == "MODE_30W"
    with pytest.raises(UsageFault, match="no power mode"):
        profile.mode("0")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("emc_mhz = 2133", "emc_mz = 2133", "unknown key 'emc_mz' in mode[0]; did you mean 'emc_"),
        ("bus_width_bits = 128", "bus_width_bits = 0", "`dram.bus_width_bits`"),
        ("fraction = 0.85", "fraction = 0.99", "low <= fraction <= high"),
        ("sms = 8\ngpu_mhz", "sms = 9\ngpu_mhz", "9 SMs on of 8"),
        ('default_mode = "15W"', 'default_mode = "16W"', "default_mode '16W' is not among"),
        ("emc_mhz = 2133\n", "emc_mhz = 2134\n", "above dram.emc_max_mhz 2133"),
        ('name = "7W"', 'name = "15w"', "two modes have the same name"),
        ("emc_mhz = 2133\n", "emc_mhz = nan\n", "emc_mhz"),
        ("emc_mhz = 2133\n", "emc_mhz = inf\n", "emc_mhz"),
        ("emc_mhz = 2133\n", "emc_mhz = 1e-320\n", "emc_mhz"),
        ("bus_width_bits = 128", f"bus_width_bits = {10**30}", "`dram.bus_width_bits`"),
        ("fp16 = 2048", "fq16 = 2048", "'fq16'"),
    ],
)
def test_a_wrong_profile_is_refused_by_place(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = (DEVICES_FOLDER / "orin-nano-8gb.toml").read_text()
    assert old in text
    path = tmp_path / "orin-nano-8gb.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(FileFault) as caught:
        load_profile(path)
    assert message in str(caught.value)
    assert isinstance(caught.value, EdgeprofError)
