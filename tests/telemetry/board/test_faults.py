"""What goes wrong under a recording that runs: the service, the files, the sampler's children.

Whatever it is, nothing hangs, nothing is invented, what still can be read is read on, and the
session tells of it.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest
from emulated.namespace import EmulatedBoard
from emulated.recording import Recording

from edgeprof.analysis.summary import summarise
from edgeprof.session.store import read_session

Boards = Callable[[str], EmulatedBoard]

IN_FLIGHT_NS = 200_000_000  # what a child sent before the fault may arrive after it
BUSY, CLOCK, GPU = "emc_busy_frac", "emc_clock_hz", "gpu_busy_frac"


@pytest.fixture
def board(boards: Boards) -> Iterator[EmulatedBoard]:
    """A board under load; its service, whatever befell it, is made anew afterwards."""
    board = boards("orin-nano")
    board.tree.set_emc(busy_frac=0.8)
    board.tree.set_gpu(busy_frac=0.5)
    yield board
    if board.service_runs:
        board.kill_service()


def goes_on(recording: Recording, source: str, name: str) -> None:
    """From now on there are more known samples of a signal."""
    now_ns = time.monotonic_ns()

    def is_newer() -> bool:
        track = recording.tracks(source).get(name)
        return track is not None and sum(s.t0_ns > now_ns for s in track.samples) >= 3

    recording.wait_until(is_newer, f"{source} does not tell {name} any more")


def known_after(recording: Recording, source: str, t_ns: int) -> dict[str, list[float]]:
    """The values that a source told of a time after ``t_ns``."""
    values = {
        name: [s.value for s in track.samples if s.t0_ns > t_ns and s.value is not None]
        for name, track in recording.tracks(source).items()
    }
    return {name: those for name, those in values.items() if those}


# ---- the service


def test_s27_a_service_that_is_stopped(board: EmulatedBoard) -> None:
    with Recording(board, "sysfs", "jtop", interval_s=0.1) as recording:
        recording.wait_for_signals("jtop", [GPU], samples=3)
        board.stop_service()
        stopped_ns = time.monotonic_ns()
        told = recording.wait_for_event("absent", source="jtop", signal="*")
        goes_on(recording, "sysfs", GPU)
    assert "service" in told["reason"] and told["fix"]
    assert known_after(recording, "jtop", stopped_ns) == {}
    assert recording.session.info.complete
    (gap,) = recording.events("gap", source="jtop")
    assert gap["since_ns"] < stopped_ns < gap["until_ns"]


def test_s27_a_service_that_is_killed_and_started_again(board: EmulatedBoard) -> None:
    with Recording(board, "jtop", "host", interval_s=0.1) as recording:
        recording.wait_for_signals("jtop", [GPU], samples=3)
        board.kill_service()
        killed_ns = time.monotonic_ns()
        recording.wait_for_event("absent", source="jtop", signal="*")
        board.tree.set_gpu(busy_frac=0.9)
        started_ns = time.monotonic_ns()
        board.start_service()
        gap = recording.wait_for_event("gap", source="jtop")
        goes_on(recording, "jtop", GPU)
    assert gap["since_ns"] < killed_ns
    assert gap["until_ns"] > started_ns
    later = known_after(recording, "jtop", killed_ns)
    assert {*later[GPU]} == {0.9}
    assert all(
        not killed_ns < sample.t0_ns < started_ns
        for track in recording.tracks("jtop").values()
        for sample in track.samples
    )


def test_a_socket_that_nobody_listens_at(board: EmulatedBoard) -> None:
    board.kill_service()
    with Recording(board, "jtop", "host", interval_s=0.1) as recording:
        told = recording.wait_for_event("absent", source="jtop", signal="*")
        goes_on(recording, "host", "ram_used_bytes")
    assert "/run/jtop.sock" in told["reason"]
    assert "systemctl restart jtop" in told["fix"]
    assert recording.tracks("jtop") == {}


def test_no_service_at_all(board: EmulatedBoard) -> None:
    board.kill_service()
    assert board.run(["rm", "/run/jtop.sock"]).returncode == 0
    with Recording(board, "jtop", "host", interval_s=0.1) as recording:
        told = recording.wait_for_event("absent", source="jtop", signal="*")
        goes_on(recording, "host", "ram_used_bytes")
    assert "does not run" in told["reason"]
    assert recording.tracks("jtop") == {}


def test_s30_a_user_outside_the_group_of_the_service(board: EmulatedBoard) -> None:
    if board.one_user:  # who owns the socket
        board.run(["chmod", "0", "/run/jtop.sock"])
    with Recording(board, "jtop", "host", interval_s=0.1, unprivileged=True) as recording:
        told = recording.wait_for_event("absent", source="jtop", signal="*")
        goes_on(recording, "host", "ram_used_bytes")
    assert "/run/jtop.sock" in told["reason"] and "jtop" in told["fix"]
    assert recording.tracks("jtop") == {}


def test_a_service_that_hangs_while_the_client_connects(board: EmulatedBoard) -> None:
    """The client itself then waits for ever."""
    board.suspend_service()
    with Recording(board, "sysfs", "jtop", interval_s=0.1) as recording:
        begun_ns = time.monotonic_ns()
        goes_on(recording, "sysfs", GPU)
        told = recording.wait_for_event("absent", source="jtop", signal="*")
        assert time.monotonic_ns() - begun_ns < 16e9  # at the first of several times 8 s
        assert told["reason"] == "the jtop service does not answer (its worker hangs)"
        assert told["fix"] == "sudo systemctl restart jtop.service"
        assert recording.tracks("jtop") == {}
        board.resume_service()
        recording.wait_for_signals("jtop", [GPU])
    assert {*recording.tracks("jtop")[GPU].values} == {0.5}


def test_a_recording_ends_while_the_service_hangs(board: EmulatedBoard) -> None:
    board.suspend_service()
    with Recording(board, "sysfs", "jtop", interval_s=0.1) as recording:
        goes_on(recording, "sysfs", GPU)
        processes = recording.processes()
        asked_s = time.monotonic()
    assert time.monotonic() - asked_s < 5
    assert any("jtop_client" in line for line in processes.values())
    assert not [pid for pid in processes if os.path.exists(f"/proc/{pid}")]
    (told,) = recording.events("absent", source="jtop")
    assert told["signal"] == "*" and "not answered yet" in told["reason"]
    board.resume_service()


def test_a_service_that_hangs_in_mid_run(board: EmulatedBoard) -> None:
    with Recording(board, "sysfs", "jtop", interval_s=0.1) as recording:
        recording.wait_for_signals("jtop", [GPU], samples=3)
        board.suspend_service()
        suspended_ns = time.monotonic_ns()
        recording.wait_for_event("absent", source="jtop", signal="*")
        goes_on(recording, "sysfs", GPU)
        assert known_after(recording, "jtop", suspended_ns) == {}
        board.resume_service()
    assert recording.session.info.complete


def test_the_percentage_of_the_service_is_checked_against_tegrastats(board: EmulatedBoard) -> None:
    """As where no file tells the share of the EMC."""
    with Recording(board, "tegrastats", "jtop", interval_s=0.1) as recording:
        check = recording.wait_for_event("emc_check", source="jtop")
    assert check["against"] == "tegrastats" and check["agreed"] is False
    assert [0.0, 0.8] in check["pairs"]
    assert check["reason"] == "said 0.00% where 80.00% was true"


def test_a_recording_that_ends_before_the_percentage_is_checked(board: EmulatedBoard) -> None:
    with Recording(board, "jtop", interval_s=0.5) as recording:
        recording.wait_for_signals("jtop", [GPU])
    (check,) = recording.events("emc_check", source="jtop")
    assert (check["agreed"], check["against"], check["pairs"]) == (False, None, [])
    (told,) = recording.events("absent", source="jtop", signal=BUSY)
    assert "neither the node nor tegrastats tells it" in told["reason"]


@contextmanager
def other_client(board: EmulatedBoard, interval_s: float) -> Iterator[None]:
    """Somebody else who is connected to the service."""
    code = (
        "import sys\nfrom jtop import jtop\n"
        f"with jtop({interval_s}) as client:\n"
        "    while client.ok():\n        print('ok', flush=True)\n"
    )
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with board.popen(command, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None and process.stdout.readline() == "ok\n"
        try:
            yield
        finally:
            process.kill()


def test_s33_another_client_came_first_with_a_longer_interval(board: EmulatedBoard) -> None:
    with other_client(board, 1.0), Recording(board, "jtop", interval_s=0.1) as recording:
        told = recording.wait_for_event("interval", source="jtop")
        recording.wait_for_signals("jtop", [GPU], samples=3)
    assert (told["asked_s"], told["given_s"]) == (0.1, 1.0)
    track = recording.tracks("jtop")[GPU]
    assert track.signal.asked_hz == 10
    assert track.signal.delivered_hz == pytest.approx(1.0, rel=0.2)
    assert {*track.values} == {0.5}


def test_another_client_comes_later(board: EmulatedBoard) -> None:
    with Recording(board, "jtop", interval_s=0.1) as recording:
        recording.wait_for_signals("jtop", [GPU], samples=3)
        with other_client(board, 1.0):
            goes_on(recording, "jtop", GPU)
            # One event is shared by all clients of the service, and each of them clears it.
            goes_on(recording, "jtop", GPU)
    assert {*recording.tracks("jtop")[GPU].values} == {0.5}


# ---- the files


def test_a_node_is_removed_and_comes_back(board: EmulatedBoard) -> None:
    node = board.tree.emc_activity[0]
    with Recording(board, "sysfs", "tegrastats", "jtop", interval_s=0.1) as recording:
        for source, name in (("sysfs", BUSY), ("tegrastats", BUSY), ("jtop", CLOCK)):
            recording.wait_for_signals(source, [name], samples=2)
        board.tree.remove(node)
        removed_ns = time.monotonic_ns()
        for source in ("sysfs", "tegrastats", "jtop"):
            goes_on(recording, source, GPU)
        restored_ns = time.monotonic_ns()
        board.tree.set_gpu(busy_frac=0.6)
        board.tree.restore(node)
        goes_on(recording, "sysfs", BUSY)
        goes_on(recording, "tegrastats", BUSY)
    for source in ("sysfs", "tegrastats"):
        track = recording.tracks(source)[BUSY]
        assert {*track.values} == {0.8}
        # A line may have been under way when the node was removed.
        inside = [s for s in track.samples if removed_ns + 5e7 < s.t0_ns and s.t1_ns < restored_ns]
        assert inside and all(sample.value is None for sample in inside)
    assert {*recording.tracks("jtop")[CLOCK].values} == {2.133e9}


def test_a_counter_that_is_lost_in_mid_run_is_told_and_taken_back(board: EmulatedBoard) -> None:
    node = board.tree.emc_activity[0]
    with Recording(board) as recording:
        recording.wait_for_signals("sysfs", [BUSY, GPU], samples=3)
        board.tree.remove(node)
        removed_ns = time.monotonic_ns()
        told = recording.wait_for_event("absent", source="sysfs", signal=BUSY)
        # tegrastats reads the same file: all that it can add is to say so.
        recording.wait_for_event("absent", source="tegrastats", signal=BUSY)
        board.tree.restore(node)
        restored_ns = time.monotonic_ns()
        goes_on(recording, "sysfs", BUSY)
    assert "no such file" in told["reason"]
    (gap,) = recording.events("gap", source="sysfs", signal=BUSY)
    assert gap["since_ns"] < removed_ns + IN_FLIGHT_NS
    assert restored_ns < gap["until_ns"]
    track = recording.tracks("sysfs")[BUSY]
    assert {*track.values} == {0.8}
    # Twenty readings a second for one second; then the signal was left to others.
    assert 3 <= len(track.samples) - len(track.values) <= 25
    (loss,) = [line for line in warnings(recording) if line.startswith(f"{BUSY}, ")]
    assert "no value from" in loss and "the mean covers" in loss


def test_a_memory_clock_that_changes_in_mid_run_is_told(board: EmulatedBoard) -> None:
    with Recording(board, "sysfs") as recording:
        recording.wait_for_signals("sysfs", [CLOCK], samples=3)
        for node in board.tree.emc_clock:  # the activity still averages over the clock before
            board.tree.put(node, 665_600_000)
        told = recording.wait_for_event("clock_change")
        board.tree.set_emc(clock_hz=665_600_000)
        goes_on(recording, "sysfs", BUSY)
    assert (told["signal"], told["from"], told["to"]) == (CLOCK, 2133e6, 665.6e6)
    assert any("the memory clock moved between 666 and 2133 MHz" in w for w in warnings(recording))
    busy = recording.tracks("sysfs")[BUSY]
    assert {*busy.values} == {0.8} and len(busy.values) < len(busy.samples)


def warnings(recording: Recording) -> list[str]:
    return summarise(recording.session).warnings


def test_a_node_reads_empty(board: EmulatedBoard) -> None:
    """This ends the thread of the service that reads: its clients wait for nothing."""
    with Recording(board, "sysfs", "jtop", interval_s=0.1) as recording:
        recording.wait_for_signals("jtop", [GPU], samples=3)
        assert board.tree.gpu_load is not None
        board.tree.empty(board.tree.gpu_load)
        emptied_ns = time.monotonic_ns()
        recording.wait_for_event("absent", source="jtop", signal="*")
        goes_on(recording, "sysfs", BUSY)
        assert GPU not in known_after(recording, "sysfs", emptied_ns + 10_000_000)
        board.tree.restore(board.tree.gpu_load)
        goes_on(recording, "sysfs", GPU)
    assert recording.session.info.complete
    assert {*recording.tracks("sysfs")[GPU].values} == {0.5}


def test_rights_are_taken_away_in_mid_run(board: EmulatedBoard) -> None:
    """A descriptor that is kept goes on to read; one that is opened anew does not."""
    assert board.tree.gpu_load is not None
    with Recording(board, "sysfs", interval_s=0.1, unprivileged=True) as recording:
        recording.wait_for_signals("sysfs", [GPU], samples=2)
        board.tree.chmod(board.tree.gpu_load, 0)
        goes_on(recording, "sysfs", "gpu_clock_hz")
    assert {*recording.tracks("sysfs")[GPU].values} == {0.5}
    with Recording(board, "sysfs", interval_s=0.1, unprivileged=True) as recording:
        told = recording.wait_for_event("absent", source="sysfs", signal=GPU)
        goes_on(recording, "sysfs", "gpu_clock_hz")
    assert "permi" in told["reason"].lower() or "may not" in told["reason"]
    assert GPU not in recording.tracks("sysfs")


def test_a_gpu_that_is_switched_off_has_no_clock_from_anybody(board: EmulatedBoard) -> None:
    sources = ("sysfs", "tegrastats", "jtop")
    with Recording(board, *sources, interval_s=0.1) as recording:
        for source in sources:
            recording.wait_for_signals(source, ["gpu_clock_hz"], samples=2)
        board.tree.set_gpu(clock_hz=0)
        off_ns = time.monotonic_ns()
        for source in sources:
            goes_on(recording, source, CLOCK)
        board.tree.set_gpu(clock_hz=510_000_000)
        on_ns = time.monotonic_ns()
        for source in sources:
            goes_on(recording, source, "gpu_clock_hz")
    for source in sources:
        track = recording.tracks(source)["gpu_clock_hz"]
        assert 0 not in track.values, source
        inside = [s for s in track.samples if off_ns + 1e8 < s.t0_ns and s.t1_ns < on_ns]
        assert inside and {sample.value for sample in inside} == {None}, source


# ---- the sampler and its children


def process_of(recording: Recording, what: str) -> int:
    (pid,) = [pid for pid, line in recording.processes().items() if what in line]
    return pid


def assert_ended(processes: Mapping[int, str]) -> None:
    until_s = time.monotonic() + 10
    while time.monotonic() < until_s and any(os.path.exists(f"/proc/{pid}") for pid in processes):
        time.sleep(0.05)
    assert not [line for pid, line in processes.items() if os.path.exists(f"/proc/{pid}")]


def assert_gap(recording: Recording, gap: dict[str, Any], name: str, at_ns: int) -> None:
    """The gap holds the moment of the fault, and no sample."""
    assert gap["since_ns"] < at_ns + IN_FLIGHT_NS and gap["until_ns"] > at_ns
    track = recording.tracks(gap.get("source", "sysfs"))[name]
    assert [
        sample for sample in track.samples if at_ns + IN_FLIGHT_NS < sample.t0_ns < gap["until_ns"]
    ] == []


def test_a_sampler_that_is_suspended_is_replaced(board: EmulatedBoard) -> None:
    with Recording(board, "sysfs", interval_s=0.1) as recording:
        recording.wait_for_signals("sysfs", [BUSY], samples=3)
        pid = process_of(recording, "profiling.sampling")
        os.kill(pid, signal.SIGSTOP)
        at_ns = time.monotonic_ns()
        gap = recording.wait_for_event("gap", process="sampler")
        goes_on(recording, "sysfs", BUSY)
    assert "silent" in gap["cause"]
    assert_gap(recording, gap, BUSY, at_ns)
    assert not os.path.exists(f"/proc/{pid}")


def test_sources_that_are_suspended_are_replaced(board: EmulatedBoard) -> None:
    streams = {"tegrastats": "emulated.tegrastats", "jtop": "jtop_client"}
    with Recording(board, "sysfs", *streams, interval_s=0.1) as recording:
        for source in streams:
            recording.wait_for_signals(source, [GPU], samples=3)
        pids = [process_of(recording, program) for program in streams.values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        at_ns = time.monotonic_ns()
        goes_on(recording, "sysfs", GPU)
        gaps = [recording.wait_for_event("gap", source=source) for source in streams]
        for source in streams:
            goes_on(recording, source, GPU)
    for gap in gaps:
        assert_gap(recording, gap, GPU, at_ns)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]


@pytest.mark.parametrize(
    ("what", "source"), [("profiling.sampling", "sysfs"), ("emulated.tegrastats", "tegrastats")]
)
def test_a_child_that_is_killed_is_replaced(board: EmulatedBoard, what: str, source: str) -> None:
    with Recording(board, source, interval_s=0.1) as recording:
        recording.wait_for_signals(source, [BUSY], samples=3)
        os.kill(process_of(recording, what), signal.SIGKILL)
        at_ns = time.monotonic_ns()
        gap = recording.wait_for_event("gap")
        goes_on(recording, source, BUSY)
    assert_gap(recording, gap, BUSY, at_ns)


def test_a_recording_that_is_killed_leaves_a_session_and_no_process(board: EmulatedBoard) -> None:
    recording = Recording(board, "sysfs", "tegrastats", "jtop", interval_s=0.1)
    recording.__enter__()
    for source in ("sysfs", "tegrastats", "jtop"):
        recording.wait_for_signals(source, [GPU], samples=2)
    processes = recording.processes()
    recording.process.kill()
    recording.process.communicate(timeout=10)
    session = read_session(recording.path)
    assert not session.info.complete
    with closing(sqlite3.connect(recording.path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert len(recording.tracks("jtop")[GPU].values) >= 2
    assert_ended(processes)


def test_a_client_that_is_stopped_ends_with_the_recording_that_is_killed(
    board: EmulatedBoard,
) -> None:
    recording = Recording(board, "jtop", interval_s=0.1)
    recording.__enter__()
    recording.wait_for_signals("jtop", [GPU])
    processes = recording.processes()
    os.kill(process_of(recording, "jtop_client"), signal.SIGSTOP)
    recording.process.kill()
    recording.process.communicate(timeout=10)
    assert_ended(processes)
