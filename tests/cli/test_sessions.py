"""``edgeprof sessions``: the list, and repairs from the command line."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from edgeprof.cli.commands import cli
from edgeprof.session.records import Session
from edgeprof.session.store import SessionWriter, read_session


def sessions(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["sessions", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path: Path, session_file: Path) -> Path:
    """One session, one that is damaged beyond its header, and files that are none."""
    shutil.copyfile(session_file, tmp_path / "good.sqlite")
    shutil.copyfile(session_file, tmp_path / "cut.sqlite")
    with (tmp_path / "cut.sqlite").open("r+b") as file:
        file.truncate(4096)
    (tmp_path / "notes.txt").write_text("not one")
    (tmp_path / "report").mkdir()
    return tmp_path


def test_the_list(folder: Path) -> None:
    result = sessions(folder)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 4  # headers, a rule, two sessions
    assert lines[2].startswith("good.sqlite") and "complete" in lines[2]
    assert lines[3].startswith("cut.sqlite") and "damaged" in lines[3]
    assert "cut.sqlite: damaged" in result.stderr and "--repair" in result.stderr


def test_the_list_as_json(folder: Path, made_session: Session) -> None:
    document = json.loads(sessions(folder, "--json").stdout)
    assert document["schema"] == "edgeprof.sessions/1"
    good, cut = document["sessions"]
    assert (good["state"], cut["state"]) == ("complete", "damaged")
    assert good["created_utc"] == made_session.info.created_utc
    assert good["file_bytes"] == (folder / "good.sqlite").stat().st_size
    assert cut["reason"] and cut["recipe"] is None


def test_one_that_is_being_recorded(tmp_path: Path, made_session: Session) -> None:
    writer = SessionWriter(tmp_path / "live.sqlite", made_session.info)
    try:
        (entry,) = json.loads(sessions(tmp_path, "--json").stdout)["sessions"]
        assert entry["state"] == "recording"
    finally:
        writer.close()


def test_an_empty_folder(tmp_path: Path) -> None:
    result = sessions(tmp_path)
    assert result.exit_code == 0 and result.stdout == "" and "no session" in result.stderr
    assert sessions(tmp_path / "none").exit_code == 2
    assert sessions(tmp_path, "--force").exit_code == 2


def test_repair_prints_the_new_path(tmp_path: Path, session_file: Path) -> None:
    damaged = tmp_path / "run.sqlite"
    shutil.copyfile(session_file, damaged)
    result = sessions("--repair", damaged)
    assert result.exit_code == 0
    new = Path(result.stdout.strip())
    assert new == tmp_path / "run-repaired.sqlite"
    assert read_session(new) == read_session(session_file)
    again = sessions("--repair", damaged)
    assert again.exit_code == 2 and "exists already" in again.stderr


def test_no_repair_replaces_a_complete_session(tmp_path: Path, session_file: Path) -> None:
    """Not even with --force: one that was recorded whole, or saved whole, is worth more."""
    damaged, other = tmp_path / "run.sqlite", tmp_path / "other.sqlite"
    for copy in (damaged, other):
        shutil.copyfile(session_file, copy)
    with damaged.open("r+b") as file:
        file.truncate(damaged.stat().st_size * 3 // 4)
    refused = sessions("--repair", damaged, "-o", other, "--force")
    assert refused.exit_code == 2 and refused.stdout == ""
    assert "is a complete session" in refused.stderr and "choose another -o" in refused.stderr
    assert other.read_bytes() == session_file.read_bytes()


def test_force_replaces_what_an_earlier_repair_saved(tmp_path: Path, session_file: Path) -> None:
    damaged = tmp_path / "run.sqlite"
    shutil.copyfile(session_file, damaged)
    with damaged.open("r+b") as file:
        file.truncate(damaged.stat().st_size * 3 // 4)
    assert sessions("--repair", damaged).exit_code == 4
    assert sessions("--repair", damaged).exit_code == 2
    assert sessions("--repair", damaged, "--force").exit_code == 4


def test_repair_of_a_part_exits_with_4(tmp_path: Path, session_file: Path) -> None:
    damaged = tmp_path / "run.sqlite"
    shutil.copyfile(session_file, damaged)
    size = damaged.stat().st_size
    with damaged.open("r+b") as file:
        file.truncate(size * 3 // 4)
    result = sessions("--repair", damaged, "-o", tmp_path / "new.sqlite")
    assert result.exit_code == 4, result.stderr
    assert "not all of it could be recovered" in result.stderr
    assert not read_session(tmp_path / "new.sqlite").info.complete


def test_repair_of_garbage(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"\0" * 9000)
    result = sessions("--repair", tmp_path / "x.sqlite")
    assert result.exit_code == 1 and "x.sqlite" in result.stderr
    assert not (tmp_path / "x-repaired.sqlite").exists()
