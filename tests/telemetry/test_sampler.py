"""The sampler's grid, with a clock and reads that take exactly as long as the test says."""

from collections.abc import Mapping

from edgeprof.session.records import Sample, Signal
from edgeprof.telemetry.sampler import sample
from edgeprof.telemetry.source import Channel, Reader, Reading

MS = 1_000_000


class Board:
    """Time passes only in pauses and reads."""

    def __init__(self, *, until_ms: int, reads_ms: list[int]) -> None:
        self.now_ns = 0
        self.until_ns = until_ms * MS
        self.reads_ms = reads_ms
        self.emitted: list[Signal | Sample] = []

    def clock(self) -> int:
        return self.now_ns

    def pause(self, seconds: float) -> bool:
        self.now_ns += round(seconds * 1e9)
        return self.now_ns >= self.until_ns

    def read(self) -> Mapping[str, Reading]:
        self.now_ns += self.reads_ms.pop(0) * MS if self.reads_ms else 0
        return {"cpu_busy_frac": Reading(0.5), "cpu_online": Reading(None)}

    def run(self, rate_hz: float, names: tuple[str, ...] = ("cpu_busy_frac",)) -> list[Sample]:
        channels = [Channel(name=name, window_kind="boxcar") for name in names]
        reader = Reader(
            source="host", name="board", channels=channels, rate_hz=rate_hz, read=self.read
        )
        sample([reader], self.emitted.append, clock=self.clock, pause=self.pause)
        return [record for record in self.emitted if isinstance(record, Sample)]


def test_the_grid_does_not_drift_with_the_time_reads_take() -> None:
    # 10 Hz; the first read (3 ms) is for the latency, so the grid starts at 3 ms. Reads of 0, 7
    # and 20 ms leave the deadlines at 103, 203, 303 and 403 ms.
    taken = Board(until_ms=450, reads_ms=[3, 0, 7, 20, 1]).run(10)
    assert [record.t0_ns / MS for record in taken] == [103, 203, 303, 403]
    assert [(record.t1_ns - record.t0_ns) / MS for record in taken] == [0, 7, 20, 1]


def test_missed_deadlines_are_left_out_not_caught_up() -> None:
    # The read at 100 ms hangs until 370 ms: 200 and 300 are gone, 400 is next.
    taken = Board(until_ms=550, reads_ms=[0, 270]).run(10)
    assert [record.t0_ns / MS for record in taken] == [100, 400, 500]


def test_a_slow_source_is_read_less_often_and_its_window_says_so() -> None:
    # A read of 60 ms may take a fifth of the time: every 300 ms instead of every 100.
    board = Board(until_ms=1000, reads_ms=[60])
    taken = board.run(10)
    assert [record.t0_ns / MS for record in taken] == [360, 660, 960]
    assert isinstance(board.emitted[0], Signal) and board.emitted[0].window_s == 0.3


def test_unknown_stays_unknown_and_both_signals_share_the_stamps() -> None:
    board = Board(until_ms=150, reads_ms=[])
    busy, online = board.run(10, ("cpu_busy_frac", "cpu_online"))
    assert (busy.value, online.value) == (0.5, None)
    assert (busy.signal_id, online.signal_id) == (1, 2)
    assert busy.t0_ns == online.t0_ns == 100 * MS


def test_readers_keep_their_own_rates() -> None:
    board = Board(until_ms=1001, reads_ms=[])
    readers = [
        Reader(
            source="host",
            name="a",
            channels=[Channel(name="cpu_busy_frac")],
            rate_hz=10,
            read=board.read,
        ),
        Reader(
            source="host",
            name="b",
            channels=[Channel(name="cpu_online")],
            rate_hz=2,
            read=board.read,
        ),
    ]
    sample(readers, board.emitted.append, clock=board.clock, pause=board.pause)
    ids = [record.signal_id for record in board.emitted if isinstance(record, Sample)]
    assert (ids.count(1), ids.count(2)) == (10, 2)
