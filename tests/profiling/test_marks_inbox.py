"""The socket for marks, with real senders."""

import os
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edgeprof.profiling.marks_inbox import Datagram, MarksInbox


def came(inbox: MarksInbox, count: int) -> list[Datagram]:
    """The next ``count`` datagrams; fails after ten seconds."""
    found: list[Datagram] = []
    until = time.monotonic() + 10
    while len(found) < count and time.monotonic() < until:
        found += inbox.take()
        time.sleep(0.001)
    assert len(found) == count
    return found


def sender(inbox: MarksInbox) -> socket.socket:
    out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    out.connect(str(inbox.path))
    return out


def test_text_time_and_process() -> None:
    with MarksInbox() as inbox, sender(inbox) as out:
        before_ns = time.monotonic_ns()
        out.send(b"verify tokens=5")
        (datagram,) = came(inbox, 1)
    assert datagram.text == b"verify tokens=5"
    assert datagram.pid == os.getpid()
    assert before_ns <= datagram.received_ns <= time.monotonic_ns()


def test_two_lines_of_any_language_from_another_process() -> None:
    code = "import socket, sys\ns = socket.socket(socket.AF_UNIX, 2); s.sendto(b'x', sys.argv[1])"
    with MarksInbox() as inbox:
        child = subprocess.Popen([sys.executable, "-c", code, str(inbox.path)])
        (datagram,) = came(inbox, 1)
        assert child.wait() == 0
    assert datagram.pid == child.pid


def test_only_this_user_gets_at_it() -> None:
    with MarksInbox() as inbox:
        assert stat.S_IMODE(inbox.path.parent.stat().st_mode) == 0o700


def test_nothing_is_left_behind() -> None:
    with MarksInbox() as inbox:
        folder = inbox.path.parent
        assert inbox.path.is_socket()
    assert not folder.exists()


def test_sockets_of_killed_ones_are_cleared_away_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = (
        "import os, tempfile\n"
        "from edgeprof.profiling.marks_inbox import MarksInbox\n"
        f"tempfile.tempdir = {str(tmp_path)!r}\n"
        "inbox = MarksInbox()\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    (killed,) = tmp_path.iterdir()
    (tmp_path / "edgeprof-marks-mine").mkdir()
    with MarksInbox() as living, MarksInbox() as other:
        assert not killed.exists()
        assert living.path.is_socket() and other.path.is_socket()
    assert [folder.name for folder in tmp_path.iterdir()] == ["edgeprof-marks-mine"]


def test_what_came_before_the_end_is_taken_after_it() -> None:
    inbox = MarksInbox()
    with sender(inbox) as out:
        for number in range(500):
            out.send(str(number).encode())  # waits where the system's queue is full
    inbox.close()
    assert [int(datagram.text) for datagram in inbox.take()] == list(range(500))


def test_too_long_a_datagram_is_seen_to_be_too_long() -> None:
    with MarksInbox() as inbox, sender(inbox) as out:
        out.send(b"x" * 100_000)
        out.send(b"")
        long, empty = came(inbox, 2)
    assert len(long.text) == 513
    assert empty.text == b""


def test_flood_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeprof.profiling.marks_inbox._MOST_WAITING", 100)
    inbox = MarksInbox()
    with sender(inbox) as out:
        for _ in range(350):
            out.send(b"x")
    inbox.close()
    assert len(list(inbox.take())) == 100
    assert inbox.dropped == 250


def test_folder_whose_path_is_too_long_for_a_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with MarksInbox() as inbox, sender(inbox) as out:
        out.send(b"x")
        assert came(inbox, 1)[0].text == b"x"
    assert list(deep.iterdir()) == []
