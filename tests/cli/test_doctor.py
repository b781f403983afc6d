"""``edgeprof doctor`` as people call it: on this machine, on the files of every board, and where
things are broken. The calls wait for a second or two each and are made side by side."""

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from emulated.boards import BOARDS
from emulated.tree import build
from handmade_tree import put
from made_elf import MACHINE_CODE, elf_with_gpu_code
from packaging.requirements import Requirement

from edgeprof.report.table import terminal_width

Done = subprocess.CompletedProcess[str]
Calls = Mapping[str, Done]

ROOT = Path(__file__).parents[2]
SERIAL_NUMBER = "1420000000000"  # of the emulated boards
PAGE = (ROOT / "docs" / "doctor.md").read_text()
PEAKS_GB_S = {"orin-nano": 68.3, "orin-nano-super": 102.4, "agx-orin": 204.7, "thor-like": 273.0,
              "xavier-nx": 51.2, "nano": 25.6}  # fmt: skip


class Call(NamedTuple):
    arguments: Sequence[str] = ()
    environment: Mapping[str, str | None] = {}
    python: str = sys.executable


def doctor(call: Call, cwd: Path = ROOT) -> Done:
    merged = {**os.environ, "COLUMNS": "100", **call.environment}
    return subprocess.run(
        [call.python, "-m", "edgeprof", "doctor", *call.arguments],
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


def core_python(place: Path) -> str:
    """An interpreter that has edgeprof, the packages that it cannot do without, and no other."""
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "edgeprof").mkdir()
    for part in (*(ROOT / "edgeprof").iterdir(), ROOT / "device_profiles", ROOT / "recipes"):
        (site / "edgeprof" / part.name).symlink_to(part)
    for name in {*core_packages("edgeprof", set())} - {"edgeprof"}:
        files = distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            (site / top).symlink_to(str(distribution(name).locate_file(top)))
    return str(place / "bin" / "python")


def core_packages(name: str, seen: set[str]) -> Iterator[str]:
    seen.add(name)
    yield name
    for text in distribution(name).requires or ():
        wanted = Requirement(text)
        if wanted.name not in seen and (wanted.marker is None or wanted.marker.evaluate()):
            yield from core_packages(wanted.name, seen)


def gpu_wheel(place: Path) -> None:
    """As the usual index has it for aarch64: without code for a board; its import fails here."""
    metadata(place, "onnxruntime-gpu", "1.31.1")
    capi = place / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (capi.parent / "__init__.py").write_text("raise ImportError('libcudart.so.13: not found')\n")
    (capi / "build_and_package_info.py").write_text(
        "package_name = 'onnxruntime-gpu'\n__version__ = '1.31.1'\ncuda_version = '13.0'\n"
    )
    code = elf_with_gpu_code([(MACHINE_CODE, number) for number in (89, 90, 120, 121)])
    (capi / "libonnxruntime_providers_cuda.so").write_bytes(code)


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """What came of each call by its name; a board's is called after it."""
    place = tmp_path_factory.mktemp("doctor")
    for name in BOARDS:
        build(place / name, name)
    build(place / "container", "agx-orin")
    put(place / "container", {"/.dockerenv": ""})
    gpu_wheel(place / "wheel")
    core = core_python(place / "core")
    (place / "shim" / "numpy").mkdir(parents=True)
    (place / "shim" / "numpy" / "__init__.py").write_text(
        "import os, signal; os.kill(os.getpid(), signal.SIGILL)\n"
    )
    for package, version in (("onnxruntime", "1.23.2"), ("onnxruntime-gpu", "1.31.1")):
        metadata(place / "both", package, version)
    for name in ("cwd", "home", "tmp", "nothing"):
        (place / name).mkdir()
    super_root = ("--root", str(place / "orin-nano-super"))
    # In what takes itself to be a CI, libraries write less than elsewhere.
    clean = {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp"), "CI": None,
             "XDG_CACHE_HOME": None}  # fmt: skip
    wheel = {"PYTHONPATH": str(place / "wheel")}
    wanted = {
        **{name: Call(("--json", "--root", str(place / name)), python=core) for name in BOARDS},
        "host": Call(environment=clean),
        "md": Call(("--format", "md", *super_root), {"HOME": str(Path(sys.prefix).parent)}),
        "numpy": Call(("--json",), {"PYTHONPATH": str(place / "shim")}),
        "numpy watch": Call(("--for", "watch"), {"PYTHONPATH": str(place / "shim")}),
        "both": Call(("--json",), {"PYTHONPATH": str(place / "both")}),
        "homeless": Call((), {"HOME": None, "XDG_CACHE_HOME": None, "PATH": "/usr/bin:/bin"}),
        "ascii": Call(super_root, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}),
        "sudo": Call((), {"SUDO_UID": "1000"}),
        "core": Call(("--json",), clean, core),
        "core run": Call(("--for", "run", "--format", "md"), clean, core),
        "wheel": Call(("--json", "--for", "run", *super_root), wheel, core),
        "container": Call(("--json", "--root", str(place / "container"))),
        "nothing": Call(("--for", "watch", "--root", str(place / "nothing"))),
    }
    before = snapshot(place)
    with ThreadPoolExecutor(8) as pool:
        jobs = {name: pool.submit(doctor, call, place / "cwd") for name, call in wanted.items()}
        done = {name: job.result() for name, job in jobs.items()}
    assert snapshot(place) == before  # nothing was written, nothing was changed
    return done


def snapshot(place: Path) -> dict[str, int]:
    """Every file, and every folder too, whose time tells what came and went in it; but for the
    temporary folder, where files without a name do."""
    return {
        str(path.relative_to(place)): 0 if path.name == "tmp" else path.lstat().st_mtime_ns
        for path in sorted(place.rglob("*"))
        if "__pycache__" not in path.parts  # of the interpreter, as for any program
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
    assert found["job"] == "watch"  # by an interpreter that has the core alone
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


def test_i02_a_wheel_without_code_for_the_board_is_told_by_reading_it(calls: Calls) -> None:
    found = document(calls, "wheel")
    lacking = "it holds GPU code for sm_89, sm_90, sm_120, sm_121 and none for this board's sm_87"
    assert found["onnxruntime"]["gpu"]["reason"] == lacking
    assert f"no decoding on the GPU: {lacking}" in found["limits"]
    assert "onnxruntime was built for CUDA 13.0, and this machine has CUDA 12.6" in found["limits"]
    # and by an operator: its import fails, which blocks; the usual index would give it again
    assert calls["wheel"].returncode == 3
    (failed, *_) = found["blocking"]
    assert failed["reason"].startswith("an operator on the CPU fails")
    assert "libcudart.so.13" in failed["reason"] and failed["fix"] is None


def test_with_the_core_alone_a_machine_can_be_watched(calls: Calls) -> None:
    found = document(calls, "core")
    assert calls["core"].returncode == 0 and found["job"] == "watch" and found["possible"]
    states = {package["name"]: package["state"] for package in found["packages"]}
    assert [name for name, state in states.items() if state == "ok"] == [
        "click", "msgspec", "numpy", "psutil", "platformdirs", "matplotlib",
    ]  # fmt: skip
    assert found["onnxruntime"]["copies"] == [] and states["onnx"] == "missing"
    assert calls["core run"].returncode == 3
    (install,) = re.findall(r"```sh\n# no onnxruntime is installed\n(.*)", calls["core run"].stdout)
    assert install.endswith("bin/python -m pip install 'edgeprof[cpu]'")


def test_i15_in_a_container_the_options_that_it_lacks_come_first(calls: Calls) -> None:
    found = document(calls, "container")
    assert found["container"]["kind"] == "docker"
    first = found["next_steps"][0]["command"]
    assert first.startswith("docker run --runtime nvidia ") and first.endswith(" IMAGE")
    assert " -v /run/jtop.sock:/run/jtop.sock --group-add " in first
    lacking = {mount["brings"] for mount in found["container"]["missing"]}
    assert "the L4T release" not in lacking and "the power mode" not in lacking  # they are there


def test_every_step_is_one_line_that_a_shell_takes(calls: Calls) -> None:
    documents = [document(calls, name) for name, done in calls.items() if done.stdout[:1] == "{"]
    commands = {step["command"] for found in documents for step in found["next_steps"]}
    assert len(commands) > 5
    for command in commands:
        assert "\n" not in command and ", then " not in command
        done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        program = command.split()[0]
        assert program in ("docker", "sudo", "edgeprof", "newgrp") or program.startswith("/")


def test_nobodys_home_and_odd_locales_are_borne(calls: Calls) -> None:
    for name in ("homeless", "ascii"):
        assert calls[name].returncode == 0, calls[name].stderr
        assert "Traceback" not in calls[name].stderr
    assert "What to do next" in calls["ascii"].stdout


def test_k08_where_the_script_is_and_what_does_the_same(calls: Calls) -> None:
    text = " ".join(calls["homeless"].stdout.split())  # a long path is wrapped
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


def test_a_root_without_any_file_of_a_board_is_nothing_to_watch(calls: Calls) -> None:
    done = calls["nothing"]
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
    done = doctor(Call(arguments))
    assert (done.returncode, done.stdout) == (2, "") and says in done.stderr
