"""``edgeprof watch`` on an emulated board with the real service."""

import json
import sys
import time
from collections.abc import Callable

import pytest
from emulated.namespace import EmulatedBoard
from emulated.recording import Recording

from edgeprof.session.store import read_session

Boards = Callable[[str], EmulatedBoard]

# A program of the user's own: two phases, then an exit code.
PROGRAM = """
import edgeprof, sys, time
print("its own words")
with edgeprof.mark("prefill", tokens=64, context=0):
    time.sleep(0.2)
with edgeprof.mark("warming up"):
    time.sleep(0.3)
sys.exit(7)
"""
# The peak at the clock that each board rests at: EMC x 2 x bus / 8.
PEAKS = {"orin-nano": 68.256e9, "orin-nano-super": 102.368e9, "agx-orin": 204.736e9,
         "nano": 25.6e9}  # fmt: skip


@pytest.mark.parametrize("name", ["orin-nano", "orin-nano-super", "agx-orin", "nano", "thor-like"])
def test_a_program_is_watched_from_its_start_to_its_end(boards: Boards, name: str) -> None:
    board = boards(name)
    board.tree.set_emc(busy_frac=0.5)
    path = board.open_folder / f"watched-{name}.sqlite"
    watch = ["watch", "-o", str(path), "--", sys.executable, "-c", PROGRAM]
    done = board.run([sys.executable, "-m", "edgeprof", *watch])
    assert (done.returncode, done.stdout) == (7, "its own words\n"), done.stderr
    session = read_session(path)
    assert session.info.complete
    command, mark = session.legs
    assert (command.kind, mark.kind, mark.name) == ("command", "mark", "warming_up")
    (prefill,) = session.passes
    assert (prefill.phase, prefill.tokens, prefill.leg_id) == ("prefill", 64, command.id)
    assert prefill.t1_ns - prefill.t0_ns >= 200_000_000
    names = {signal.id: signal.name for signal in session.signals}
    inside = {
        names[s.signal_id]: s.value
        for s in session.samples
        if command.t0_ns < s.t0_ns < (command.t1_ns or 0) and s.quality == "ok"
    }
    if name == "thor-like":
        assert inside.get("dram_bandwidth_bytes_per_s") is None
        assert inside["emc_clock_hz"] == 4.266e9
    else:
        assert inside["dram_bandwidth_bytes_per_s"] == pytest.approx(PEAKS[name] / 2)


def test_lines_for_programs_hold_what_is_set(boards: Boards) -> None:
    board = boards("orin-nano")
    board.tree.set_emc(busy_frac=0.8)
    board.tree.set_gpu(busy_frac=0.55)
    watch = ["watch", "--for", "3.5", "--interval", "0.5", "--json"]
    done = board.run([sys.executable, "-m", "edgeprof", *watch])
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["device"]["profile"] == "orin-nano-8gb"
    assert last["dram_bandwidth_bytes_per_s"] == pytest.approx(0.8 * 2133e6 * 32)
    assert (last["gpu_busy_frac"], last["power_w"]["total"]) == (0.55, 6.0)
    assert last["temp_c"]["cpu"] == 48.5
    assert last["signals"]["gpu_busy_frac"]["delivered_hz"] == pytest.approx(2.0, rel=0.25)


def test_one_source_is_enough_where_it_gives_everything(boards: Boards) -> None:
    """The service forks two programs an update: it is left alone where nothing is missing."""
    board = boards("orin-nano")
    with Recording(board) as recording:
        recording.wait_for_signals("sysfs", ["temp_c.cpu"], samples=2)
        programs = [*recording.processes().values()]
    assert not [line for line in programs if "jtop" in line or "tegrastats" in line]
    signals = {signal.name: signal for signal in recording.session.signals}
    assert {signals[name].source for name in board.tree.truth} == {"sysfs"}
    # 20 readings a second of what changes fast, ten of the rails, as far as this machine lets it.
    assert signals["emc_busy_frac"].delivered_hz == pytest.approx(20, rel=0.25)
    assert signals["power_w.total"].delivered_hz == pytest.approx(10, rel=0.25)


def test_throttling_is_told(boards: Boards) -> None:
    board = boards("agx-orin")
    board.tree.set_cooling("cpu-throttle-alert", 2)
    board.tree.set_over_current("oc1", 4)
    with Recording(board, "sysfs") as recording:
        recording.wait_for_signals("sysfs", ["throttle_events.oc1"])
        board.tree.set_over_current("oc1", 7)
        told = recording.wait_for_event("throttling")
    assert told == {"counter": "oc1", "from": 4, "to": 7}
    tracks = recording.tracks("sysfs")
    assert tracks["cooling_state.cpu-throttle-alert"].values[-1] == 2
    assert tracks["throttle_events.oc1"].values[-1] == 7


def test_how_busy_the_processor_is(boards: Boards) -> None:
    """Three quarters of the time that passes between two readings."""
    board = boards("orin-nano")
    with Recording(board, "sysfs") as recording:
        recording.wait_for_signals("sysfs", ["cpu_online"])
        deadline_s = time.monotonic() + 3
        while time.monotonic() < deadline_s and not _cpu(recording):
            board.tree.add_cpu_ticks(busy=30, idle=10)
            time.sleep(0.1)
    assert _cpu(recording) and {*_cpu(recording)} == {0.75}


def _cpu(recording: Recording) -> list[float]:
    track = recording.tracks("sysfs").get("cpu_busy_frac")
    return [] if track is None else [value for value in track.values if value]
