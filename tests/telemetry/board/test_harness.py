"""The emulated board itself: the real service serves what is driven, and nothing stays behind."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from emulated.namespace import EmulatedBoard
from emulated.signals import HIGH, LOW, Average, SquareWave
from emulated.tree import Tree, build

Boards = Callable[[str], EmulatedBoard]

JTOP = """
import json
from jtop import jtop
with jtop(0.1) as client:
    client.ok()
    power = {**client.power["rail"], client.power["tot"].get("name"): client.power["tot"]}
    print(json.dumps([
        client.memory["EMC"]["cur"],
        {name: gpu["status"]["load"] for name, gpu in client.gpu.items()},
        {name: rail["power"] for name, rail in power.items() if name},
        {name: zone["temp"] for name, zone in client.temperature.items()},
        client.memory["RAM"]["used"],
    ]))
"""


@pytest.mark.parametrize("name", ["orin-nano", "orin-nano-super", "agx-orin", "thor-like", "nano"])
def test_the_real_service_serves_what_is_driven(boards: Boards, name: str) -> None:
    board = boards(name)
    rail = board.board.chips[-1].rails[1 if name == "agx-orin" else 0].label
    zone = board.board.zones[0].type
    board.tree.set_emc(clock_hz=665_600_000)
    board.tree.set_gpu(busy_frac=0.55)
    board.tree.set_rail(rail, mv=5000, ma=1500)
    board.tree.set_temperature(zone, 61.5)
    board.tree.set_memory(used_mib=1000)
    answer = board.run([sys.executable, "-c", JTOP])
    assert answer.returncode == 0, answer.stderr
    emc_khz, loads, milliwatts, temperatures, used_kb = json.loads(answer.stdout)
    assert emc_khz == 665_600
    assert loads == ({} if name == "thor-like" else {"gpu": 55.0})
    assert milliwatts[rail] == 7500
    assert temperatures[zone.partition("-")[0]] == 61.5
    assert used_kb == 1000 << 10


def test_a_plain_user_may_not_enter_debugfs(boards: Boards) -> None:
    board = boards("orin-nano")
    node = board.tree.emc_activity[0]
    assert board.run(["cat", node]).stdout.split() == ["0"]
    refused = board.run(["cat", node], unprivileged=True)
    assert (refused.stdout, "Permission denied" in refused.stderr) == ("", True)


def test_nothing_outside_changes(boards: Boards) -> None:
    places = [Path(place) for place in ("/sys", "/run", "/etc", "/usr/bin", sys.base_prefix)]

    def outside() -> list[object]:
        return [Path("/etc/group").read_bytes(), *(sorted(os.listdir(place)) for place in places)]

    before = outside()
    board = boards("orin-nano")
    assert board.run(["sh", "-c", "grep -c ^jtop: /etc/group && ls /run/jtop.sock"]).stdout == (
        "1\n/run/jtop.sock\n"
    )
    assert outside() == before


KILLED = """
import os, signal
from emulated.namespace import EmulatedBoard
board = EmulatedBoard("nano").__enter__()
board.start_service()
print(board.tree.root, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_test_leaves_no_process_and_no_file(boards: Boards) -> None:
    boards("nano")  # skips where there are no namespaces
    tests = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", KILLED],
        env={**os.environ, "PYTHONPATH": str(tests)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    work = Path(done.stdout.strip()).parent
    assert work.name.startswith("emulated-board-")
    until_s = time.monotonic() + 10
    while work.exists() and time.monotonic() < until_s:
        time.sleep(0.05)
    assert not work.exists()  # the holder removes it last, once every process is ended
    assert work.name not in _all_command_lines()


def _all_command_lines() -> str:
    lines = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it may have ended meanwhile
                lines.append((entry / "cmdline").read_bytes().decode(errors="replace"))
    return "\n".join(lines)


def test_a_square_wave_says_when_it_changed(tmp_path: Path) -> None:
    tree = build(tmp_path, "orin-nano")
    node = tree.path(tree.emc_activity[0])
    seen = []
    with SquareWave(tree, half_period_s=0.1, halves=4) as wave:
        while wave.is_alive():
            seen.append((time.monotonic_ns(), int(node.read_text()), time.monotonic_ns()))
    found = {
        (regime, value)
        for t0_ns, value, t1_ns in seen
        if (regime := wave.regime_at(t0_ns)) is not None and regime == wave.regime_at(t1_ns)
    }
    assert found == {(LOW, 426_600), (HIGH, 1_706_400)}  # 20 and 80 % of 2133 MHz, in kHz
    assert [step.regime for step in wave.steps] == [LOW, HIGH, LOW, HIGH]
    assert wave.steps[-1].t0_ns - wave.steps[0].t0_ns >= 250_000_000


def test_an_averaged_wave_follows_the_law_of_the_monitor(tmp_path: Path) -> None:
    tree = build(tmp_path, "nano")
    average = Average(exponent=3, period_s=0.01)
    assert average.time_constant_s == 0.08
    with SquareWave(tree, half_period_s=0.3, halves=2, average=average):
        pass
    # The low half starts at its level. Thirty steps on: 0.8 - 0.6 x (7/8)^30 = 0.789; the thread
    # may be late by one or two of them.
    assert _busy_frac(tree) == pytest.approx(0.789, abs=0.005)


def _busy_frac(tree: Tree) -> float:
    return int(tree.path(tree.emc_activity[0]).read_text()) * 1000 / 1.6e9


def test_a_node_that_is_taken_away_gives_nothing_on_a_kept_descriptor(tmp_path: Path) -> None:
    tree = build(tmp_path, "orin-nano")
    node = tree.emc_activity[0]
    with tree.path(node).open("rb", buffering=0) as kept:
        assert kept.read().split() == [b"0"]
        tree.remove(node)
        kept.seek(0)
        assert kept.read() == b""
    assert not tree.path(node).exists()
    tree.rest()
    assert tree.path(node).read_text().split() == ["0"]
