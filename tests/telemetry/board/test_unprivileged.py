"""A user without rights on a board whose debugfs only root may enter."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from emulated.namespace import EmulatedBoard
from emulated.recording import Recording

Boards = Callable[[str], EmulatedBoard]

BUSY, CLOCK, BANDWIDTH = "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"


@contextmanager
def sensor(board: EmulatedBoard) -> Iterator[None]:
    """``edgeprof sensor`` runs as root, for the user without rights."""
    command = [sys.executable, "-m", "edgeprof", "sensor", "--user", str(board.user_id)]
    with board.popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            lines: list[str] = []
            while "lending" not in (line := process.stderr.readline()):
                assert line, lines
                lines.append(line)
            yield
        finally:
            process.terminate()


def edgeprof(board: EmulatedBoard, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command of edgeprof as the user without rights."""
    return board.run([sys.executable, "-m", "edgeprof", *arguments], unprivileged=True)


def test_without_a_sensor_the_memory_is_unknown_and_the_way_out_is_named(boards: Boards) -> None:
    board = boards("orin-nano")
    board.tree.set_emc(busy_frac=0.8)
    board.tree.set_gpu(busy_frac=0.5)
    with Recording(board, interval_s=0.1, unprivileged=True) as recording:
        told = recording.wait_for_event("absent", source="sysfs", signal=BANDWIDTH)
        recording.wait_for_event("absent", source="tegrastats", signal=BANDWIDTH)
        recording.wait_for_signals("sysfs", ["gpu_busy_frac", "power_w.total"], samples=3)
    assert "root" in told["reason"]
    assert told["fix"] == "edgeprof sensor (it prints the sudo command)"
    values = {
        signal.name: {s.value for s in recording.session.samples if s.signal_id == signal.id}
        for signal in recording.session.signals
    }
    assert values["gpu_busy_frac"] == {0.5}
    for name in (BUSY, CLOCK, BANDWIDTH):  # not even a zero
        assert values.get(name, set()) <= {None}


def test_the_service_tells_its_group_the_clock_but_no_share(boards: Boards) -> None:
    board = boards("orin-nano")
    board.tree.set_emc(busy_frac=0.8, clock_hz=665_600_000)
    with Recording(board, interval_s=0.2, unprivileged=True, in_jtop_group=True) as recording:
        recording.wait_for_signals("jtop", [CLOCK], samples=2)
    assert {*recording.tracks("jtop")[CLOCK].values} == {665.6e6}
    for source in ("sysfs", "tegrastats", "jtop"):
        assert not {BUSY, BANDWIDTH} & {*recording.tracks(source)}


@pytest.mark.parametrize("name", ["orin-nano", "nano"])
def test_with_a_sensor_the_memory_is_read(boards: Boards, name: str) -> None:
    board = boards(name)
    board.tree.set_emc(busy_frac=0.4)
    if board.one_user:  # there is nobody to lend anything to
        refused = board.run([sys.executable, "-m", "edgeprof", "sensor", "--user", "0"])
        assert (refused.returncode, "root needs no sensor" in refused.stderr) == (2, True)
        return
    with sensor(board), Recording(board, interval_s=0.1, unprivileged=True) as recording:
        recording.wait_for_signals("sysfs", [BUSY, CLOCK, BANDWIDTH], samples=3)
        board.tree.set_emc(busy_frac=0.6)
        recording.wait_until(
            lambda: recording.tracks("sysfs")[BUSY].values[-1] == pytest.approx(0.6),
            "the change is not seen",
        )
    truth = board.tree.truth
    track = recording.tracks("sysfs")[BANDWIDTH]
    assert track.values[0] == pytest.approx(truth[BANDWIDTH] * 0.4 / 0.6)
    assert track.values[-1] == pytest.approx(truth[BANDWIDTH])
    assert {sample.quality for sample in track.samples} == {"ok"}


def test_watch_shows_the_bandwidth_through_the_sensor(boards: Boards) -> None:
    board = boards("orin-nano")
    board.tree.set_emc(busy_frac=0.8)
    without = edgeprof(board, "watch", "--for", "2.5")
    assert without.returncode == 0, without.stderr
    assert "DRAM -" in without.stdout and "GB/s" not in without.stdout
    assert "edgeprof sensor (it prints the sudo command)" in without.stdout + without.stderr
    if board.one_user:
        return
    with sensor(board):
        seen = edgeprof(board, "watch", "--for", "2.5")
    assert seen.returncode == 0, seen.stderr
    # 0.8 x 2133 MHz x 32 bytes a clock
    assert "54.6 GB/s" in seen.stdout
