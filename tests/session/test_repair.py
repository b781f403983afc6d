"""What is saved of damaged sessions: a real kill, a cut file, garbage."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeprof.errors import FileFault, UsageFault
from edgeprof.session.records import Leg, Pass, Record, Sample, SessionInfo
from edgeprof.session.repair import Recovered, repair
from edgeprof.session.store import SessionWriter, read_session

# Writes samples without end; every tenth is committed, and told.
_RECORDER = """
import sys
from pathlib import Path
import msgspec
from edgeprof.session.records import Sample, SessionInfo
from edgeprof.session.store import SessionWriter
info = msgspec.json.decode(sys.argv[2], type=SessionInfo)
writer = SessionWriter(Path(sys.argv[1]), info)
n = 0
while True:
    writer.add(Sample(signal_id=1, t0_ns=n, t1_ns=n + 1, value=float(n)))
    n += 1
    if n % 10 == 0:
        writer.commit()
        print(n, flush=True)
"""


def by_table(found: list[Recovered]) -> dict[str, Recovered]:
    return {one.table: one for one in found}


def long_session(path: Path, info: SessionInfo, passes: int = 20_000) -> Path:
    """Of several hundred pages, complete."""
    writer = SessionWriter(path, info)
    writer.add(Leg(id=1, name="t", kind="decode", variant="t", repeat=1, warmup=False, t0_ns=0))
    for n in range(1, passes + 1):
        writer.add(
            Pass(
                id=n, leg_id=1, request_id=None, round_id=None, phase="decode", model="t",
                provider="cpu", tokens=1, context_tokens=n, t0_ns=n, t1_ns=n + 1,
            )
        )  # fmt: skip
    writer.update_info(complete=True)
    writer.close()
    return path


def test_a_recorder_that_was_killed_loses_nothing_committed(
    tmp_path: Path, info: SessionInfo
) -> None:
    import msgspec

    path = tmp_path / "run.sqlite"
    child = subprocess.Popen(
        [sys.executable, "-c", _RECORDER, str(path), msgspec.json.encode(info).decode()],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(50)][-1]
    with pytest.raises(UsageFault, match="being recorded right now"):
        repair(path, tmp_path / "new.sqlite")
    os.kill(child.pid, signal.SIGKILL)
    child.communicate()
    assert (tmp_path / "run.sqlite-wal").stat().st_size > 0  # all of it is in the log
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    found = by_table(repair(path, tmp_path / "new.sqlite"))
    assert found["sample"].rows >= told and not found["sample"].damaged
    after = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert {name: after[name] for name in before} == before  # the damaged one is as it was
    new = read_session(tmp_path / "new.sqlite")
    assert [sample.t0_ns for sample in new.samples] == list(range(found["sample"].rows))
    assert not new.info.complete
    assert new.info.ended_reason == "the recorder was killed; recovered from run.sqlite"


def test_a_whole_session_stays_whole(tmp_path: Path, info: SessionInfo) -> None:
    path = long_session(tmp_path / "s.sqlite", info, passes=100)
    repair(path, tmp_path / "new.sqlite")
    assert read_session(tmp_path / "new.sqlite") == read_session(path)


def test_of_a_cut_file_the_first_part_is_saved(tmp_path: Path, info: SessionInfo) -> None:
    path = long_session(tmp_path / "s.sqlite", info)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    found = by_table(repair(path, tmp_path / "new.sqlite"))
    assert found["pass"].damaged and found["pass"].rows > 5_000
    new = read_session(tmp_path / "new.sqlite")
    ids = [one.id for one in new.passes]
    assert len(ids) == found["pass"].rows
    assert ids[:5_000] == list(range(1, 5_001)) and ids == sorted(set(ids))
    assert not new.info.complete and len(new.legs) == 1


def test_a_hole_costs_what_lay_in_it(tmp_path: Path, info: SessionInfo) -> None:
    path = long_session(tmp_path / "s.sqlite", info)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\xff" * 8192)
    found = by_table(repair(path, tmp_path / "new.sqlite"))
    assert found["pass"].damaged and 15_000 < found["pass"].rows < 20_000
    ids = [one.id for one in read_session(tmp_path / "new.sqlite").passes]
    assert ids[0] == 1 and ids[-1] == 20_000 and ids == sorted(set(ids))


def test_rows_that_make_no_sense_are_left_out_and_counted(
    tmp_path: Path, info: SessionInfo, records: list[Record]
) -> None:
    import sqlite3

    path = tmp_path / "s.sqlite"
    writer = SessionWriter(path, info)
    for record in records:
        writer.add(record)
    writer.add(Sample(signal_id=1, t0_ns=90, t1_ns=91, value=1.0))
    writer.close()
    connection = sqlite3.connect(path)
    connection.executescript("UPDATE sample SET value = 'fast' WHERE t0_ns = 90")
    connection.close()
    found = by_table(repair(path, tmp_path / "new.sqlite"))
    assert (found["sample"].refused, found["sample"].damaged) == (1, False)
    assert len(read_session(tmp_path / "new.sqlite").samples) == found["sample"].rows


@pytest.mark.parametrize("content", [b"", b"garbage" * 5000, b"SQLite format 3\0" + b"\xff" * 9000])
def test_garbage_is_told(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(content)
    with pytest.raises(FileFault, match=r"s\.sqlite"):
        repair(path, tmp_path / "new.sqlite")
    assert not (tmp_path / "new.sqlite").exists()


def test_p09_nothing_is_overwritten(tmp_path: Path, info: SessionInfo) -> None:
    path = long_session(tmp_path / "s.sqlite", info, passes=10)
    shutil.copyfile(path, tmp_path / "there.sqlite")
    with pytest.raises(UsageFault, match="into a new file"):
        repair(path, path, force=True)
    with pytest.raises(UsageFault, match="exists already"):
        repair(path, tmp_path / "there.sqlite")
    with pytest.raises(UsageFault, match="no such session"):
        repair(tmp_path / "none.sqlite", tmp_path / "new.sqlite")
    with pytest.raises(UsageFault, match="is a complete session"):
        repair(path, tmp_path / "there.sqlite", force=True)
