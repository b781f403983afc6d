"""What fails while a command is watched is edgeprof's affair, and never the command's."""

import errno
import time
from pathlib import Path
from typing import Any

import pytest

from edgeprof.errors import EnvironmentFault
from edgeprof.profiling.watching import Watch, describe_board, watch_command
from edgeprof.session.store import SessionWriter, read_session


class Unseen:
    def take(self, record: Any) -> None: ...

    def show(self, now_ns: int) -> None: ...


def run(folder: Path, script: str, view: Any = None) -> tuple[int, list[str]]:
    """Exit code and what was said."""
    said: list[str] = []
    watch = Watch(output=folder / "s.sqlite", sources=["host"])
    code = watch_command(watch, ["sh", "-c", script], view=view or Unseen(), talk=said.append)
    return code, said


def test_full_disk_does_not_touch_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = SessionWriter.commit
    until = time.monotonic() + 0.6

    def fail_later(writer: SessionWriter) -> None:
        if time.monotonic() > until:
            raise EnvironmentFault("s.sqlite: cannot be written: disk is full")
        commit(writer)

    monkeypatch.setattr(SessionWriter, "commit", fail_later)
    code, said = run(tmp_path, f"sleep 1.5; touch {tmp_path}/finished; exit 4")
    assert code == 4 and (tmp_path / "finished").exists()
    assert said == ["the recording of sh ended early: s.sqlite: cannot be written: disk is full"]
    session = read_session(tmp_path / "s.sqlite")
    assert not session.info.complete
    assert session.info.ended_reason == "s.sqlite: cannot be written: disk is full"


def test_a_fault_of_our_own_does_not_touch_the_command(tmp_path: Path) -> None:
    class Broken(Unseen):
        def show(self, now_ns: int) -> None:
            raise ZeroDivisionError("a bug")

    code, said = run(tmp_path, f"sleep 0.3; touch {tmp_path}/finished; exit 4", Broken())
    assert code == 4 and (tmp_path / "finished").exists()
    assert said == ["the recording of sh ended early: ZeroDivisionError: a bug"]


def test_sampler_that_cannot_be_started_does_not_touch_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr("edgeprof.profiling.children._start", refuse)
    code, _ = run(tmp_path, "exit 4")
    assert code == 4
    session = read_session(tmp_path / "s.sqlite")
    assert session.info.complete and not session.samples
    assert "death" in {event.kind for event in session.events}


def test_no_room_for_a_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("edgeprof.profiling.watching.MarksInbox", refuse)
    monkeypatch.delenv("EDGEPROF_MARKS", raising=False)
    code, said = run(tmp_path, 'test -z "$EDGEPROF_MARKS"')
    assert code == 0
    assert said == ["warning: no marks can be taken: Too many open files"]


def test_what_is_known_of_a_machine_without_a_board(tmp_path: Path) -> None:
    device = describe_board(Watch(root=tmp_path))
    assert device["kind"] == "host"
    assert "peak_bandwidth_bytes_per_s" not in device


def test_named_board_brings_its_figures(tmp_path: Path) -> None:
    device = describe_board(Watch(root=tmp_path, device="orin-nano"))
    assert device["profile"] == "orin-nano-8gb" and device["power_mode"] == "15W"
    assert device["peak_bandwidth_bytes_per_s"] == pytest.approx(2133e6 * 32)
