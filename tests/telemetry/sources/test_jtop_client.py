"""The jtop client as a program: what it prints, and how it ends."""

import ast
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from emulated.jtop_standin import ORIN_NANO, StandIn

from edgeprof.telemetry.sources import jtop_client

CLIENT = Path(jtop_client.__file__)
PATIENCE_S = 30.0


@contextmanager
def running(command: Sequence[str], interval_s: float = 0.2) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [*command, "--interval", str(interval_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    timer = threading.Timer(PATIENCE_S, process.kill)
    timer.start()
    with process:
        yield process
        process.kill()
    timer.cancel()


def lines_of(command: Sequence[str], count: int, interval_s: float = 0.2) -> list[dict[str, Any]]:
    with running(command, interval_s) as process:
        assert process.stdout is not None
        return [json.loads(process.stdout.readline()) for _ in range(count)]


def last_word(command: Sequence[str]) -> tuple[dict[str, Any], int]:
    """The last line and the exit code of a client that ends by itself."""
    with running(command) as process:
        assert process.stdout is not None
        *_, last = process.stdout.readlines()
        return json.loads(last), process.wait()


def test_what_the_service_says_comes_as_it_is(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path / "v", updates=[{}])
    hello, update = lines_of(stand_in.command(CLIENT), 2)
    assert hello == {
        "kind": "hello",
        "interval_s": 0.2,
        "client_version": "7.2.2",
        "python": stand_in.python,
    }
    assert update["kind"] == "update"
    for section in ("gpu", "power", "temperature"):
        assert update[section] == ORIN_NANO[section]
    assert update["memory"]["EMC"] == ORIN_NANO["memory"]["EMC"]
    assert update["memory"]["SWAP"] == {"used": 1000, "tot": 3900000}
    assert update["cores_online"] == [True, True, False]
    assert update["power_mode"] == "15W"
    assert update["jetson_clocks"] is None  # this release has none
    age_s = update["heard_ns"] / 1e9 + update["boottime_offset_ns"] / 1e9 - update["uptime_s"]
    assert 0 <= age_s < 5


def test_what_came_with_the_connection_is_left_out(tmp_path: Path) -> None:
    """Averages and differences of the service start anew with it."""
    stand_in = StandIn(tmp_path / "v", first={"mode": "first"}, updates=[{"mode": "second"}])
    _, update = lines_of(stand_in.command(CLIENT), 2)
    assert update["power_mode"] == "second"


def test_s21_a_part_of_another_form_costs_that_part_only(tmp_path: Path) -> None:
    odd: dict[str, Any] = {
        "power": "not a dictionary",
        "cpu": {"cores": []},
        "temperature": {"cpu": {"temp": float("nan")}, "x" * 300: [[[[[[[["deep"]]]]]]]]},
    }
    _, update = lines_of(StandIn(tmp_path / "v", updates=[odd]).command(CLIENT), 2)
    assert update["power"] is None
    assert update["cores_online"] is None
    assert update["temperature"]["cpu"] == {"temp": None}
    assert "x" * 200 in update["temperature"]
    assert "deep" not in json.dumps(update)
    assert update["gpu"] == ORIN_NANO["gpu"]


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        ("no-socket", "no-service", 4),
        ("stale", "no-service", 4),
        pytest.param("denied", "no-permission", 5, id="s30-not-in-the-group"),
        pytest.param("version", "version", 6, id="s29-other-release"),
        pytest.param("pickle", "python", 7, id="s43-other-python"),
        ("key", "authentication", 8),
        ("data", "no-data", 9),
        ("eof", "lost", 10),
        ("bug", "failed", 1),
    ],
)
def test_every_way_not_to_connect_has_a_name(
    tmp_path: Path, failure: str, kind: str, code: int
) -> None:
    stand_in = StandIn(tmp_path / "v", updates=[], start=failure)
    error, exit_code = last_word(stand_in.command(CLIENT))
    assert (error["kind"], error["error"], exit_code) == ("error", kind, code)
    assert error["python"] == stand_in.python
    assert "\n" not in error["message"]
    if failure == "version":
        assert (error["service_version"], error["client_version"]) == ("4.3.2", "7.2.2")


@pytest.mark.parametrize(
    ("end", "kind", "code"),
    [("false", "silent", 11), ("lost", "lost", 10), ("stale", "lost", 10), ("bug", "failed", 1)],
)
def test_s27_every_end_in_use_has_a_name(tmp_path: Path, end: str, kind: str, code: int) -> None:
    stand_in = StandIn(tmp_path / "v", updates=[{}], end=end)
    error, exit_code = last_word(stand_in.command(CLIENT))
    assert (error["error"], exit_code) == (kind, code)


def test_without_jetson_stats_it_says_so() -> None:
    error, exit_code = last_word([sys.executable, "-I", "-S", str(CLIENT)])
    assert (error["error"], exit_code) == ("not-installed", 3)
    assert "No module named 'jtop'" in error["message"]


@pytest.mark.parametrize("failure", ["version", "pickle"])
def test_the_next_interpreter_is_tried_where_the_first_does_not_fit(
    tmp_path: Path, failure: str
) -> None:
    misfit = StandIn(tmp_path / "venv", updates=[], start=failure)
    fit = StandIn(tmp_path / "system", updates=[{}], version="4.3.2")
    hello, update = lines_of([*misfit.command(CLIENT), "--or-python", fit.python], 2)
    assert (hello["python"], hello["client_version"]) == (fit.python, "4.3.2")
    assert update["kind"] == "update"


def test_an_interpreter_that_is_gone_leaves_the_first_reason(tmp_path: Path) -> None:
    misfit = StandIn(tmp_path / "venv", updates=[], start="version")
    error, exit_code = last_word([*misfit.command(CLIENT), "--or-python", str(tmp_path / "gone")])
    assert (error["error"], exit_code) == ("version", 6)


def test_s33_it_falls_in_with_a_slower_client_that_came_first(tmp_path: Path) -> None:
    """One that waits for less than the service's own interval is cut off by the real client."""
    stand_in = StandIn(tmp_path / "v", updates=[{}], interval=1.0)
    hello, update = lines_of(stand_in.command(CLIENT), 2, interval_s=0.1)
    assert hello["interval_s"] == 1.0
    assert update["kind"] == "update"


@pytest.mark.parametrize("plan", [{"start": "hang"}, {"end": "hang"}])
def test_it_ends_when_stdin_is_closed_even_if_it_hangs(tmp_path: Path, plan: Any) -> None:
    with running(StandIn(tmp_path / "v", updates=[], **plan).command(CLIENT)) as process:
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(PATIENCE_S) == 0


def test_it_ends_with_its_parent_even_if_it_is_stopped(tmp_path: Path) -> None:
    """It sees no end of stdin then."""
    command = [*StandIn(tmp_path / "v", updates=[{}]).command(CLIENT), "--interval", "0.2"]
    parent_code = (
        "import subprocess, sys, time\n"
        f"client = subprocess.Popen({command!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "client.stdout.readline()\n"
        "print(client.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent_command = [sys.executable, "-c", parent_code]
    with subprocess.Popen(parent_command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        client = psutil.Process(int(parent.stdout.readline()))
        client.suspend()
        parent.kill()
        parent.wait()
    try:
        with suppress(psutil.NoSuchProcess):
            until_s = time.monotonic() + PATIENCE_S
            while client.status() != psutil.STATUS_ZOMBIE:
                assert time.monotonic() < until_s, f"it is {client.status()}"
                time.sleep(0.02)
    finally:
        with suppress(psutil.NoSuchProcess):
            client.kill()


def test_stdout_holds_lines_of_json_only(tmp_path: Path) -> None:
    """The package prints when it is imported, as libraries do."""
    with running(StandIn(tmp_path / "v", updates=[{}], end="false").command(CLIENT)) as process:
        assert process.stdout is not None and process.stderr is not None
        kinds = [json.loads(line)["kind"] for line in process.stdout]
        assert "libraries print where they like" in process.stderr.read()
    assert kinds == ["hello", "update", "error"]


def test_old_interpreters_of_boards_can_run_it() -> None:
    """JetPack 4 has Python 3.6 for its system and so for jetson-stats."""
    nodes = list(ast.walk(ast.parse(CLIENT.read_text(), feature_version=(3, 6))))
    modules = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {
        alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
    }
    assert {name.partition(".")[0] for name in modules} - {"jtop"} <= sys.stdlib_module_names
    # Annotations of functions are evaluated: generic ones must be quoted.
    annotations = [node.annotation for node in nodes if isinstance(node, ast.arg)]
    annotations += [node.returns for node in nodes if isinstance(node, ast.FunctionDef)]
    assert any(isinstance(annotation, ast.Name) for annotation in annotations)
    assert not any(isinstance(annotation, ast.Subscript | ast.BinOp) for annotation in annotations)
