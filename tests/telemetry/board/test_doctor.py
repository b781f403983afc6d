"""``edgeprof doctor`` on an emulated board with the real jtop service, for who has no rights."""

import json
import sys
from collections.abc import Callable
from typing import Any

from emulated.namespace import EmulatedBoard

Boards = Callable[[str], EmulatedBoard]


def diagnosis(board: EmulatedBoard, *, unprivileged: bool) -> dict[str, Any]:
    command = [sys.executable, "-m", "edgeprof", "doctor", "--json"]
    done = board.run(command, unprivileged=unprivileged)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_user_is_told_the_very_command_that_opens_the_memory_counters(boards: Boards) -> None:
    board = boards("orin-nano")
    found = diagnosis(board, unprivileged=True)
    assert found["board"]["device"] == "orin-nano-8gb" and found["board"]["power_mode"] == "15W"
    signals = {signal["name"]: signal for signal in found["signals"]}
    bandwidth = signals["dram_bandwidth_bytes_per_s"]
    assert bandwidth["state"] == "absent" and "only root can open" in bandwidth["reason"]
    assert signals["power_w.total"]["state"] == "ok"
    assert signals["power_w.total"]["value"] == 6.0  # 5 V x 1.2 A
    commands = [step["command"] for step in found["next_steps"]]
    if board.one_user:  # root in disguise has nobody to lend anything
        return
    sensor = next(command for command in commands if "sensor.py" in command)
    assert sensor.startswith(f"sudo {sys.executable} -I -S -B ")
    assert sensor.endswith(f"--uid {board.user_id} --gid {board.user_id}")


def test_i06_i07_the_jtop_service_its_socket_and_every_client_are_told(boards: Boards) -> None:
    board = boards("orin-nano")
    found = diagnosis(board, unprivileged=True)["jtop"]
    assert found["socket"] == "/run/jtop.sock"
    assert found["socket_permission"].startswith("srw-rw----")
    assert any(copy["folder"].startswith(sys.prefix) for copy in found["copies"])
    if not board.one_user:
        assert "open to group jtop only" in found["reason"]
        assert found["fix"].startswith('sudo usermod -aG jtop "$USER", then log in again')
        assert found["commands"] == ['sudo usermod -aG jtop "$USER"', "newgrp jtop"]
    board.stop_service()
    without = diagnosis(board, unprivileged=False)["jtop"]
    assert without["socket"] is None or without["socket_permission"]
