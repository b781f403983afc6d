"""The sampler's grid and what it passes on, with clocks and reads that take what a test says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from fake_sources import MS, FakeStream, S, reader

from edgeprof.session.records import Event, Sample, Signal
from edgeprof.telemetry.chain import Chain
from edgeprof.telemetry.plausibility import Scene
from edgeprof.telemetry.progress import Progress
from edgeprof.telemetry.sampler import Sampler
from edgeprof.telemetry.source import (
    BoardFigures,
    Channel,
    Offer,
    Reader,
    Reading,
    Setting,
    Stream,
)


class Board:
    """Time passes only in waits and reads; the first three reads are for the latency."""

    def __init__(self, *, until_ms: int, reads_ms: Sequence[int] = ()) -> None:
        self.now_ns = 0
        self.asleep_ns = 77 * S
        self.until_ns = until_ms * MS
        self.reads_ms = list(reads_ms)
        self.value: float | None = 0.5
        self.values: dict[str, float | None] = {}
        self.emitted: list[Signal | Sample | Event] = []
        self.waits_s: list[float] = []
        self.each_turn: Callable[[], None] = lambda: None

    def clock(self) -> int:
        return self.now_ns

    def wait(self, streams: Sequence[Stream], seconds: float) -> Sequence[Stream] | None:
        self.waits_s.append(seconds)
        self.now_ns += round(seconds * 1e9)
        self.each_turn()
        if self.now_ns >= self.until_ns:
            return None
        return [one for one in streams if isinstance(one, FakeStream) and one.has_something]

    def read(self) -> Mapping[str, Reading]:
        self.now_ns += self.reads_ms.pop(0) * MS if self.reads_ms else 0
        return {"cpu_busy_frac": Reading(self.value, "raw"), "cpu_online": Reading(None)}

    def read_values(self) -> Mapping[str, Reading]:
        return {name: Reading(value) for name, value in self.values.items()}

    def run(
        self,
        *readers: Reader,
        interval_s: float | None = None,
        board: BoardFigures | None = None,
        settings: Sequence[Setting] = (),
        side_by_side: bool = True,
        **others: Any,
    ) -> list[Sample]:
        offer = Offer(readers=readers, settings=settings)
        openers: dict[Any, Any] = {"sysfs": lambda: offer, **others}
        Sampler(
            Chain(openers, Progress(), side_by_side=side_by_side),
            self.emitted.append,
            board=board or BoardFigures(),
            scene=Scene(),
            progress=Progress(),
            clock=self.clock,
            boot_clock=lambda: self.now_ns + self.asleep_ns,
            wait=self.wait,
            interval_s=interval_s,
        ).run()
        return self.samples

    @property
    def samples(self) -> list[Sample]:
        return [record for record in self.emitted if isinstance(record, Sample)]

    @property
    def signals(self) -> list[Signal]:
        return [record for record in self.emitted if isinstance(record, Signal)]

    def events(self, kind: str) -> list[Event]:
        return [r for r in self.emitted if isinstance(r, Event) and r.kind == kind]


def test_the_grid_does_not_drift_with_the_time_reads_take() -> None:
    # 10 Hz. After the three reads for the latency come reads of 0, 7, 20 and 1 ms.
    board = Board(until_ms=450, reads_ms=[3, 3, 3, 0, 7, 20, 1])
    taken = board.run(reader(board.read, "cpu_busy_frac"))
    assert [record.t0_ns / MS for record in taken] == [100, 200, 300, 400]
    assert [(record.t1_ns - record.t0_ns) / MS for record in taken] == [0, 7, 20, 1]


def test_missed_deadlines_are_left_out_not_caught_up() -> None:
    # The read at 100 ms hangs until 370 ms: 200 and 300 are gone, 400 is next.
    board = Board(until_ms=550, reads_ms=[0, 0, 0, 270])
    taken = board.run(reader(board.read, "cpu_busy_frac"))
    assert [record.t0_ns / MS for record in taken] == [100, 400, 500]


def test_a_slow_source_is_read_less_often_and_its_window_says_so() -> None:
    # The median of 60, 58 and 99 ms may take a fifth of the time: every 300 ms instead of 100.
    board = Board(until_ms=1000, reads_ms=[99, 60, 58])
    taken = board.run(reader(board.read, "cpu_busy_frac"))
    assert [record.t0_ns / MS for record in taken] == [300, 600, 900]
    assert (board.signals[0].window_s, board.signals[0].asked_hz) == (0.3, 10)


def test_a_very_slow_read_is_not_repeated_to_measure_it() -> None:
    # 150 ms, once: every 800 ms, a whole number of its 100 ms that is at least 750.
    board = Board(until_ms=1700, reads_ms=[150])
    taken = board.run(reader(board.read, "cpu_busy_frac"))
    assert [record.t0_ns / MS for record in taken] == [800, 1600]


def test_s32_an_interval_asked_for_holds_for_every_reader() -> None:
    board = Board(until_ms=1100)
    taken = board.run(reader(board.read, "cpu_busy_frac"), interval_s=0.5)
    assert [record.t0_ns / MS for record in taken] == [500, 1000]


def test_a_shorter_interval_than_usual_makes_all_readers_faster_in_proportion() -> None:
    board = Board(until_ms=1001)  # 10 ms instead of 50: a fifth
    board.run(
        reader(board.read, "cpu_busy_frac", rate_hz=20, name="fast"),
        reader(board.read, "temp_c.cpu", rate_hz=1, name="slow"),
        interval_s=0.01,
    )
    assert [(one.name, one.asked_hz) for one in board.signals] == [
        ("cpu_busy_frac", 100),
        ("temp_c.cpu", 5),
    ]
    ids = [sample.signal_id for sample in board.samples]
    assert (ids.count(1), ids.count(2)) == (100, 5)


def test_unknown_stays_unknown_and_both_signals_share_the_stamps() -> None:
    board = Board(until_ms=150)
    busy, online = board.run(reader(board.read, "cpu_busy_frac", "cpu_online"))
    assert (busy.value, busy.raw, online.value) == (0.5, "raw", None)
    assert (busy.signal_id, online.signal_id) == (1, 2)
    assert busy.t0_ns == online.t0_ns == 100 * MS


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_unknown(value: float) -> None:
    board = Board(until_ms=150)
    board.values = {"temp_c.cpu": value}
    (taken,) = board.run(reader(board.read_values, "temp_c.cpu"))
    assert (taken.value, taken.raw) == (None, str(value))


def test_readers_keep_their_own_rates_and_share_their_deadlines() -> None:
    board = Board(until_ms=1001)
    board.run(
        reader(board.read, "cpu_busy_frac", rate_hz=20, name="fast"),
        reader(board.read, "cpu_online", rate_hz=10, name="slower"),
        reader(board.read, "temp_c.cpu", rate_hz=1, name="slowest"),
    )
    ids = [sample.signal_id for sample in board.samples]
    assert (ids.count(1), ids.count(2), ids.count(3)) == (20, 10, 1)
    assert len(board.waits_s) == 21  # one wake-up for each of the 20 deadlines, and the end


def test_s37_a_run_shorter_than_an_interval_has_signals_and_no_samples() -> None:
    board = Board(until_ms=50)
    assert board.run(reader(board.read, "cpu_busy_frac")) == []
    assert [signal.name for signal in board.signals] == ["cpu_busy_frac"]


def test_nothing_to_sample_is_no_busy_loop() -> None:
    board = Board(until_ms=1001)
    assert board.run() == []
    assert len(board.waits_s) == 6  # five looks a second


def test_signals_of_a_stream_are_announced_with_their_first_value() -> None:
    board = Board(until_ms=1900)
    stream = FakeStream("tegrastats", interval_s=0.5)
    told: dict[int, dict[str, float | None]] = {
        400: {"gpu_busy_frac": None},
        800: {"gpu_busy_frac": 0.25},
        1200: {"gpu_busy_frac": None},
    }

    def speak() -> None:
        if (values := told.pop(board.now_ns // MS, None)) is not None:
            stream.say(board.now_ns - MS, **values)

    board.each_turn = speak
    taken = board.run(tegrastats=lambda: stream)
    assert [(s.name, s.source, s.asked_hz) for s in board.signals] == [
        ("gpu_busy_frac", "tegrastats", 2)
    ]
    assert board.emitted.index(board.signals[0]) < board.emitted.index(taken[0])
    assert [(s.value, s.t0_ns / MS) for s in taken] == [(0.25, 799), (None, 1199)]
    assert stream.ends == 1


def test_a_stream_that_is_slower_than_asked_keeps_what_was_asked_for() -> None:
    class Slower(FakeStream):
        asked_s = 0.25

        def channel(self, name: str) -> Channel:
            return Channel(name=name, window_kind="boxcar")

    board = Board(until_ms=1000)
    stream = Slower("jtop", interval_s=2.0)
    board.each_turn = lambda: stream.say(board.now_ns, cpu_busy_frac=0.5)
    board.run(jtop=lambda: stream)
    (signal,) = board.signals
    assert (signal.asked_hz, signal.window_s) == (4, 2.0)


def test_a_counter_that_grows_is_an_event() -> None:
    board = Board(until_ms=550)
    counts = [5.0, 5.0, 5.0, 5.0, 7.0, 7.0, 2.0, 3.0]  # three are for the latency

    def read() -> Mapping[str, Reading]:
        return {"throttle_events.oc1": Reading(counts.pop(0))}

    board.run(reader(read, "throttle_events.oc1"))
    assert [(e.t_ns / MS, e.severity, e.detail) for e in board.events("throttling")] == [
        (200, "warning", {"counter": "oc1", "from": 5, "to": 7}),
        (500, "warning", {"counter": "oc1", "from": 2, "to": 3}),
    ]


def test_s39_s09_a_wild_value_is_kept_marked_and_told_once() -> None:
    board = Board(until_ms=350)
    board.values = {"emc_busy_frac": 17451.6}
    taken = board.run(reader(board.read_values, "emc_busy_frac"))
    assert [(s.value, s.quality) for s in taken] == [(17451.6, "suspect")] * 3
    (event,) = board.events("suspect")
    assert (event.severity, event.detail["signal"], event.detail["source"]) == (
        "warning",
        "emc_busy_frac",
        "sysfs",
    )
    assert event.detail["since_ns"] == 100 * MS


def test_a_machine_that_slept_is_told_a_slow_clock_is_not() -> None:
    board = Board(until_ms=1500)

    def sleep() -> None:
        if board.now_ns == 600 * MS:
            board.asleep_ns += 3 * S

    board.each_turn = sleep
    board.run(reader(board.read, "cpu_busy_frac"))
    (event,) = board.events("suspend")
    assert event.detail == {"asleep_s": 3.0}


# A signal is lost


def test_a_signal_that_is_lost_in_mid_run_comes_from_the_next_source_until_it_is_back() -> None:
    board = Board(until_ms=9000)
    names = ("emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s")
    rest = ("gpu_busy_frac", "gpu_clock_hz", "power_w.total", "temp_c.cpu")
    board.values = {"emc_busy_frac": 0.8}
    tegrastats = FakeStream("tegrastats", interval_s=0.2)

    def read() -> Mapping[str, Reading]:
        lost = 2 * S < board.now_ns < 6 * S
        busy = Reading(None, reason="no such file or directory") if lost else Reading(0.8)
        return {**{name: Reading(1e9) for name in (*names, *rest)}, "emc_busy_frac": busy}

    def speak() -> None:
        if tegrastats.open:
            tegrastats.say(board.now_ns, emc_busy_frac=0.79)

    board.each_turn = speak
    taken = board.run(
        reader(read, *names, *rest), side_by_side=False, tegrastats=lambda: tegrastats
    )
    sources = {signal.id: signal.source for signal in board.signals if signal.name == names[0]}
    busy = [sample for sample in taken if sample.signal_id in sources]

    def known(source: str, t0_ms: int, t1_ms: int) -> list[Sample]:
        return [
            sample
            for sample in busy
            if sources[sample.signal_id] == source
            and sample.value is not None
            and t0_ms <= sample.t0_ns / MS < t1_ms
        ]

    # Read every 100 ms, the last with a value at 2000 ms: lost for the reading at 3000 ms.
    assert len(known("sysfs", 0, 2001)) == 20 and known("sysfs", 2001, 6000) == []
    assert sum(sample.value is None for sample in busy) == 10
    assert known("tegrastats", 0, 3000) == []
    assert known("tegrastats", 3000, 3600) != [] and known("tegrastats", 5500, 6000) != []
    assert len(known("sysfs", 6000, 9000)) == 30  # it is back at once
    assert known("tegrastats", 6001, 9000) == []
    (absent,) = board.events("absent")
    assert absent.t_ns == 3000 * MS
    (gap,) = board.events("gap")
    assert gap.detail == {
        "signal": "emc_busy_frac",
        "source": "sysfs",
        "since_ns": 2000 * MS,
        "until_ns": 6000 * MS,
        "reason": "no such file or directory",
    }


def test_a_signal_that_is_lost_for_good_is_a_gap_to_the_end() -> None:
    board = Board(until_ms=5000)
    board.each_turn = lambda: setattr(board, "value", None if board.now_ns > S else 0.5)
    board.run(reader(board.read, "cpu_busy_frac"))
    (gap,) = board.events("gap")
    assert (gap.detail["since_ns"], gap.detail["until_ns"]) == (1000 * MS, 5000 * MS)


# Clocks and settings


def test_a_memory_clock_that_moves_is_told_a_wild_one_is_not_a_move() -> None:
    board = Board(until_ms=1000)
    clocks: dict[int, float] = {300: 665.6e6, 500: 9e12, 600: 665.6e6}

    def read() -> Mapping[str, Reading]:
        board.value = clocks.pop(board.now_ns // MS, None) or board.value
        return {"emc_clock_hz": Reading(board.value)}

    board.value = 3199e6
    board.run(reader(read, "emc_clock_hz"))
    (event,) = board.events("clock_change")
    assert event.t_ns == 300 * MS
    assert (event.detail["from"], event.detail["to"]) == (3199e6, 665.6e6)


def test_a_setting_is_told_when_it_changes_and_read_once_a_second() -> None:
    board = Board(until_ms=6100)
    states: list[str | None] = ["15W", "15W", None, "25W", "25W", "MAXN", "MAXN"]
    setting = Setting(source="sysfs", kind="power_mode", read=lambda: states.pop(0))
    board.run(settings=[setting])
    assert states == []  # at 0, 1, ... 6 s
    assert [(e.t_ns / S, e.severity, e.detail) for e in board.events("power_mode")] == [
        (3, "warning", {"source": "sysfs", "from": "15W", "to": "25W"}),
        (5, "warning", {"source": "sysfs", "from": "25W", "to": "MAXN"}),
    ]
