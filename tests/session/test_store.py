"""The session file: what goes in comes out, a kill loses nothing committed, bad files are told."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.session.columns import Samples, Tokens
from edgeprof.session.records import (
    Event,
    Leg,
    Pass,
    Record,
    Request,
    Round,
    Sample,
    Session,
    SessionInfo,
    Signal,
    Token,
)
from edgeprof.session.schema import APPLICATION_ID, RECORDS
from edgeprof.session.store import SessionWriter, check_output, keep_sessions, read_session

# Tables and columns that others rely on; more columns may follow.
COLUMNS = {
    "session": "id created_utc edgeprof_version schema_version kind recipe device environment "
    "models complete ended_reason",
    "leg": "id name kind variant repeat warmup t0_ns t1_ns status attrs",
    "request": "id leg_id prompt_sha256 prompt_tokens new_tokens stop_reason text",
    "round": "id leg_id request_id drafted evaluated accepted emitted t0_ns t1_ns attrs",
    "pass": "id leg_id round_id phase model provider stream tokens context_tokens t0_ns t1_ns",
    "token": "id leg_id request_id round_id position token_id origin",
    "signal": "id name unit source window_s window_kind",
    "sample": "signal_id t0_ns t1_ns value raw quality",
    "event": "leg_id t_ns kind severity detail",
}


def write(path: Path, info: SessionInfo, records: list[Record]) -> Path:
    writer = SessionWriter(path, info)
    for record in records:
        writer.add(record)
    writer.close()
    return path


def in_session(info: SessionInfo, records: list[Any]) -> Session:
    def of(kind: type[Any]) -> list[Any]:
        return [record for record in records if type(record) is kind]

    return Session(
        info=info,
        legs=of(Leg),
        requests=of(Request),
        rounds=of(Round),
        passes=of(Pass),
        tokens=Tokens.of(of(Token)),
        signals=of(Signal),
        samples=Samples.of(of(Sample)),
        events=of(Event),
    )


def test_what_goes_in_comes_out(tmp_path: Path, info: SessionInfo, records: list[Record]) -> None:
    path = write(tmp_path / "s.sqlite", info, records)
    assert read_session(path) == in_session(info, records)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
large = st.integers(0, 2**63 - 1)
by_type: dict[Any, st.SearchStrategy[Any]] = {
    int: large,
    float: st.floats(allow_nan=False),
    str: st.text(max_size=12),
    list[int]: st.lists(large, max_size=3),
    dict[str, Any]: st.dictionaries(st.text(max_size=6), json_values, max_size=3),
}


COUNTS = ("accepted", "emitted", "evaluated", "drafted")


def some(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any record of a kind, each field by its own annotation."""

    def values(annotation: Any) -> st.SearchStrategy[Any]:
        if annotation in by_type:
            return by_type[annotation]
        if hasattr(annotation, "__args__") and type(None) in annotation.__args__:
            return st.none() | st.one_of(
                *(values(part) for part in annotation.__args__ if part is not type(None))
            )
        return st.from_type(annotation)

    fields = {field.name: values(field.type) for field in msgspec.structs.fields(kind)}
    if kind is not Round:
        return st.builds(kind, **fields)
    # accepted, emitted, evaluated, drafted: in ascending order they fit together
    rising = st.lists(large, min_size=4, max_size=4).map(sorted)
    others = {name: values for name, values in fields.items() if name not in COUNTS}
    return st.builds(
        lambda counts, **rest: Round(**dict(zip(COUNTS, counts, strict=True)), **rest),
        rising,
        **others,
    )


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_session_survives_being_saved(
    info: SessionInfo, tmp_path: Path, data: st.DataObject
) -> None:
    records: list[Any] = []
    for table in RECORDS:
        drawn = data.draw(st.lists(some(table.kind), max_size=3), label=table.name)
        if "id" in table.kind.__struct_fields__:
            drawn = [msgspec.structs.replace(record, id=n) for n, record in enumerate(drawn)]
        records += drawn
    path = tmp_path / "s.sqlite"
    path.unlink(missing_ok=True)
    assert read_session(write(path, info, records)) == in_session(info, records)


@pytest.mark.parametrize(
    "counts",
    [
        {"evaluated": 5},  # of 4 drafted
        {"accepted": 3, "evaluated": 2},
        {"accepted": -1},
        {"emitted": -(2**62)},
        {"emitted": 6},  # 4 drafted and one of the target's own are 5
    ],
)
def test_a_round_whose_counts_do_not_fit_is_refused(
    tmp_path: Path, info: SessionInfo, records: list[Record], counts: dict[str, int]
) -> None:
    path = write(tmp_path / "s.sqlite", info, records)
    whole = {"drafted": 4, "evaluated": 3, "accepted": 2, "emitted": 3} | counts
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(
            "UPDATE round SET drafted = :drafted, evaluated = :evaluated, accepted = :accepted, "
            "emitted = :emitted",
            whole,
        )
    with pytest.raises(FileFault, match=r"table round, row 1: .* do not fit together"):
        read_session(path)


def test_a_damaged_text_is_not_quoted_in_full(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    path = write(tmp_path / "s.sqlite", info, records)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE session SET recipe = CAST(? AS TEXT)", (b"x" * 5000 + b"\xff",))
    with pytest.raises(FileFault, match="not a readable session") as caught:
        read_session(path)
    assert len(str(caught.value)) < 400


def test_a_record_written_again_takes_the_place_of_the_first(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    leg = records[0]
    assert isinstance(leg, Leg)
    ended = msgspec.structs.replace(leg, t1_ns=99, status="complete")
    path = write(tmp_path / "s.sqlite", info, [leg, ended])
    assert read_session(path).legs == [ended]


def test_sqlite_sees_the_tables_and_columns(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    path = write(tmp_path / "s.sqlite", info, records)
    connection = sqlite3.connect(path)
    for table, columns in COLUMNS.items():
        rows = connection.execute(f'SELECT {columns.replace(" ", ", ")} FROM "{table}"').fetchall()
        assert len(rows) == 1, table
    assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    assert connection.execute("SELECT json_extract(recipe, '$.name') FROM session").fetchone() == (
        "tiny",
    )
    connection.close()


def test_closing_leaves_one_file(tmp_path: Path, info: SessionInfo) -> None:
    writer = SessionWriter(tmp_path / "s.sqlite", info)
    writer.update_info(complete=True)
    writer.close()
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]
    assert read_session(tmp_path / "s.sqlite").info.complete


@pytest.fixture
def killed(tmp_path: Path, info: SessionInfo, records: list[Record]) -> Path:
    """A session as a kill leaves it: the file and its log, one record not yet committed."""
    writer = SessionWriter(tmp_path / "live.sqlite", info)
    for record in records:
        writer.add(record)
    writer.commit()
    writer.add(Event(leg_id=None, t_ns=9, kind="late", severity="info"))
    folder = tmp_path / "killed"
    folder.mkdir()
    for suffix in ("", "-wal"):
        shutil.copyfile(tmp_path / f"live.sqlite{suffix}", folder / f"live.sqlite{suffix}")
    writer.close()
    return folder / "live.sqlite"


def test_a_kill_loses_only_what_was_not_committed(
    killed: Path, info: SessionInfo, records: list[Record]
) -> None:
    assert read_session(killed) == in_session(info, records)


def test_without_its_log_a_killed_session_still_opens(killed: Path, info: SessionInfo) -> None:
    killed.with_name("live.sqlite-wal").unlink()
    assert read_session(killed) == in_session(info, [])


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """A folder that this process can read and not write, root's rights put aside."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    was = os.geteuid()
    yield folder
    os.seteuid(was)
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_killed_session_opens_in_a_folder_that_cannot_be_written(
    killed: Path, read_only_folder: Path, info: SessionInfo, records: list[Record]
) -> None:
    for file in (killed, killed.with_name("live.sqlite-wal")):
        shutil.copyfile(file, read_only_folder / file.name)
        (read_only_folder / file.name).chmod(0o444)
    read_only_folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
    before = sorted(file.name for file in read_only_folder.iterdir())
    assert read_session(read_only_folder / "live.sqlite") == in_session(info, records)
    assert sorted(file.name for file in read_only_folder.iterdir()) == before


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("PRAGMA application_id=0", "not a session of edgeprof"),
        ("PRAGMA user_version=99", "newer edgeprof"),
        ("DELETE FROM session", "has 0 rows"),
        ('DROP TABLE "pass"', "no table pass"),
        ('ALTER TABLE "pass" DROP COLUMN phase', "no column phase"),
        ("UPDATE pass SET phase = 'sleep'", "Invalid enum value 'sleep'"),
        ("UPDATE pass SET t0_ns = 'soon'", "t0_ns"),
        ("UPDATE pass SET tokens = NULL", "tokens"),
        ("UPDATE leg SET attrs = '{'", "table leg, row 1"),
        ("UPDATE leg SET attrs = 7", "Expected `object`"),
        ("UPDATE leg SET attrs = x'7b7d'", "Expected JSON text"),
        ("UPDATE leg SET warmup = 7", "warmup"),
        ("UPDATE session SET models = '{\"t\": {}}'", "table session"),
        ("UPDATE sample SET value = 'fast'", "value"),
        ("UPDATE request SET text = x'ff00'", "text"),
        ("UPDATE request SET text_ends = '[\"x\"]'", "text_ends"),
        ("UPDATE request SET text = CAST(x'ff' AS TEXT)", "not a readable session"),
        (
            'ALTER TABLE event RENAME TO other; CREATE VIEW event AS SELECT * FROM "other"',
            "no table event",
        ),
        (
            "DROP TABLE event; CREATE TABLE event (leg_id, t_ns, kind, severity, "
            "detail GENERATED ALWAYS AS (upper(kind)))",
            "computed",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_told(
    statement: str, says: str, tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    path = write(tmp_path / "s.sqlite", info, records)
    connection = sqlite3.connect(path)
    connection.executescript(statement)
    connection.close()
    with pytest.raises(FileFault, match=says) as caught:
        read_session(path)
    assert "s.sqlite" in str(caught.value) and "\n" not in str(caught.value)


def test_columns_that_came_later_may_be_missing(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    path = write(tmp_path / "s.sqlite", info, records)
    connection = sqlite3.connect(path)
    connection.executescript('ALTER TABLE "pass" DROP COLUMN stream')
    connection.close()
    assert read_session(path) == in_session(info, records)


@pytest.mark.parametrize("content", [b"", b"<!DOCTYPE html><html></html>" * 40, b"\0" * 8192])
def test_other_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    with pytest.raises(FileFault, match="session"):
        read_session(path)


def test_no_file_is_a_matter_of_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageFault, match="no such session"):
        read_session(tmp_path / "s.sqlite")


def test_damaged_files_are_read_or_told_never_worse(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    whole = write(tmp_path / "s.sqlite", info, records * 30).read_bytes()
    chooser = random.Random(0)
    damaged = tmp_path / "d.sqlite"
    for _ in range(150):
        content = bytearray(whole[: chooser.choice([len(whole), chooser.randrange(len(whole))])])
        for _ in range(chooser.randrange(1, 20)):
            content[chooser.randrange(len(content))] = chooser.randrange(256)
        damaged.write_bytes(content)
        try:
            read_session(damaged)
        except FileFault as fault:
            assert "\n" not in str(fault)


def test_p09_an_existing_session_is_not_overwritten(tmp_path: Path, info: SessionInfo) -> None:
    path = write(tmp_path / "s.sqlite", info, [])
    content = path.read_bytes()
    with pytest.raises(UsageFault, match="exists already"):
        SessionWriter(path, info)
    assert path.read_bytes() == content
    check_output(path, force=True)


def test_force_replaces_a_session_and_nothing_else(tmp_path: Path, info: SessionInfo) -> None:
    path = write(tmp_path / "s.sqlite", info, [])
    second = msgspec.structs.replace(info, id="second")
    SessionWriter(path, second, force=True).close()
    assert read_session(path).info.id == "second"
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("chapter 1")
    with pytest.raises(UsageFault, match="not a session of edgeprof"):
        check_output(thesis, force=True)
    with pytest.raises(UsageFault, match="is a folder"):
        check_output(tmp_path, force=True)


def test_p08_folders_are_made_and_those_that_cannot_be_are_told_before(
    tmp_path: Path, info: SessionInfo
) -> None:
    below = tmp_path / "a" / "b" / "s.sqlite"
    check_output(below)
    assert not below.parent.exists()
    write(below, info, [])
    assert below.is_file()
    for outside in (below / "s.sqlite", Path("/proc/nowhere/s.sqlite")):
        with pytest.raises(EnvironmentFault, match="cannot be written"):
            check_output(outside)


def test_p08_a_read_only_folder_is_told_before(read_only_folder: Path, info: SessionInfo) -> None:
    read_only_folder.chmod(0o555)
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(EnvironmentFault, match="Permission denied"):
        check_output(read_only_folder / "s.sqlite")
    assert list(read_only_folder.iterdir()) == []


def test_a_session_is_whole_from_the_moment_it_is_there(
    tmp_path: Path, info: SessionInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.sqlite"
    seen: list[str] = []
    replace = Path.replace

    def look_first(new: Path, target: Path) -> Path:
        assert not path.exists()
        moved = replace(new, target)
        seen.append(read_session(path).info.id)
        return moved

    monkeypatch.setattr(Path, "replace", look_first)
    SessionWriter(path, info).close()
    assert seen == [info.id]
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]


def test_a_full_disk_is_told_once_and_keeps_what_was_committed(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    path = tmp_path / "s.sqlite"
    writer = SessionWriter(path, info)
    for record in records:
        writer.add(record)
    writer.commit()
    event = Event(leg_id=1, t_ns=1, kind="gap", severity="info", detail={"text": "x" * 10_000})
    with pytest.raises(EnvironmentFault, match="full"):
        # SQLite answers to its own limit as it does to the disk's
        writer._connection.execute("PRAGMA max_page_count=20")
        for _ in range(50):
            writer.add(event)
            writer.commit()
    writer.close()
    kept = read_session(path)
    assert kept.legs == in_session(info, records).legs and not kept.info.complete


RECORDER = """
import sys
from pathlib import Path
from edgeprof.session.records import SessionInfo
from edgeprof.session.store import SessionWriter
info = SessionInfo(
    id="first", created_utc="2026-01-02T03:04:05Z", edgeprof_version="0", schema_version=1,
    kind="watch", recipe={}, device={}, environment={}, models={},
)
writer = SessionWriter(Path(sys.argv[1]), info)
print("recording", flush=True)
sys.stdin.readline()
writer.close()
"""


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A process that records s.sqlite until it is told to end."""
    with subprocess.Popen(
        [sys.executable, "-c", RECORDER, tmp_path / "s.sqlite"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "recording\n"
        yield process
        process.kill()


def test_p09_a_session_is_not_replaced_while_it_is_recorded(
    tmp_path: Path, info: SessionInfo, recorder: "subprocess.Popen[str]"
) -> None:
    path = tmp_path / "s.sqlite"
    link = tmp_path / "link.sqlite"
    link.symlink_to(path)
    for place in (path, link):
        with pytest.raises(UsageFault, match="is being recorded right now"):
            check_output(place, force=True)
        with pytest.raises(UsageFault, match="is being recorded right now"):
            SessionWriter(place, info, force=True)
    assert read_session(path).info.id == "first"  # reading is free
    recorder.communicate("end\n")
    assert recorder.returncode == 0
    check_output(path, force=True)


def test_a_killed_recorder_holds_nothing(
    tmp_path: Path, info: SessionInfo, recorder: "subprocess.Popen[str]"
) -> None:
    recorder.kill()
    recorder.wait()
    SessionWriter(tmp_path / "s.sqlite", info, force=True).close()
    assert read_session(tmp_path / "s.sqlite").info.id == info.id


def test_what_a_killed_start_left_is_no_hindrance(tmp_path: Path, info: SessionInfo) -> None:
    for name in ("s.sqlite.new", "s.sqlite.new-journal", "s.sqlite.new-wal"):
        (tmp_path / name).write_bytes(b"half" * 5000)
    SessionWriter(tmp_path / "s.sqlite", info).close()
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]
    assert read_session(tmp_path / "s.sqlite").info == info


def test_a_disk_that_is_full_at_the_start_is_left_as_it_was(tmp_path: Path) -> None:
    limited = (
        f"import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n{RECORDER}"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", limited, tmp_path / "s.sqlite"], capture_output=True, text=True
    )
    assert "EnvironmentFault" in done.stderr and "cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_session_that_is_deleted_meanwhile_is_told(tmp_path: Path, info: SessionInfo) -> None:
    writer = SessionWriter(tmp_path / "s.sqlite", info)
    (tmp_path / "s.sqlite").unlink()
    with pytest.raises(EnvironmentFault, match="was deleted while it was recorded"):
        writer.close()
    assert list(tmp_path.iterdir()) == []


def test_other_output_never_takes_the_place_of_a_session(tmp_path: Path, info: SessionInfo) -> None:
    path = write(tmp_path / "s.sqlite", info, [])
    (tmp_path / "symbolic").symlink_to(path)
    (tmp_path / "hard").hardlink_to(path)
    for name in ("s.sqlite", "symbolic", "hard", "s.sqlite-wal"):
        with pytest.raises(UsageFault, match="is a session"):
            keep_sessions(tmp_path / name)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(UsageFault, match="is a session"):  # a damaged one too
        keep_sessions(path)
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection:
        connection.execute("CREATE TABLE cats (name TEXT)")
    (tmp_path / "report.txt").write_text("a report")
    for name in ("other.sqlite", "report.txt", "none", "-wal"):
        keep_sessions(tmp_path / name)
