"""GPU load and clock under the names of every generation."""

from pathlib import Path

import pytest
from handmade_tree import absences, channels, link, put, readings, values

from edgeprof.telemetry.source import BoardFigures, Offer
from edgeprof.telemetry.sources.sysfs import open_sysfs

BUSY, CLOCK = "gpu_busy_frac", "gpu_clock_hz"
CLASS = "/sys/class/devfreq"


def offer_of(root: Path) -> Offer:
    return open_sysfs(BoardFigures(root=str(root)))


def put_gpu(root: Path, device: str, name: str, clock: str, load: str | None) -> None:
    """A GPU with the links between its device and its clock that a board has."""
    put(root, {f"{device}/devfreq/{name}/cur_freq": clock})
    if load is not None:
        put(root, {f"{device}/load": load})
    link(root, f"{device}/devfreq/{name}/device", device)
    link(root, f"{CLASS}/{name}", f"{device}/devfreq/{name}")


@pytest.mark.parametrize(
    "device, name",
    [
        ("/sys/devices/57000000.gpu", "57000000.gpu"),
        ("/sys/devices/17000000.gp10b", "17000000.gp10b"),
        ("/sys/devices/17000000.gv11b", "17000000.gv11b"),
        ("/sys/devices/17000000.ga10b", "17000000.ga10b"),
        ("/sys/devices/platform/bus@0/17000000.gpu", "17000000.gpu"),
    ],
)
def test_the_gpu_whatever_it_is_called(tmp_path: Path, device: str, name: str) -> None:
    put_gpu(tmp_path, device, name, "612000000", "553")
    offer = offer_of(tmp_path)
    assert values(offer) == {BUSY: pytest.approx(0.553), CLOCK: 612_000_000}
    assert channels(offer)[BUSY].node == f"{CLASS}/{name}/device/load"
    assert channels(offer)[BUSY].window_kind == "unknown"
    assert readings(offer)[BUSY].raw == "553"
    assert [reader.rate_hz for reader in offer.readers] == [20]


@pytest.mark.parametrize("folder", ["gpu.0", "platform/gpu.0"])
def test_a_load_without_devfreq(tmp_path: Path, folder: str) -> None:
    offer = offer_of(put(tmp_path, {f"/sys/devices/{folder}/load": "1000"}))
    assert values(offer) == {BUSY: 1.0}
    assert absences(offer)[CLOCK].fix is None


def test_thor_has_clocks_and_no_load(tmp_path: Path) -> None:
    device = "/sys/devices/pci0000:00/0000:01:00.0"
    put_gpu(tmp_path, device, "gpu-gpc-0", "315000000", None)
    put(tmp_path, {f"{CLASS}/gpu-gpc-1/cur_freq": "1575000000"})
    put(tmp_path, {f"{CLASS}/gpu-nvd-0/cur_freq": "1692000000"})
    put(tmp_path, {f"{CLASS}/bwmgr/cur_freq": "4266000000"})
    offer = offer_of(tmp_path)
    assert values(offer)[CLOCK] == 1_575_000_000
    assert BUSY not in channels(offer)
    assert absences(offer)[BUSY].reason == "the GPU driver of this board tells no load in a file"


@pytest.mark.parametrize("name", ["bwmgr", "154c0000.nvenc", "gpu-nvd-0", "15340000.vic", "x"])
def test_other_devices_are_no_gpu(tmp_path: Path, name: str) -> None:
    put_gpu(tmp_path, "/sys/devices/d", name, "612000000", "553")
    offer = offer_of(tmp_path)
    assert {BUSY, CLOCK}.isdisjoint(channels(offer))
    assert absences(offer)[BUSY].reason == absences(offer)[CLOCK].reason


def test_the_fastest_gpc_is_the_clock(tmp_path: Path) -> None:
    put_gpu(tmp_path, "/sys/devices/17000000.gpu", "17000000.gpu", "306000000", "10")
    clocks = "/sys/kernel/debug/bpmp/debug/clk"
    put(tmp_path, {f"{clocks}/nafll_gpc0/pto_counter": "611990000"})
    put(tmp_path, {f"{clocks}/nafll_gpc1/pto_counter": "612010000"})
    assert values(offer_of(tmp_path))[CLOCK] == 612_010_000


def test_a_gpu_that_is_switched_off_is_unknown_until_it_runs(tmp_path: Path) -> None:
    device = "/sys/devices/17000000.gpu"
    put_gpu(tmp_path, device, "17000000.gpu", "0", None)
    offer = offer_of(tmp_path)
    assert "switched off" in (channels(offer)[BUSY].note or "")
    put(tmp_path, {f"{device}/load": "250"})
    assert readings(offer)[BUSY].value == 0.25
    assert readings(offer)[CLOCK][:2] == (None, "0")
    (tmp_path / f"{device[1:]}/load").unlink()
    assert readings(offer)[BUSY].value is None
    put(tmp_path, {f"{device}/devfreq/17000000.gpu/cur_freq": "306000000"})
    assert readings(offer)[CLOCK].value == 306_000_000


def test_an_impossible_load_is_kept_for_others_to_judge(tmp_path: Path) -> None:
    put_gpu(tmp_path, "/sys/devices/17000000.gpu", "17000000.gpu", "306000000", "4000")
    assert values(offer_of(tmp_path))[BUSY] == 4.0
