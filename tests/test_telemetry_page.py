"""What docs/telemetry.md tells people to type does what it says there."""

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from edgeprof.telemetry.sensor import socket_path
from edgeprof.telemetry.source import BoardFigures
from edgeprof.telemetry.sources.tegrastats import TegrastatsStream

PAGE = (Path(__file__).parents[1] / "docs" / "telemetry.md").read_text()
C_PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
int main(void) {
%s
return 0;
}
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def inbox(tmp_path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listener.bind(str(tmp_path / "marks"))
    listener.settimeout(10)
    return listener


def run_marked(inbox: socket.socket, *command: str) -> bytes:
    """The datagram that a command sends."""
    with inbox:
        environment = {**os.environ, "EDGEPROF_MARKS": inbox.getsockname()}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return inbox.recv(1024)


def test_the_mark_of_python_with_edgeprof(inbox: socket.socket) -> None:
    sent = run_marked(inbox, sys.executable, "-c", blocks("python")[0])
    assert re.fullmatch(rb"verify t_ns=\d+ tokens=5 context=128", sent)


def test_the_mark_of_python_alone_is_two_lines(inbox: socket.socket) -> None:
    code = blocks("python")[1]
    assert len(code.splitlines()) == 2
    assert run_marked(inbox, sys.executable, "-W", "ignore", "-c", code) == (
        b"verify tokens=5 context=128"
    )


def test_the_mark_of_a_shell_is_two_lines(inbox: socket.socket) -> None:
    lines = next(block for block in blocks("sh") if "EDGEPROF_MARKS" in block)
    assert len(lines.splitlines()) == 2
    if shutil.which("perl") is None:
        pytest.skip("no perl here, by which the shell sends")
    assert run_marked(inbox, "sh", "-c", lines) == b"verify stream=0 tokens=5 context=128"


def test_the_mark_of_c_is_two_lines(inbox: socket.socket, tmp_path: Path) -> None:
    (code,) = blocks("c")
    assert len(code.splitlines()) == 2
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler here")
    source, program = tmp_path / "mark.c", tmp_path / "mark"
    source.write_text(C_PROGRAM % code)
    subprocess.run([compiler, "-Wall", "-Werror", "-o", program, source], check=True)
    assert run_marked(inbox, str(program)) == b"verify tokens=5 context=128"


def test_the_sensor_listens_where_the_page_says() -> None:
    assert "/run/edgeprof-UID/sensor.sock" in PAGE
    assert socket_path(1000) == "/run/edgeprof-1000/sensor.sock"
    assert f"EDGEPROF_SENSOR={socket_path(1000)}" in PAGE


def test_the_sudo_rule_permits_the_very_command_of_the_source() -> None:
    interval_ms = round(TegrastatsStream(BoardFigures()).interval_s * 1000)
    assert f"NOPASSWD: /usr/bin/tegrastats --interval {interval_ms}\n" in PAGE
