"""Board profiles: those shipped are complete and sourced, peaks follow, errors name the place."""

from pathlib import Path

import pytest

from edgeprof.catalog import DEVICES_FOLDER, device_names, find_device
from edgeprof.errors import EdgeprofError, FileFault, UsageFault
from edgeprof.hardware.profile import load_profile

# GB/s of the datasheets, dense FP16 TFLOPS and INT8 TOPS of public tables, by board and mode.
PUBLISHED = [
    ("orin-nano-8gb", "15W", 68.3, 10.24, 20.47),
    ("orin-nano-8gb", "7W", 68.3, 3.34, 6.68),
    ("orin-nano-8gb-super", "MAXN_SUPER", 102.4, 16.71, 33.42),
    ("orin-nano-4gb", "10W", 34.1, 5.12, 10.24),
    ("orin-nano-4gb-super", "25W", 51.2, 8.36, 16.71),
    ("orin-nx-16gb", "25W", 102.4, 6.68, 13.37),
    ("orin-nx-16gb-super", "40W", 102.4, 19.22, 38.44),
    ("orin-nx-8gb", "20W", 102.4, 6.68, 13.37),
    ("orin-nx-8gb-super", "10W", 68.3, 5.01, 10.03),
    ("agx-orin-64gb", "MAXN", 204.8, 42.61, 85.23),
    ("agx-orin-64gb", "MODE_15W", 136.5, 5.01, 10.03),
    ("agx-orin-32gb", "MODE_40W", 204.8, 23.40, 46.79),
    ("agx-orin-industrial", "MAXN/75W", 204.8, 38.83, 77.66),
    ("agx-thor-t5000", "MAXN", 273.0, 258.05, 516.1),
    ("thor-t4000", "MAXN", 273.0, 150.01, 300.02),
    ("xavier-nx-8", "MODE_20W_6CORE", 59.7, 6.82, 13.63),
    ("agx-xavier-32", "MODE_10W", 68.2, 2.13, 4.26),
    ("agx-xavier-industrial", "MAXN", 136.5, 9.92, 19.84),
]


@pytest.mark.parametrize("name", device_names())
def test_every_shipped_profile_loads_and_is_sourced(name: str) -> None:
    profile = load_profile(DEVICES_FOLDER / f"{name}.toml")
    assert profile.source and profile.gpu.rates_source
    for mode in profile.modes:
        assert mode.emc_mhz <= profile.dram.emc_max_mhz
        peak = profile.peak_bandwidth_bytes_per_s(mode)
        sustained = profile.sustained_bandwidth_bytes_per_s(mode)
        assert sustained is None or 0.5 * peak < sustained < peak
    assert profile.visible_dram_bytes < profile.dram_bytes


def test_the_families_are_complete() -> None:
    assert len(device_names()) == 19
    modes = sum(len(load_profile(DEVICES_FOLDER / f"{n}.toml").modes) for n in device_names())
    # Orin Nano 2+4+3+3, Orin NX 4+5+4+5, AGX Orin 4+4+1, Thor 4+1, Xavier NX 2x9, AGX 3x8+1
    assert modes == 12 + 18 + 9 + 5 + 18 + 25


@pytest.mark.parametrize(("board", "mode", "gb_per_s", "fp16", "int8"), PUBLISHED)
def test_peaks_reproduce_published_figures(
    board: str, mode: str, gb_per_s: float, fp16: float, int8: float
) -> None:
    device = find_device(board, mode)
    peak = device.profile.peak_bandwidth_bytes_per_s(device.mode)
    rates = device.profile.peak_flop_per_s(device.mode)
    assert peak / 1e9 == pytest.approx(gb_per_s, abs=0.06)
    assert (rates["fp16"] or 0) / 1e12 == pytest.approx(fp16, abs=0.006)
    assert (rates["int8"] or 0) / 1e12 == pytest.approx(int8, abs=0.06)


def test_the_formula_by_hand() -> None:
    device = find_device("orin-nano-8gb@15W")
    # 2133 MHz x 2 transfers x 128 bit / 8
    assert device.profile.peak_bandwidth_bytes_per_s(device.mode) == 2133e6 * 2 * 16
    # 8 SMs x 624.75 MHz x 2048
    assert device.profile.peak_flop_per_s(device.mode)["fp16"] == 8 * 624.75e6 * 2048
    # 0.85 of 68.256 GB/s
    assert device.profile.sustained_bandwidth_bytes_per_s(device.mode) == pytest.approx(58.0176e9)
    assert device.profile.visible_dram_bytes == 7620 * 2**20


def test_what_is_not_known_is_none() -> None:
    thor = find_device("thor@90W")
    assert thor.profile.peak_flop_per_s(thor.mode)["fp16"] is None
    assert "fp8" not in find_device("orin-nano").profile.gpu.flop_per_clock_per_sm
    assert "bf16" not in find_device("xavier-nx-8").profile.gpu.flop_per_clock_per_sm
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
        ('name = "7W"', 'name = "15w"', "two modes have the same name"),
        ("emc_mhz = 2133\n", "emc_mhz = nan\n", "emc_mhz"),
        ("emc_mhz = 2133\n", "emc_mhz = inf\n", "emc_mhz"),
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
