"""Recordings played again: logs of tegrastats and sessions."""

import select
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from edgeprof.errors import FileFault, UsageFault
from edgeprof.session.records import SCHEMA_VERSION, Event, Sample, SessionInfo, Signal
from edgeprof.session.store import SessionWriter
from edgeprof.telemetry.chain import WHOLE_SOURCE
from edgeprof.telemetry.source import Absence, Batch, BoardFigures, Reading
from edgeprof.telemetry.sources.replay import Recording, ReplayStream, find_recording

BOARD = BoardFigures(bytes_per_emc_clock=32.0)
LINE = "RAM 2850/7486MB (lfb 33x4MB) EMC_FREQ {}%@2133 VDD_IN 3582mW/3582mW"
Told = Batch | Absence | Event
INFO = SessionInfo(
    id="s", created_utc="2026-09-19T13:34:40Z", edgeprof_version="0", kind="watch",
    schema_version=SCHEMA_VERSION, recipe={}, device={"name": "Paper board"}, environment={},
    models={},
)  # fmt: skip


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four lines in two seconds."""
    stamps = ("13:34:40", "13:34:40", "13:34:41", "13:34:41")
    lines = [f"09-19-2026 {stamp} {LINE.format(10 * i)}" for i, stamp in enumerate(stamps)]
    path = tmp_path / "board.log"
    path.write_text("\n".join(lines) + "\n")
    return path


def play(stream: ReplayStream, for_s: float = 20.0) -> list[Told]:
    """Everything until the recording ends."""
    told: list[Told] = []
    until = time.monotonic() + for_s
    while stream.open and time.monotonic() < until:
        select.select([stream], [], [], 0.5)
        told += stream.receive(time.monotonic_ns())
    assert not stream.open
    stream.close()
    return told


def batches(told: Sequence[Told]) -> list[Batch]:
    return [item for item in told if isinstance(item, Batch)]


def test_a_log_is_played_at_its_pace_and_marked(log: Path) -> None:
    stream = ReplayStream(log, BOARD, speed=10)
    t0_ns = time.monotonic_ns()
    assert stream.start() == []
    assert stream.interval_s == pytest.approx(0.05)  # half a second, ten times as fast
    told = play(stream)
    assert time.monotonic_ns() - t0_ns >= 150_000_000
    heard = batches(told)
    assert [b.readings["emc_busy_frac"].value for b in heard] == pytest.approx([0, 0.1, 0.2, 0.3])
    # 0.3 x 2133 MHz x 32 B
    assert heard[3].readings["dram_bandwidth_bytes_per_s"].value == pytest.approx(20.4768e9)
    assert {r.quality for batch in heard for r in batch.readings.values()} == {"replayed"}
    assert [round((b.t1_ns - heard[0].t1_ns) / 1e6) for b in heard] == [0, 50, 100, 150]
    assert heard[0].t0_ns == heard[0].t1_ns >= t0_ns
    (end,) = [item for item in told if isinstance(item, Absence)]
    assert end.signal == WHOLE_SOURCE and "played to its end" in end.reason


def test_it_is_not_played_twice_and_its_silence_is_no_fault(log: Path) -> None:
    stream = ReplayStream(log, BOARD)
    assert stream.restart_after_s is None and stream.silence_s > 86_400 * 366


def test_gaps_are_told_and_take_their_time(tmp_path: Path) -> None:
    path = tmp_path / "board.log"
    stamps = ("13:34:40", "13:34:41", "13:34:51", "13:34:52")
    path.write_text("".join(f"09-19-2026 {stamp} {LINE.format(5)}\n" for stamp in stamps))
    stream = ReplayStream(path, BOARD, speed=50)
    stream.start()
    told = play(stream)
    heard = batches(told)
    (gap,) = [item for item in told if isinstance(item, Event)]
    assert gap.kind == "gap" and gap.severity == "warning"
    assert gap.detail["since_ns"] == heard[1].t1_ns and gap.detail["until_ns"] == heard[2].t1_ns
    assert heard[2].t1_ns - heard[1].t1_ns == 200_000_000  # ten seconds, fifty times as fast


def test_what_the_log_cannot_give_is_said_at_the_start(log: Path) -> None:
    stream = ReplayStream(log, BoardFigures(), speed=100)
    (absence,) = stream.start()
    assert absence.signal == "dram_bandwidth_bytes_per_s" and absence.source == "replay"
    assert batches(play(stream))[0].readings["dram_bandwidth_bytes_per_s"].value is None


def test_a_log_without_stamps_needs_an_interval(tmp_path: Path) -> None:
    path = tmp_path / "board.log"
    path.write_text((LINE.format(1) + "\n") * 3)
    stream = ReplayStream(path, BOARD)
    (absence,) = stream.start()
    assert "--interval" in absence.reason and not stream.open
    stream.close()
    spaced = ReplayStream(path, BOARD, line_interval_s=0.02)
    assert spaced.start() == [] and spaced.interval_s == pytest.approx(0.02)
    assert len(batches(play(spaced))) == 3


@pytest.mark.parametrize("content", [b"", b"hello\nworld\n", b"SQLite format 3\0" + b"\0" * 100])
def test_other_files_say_why_not(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "board.log"
    path.write_bytes(content)
    (absence,) = ReplayStream(path, BOARD).start()
    assert "board.log" in absence.reason and absence.signal == WHOLE_SOURCE
    (absence,) = ReplayStream(tmp_path / "none.log", BOARD).start()
    assert "none.log" in absence.reason


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Power from two sources, one reading of it suspect; a temperature every other time."""
    path = tmp_path / "s.sqlite"
    writer = SessionWriter(path, INFO)
    names = (("power_w.total", "jtop"), ("power_w.total", "sysfs"), ("temp_c.tj", "sysfs"))
    for number, (name, source) in enumerate(names, start=1):
        writer.add(
            Signal(id=number, name=name, unit="1", source=source, window_s=0.25, note="as told")
        )
    start_ns = 5_000_000_000
    for index in range(4):
        t_ns = start_ns + index * 100_000_000
        rows = [(1, 99.0, "ok"), (2, 5.0 + index, "suspect" if index == 1 else "ok")]
        if index % 2 == 0:
            rows.append((3, 40.0 + index, "simulated"))
        for signal_id, value, quality in rows:
            writer.add(
                Sample(
                    signal_id=signal_id, t0_ns=t_ns - 4_000_000, t1_ns=t_ns, value=value,
                    raw=str(value), quality=quality,  # type: ignore[arg-type]
                )
            )  # fmt: skip
    writer.close()
    return path


def test_a_session_is_played_from_its_best_source(session: Path) -> None:
    stream = ReplayStream(session, BOARD, speed=2)
    assert stream.start() == []
    heard = batches(play(stream))
    assert [batch.readings["power_w.total"].value for batch in heard] == [5, 6, 7, 8]
    qualities = [batch.readings["power_w.total"].quality for batch in heard]
    assert qualities == ["replayed", "suspect", "replayed", "replayed"]
    assert [len(batch.readings) for batch in heard] == [2, 1, 2, 1]
    # That it is replayed its source tells.
    assert heard[2].readings["temp_c.tj"] == Reading(42.0, None, "simulated")
    # A read of 4 ms and steps of 100 ms, twice as fast
    assert [batch.t1_ns - batch.t0_ns for batch in heard] == [2_000_000] * 4
    assert [batch.t1_ns - heard[0].t1_ns for batch in heard] == [
        0,
        50_000_000,
        100_000_000,
        150_000_000,
    ]
    channel = stream.channel("power_w.total")
    assert channel.window_s == 0.25 and channel.note == "recorded from sysfs: as told"


def test_a_recording_knows_its_board(session: Path, log: Path) -> None:
    assert find_recording(session, None) == Recording(path=session, device={"name": "Paper board"})
    assert find_recording(log, None) == Recording(path=log, device=None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "neither a session nor a log"),
        (b"root:x:0:0:root:/root:/bin/sh\n", "neither a session nor a log"),
        (b"SQLite format 3\0" + b"\0" * 100, "not a readable session"),
        ((LINE.format(1) + "\n").encode() * 3, "--interval"),
    ],
)
def test_what_cannot_be_played_is_told_before(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "board.log"
    path.write_bytes(content)
    with pytest.raises((FileFault, UsageFault), match=says) as caught:
        find_recording(path, None)
    assert str(path) in str(caught.value)


def test_a_session_without_readings_and_a_device_file_are_no_recordings(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    writer = SessionWriter(path, INFO)
    writer.add(Signal(id=1, name="temp_c.tj", unit="1", source="sysfs"))
    writer.add(Sample(signal_id=1, t0_ns=1, t1_ns=2, value=None))
    writer.close()
    with pytest.raises(FileFault, match="without a single reading"):
        find_recording(path, None)
    with pytest.raises(UsageFault, match="/dev/null"):
        find_recording(Path("/dev/null"), None)


def test_it_can_be_closed_in_the_middle(log: Path) -> None:
    stream = ReplayStream(log, BOARD, speed=0.001)
    stream.start()
    t0 = time.monotonic()
    stream.close()
    assert time.monotonic() - t0 < 5 and not stream.open
    assert list(stream.receive(time.monotonic_ns())) == []
    stream.close()


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), float("inf")])
def test_a_speed_that_is_none(log: Path, speed: float) -> None:
    with pytest.raises(ValueError, match="speed must be positive and finite"):
        ReplayStream(log, BOARD, speed=speed)
