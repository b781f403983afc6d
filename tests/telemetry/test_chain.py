"""Which source serves which signal, and what becomes of streams that fall silent."""

from collections.abc import Mapping
from typing import Any

from fake_sources import FakeStream, S, reader

from edgeprof.session.records import Event
from edgeprof.telemetry.chain import Chain
from edgeprof.telemetry.progress import Progress
from edgeprof.telemetry.source import Absence, Batch, Offer, Reader, Reading, SourceName

EMC = ("emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s")
GPU = ("gpu_busy_frac", "gpu_clock_hz")
HOST = ("cpu_busy_frac", "cpu_online", "ram_used_bytes", "ram_total_bytes", "swap_used_bytes")
REST = ("power_w.total", "temp_c.cpu")


def read() -> Mapping[str, Reading]:
    return {}


def offer(*names: str, source: SourceName = "sysfs", absences: Any = ()) -> Offer:
    readers = [reader(read, name, source=source, name=f"node of {name}") for name in names]
    return Offer(readers=readers, absences=absences)


class Table:
    """A chain over fakes, and what it opened, in order."""

    def __init__(self, *, left_out: Any = (), side_by_side: bool = False, **sources: Any) -> None:
        self.opened: list[str] = []
        self.events: list[Event] = []
        self.readers: list[str] = []

        def opener(name: str) -> Any:
            def open_it() -> Any:
                self.opened.append(name)
                return sources[name]

            return open_it

        openers: dict[Any, Any] = {name: opener(name) for name in sources}
        self.chain = Chain(openers, Progress(), side_by_side=side_by_side, left_out=left_out)

    def look(self, now_ns: int) -> None:
        for told in self.chain.look(now_ns):
            if isinstance(told, Reader):
                self.readers += [channel.name for channel in told.channels]
            elif isinstance(told, Event):
                self.events.append(told)

    def hear(self, stream: FakeStream, now_ns: int) -> list[str]:
        """The signals of what the stream told that are passed on."""
        passed: list[str] = []
        for told in self.chain.hear(stream, now_ns):
            if isinstance(told, Batch):
                passed += [
                    name
                    for name, reading in told.readings.items()
                    if self.chain.serves(stream.source, name, known=reading.value is not None)
                ]
            else:
                self.events.append(told)
        return passed

    def say(self, stream: FakeStream, now_ns: int, **values: float | None) -> list[str]:
        stream.say(now_ns, **values)
        return self.hear(stream, now_ns)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def test_where_sysfs_has_all_nothing_else_is_opened() -> None:
    table = Table(
        sysfs=offer(*EMC, *GPU, *REST, *HOST),
        tegrastats=FakeStream("tegrastats"),
        jtop=FakeStream("jtop"),
        host=offer(source="host"),
    )
    table.look(0)
    table.look(10 * S)
    assert table.opened == ["sysfs"]
    assert table.readers == [*EMC, *GPU, *REST, *HOST]


def test_what_is_missing_is_looked_for_in_order_one_after_the_other() -> None:
    tegrastats, jtop = FakeStream("tegrastats"), FakeStream("jtop", interval_s=1.0)
    table = Table(
        sysfs=offer(*EMC, *REST), tegrastats=tegrastats, jtop=jtop, host=offer(*HOST, source="host")
    )
    table.look(0)
    assert table.opened == ["sysfs", "tegrastats"]
    for turn in range(3):
        assert table.say(tegrastats, turn, gpu_busy_frac=0.4, emc_busy_frac=0.1) == [
            "gpu_busy_frac"
        ]
        assert table.opened == ["sysfs", "tegrastats"]  # until three lines tell what it adds
        table.look(turn)
    assert table.opened == ["sysfs", "tegrastats", "jtop"]  # gpu_clock_hz is missing still
    for turn in range(3):
        table.say(jtop, S + turn, gpu_clock_hz=3e8, gpu_busy_frac=0.5)
    table.look(S + 3)
    assert table.opened == ["sysfs", "tegrastats", "jtop", "host"]
    assert tegrastats.open and jtop.open
    assert table.readers == [*EMC, *REST, *HOST]


def test_a_stream_that_adds_nothing_is_closed_again() -> None:
    tegrastats = FakeStream("tegrastats")
    table = Table(sysfs=offer(*GPU, *REST), tegrastats=tegrastats)
    table.look(0)
    for turn in range(3):
        assert table.say(tegrastats, turn, gpu_busy_frac=0.4, emc_busy_frac=None) == []
    table.look(3)
    assert not tegrastats.open and tegrastats.ends == 1 and table.events == []
    table.look(100 * S)
    assert tegrastats.starts == 1


def test_a_stream_that_added_nothing_is_asked_again_for_what_was_lost_since_and_only_once() -> None:
    tegrastats = FakeStream("tegrastats")
    table = Table(sysfs=offer(*EMC, "gpu_clock_hz", *REST), tegrastats=tegrastats)
    table.look(0)
    for turn in range(3):
        table.say(tegrastats, turn, power_w__total=5.0)
    table.look(3)
    assert not tegrastats.open  # it has no GPU load either
    table.chain.yield_to_others("sysfs", "emc_busy_frac")
    table.look(S)
    assert tegrastats.starts == 2
    for turn in range(3):
        table.say(tegrastats, S + turn, power_w__total=5.0)
    table.look(S + 3)
    assert not tegrastats.open
    table.look(100 * S)
    assert tegrastats.starts == 2 and table.events == []


def test_what_another_source_gives_needs_no_mending() -> None:
    tegrastats = FakeStream("tegrastats")
    table = Table(sysfs=offer("emc_busy_frac"), tegrastats=tegrastats)
    table.look(0)
    for signal in ("emc_busy_frac", "emc_clock_hz"):
        absence = Absence(signal=signal, source="tegrastats", reason="root only", fix="a rule")
        tegrastats._said.append(absence)
    table.hear(tegrastats, 1)
    assert [event.detail["fix"] for event in table.events] == [None, "a rule"]


def test_a_signal_is_the_better_ranked_sources_once_that_gives_it() -> None:
    tegrastats, jtop = FakeStream("tegrastats"), FakeStream("jtop")
    table = Table(sysfs=offer(), tegrastats=tegrastats, jtop=jtop)
    table.look(0)
    for turn in range(3):
        table.say(tegrastats, turn, emc_clock_hz=2e9)
    table.look(3)
    assert table.say(jtop, 4, emc_clock_hz=2e9, gpu_busy_frac=0.5) == ["gpu_busy_frac"]
    assert table.say(tegrastats, 5, gpu_busy_frac=0.6) == ["gpu_busy_frac"]
    assert table.say(jtop, 6, gpu_busy_frac=0.5) == []


def test_a_channel_that_gives_nothing_leaves_its_signal_to_others() -> None:
    tegrastats = FakeStream("tegrastats")
    table = Table(sysfs=offer(*EMC, *GPU, *REST), tegrastats=tegrastats)
    table.look(0)
    assert table.opened == ["sysfs"]
    assert table.chain.serves("sysfs", "gpu_busy_frac", known=False)
    table.chain.yield_to_others("sysfs", "gpu_busy_frac")
    table.look(S)
    assert table.opened == ["sysfs", "tegrastats"]
    assert table.say(tegrastats, S, gpu_busy_frac=0.5) == ["gpu_busy_frac"]
    assert not table.chain.serves("sysfs", "gpu_busy_frac", known=False)
    assert table.chain.serves("sysfs", "gpu_busy_frac", known=True)  # it works after all


def test_a_processor_load_that_stays_unknown_is_not_asked_of_the_host() -> None:
    table = Table(sysfs=offer(*HOST, "temp_c.cpu"), host=offer(*HOST, source="host"))
    table.look(0)
    table.chain.yield_to_others("sysfs", "cpu_busy_frac")
    table.look(S)
    assert table.opened == ["sysfs"]
    assert table.chain.serves("sysfs", "cpu_busy_frac", known=False)


def test_the_host_gives_only_what_is_missing() -> None:
    host = offer(*HOST, "temp_c.core_0", "temp_c.core_1", source="host")
    table = Table(sysfs=offer("cpu_busy_frac", "cpu_online", "temp_c.cpu"), host=host)
    table.look(0)
    added = ["ram_used_bytes", "ram_total_bytes", "swap_used_bytes"]
    assert table.readers == ["cpu_busy_frac", "cpu_online", "temp_c.cpu", *added]


def test_where_nobody_gives_temperatures_the_host_gives_all_it_has() -> None:
    host = offer("temp_c.core_0", "temp_c.core_1", source="host")
    table = Table(sysfs=offer(), host=host)
    table.look(0)
    assert table.readers == ["temp_c.core_0", "temp_c.core_1"]


def test_side_by_side_all_are_opened_and_give_all_they_can() -> None:
    tegrastats, jtop = FakeStream("tegrastats"), FakeStream("jtop")
    table = Table(
        side_by_side=True, sysfs=offer(*EMC, *GPU, *REST), tegrastats=tegrastats, jtop=jtop
    )
    table.look(0)
    assert table.opened == ["sysfs", "tegrastats", "jtop"]
    for turn in range(4):
        for stream in (tegrastats, jtop):
            assert table.say(stream, turn, gpu_busy_frac=0.5) == ["gpu_busy_frac"]
        table.look(turn)
    assert table.chain.serves("sysfs", "gpu_busy_frac", known=False)
    assert table.chain.streams == [tegrastats, jtop]


def test_why_something_is_absent_is_told_with_what_mends_it() -> None:
    absence = Absence(signal="emc_busy_frac", source="sysfs", reason="root only", fix="sudo")
    table = Table(
        sysfs=offer(absences=[absence]), tegrastats=FakeStream("tegrastats", refusal="not there")
    )
    table.look(7)
    assert [(e.kind, e.severity, e.t_ns, e.detail) for e in table.events] == [
        ("absent", "info", 7, {
            "signal": "emc_busy_frac", "source": "sysfs", "reason": "root only", "fix": "sudo",
        }),
        ("absent", "info", 7, {
            "signal": "*", "source": "tegrastats", "reason": "not there", "fix": "start it",
        }),
    ]  # fmt: skip
    table.look(100 * S)
    assert table.opened == ["sysfs", "tegrastats"] and len(table.events) == 2


def test_a_stream_that_is_silent_is_replaced_and_the_gap_told() -> None:
    stream = FakeStream("tegrastats", interval_s=0.5)
    table = Table(side_by_side=True, tegrastats=stream)
    table.look(0)
    table.say(stream, 10 * S, gpu_busy_frac=0.5)
    table.look(13 * S)  # 3 s: as long as it may be silent
    assert (stream.starts, stream.ends) == (1, 0)
    table.look(13 * S + 1)
    assert (stream.starts, stream.ends, table.chain.streams) == (1, 1, [])
    table.look(14 * S)
    assert stream.starts == 1
    table.look(14 * S + 1)  # a second later
    assert (stream.starts, table.chain.streams) == (2, [stream])
    assert table.say(stream, 15 * S, gpu_busy_frac=0.5) == ["gpu_busy_frac"]
    (gap,) = table.events
    assert (gap.kind, gap.severity, gap.detail) == (
        "gap",
        "warning",
        {"source": "tegrastats", "since_ns": 10 * S, "until_ns": 15 * S},
    )


def test_the_slower_its_interval_the_longer_may_a_stream_be_silent() -> None:
    stream = FakeStream("tegrastats", interval_s=4.0)
    table = Table(side_by_side=True, tegrastats=stream)
    table.look(0)
    table.look(12 * S)
    assert stream.open
    table.look(12 * S + 1)
    assert not stream.open


def test_s27_a_stream_that_is_lost_is_tried_again_after_growing_pauses() -> None:
    stream = FakeStream("jtop", interval_s=0.5)
    table = Table(side_by_side=True, jtop=stream)
    table.look(0)
    table.say(stream, S, gpu_busy_frac=0.5)
    now = S
    tried: list[int] = []
    stream.die("the service has ended")
    stream.refusal = "the service is not there"
    table.hear(stream, now)
    while len(tried) < 7:
        before = stream.starts
        table.look(now)
        if stream.starts > before:
            tried.append(now // S)
        now += S
    # 1, 2, 4, 8, 16, then every 30 s, counted from each failure
    assert tried == [2, 4, 8, 16, 32, 62, 92]
    stream.refusal = None
    table.look(122 * S)
    table.say(stream, 123 * S, gpu_busy_frac=0.5)
    (gap,) = [event for event in table.events if event.kind == "gap"]
    assert gap.detail == {"source": "jtop", "since_ns": S, "until_ns": 123 * S}


def test_a_stream_that_never_speaks_is_given_up() -> None:
    stream = FakeStream("jtop", interval_s=0.5)
    table = Table(sysfs=offer(), jtop=stream, host=offer("cpu_busy_frac", source="host"))
    table.look(0)
    table.look(4 * S)  # silent: closed; what comes next does not wait for another try
    assert table.opened == ["sysfs", "jtop", "host"]
    for second in range(4, 60):
        table.look(second * S)
    assert stream.starts == 3 and not stream.open
    (absent,) = table.events
    assert absent.kind == "absent" and "said nothing, 3 times" in absent.detail["reason"]


def test_while_a_stream_is_lost_for_long_others_fill_in() -> None:
    tegrastats, jtop = FakeStream("tegrastats"), FakeStream("jtop")
    table = Table(sysfs=offer(*EMC, *REST), tegrastats=tegrastats, jtop=jtop)
    table.look(0)
    for turn in range(3):
        table.say(tegrastats, turn, gpu_busy_frac=0.5, gpu_clock_hz=1e9)
    table.look(3)
    assert table.opened == ["sysfs", "tegrastats"]
    tegrastats.die()
    table.look(1 * S)
    assert "jtop" not in table.opened  # it may be back in a second
    tegrastats.refusal = "gone"
    table.look(2 * S)
    table.look(2 * S)
    assert table.opened == ["sysfs", "tegrastats", "jtop"]
    assert table.say(jtop, 3 * S, gpu_busy_frac=0.5) == ["gpu_busy_frac"]
    tegrastats.refusal = None
    table.look(4 * S)
    assert table.say(tegrastats, 5 * S, gpu_busy_frac=0.5) == ["gpu_busy_frac"]
    assert table.say(jtop, 6 * S, gpu_busy_frac=0.5) == []


def test_a_signal_that_a_stream_lost_is_free_for_others() -> None:
    tegrastats, jtop = FakeStream("tegrastats"), FakeStream("jtop")
    table = Table(sysfs=offer(), tegrastats=tegrastats, jtop=jtop)
    table.look(0)
    for turn in range(3):
        table.say(tegrastats, turn, gpu_busy_frac=0.5, power_w__total=5.0)
    table.look(3)
    assert table.say(jtop, 4, gpu_busy_frac=0.5, power_w__total=5.0) == []
    lost = Absence(signal="power_w", source="tegrastats", reason="no rail any more")
    tegrastats._said.append(lost)
    table.hear(tegrastats, 5)
    assert table.say(jtop, 6, gpu_busy_frac=0.5, power_w__total=5.0) == ["power_w.total"]


def test_at_the_end_streams_are_closed_and_a_loss_that_lasts_is_told() -> None:
    lost, fine = FakeStream("jtop"), FakeStream("tegrastats")
    table = Table(side_by_side=True, tegrastats=fine, jtop=lost)
    table.look(0)
    table.say(fine, S, gpu_busy_frac=0.5)
    table.say(lost, S, gpu_busy_frac=0.5)
    lost.die()
    table.look(2 * S)
    (gap,) = table.chain.close(2 * S)
    assert gap.detail == {"source": "jtop", "since_ns": S, "until_ns": 2 * S}
    assert not fine.open and fine.ends == 1


class Knowing(FakeStream):
    """A stream that knows why it is silent, and has a last word."""

    restart_after_s = 1.0

    def give_up(self) -> Absence | None:
        self.die()
        return self.absence("its worker hangs")

    def at_end(self, now_ns: int) -> list[Absence | Event]:
        done = Event(leg_id=None, t_ns=now_ns, kind="emc_check", severity="info", detail={})
        return [self.absence("nothing yet"), done]


def test_a_stream_that_knows_why_it_is_silent_says_so_at_once_and_is_tried_all_along() -> None:
    stream = Knowing("jtop", interval_s=0.5)
    table = Table(sysfs=offer(), jtop=stream)
    table.look(0)
    table.look(3 * S + 1)
    (event,) = table.events
    assert (event.kind, event.t_ns) == ("absent", 3 * S + 1)
    assert (event.detail["reason"], event.detail["fix"]) == ("its worker hangs", "start it")
    tried: list[int] = []
    for second in range(4, 242):
        before = stream.starts
        table.look(second * S + 1)
        tried += [second] * (stream.starts - before)
    # Each is given up 4 s after its start; the pauses before the next are 1, 2, 4, 8, 16, 30 s.
    assert tried == [4, 10, 18, 30, 50, 84, 118, 152, 186, 220]
    assert {event.detail["reason"] for event in table.events} == {"its worker hangs"}


def test_at_the_end_an_open_stream_has_the_last_word() -> None:
    stream = Knowing("jtop")
    table = Table(sysfs=offer(), jtop=stream)
    table.look(0)
    absent, done = table.chain.close(S)
    assert (absent.kind, absent.t_ns, absent.detail["reason"]) == ("absent", S, "nothing yet")
    assert (done.kind, stream.open) == ("emc_check", False)
    assert list(table.chain.close(S)) == []


def test_a_recording_that_was_played_to_its_end_is_no_gap() -> None:
    replay = FakeStream("replay")
    table = Table(side_by_side=True, replay=replay)
    table.look(0)
    table.say(replay, S, gpu_busy_frac=0.5)
    replay.die("it was played to its end")
    replay.refusal = "no second time"
    table.hear(replay, 2 * S)
    table.look(2 * S)
    assert list(table.chain.close(3 * S)) == []
    assert table.kinds() == ["absent"]


def test_what_hung_before_is_left_out_and_said_to_be() -> None:
    table = Table(
        sysfs=offer("emc_busy_frac", "gpu_busy_frac"),
        tegrastats=FakeStream("tegrastats"),
        left_out=["sysfs: node of emc_busy_frac", "tegrastats: start"],
    )
    table.look(0)
    assert table.readers == ["gpu_busy_frac"] and table.opened == ["sysfs"]
    assert [(e.kind, e.detail["signal"], e.detail["source"]) for e in table.events] == [
        ("absent", "emc_busy_frac", "sysfs"),
        ("absent", "*", "tegrastats"),
    ]
    assert "node of emc_busy_frac did not return" in table.events[0].detail["reason"]
