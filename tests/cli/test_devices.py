"""``edgeprof devices`` from the command line."""

import json

from click.testing import CliRunner, Result

from edgeprof.catalog import device_names
from edgeprof.cli import cli


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


def test_an_unknown_board() -> None:
    done = run("orinano")
    assert done.exit_code == 2
    assert "did you mean 'orin-nano'" in done.stderr
