"""``edgeprof devices`` from the command line."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgeprof.catalog import DEVICES_FOLDER, device_names
from edgeprof.cli.commands import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["devices", *arguments])


def test_the_list_has_every_board_with_its_modes() -> None:
    shown = run().stdout
    for name in device_names():
        assert name in shown
    # EMC 3199 MHz x 2 x 16 bytes = 102.4 GB/s; 8 SMs x 1020 MHz x 2048 = 16.71 TFLOP/s
    line = next(row for row in shown.splitlines() if "MAXN_SUPER" in row and "nano-8gb" in row)
    assert line.split() == ["orin-nano-8gb-super", "MAXN_SUPER", "102.4", "8", "1020", "16.71", "8"]
    assert "orin-nano = orin-nano-8gb@15W" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_one_board_with_its_sources() -> None:
    shown = " ".join(run("Orin_Nano").stdout.split())
    assert "nvpmodel_p3767_0003.conf" in shown
    assert "0.85 of peak (0.72 to 0.87)" in shown
    assert "7.44 GiB visible (RAM total in tegrastats lines" in shown
    assert "15W *" in shown


def test_json() -> None:
    content = json.loads(run("thor", "--json").stdout)
    assert content["schema"] == "edgeprof.devices/1"
    (board,) = content["devices"]
    modes = {mode["name"]: mode for mode in board["modes"]}
    assert modes["MAXN"]["gpu_clock_hz"] == 1575e6
    assert modes["90W"]["gpu_clock_hz"] is None
    assert modes["90W"]["status"] == "unverified"
    assert modes["MAXN"]["source"] == board["source"]
    everything = json.loads(run("--json").stdout)
    assert [device["name"] for device in everything["devices"]] == device_names()
    announced = next(one for one in everything["devices"] if one["name"] == "thor-t2000")
    assert (announced["dram_bytes"], announced["modes"]) == (None, [])
    assert "clocks" in announced["not_published"]


def test_json_figures_follow_from_the_profile() -> None:
    (board,) = json.loads(run("orin-nano-8gb", "--json").stdout)["devices"]
    mode = next(mode for mode in board["modes"] if mode["name"] == board["default_mode"])
    peak = 2133e6 * 2 * 128 / 8  # EMC clock x 2 x bus width in bytes
    assert mode["emc_clock_hz"] == 2133e6
    assert mode["peak_bandwidth_bytes_per_s"] == pytest.approx(peak)
    assert mode["sustained_bandwidth_bytes_per_s"] == pytest.approx(
        board["sustained"]["fraction"] * peak
    )
    assert (mode["sms"], mode["power_w"]) == (8, 15)
    assert mode["peak_flop_per_s"]["fp16"] == pytest.approx(8 * 624.75e6 * 2048)
    assert board["dram_bytes"] == 8 * 2**30
    assert board["visible_dram_bytes"] == 7620 * 2**20


def test_an_announced_board() -> None:
    line = next(row for row in run().stdout.splitlines() if row.startswith("thor-t3000"))
    assert line.split() == ["thor-t3000", "announced", "-", "-", "-", "-", "-"]
    assert "not published: memory size" in run("thor-t3000").stdout


def test_a_profile_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    text = (DEVICES_FOLDER / "rpi5.toml").read_text().replace('name = "rpi5"', 'name = "mine"', 1)
    path.write_text(text)
    assert "17.1" in run(str(path)).stdout
    path.write_text(text.replace("bus_width_bits = 32", "bus_width_bits = -32"))
    done = run(str(path))
    assert done.exit_code == 1
    assert f"{path}: " in done.stderr and "dram.bus_width_bits" in done.stderr


def test_detecting_needs_no_name_and_a_root_needs_detecting(tmp_path: Path) -> None:
    assert run("--detect", "orin-nano").exit_code == 2
    assert run("--root", str(tmp_path)).exit_code == 2


def test_no_known_board_is_one_line_and_exit_code_3(tmp_path: Path) -> None:
    done = run("--detect", "--root", str(tmp_path))
    assert done.exit_code == 3
    assert done.stderr.startswith("Error: this is no known board: it has no device tree")
    assert done.stderr.count("\n") == 1
    assert "no known board" in done.stdout
    told = run("--detect", "--root", str(tmp_path), "--json")
    assert told.exit_code == 3
    content = json.loads(told.stdout)
    assert (content["schema"], content["device"]) == ("edgeprof.identity/1", None)
    assert content["confidence"] == "none"


def test_detecting_a_board(tmp_path: Path) -> None:
    tree = tmp_path / "proc/device-tree"
    tree.mkdir(parents=True)
    (tree / "model").write_text("NVIDIA Jetson Nano\x1b[31m Developer Kit\0")
    (tree / "compatible").write_text("nvidia,p3449-0000-b00+p3448-0000-b00\0nvidia,tegra210\0")
    (tree / "serial-number").write_text("1422919012345\0")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nvpmodel.conf").write_text(
        "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=1 NAME=5W >\n< PM_CONFIG DEFAULT=0 >\n"
    )
    done = run("--detect", "--root", str(tmp_path))
    assert done.exit_code == 0
    assert "device: nano (Jetson Nano 4GB)" in done.stdout
    assert "25.60 GB/s, limited by the module (EMC 1600 MHz x 2 x 64 bit" in done.stdout
    told = run("--detect", "--root", str(tmp_path), "--json")
    content = json.loads(told.stdout)
    # 1600 MHz x 2 transfers x 64 bit / 8
    assert content["peak_bandwidth_bytes_per_s"] == 1600e6 * 2 * 8
    assert (content["device"], content["mode"], content["confidence"]) == (
        "nano", "MAXN/10W", "high",
    )  # fmt: skip
    assert "1422919012345" not in done.output + told.output
    assert "\x1b" not in done.output + told.output


def test_an_unknown_board() -> None:
    done = run("orinano")
    assert done.exit_code == 2
    assert "did you mean 'orin-nano'" in done.stderr
