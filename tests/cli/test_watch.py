"""``edgeprof watch`` as its users meet it: a process, its streams, its exit code, and signals."""

import json
import os
import pty
import select
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from emulated.tree import build

from edgeprof.cli.commands import cli
from edgeprof.session.records import Session
from edgeprof.session.store import read_session

Start = Callable[..., "subprocess.Popen[str]"]
WATCH = [sys.executable, "-m", "edgeprof", "watch"]
# Tells that it runs, waits for a word on stdin or a signal, and says what ended it.
PATIENT = """
import signal, sys, time
try:
    print("ready", flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    time.sleep(0.2)
    print("interrupted", flush=True)
    sys.exit(5)
"""


def watch(*arguments: str, cwd: Path, **settings: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*WATCH, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, **settings
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts edgeprof as a process group of its own, as a shell does."""
    started: list[subprocess.Popen[str]] = []

    def launch(*arguments: str, **settings: Any) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*WATCH, *arguments],
            cwd=tmp_path,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **settings,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def ready(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"


def session(folder: Path, name: str = "s.sqlite") -> Session:
    return read_session(folder / name)


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_stdout_stdin_and_exit_code_are_the_commands(tmp_path: Path) -> None:
    script = "read word; echo got $word; echo oops >&2; exit 7"
    done = watch("-o", "s.sqlite", "--", "sh", "-c", script, cwd=tmp_path, input="hello\n")
    assert done.returncode == 7
    assert done.stdout == "got hello\n"
    assert done.stderr == "oops\nsession: s.sqlite\n"
    found = session(tmp_path)
    assert found.info.complete and found.info.kind == "watch"
    (leg,) = found.legs
    assert (leg.name, leg.kind, leg.attrs, leg.status) == (
        "sh", "command", {"exit_code": 7}, "complete",
    )  # fmt: skip


def test_session_lies_in_the_current_folder_by_default(tmp_path: Path) -> None:
    done = watch("--", "true", cwd=tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("watch-20") and file.name.endswith("Z.sqlite")
    assert done.stderr == f"session: {file.name}\n"


def test_samples_while_the_command_lives(tmp_path: Path) -> None:
    assert watch("-o", "s.sqlite", "--", "sleep", "0.5", cwd=tmp_path).returncode == 0
    found = session(tmp_path)
    (leg,) = found.legs
    assert leg.t1_ns is not None and 0.5 <= (leg.t1_ns - leg.t0_ns) / 1e9 < 5
    within = [s for s in found.samples if leg.t0_ns <= s.t0_ns and s.t1_ns <= leg.t1_ns]
    assert len(within) >= 3
    assert {"cpu_busy_frac", "ram_used_bytes"} <= {s.name for s in found.signals}
    assert any(s.delivered_hz is not None for s in found.signals)


def test_quiet_says_nothing(tmp_path: Path) -> None:
    done = watch("-q", "-o", "s.sqlite", "--", "echo", "hello", cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("hello\n", "")


def test_options_behind_the_command_are_the_commands(tmp_path: Path) -> None:
    done = watch("-o", "s.sqlite", "echo", "-q", "--json", "--", "-o", cwd=tmp_path)
    assert done.stdout == "-q --json -- -o\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_command_that_a_signal_ends(tmp_path: Path, number: signal.Signals) -> None:
    done = watch("-o", "s.sqlite", "--", "sh", "-c", f"kill -{int(number)} $$", cwd=tmp_path)
    assert done.returncode == 128 + number
    found = session(tmp_path)
    assert found.info.complete
    assert found.legs[0].status == "died"
    assert found.legs[0].attrs == {"exit_code": 128 + number}


def test_code_above_128_is_no_signal(tmp_path: Path) -> None:
    assert watch("-o", "s.sqlite", "--", "sh", "-c", "exit 255", cwd=tmp_path).returncode == 255
    assert session(tmp_path).legs[0].status == "complete"


@pytest.mark.parametrize("command", ["no-such-command", "./plain", "./folder", ""])
def test_command_that_cannot_run(tmp_path: Path, command: str) -> None:
    (tmp_path / "plain").write_text("no program")
    (tmp_path / "folder").mkdir()
    done = watch("-o", "s.sqlite", "--", command, cwd=tmp_path)
    assert done.returncode == 3
    assert "nothing was run" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "s.sqlite").exists()


def test_command_that_the_system_refuses(tmp_path: Path) -> None:
    (tmp_path / "broken").write_bytes(b"\x7fELF and no more")
    (tmp_path / "broken").chmod(0o755)
    done = watch("-o", "s.sqlite", "--", "./broken", cwd=tmp_path)
    assert done.returncode == 3 and "cannot be run" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken"]


def test_output_is_checked_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = watch("-o", "mine", "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 2 and "exists already" in done.stderr
    assert not (tmp_path / "ran").exists()
    assert (tmp_path / "mine").read_text() == "mine"


def test_s37_command_shorter_than_a_sampling_interval(tmp_path: Path) -> None:
    assert (
        watch("--interval", "5", "-q", "-o", "s.sqlite", "--", "true", cwd=tmp_path).returncode == 0
    )
    assert session(tmp_path).info.complete
    shown = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite")])
    assert shown.exit_code == 0
    assert "No samples: the run was shorter than the sampling interval." in shown.stdout
    summed = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite"), "--json"])
    signals = json.loads(summed.stdout)["signals"]
    assert signals and {signal["mean"] for signal in signals} == {None}


MARKING = """
import os, socket, time
import edgeprof
with edgeprof.mark("load"):
    time.sleep(0.02)
for turn in range(3):
    edgeprof.mark("draft", tokens=1, context=turn)
    edgeprof.mark("verify", tokens=5, context=turn)
edgeprof.mark("end")
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
out.sendto(b"detokenise", os.environ["EDGEPROF_MARKS"])
print(os.path.dirname(os.environ["EDGEPROF_MARKS"]))
"""


def test_marks_become_legs_and_passes(tmp_path: Path) -> None:
    done = watch("-o", "s.sqlite", "--", sys.executable, "-c", MARKING, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = session(tmp_path)
    load, detokenise = (leg for leg in found.legs if leg.kind == "mark")
    assert (load.name, load.status, load.repeat) == ("load", "complete", 1)
    assert load.t1_ns is not None and load.t1_ns - load.t0_ns >= 20_000_000
    assert (detokenise.name, detokenise.status) == ("detokenise", "interrupted")
    assert [(p.phase, p.tokens, p.context_tokens) for p in found.passes] == [
        (phase, tokens, turn)
        for turn in range(3)
        for phase, tokens in (("draft", 1), ("verify", 5))
    ]
    assert {(p.provider, p.leg_id) for p in found.passes} == {("external", found.legs[0].id)}
    command = found.legs[0]
    assert all(command.t0_ns <= p.t0_ns <= p.t1_ns <= (command.t1_ns or 0) for p in found.passes)
    assert not Path(done.stdout.strip()).exists()  # the socket's folder is cleared away
    assert not [event for event in found.events if event.kind == "marks"]


def test_marks_that_come_fast_are_not_lost(tmp_path: Path) -> None:
    code = "import edgeprof, time\nfor _ in range(500):\n edgeprof.mark('a'); time.sleep(0.0005)"
    assert (
        watch("-q", "-o", "s.sqlite", "--", sys.executable, "-c", code, cwd=tmp_path).returncode
        == 0
    )
    found = session(tmp_path)
    lost = sum(event.detail.get("lost on the way", 0) for event in found.events)
    assert len([leg for leg in found.legs if leg.name == "a"]) + lost == 500
    assert lost < 50


def test_hostile_marks_are_bounded_and_said_once(tmp_path: Path) -> None:
    code = (
        "import os, socket\n"
        "out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "for text in (b'x' * 60000, bytes(range(256)), b'', b'a tokens=x', b'b t_ns=1', b'end',\n"
        "             b'end'):\n"
        "    out.sendto(text, os.environ['EDGEPROF_MARKS'])"
    )
    assert (
        watch("-q", "-o", "s.sqlite", "--", sys.executable, "-c", code, cwd=tmp_path).returncode
        == 0
    )
    (event,) = (event for event in session(tmp_path).events if event.kind == "marks")
    assert event.detail == {
        "longer than 512 bytes": 1, "not text": 1, "empty": 1, "tokens not taken": 1,
        "t_ns not taken": 1, "end without a phase": 1,
    }  # fmt: skip


def test_ctrl_c_reaches_the_command_and_the_file_is_finished(tmp_path: Path, start: Start) -> None:
    process = start("-o", "s.sqlite", "--", sys.executable, "-c", PATIENT)
    ready(process)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does
    out, err = process.communicate(timeout=30)
    assert process.returncode == 5 and out == "interrupted\n"
    assert "Traceback" not in err and err.endswith("session: s.sqlite\n")
    found = session(tmp_path)
    assert found.info.complete and found.legs[0].attrs == {"exit_code": 5}
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]


def test_ctrl_c_that_ends_the_command(tmp_path: Path, start: Start) -> None:
    process = start("-o", "s.sqlite", "--", "sh", "-c", "echo ready; exec sleep 60")
    ready(process)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert session(tmp_path).info.complete


def test_sigterm_is_passed_on(tmp_path: Path, start: Start) -> None:
    script = "trap 'echo told; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    process = start("-o", "s.sqlite", "--", "sh", "-c", script)
    ready(process)
    process.terminate()
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (9, "told\n")
    assert session(tmp_path).info.complete


def test_what_is_ignored_stays_ignored(tmp_path: Path, start: Start) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = start("-o", "s.sqlite", "--", sys.executable, "-c", PATIENT, preexec_fn=ignore)
    ready(process)
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate("go on\n", timeout=30)
    assert (process.returncode, out) == (0, "")


def test_kill_9_of_edgeprof_leaves_command_and_session_alive(tmp_path: Path, start: Start) -> None:
    script = f"{PATIENT}\nimport edgeprof\nedgeprof.mark('late')\nopen('survived', 'w').close()"
    process = start("-o", "s.sqlite", "--", sys.executable, "-c", script)
    ready(process)
    (child,) = (
        found for found in psutil.Process(process.pid).children() if "-c" in found.cmdline()
    )
    time.sleep(1.0)
    killed_ns = time.monotonic_ns()
    process.kill()
    process.wait()
    assert child.is_running()
    assert process.stdin is not None
    process.stdin.write("go on\n")
    process.stdin.flush()
    wait_for((tmp_path / "survived").exists)
    with sqlite3.connect(tmp_path / "s.sqlite") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    found = session(tmp_path)
    assert not found.info.complete
    assert (found.legs[0].name, found.legs[0].status) == (Path(sys.executable).name, "running")
    assert killed_ns - max(sample.t1_ns for sample in found.samples) < 1_000_000_000


def test_killed_sampler_does_not_end_the_command(tmp_path: Path, start: Start) -> None:
    process = start("-o", "s.sqlite", "--", sys.executable, "-c", PATIENT)
    ready(process)
    (sampler,) = (
        found
        for found in psutil.Process(process.pid).children()
        if "edgeprof.profiling.sampling" in found.cmdline()
    )
    sampler.kill()
    time.sleep(1.0)
    process.communicate("go on\n", timeout=30)
    assert process.returncode == 0
    assert "death" in {event.kind for event in session(tmp_path).events}


def test_interval_given_with_a_command_prints_lines_on_stderr(tmp_path: Path) -> None:
    done = watch("--interval", "0.1", "-o", "s.sqlite", "--", "sleep", "1.5", cwd=tmp_path)
    assert done.stdout == ""
    lines = [line for line in done.stderr.splitlines() if " s  DRAM " in line]
    assert len(lines) >= 3 and all("CPU" in line for line in lines)


@pytest.mark.parametrize("options", [["--json"], ["--for", "1"]])
def test_what_makes_no_sense_with_a_command(tmp_path: Path, options: list[str]) -> None:
    done = watch(*options, "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode == 2 and options[0] in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--for", "nan"], ["--for", "0"], ["--for", "-1"], ["--interval", "0"],
        ["--interval", "inf"], ["--interval", "nan"], ["--source", "guess"],
        ["--source", "replay"], ["--replay", "none.log"], ["--root", "nowhere"],
        ["--device", "orinano"],
    ],
)  # fmt: skip
def test_wrong_options(tmp_path: Path, options: list[str]) -> None:
    done = watch("--for", "0.1", *options, cwd=tmp_path)
    assert done.returncode == 2 and "Traceback" not in done.stderr and done.stdout == ""


def test_live_lines_end_by_themselves_and_keep_nothing(tmp_path: Path) -> None:
    done = watch("--for", "2.2", "--interval", "0.5", cwd=tmp_path)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert 2 <= len(lines) <= 4  # no more than one every half second
    assert all("  DRAM " in line and "CPU" in line for line in lines)
    assert "\x1b" not in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_at_least_one_line_however_short(tmp_path: Path) -> None:
    done = watch("--for", "0.05", cwd=tmp_path)
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 1


def test_a_machine_without_a_board_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "bare" / "proc").mkdir(parents=True)
    done = watch("--for", "0.6", "--root", "bare", "--source", "sysfs", cwd=tmp_path)
    assert done.returncode == 0
    assert "GPU -" in done.stdout
    assert "not measured: " in done.stderr and "GPU" in done.stderr


def test_json_documents_a_line(tmp_path: Path) -> None:
    done = watch("--json", "--for", "2.2", "--interval", "0.3", cwd=tmp_path)
    documents = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    assert len(documents) >= 2 and done.stderr == ""
    assert {document["schema"] for document in documents} == {"edgeprof.watch/1"}
    times = [document["t_s"] for document in documents]
    assert times == sorted(times) and 0 < times[0] < 5
    assert 0 <= documents[-1]["cpu_busy_frac"] <= 1
    assert documents[-1]["ram_total_bytes"] > 0


def test_k01_reader_that_goes_is_no_error_and_the_session_is_whole(tmp_path: Path) -> None:
    command = f"{' '.join(WATCH)} --for 20 --interval 0.1 -o s.sqlite | head -1"
    began = time.monotonic()
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert time.monotonic() - began < 15
    assert "  DRAM " in done.stdout and len(done.stdout.splitlines()) == 1
    assert "Traceback" not in done.stderr and "Broken pipe" not in done.stderr
    assert session(tmp_path).info.complete


def test_ctrl_c_of_a_live_view_keeps_a_complete_session(tmp_path: Path, start: Start) -> None:
    process = start("--interval", "0.1", "-o", "s.sqlite")
    assert process.stdout is not None and "DRAM" in process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "session: s.sqlite" in err and "Traceback" not in err
    found = session(tmp_path)
    assert found.info.complete and found.samples and found.legs == []


def on_terminal(*arguments: str, cwd: Path, **variables: str) -> str:
    """What a terminal of 24 lines and 80 columns is sent."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        kept = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        os.execve(sys.executable, [*WATCH, *arguments], {**kept, "TERM": "xterm", **variables})
    sent = bytearray()
    while select.select([terminal], [], [], 30)[0]:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side has gone
            break
        if not piece:
            break
        sent += piece
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    return sent.decode()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_block_on_a_terminal_is_redrawn_in_place(tmp_path: Path) -> None:
    build(tmp_path / "tree", "orin-nano")
    sent = on_terminal(
        "--root", "tree", "--for", "2.2", "--interval", "0.3", cwd=tmp_path, COLUMNS="60"
    )
    blocks = sent.split("\x1b[J")
    assert len(blocks) >= 2
    for block, after in pairwise(blocks):
        lines = block.replace("\r", "").split("\n")
        assert "SIMULATED" in lines[0] and "EMC" in block
        assert all(len(line) < 60 for line in lines[:-1])
        assert lines[-1] == f"\x1b[{len(lines) - 1}A"  # back to where this block began
        assert after


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_k14_dumb_terminal_gets_lines(tmp_path: Path) -> None:
    sent = on_terminal("--for", "1.2", "--interval", "0.3", cwd=tmp_path, TERM="dumb")
    assert "\x1b" not in sent and "  DRAM " in sent


def test_board_below_another_root_is_simulated(tmp_path: Path) -> None:
    tree = build(tmp_path / "tree", "orin-nano")
    tree.set_emc(busy_frac=0.5, clock_hz=2_133_000_000)
    tree.set_gpu(busy_frac=0.25, clock_hz=612_000_000)
    tree.set_rail("VDD_IN", mv=5000, ma=1200)
    done = watch("--root", "tree", "--json", "--for", "1.2", "--interval", "0.2", "-o", "s.sqlite",
                 cwd=tmp_path)  # fmt: skip
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["simulated"] is True
    assert document["emc_busy_frac"] == pytest.approx(0.5, rel=1e-6)
    # half of 2133 MHz x 32 bytes
    assert document["dram_bandwidth_bytes_per_s"] == pytest.approx(34.128e9, rel=1e-6)
    assert document["gpu_busy_frac"] == 0.25
    assert document["power_w"]["total"] == pytest.approx(6.0)
    assert document["device"]["peak_bandwidth_bytes_per_s"] == pytest.approx(68.256e9)
    found = session(tmp_path)
    assert {sample.quality for sample in found.samples} == {"simulated"}
    shown = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite")])
    assert shown.stdout.startswith("Simulated samples")
    assert "6.00 W" in shown.stdout
    assert "No average of the memory traffic" in shown.stdout  # of an average of unknown length


def test_device_that_is_named_beats_what_is_detected(tmp_path: Path) -> None:
    build(tmp_path / "tree", "orin-nano")
    done = watch("--root", "tree", "--device", "orin-nano-8gb-super@MAXN_SUPER", "--json", "--for",
                 "0.3", cwd=tmp_path)  # fmt: skip
    device = json.loads(done.stdout.splitlines()[-1])["device"]
    assert device["peak_bandwidth_bytes_per_s"] == pytest.approx(102.4e9, rel=0.01)


LOG = (
    "01-02-2026 10:00:{second:02} RAM 2000/7607MB (lfb 4x4MB) CPU [10%@1510,20%@1510] "
    "EMC_FREQ 40%@2133 GR3D_FREQ 80%@624\n"
)


def test_replayed_log_is_stamped(tmp_path: Path) -> None:
    lines = "".join(LOG.format(second=second) for second in range(20))
    (tmp_path / "tegra.log").write_text(lines)
    done = watch("--replay", "tegra.log", "--device", "orin-nano", "--for", "2.5", "--json", "-o",
                 "s.sqlite", cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["replayed"] is True
    assert document["gpu_busy_frac"] == pytest.approx(0.8)
    # 40 % of 2133 MHz x 32 bytes
    assert document["dram_bandwidth_bytes_per_s"] == pytest.approx(27.3e9, rel=0.001)
    assert {sample.quality for sample in session(tmp_path).samples} == {"replayed"}
    shown = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite")])
    assert shown.stdout.startswith("Replayed samples")


def simulated_session(folder: Path) -> Path:
    """A session of a tree at half of 68.3 GB/s; the tree is gone then."""
    tree = build(folder / "tree", "orin-nano")
    tree.set_emc(busy_frac=0.5, clock_hz=2_133_000_000)
    done = watch("-q", "--root", "tree", "--for", "1.5", "-o", "s.sqlite", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "s.sqlite"


def test_replayed_simulation_says_both_and_of_which_board(tmp_path: Path) -> None:
    recorded = simulated_session(tmp_path)
    board = read_session(recorded).info.device["name"]
    done = watch("--replay", "s.sqlite", "--for", "1.2", "--json", "-o", "again.sqlite",
                 cwd=tmp_path)  # fmt: skip
    document = json.loads(done.stdout.splitlines()[-1])
    assert document["simulated"] is True and document["replayed"] is True
    assert document["device"]["name"] == board
    assert document["device"]["profile"] == "orin-nano-8gb"
    assert document["device"]["peak_bandwidth_bytes_per_s"] == pytest.approx(68.256e9)
    line = watch("--replay", "s.sqlite", "--for", "1.2", cwd=tmp_path).stdout.splitlines()[-1]
    assert "SIMULATED  REPLAYED" in line and "(50 % of peak 68.3" in line
    found = session(tmp_path, "again.sqlite")
    assert {sample.quality for sample in found.samples} == {"simulated"}
    assert {signal.source for signal in found.signals} == {"replay"}
    for form in ("text", "md"):
        shown = (
            CliRunner()
            .invoke(cli, ["report", str(tmp_path / "again.sqlite"), "--format", form])
            .stdout
        )
        assert "Simulated samples" in shown and "Replayed samples" in shown
        assert f"watch on {board}" in shown
    summed = CliRunner().invoke(cli, ["report", str(tmp_path / "again.sqlite"), "--json"])
    counts = json.loads(summed.stdout)["session"]["samples"]
    assert counts["simulated"] == counts["replayed"] == len(found.samples)


def test_a_log_is_of_no_board_unless_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "tegra.log").write_text("".join(LOG.format(second=n) for n in range(20)))
    done = watch("--replay", "tegra.log", "--for", "1.2", "--json", cwd=tmp_path)
    device = json.loads(done.stdout.splitlines()[-1])["device"]
    assert device == {
        "name": "recorded log", "profile": None, "power_mode": None,
        "peak_bandwidth_bytes_per_s": None, "sustained_bandwidth_bytes_per_s": None,
    }  # fmt: skip


def test_p09_a_recording_is_not_replaced_by_its_replay(tmp_path: Path) -> None:
    recorded = simulated_session(tmp_path)
    content = recorded.read_bytes()
    (tmp_path / "link").symlink_to(recorded)
    for name in ("s.sqlite", "link"):
        for command in ([], ["--", "touch", "ran"]):
            done = watch("--replay", "s.sqlite", "-o", name, "--force", *command, cwd=tmp_path)
            assert done.returncode == 2 and "is replayed" in done.stderr
    assert recorded.read_bytes() == content and not (tmp_path / "ran").exists()


@pytest.mark.parametrize("recording", ["/etc/passwd", "/dev/null", "cut.sqlite", "bare.log"])
def test_a_recording_that_cannot_be_played_is_told_before(tmp_path: Path, recording: str) -> None:
    (tmp_path / "bare.log").write_text(LOG.format(second=1).partition(" RAM ")[2])
    (tmp_path / "cut.sqlite").write_bytes(b"SQLite format 3\0" + bytes(5000))
    before = sorted(tmp_path.iterdir())
    done = watch("--replay", recording, "-o", "s.sqlite", "--", "touch", "ran", cwd=tmp_path)
    assert done.returncode in (1, 2) and recording in done.stderr
    assert done.stdout == "" and "Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_p09_a_session_that_another_records_is_not_replaced(tmp_path: Path, start: Start) -> None:
    process = start("-o", "s.sqlite", "--interval", "0.1")
    assert process.stdout is not None and process.stdout.readline()
    for command in ([], ["--", "touch", "ran"]):
        second = watch("-o", "s.sqlite", "--force", *command, cwd=tmp_path)
        assert second.returncode == 2 and "is being recorded right now" in second.stderr
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=30)
    assert session(tmp_path).info.complete and not (tmp_path / "ran").exists()


def test_a_session_that_is_deleted_meanwhile_is_not_named(tmp_path: Path) -> None:
    done = watch("-o", "s.sqlite", "--", "sh", "-c", "rm s.sqlite; exit 6", cwd=tmp_path)
    assert done.returncode == 6
    assert "was deleted while it was recorded" in done.stderr
    assert "session: " not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [[], ["--", "sleep", "4"]])
def test_lines_say_once_why_a_figure_vanished(tmp_path: Path, command: list[str]) -> None:
    tree = build(tmp_path / "tree", "orin-nano")
    tree.set_emc(busy_frac=0.0, clock_hz=2_133_000_000)
    tree.set_gpu(busy_frac=0.95, clock_hz=612_000_000)
    ending = command or ["--for", "4"]
    done = watch("--root", "tree", "--interval", "0.1", "-o", "s.sqlite", *ending, cwd=tmp_path)
    told = [line for line in done.stderr.splitlines() if line.startswith("suspect: EMC busy")]
    assert len(told) == 1 and told[0].startswith("suspect: EMC busy (sysfs): ")
    lines = [line for line in (done.stderr + done.stdout).splitlines() if "  DRAM " in line]
    assert "EMC -" in lines[-1]


def test_hang_up_of_a_live_view_keeps_a_complete_session(tmp_path: Path, start: Start) -> None:
    process = start("--interval", "0.1", "-o", "s.sqlite")
    assert process.stdout is not None and "DRAM" in process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert session(tmp_path).info.complete


def test_hang_up_that_is_ignored_stays_so(tmp_path: Path, start: Start) -> None:
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does

    process = start("--interval", "0.1", "--for", "2", "-o", "s.sqlite", preexec_fn=ignore)
    assert process.stdout is not None and "DRAM" in process.stdout.readline()
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.mark.parametrize("command", [[], ["--", "sleep", "60"]])
def test_ctrl_c_again_and_again(tmp_path: Path, start: Start, command: list[str]) -> None:
    process = start("--interval", "0.1", "-o", "s.sqlite", *command)
    lines = process.stderr if command else process.stdout
    assert lines is not None
    while "DRAM" not in lines.readline():
        pass
    for _ in range(20):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.02)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err
    assert session(tmp_path).info.complete


def test_a_root_without_a_board_does_not_keep_the_command_waiting(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    began_ns = time.monotonic_ns()
    done = watch("--root", "empty", "-o", "s.sqlite", "--", "true", cwd=tmp_path)
    assert done.returncode == 0
    (leg,) = session(tmp_path).legs
    assert session(tmp_path).signals == []
    assert (leg.t0_ns - began_ns) / 1e9 < 2.5  # the sampler has three seconds to say something


def test_last_phase_lasts_until_the_command_ends(tmp_path: Path) -> None:
    code = "import edgeprof, time; edgeprof.mark('decode'); time.sleep(0.5)"
    watch("-q", "-o", "s.sqlite", "--", sys.executable, "-c", code, cwd=tmp_path)
    found = session(tmp_path)
    command, decode = found.legs
    assert (decode.status, decode.t1_ns) == ("interrupted", command.t1_ns)
    summed = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite"), "--json"])
    (phase,) = json.loads(summed.stdout)["phases"]
    assert (phase["count"], phase["interrupted"]) == (1, 1) and phase["total_s"] >= 0.5


def test_k05_help_needs_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from edgeprof.cli.commands import cli\n"
        "cli(['watch', '--help'], standalone_mode=False)\n"
        "print(sorted({'numpy', 'psutil', 'matplotlib', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "EDGEPROF_MARKS" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
