"""``edgeprof doctor`` as people call it: on this machine, on the files of every board, and where
things are broken. The calls take a second or two each and are made side by side."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from emulated.boards import BOARDS
from emulated.tree import build

from edgeprof.report.table import terminal_width

Done = subprocess.CompletedProcess[str]
Calls = Mapping[str, Done]

ROOT = Path(__file__).parents[2]
SERIAL_NUMBER = "1420000000000"  # of the emulated boards
PAGE = (ROOT / "docs" / "doctor.md").read_text()
PEAKS_GB_S = {"orin-nano": 68.3, "orin-nano-super": 102.4, "agx-orin": 204.7, "thor-like": 273.0,
              "xavier-nx": 51.2, "nano": 25.6}  # fmt: skip


def doctor(
    *arguments: str, environment: Mapping[str, str | None] | None = None, cwd: Path = ROOT
) -> Done:
    merged = {**os.environ, "COLUMNS": "100", **(environment or {})}
    return subprocess.run(
        [sys.executable, "-m", "edgeprof", "doctor", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in merged.items() if value is not None},
        cwd=cwd,
    )


def metadata(folder: Path, name: str, version: str) -> None:
    made = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    made.mkdir(parents=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """What came of each call by its name; a board's is called after it."""
    place = tmp_path_factory.mktemp("doctor")
    for name in BOARDS:
        build(place / name, name)
    (place / "shim" / "numpy").mkdir(parents=True)
    (place / "shim" / "numpy" / "__init__.py").write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGILL)\n"
    )
    for package, version in (("onnxruntime", "1.23.2"), ("onnxruntime-gpu", "1.31.1")):
        metadata(place / "both", package, version)
    (place / "cwd").mkdir()
    super_root = ("--root", str(place / "orin-nano-super"))
    wanted: dict[str, tuple[Sequence[str], Mapping[str, str | None]]] = {
        **{name: (("--json", "--root", str(place / name)), {}) for name in BOARDS},
        "host": ((), {}),
        "text": (super_root, {"HOME": "/home/alice"}),
        "md": (("--format", "md", *super_root), {"HOME": str(Path(sys.prefix).parent)}),
        "numpy": (("--json",), {"PYTHONPATH": str(place / "shim")}),
        "numpy watch": (("--for", "watch"), {"PYTHONPATH": str(place / "shim")}),
        "both": (("--json",), {"PYTHONPATH": str(place / "both")}),
        "homeless": ((), {"HOME": None, "XDG_CACHE_HOME": None, "PATH": "/usr/bin:/bin"}),
        "ascii": (super_root, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}),
        "sudo": ((), {"SUDO_UID": "1000"}),
    }
    before = snapshot(place)
    with ThreadPoolExecutor(4) as pool:
        jobs = {
            name: pool.submit(doctor, *arguments, environment=environment, cwd=place / "cwd")
            for name, (arguments, environment) in wanted.items()
        }
        done = {name: job.result() for name, job in jobs.items()}
    assert snapshot(place) == before  # nothing was written, nothing was changed
    return done


def snapshot(place: Path) -> dict[str, int]:
    return {
        str(path.relative_to(place)): path.lstat().st_mtime_ns
        for path in sorted(place.rglob("*"))
        if not path.is_dir()
    }


def document(calls: Calls, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(calls[name].stdout)
    return found


def test_this_machine_can_run_models(calls: Calls) -> None:
    done = calls["host"]
    assert done.returncode == 0, done.stderr
    assert "run: possible" in done.stdout.splitlines()
    assert "provider cpu: an operator came back right" in done.stdout
    assert re.search(r"^1\. \S", done.stdout, re.MULTILINE)
    assert "Traceback" not in done.stderr
    assert max(map(len, done.stdout.splitlines()[:10])) <= terminal_width()


@pytest.mark.parametrize("name", BOARDS)
def test_every_board_is_told_with_its_signals(calls: Calls, name: str) -> None:
    found, board = document(calls, name), BOARDS[name]
    assert found["schema"] == "edgeprof.doctor/1"
    assert calls[name].returncode == 0 and found["possible"] is True
    told = found["board"]
    assert told["kind"] == "board" and told["model"] == board.model
    assert told["power_mode"] == board.modes[board.mode][0] and told["power_mode_is_set"]
    release, revision = board.l4t
    assert told["l4t"] == f"{release}.{revision}" and told["jetpack"]
    assert told["peak_bandwidth_bytes_per_s"] / 1e9 == pytest.approx(PEAKS_GB_S[name], rel=0.01)
    architectures = {"tegra234": 87, "tegra264": 110, "tegra194": 72, "tegra210": 53}
    assert told["gpu_architecture"] == architectures[board.soc]
    assert {clock["part"] for clock in told["clocks"]} == {"memory", "GPU", "CPU"}
    assert not any(clock["pinned"] for clock in told["clocks"])
    signals = {signal["name"]: signal for signal in found["signals"]}
    clock = signals["emc_clock_hz"]
    assert (clock["state"], clock["value"], clock["quality"]) == (
        "ok", board.emc_hz[1], "simulated",
    )  # fmt: skip
    assert 0 < clock["read_latency_s"] < 1 and clock["permission"].startswith("-rw")
    bandwidth = signals["dram_bandwidth_bytes_per_s"]
    assert bandwidth["state"] == ("ok" if board.counts_khz else "absent")
    assert (
        bandwidth["reason"] is None
        if board.counts_khz
        else "not established" in (bandwidth["reason"])
    )


def test_no_form_has_a_serial_number(calls: Calls) -> None:
    for done in calls.values():
        assert SERIAL_NUMBER not in done.stdout + done.stderr


def test_the_block_to_paste_hides_the_users_folder_and_keeps_its_commands(calls: Calls) -> None:
    text = calls["md"].stdout
    assert text.startswith("### edgeprof ") and "| signal " in text
    assert str(Path(sys.prefix).parent) not in text and "~/" in text
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = block.splitlines()
    assert all(why.startswith("# ") for why in lines[::2])
    assert not any(command.startswith("#") for command in lines[1::2])


def test_i10_a_numpy_that_dies_is_survived_named_and_blocks_what_needs_it(calls: Calls) -> None:
    found = document(calls, "numpy")
    assert calls["numpy"].returncode == 3 and found["possible"] is False
    (blocker,) = found["blocking"]
    assert blocker["reason"] == "numpy cannot be imported: the import was killed by SIGILL"
    assert found["next_steps"][0]["command"] == blocker["fix"]
    assert "numpy cannot be imported" in calls["numpy"].stderr
    assert calls["numpy watch"].returncode == 0  # the board can be watched without


def test_i04_both_runtimes_are_seen_and_the_order_of_mending_is_told(calls: Calls) -> None:
    found = document(calls, "both")
    assert {copy["package"] for copy in found["onnxruntime"]["copies"]} == {
        "onnxruntime", "onnxruntime-gpu",
    }  # fmt: skip
    steps = [step["command"] for step in found["next_steps"]]
    assert steps[0].endswith("-m pip uninstall -y onnxruntime onnxruntime-gpu")
    assert " -m pip install onnxruntime" in steps[1]


def test_nobodys_home_and_odd_locales_are_borne(calls: Calls) -> None:
    for name in ("homeless", "ascii"):
        assert calls[name].returncode == 0, calls[name].stderr
        assert "Traceback" not in calls[name].stderr
    assert "What to do next" in calls["ascii"].stdout


def test_k08_where_the_script_is_and_what_does_the_same(calls: Calls) -> None:
    text = calls["homeless"].stdout
    module = f"`{sys.executable} -m edgeprof` does the same"
    script = re.search(rf"script: (\S+), not on PATH: {re.escape(module)}", text)
    nowhere = f"the script edgeprof is nowhere: {module}" in text
    assert nowhere or (script is not None and os.access(script[1], os.X_OK))
    assert f"{sys.executable} -m edgeprof run" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have been called by sudo")
def test_k09_sudo_is_never_needed_and_what_mends_its_traces(calls: Calls) -> None:
    text = " ".join(calls["sudo"].stdout.split())
    assert "run by sudo, which is never needed" in text
    assert 'sudo -E env "PATH=$PATH" edgeprof' in text and 'sudo chown "$USER": FILE' in text


def test_i08_jetson_stats_is_optional(calls: Calls) -> None:
    found = document(calls, "orin-nano")
    assert found["jtop"]["copies"] == [] and found["possible"]
    assert found["jtop"]["reason"] is None  # nothing is wrong without it


def test_every_key_of_the_document_is_explained(calls: Calls) -> None:
    def keys(part: object) -> set[str]:
        if isinstance(part, dict):
            return {*part}.union(*map(keys, part.values()))
        return set().union(*map(keys, part)) if isinstance(part, list) else set()

    told = keys(document(calls, "orin-nano-super")) | keys(document(calls, "both"))
    assert not {key for key in told if f"`{key}`" not in PAGE}


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "edgeprof", "doctor", "--for", "watch", "--json"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert done.returncode == 0 and done.stderr.count("\n") == 1  # that it takes a moment


def test_a_root_without_any_file_of_a_board_is_nothing_to_watch(tmp_path: Path) -> None:
    done = doctor("--for", "watch", "--root", str(tmp_path))
    assert done.returncode == 3 and "no source gives a signal" in done.stderr
    assert "What to do next" in done.stdout  # complete all the same


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--json", "--format", "md"), "contradict"),
        (("--device", "orin-nan"), "did you mean"),
        (("--for", "fun"), "'run', 'watch', 'contend'"),
        (("--root", "/no/such/folder"), "does not exist"),
    ],
)
def test_wrong_usage_is_said_at_once(arguments: Sequence[str], says: str) -> None:
    done = doctor(*arguments)
    assert (done.returncode, done.stdout) == (2, "") and says in done.stderr
