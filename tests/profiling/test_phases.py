"""From datagrams to legs and passes; times in nanoseconds from a start at 1000."""

from itertools import count

import pytest

from edgeprof.profiling.marks_inbox import Datagram
from edgeprof.profiling.phases import Phases
from edgeprof.session.records import Event, Leg, Pass

START = 1000


class Script:
    """Feeds datagrams; remembers the last version of every record."""

    def __init__(self) -> None:
        self.legs: dict[int, Leg] = {}
        self.passes: list[Pass] = []
        self.phases = Phases(self._put, leg_id=1, command="engine", start_ns=START)

    def _put(self, record: Leg | Pass) -> None:
        if isinstance(record, Leg):
            self.legs[record.id] = record
        else:
            self.passes.append(record)

    def say(self, text: str | bytes, at: int, *, pid: int = 7, came: int | None = None) -> None:
        """A mark stamped ``at``, received then too, or without a stamp where ``came`` is given."""
        raw = text.encode() if isinstance(text, str) else text
        if came is None:
            raw += f" t_ns={at}".encode()
        self.phases.take(Datagram(raw, pid, at if came is None else came))

    def close(self, at: int) -> Event | None:
        return self.phases.close(at)

    def spans(self, name: str) -> list[tuple[int, int | None, str]]:
        return [
            (leg.t0_ns, leg.t1_ns, leg.status) for leg in self.legs.values() if leg.name == name
        ]


@pytest.fixture
def script() -> Script:
    return Script()


def test_a_phase_ends_where_the_next_begins(script: Script) -> None:
    script.say("load", 2000)
    script.say("tokenise", 3000)
    script.say("end", 4500)
    assert script.close(9000) is None
    load, tokenise = script.legs.values()
    assert (load.name, load.kind, load.variant) == ("load", "mark", "engine")
    assert (load.t0_ns, load.t1_ns, load.status) == (2000, 3000, "complete")
    assert (tokenise.t0_ns, tokenise.t1_ns) == (3000, 4500)
    assert [leg.id for leg in script.legs.values()] == [2, 3]  # 1 is the command's


def test_repeats_count_from_one_by_name(script: Script) -> None:
    for at, name in ((2000, "a"), (3000, "b"), (4000, "a"), (5000, "end")):
        script.say(name, at)
    assert [(leg.name, leg.repeat) for leg in script.legs.values()] == [
        ("a", 1), ("b", 1), ("a", 2),
    ]  # fmt: skip


def test_model_phases_with_tokens_and_context_are_passes(script: Script) -> None:
    script.say("prefill tokens=100 context=0", 2000)
    script.say("draft tokens=1 context=100 model=small", 3000)
    script.say("verify tokens=5 context=100", 4000)
    script.say("decode tokens=1 context=105 stream=3", 4500)
    script.say("end", 6000)
    script.say("end stream=3", 6500)
    assert script.legs == {}
    prefill, draft, verify, decode = script.passes
    assert (prefill.phase, prefill.tokens, prefill.context_tokens) == ("prefill", 100, 0)
    assert (prefill.t0_ns, prefill.t1_ns) == (2000, 3000)
    assert (prefill.model, draft.model, verify.model) == ("target", "small", "target")
    assert {one.provider for one in script.passes} == {"external"}
    assert {one.leg_id for one in script.passes} == {1}
    assert (verify.t0_ns, verify.t1_ns) == (4000, 6000)  # stream 3 did not end it
    assert (decode.t0_ns, decode.t1_ns, decode.stream) == (4500, 6500, 3)


def test_draft_passes_are_the_drafts(script: Script) -> None:
    script.say("draft tokens=1 context=100", 2000)
    script.say("end", 3000)
    assert script.passes[0].model == "draft"


@pytest.mark.parametrize(
    "text", ["verify", "verify tokens=5", "verify context=9", "warm tokens=1 context=2"]
)
def test_others_are_legs_with_what_was_said(script: Script, text: str) -> None:
    script.say(text, 2000)
    script.say("end", 3000)
    assert script.passes == [] and len(script.legs) == 1


def test_what_was_said_stands_in_the_leg(script: Script) -> None:
    script.say("verify tokens=5 model=big", 2000)
    assert script.legs[2].attrs == {"pid": 7, "stream": 0, "tokens": 5, "model": "big"}


def test_processes_and_threads_have_phases_of_their_own(script: Script) -> None:
    script.say("a", 2000, pid=7)
    script.say("b", 3000, pid=8)
    script.say("c thread=70", 3500, pid=7)
    script.say("end", 4000, pid=7)
    script.say("end thread=70", 5000, pid=7)
    script.say("end", 6000, pid=8)
    assert script.spans("a") == [(2000, 4000, "complete")]
    assert script.spans("b") == [(3000, 6000, "complete")]
    assert script.spans("c") == [(3500, 5000, "complete")]
    assert [leg.attrs["stream"] for leg in script.legs.values()] == [0, 1, 2]


def test_a_named_stream_joins_what_comes_from_many_processes(script: Script) -> None:
    script.say("a stream=1", 2000, pid=50)
    script.say("end stream=1", 3000, pid=51)
    assert script.spans("a") == [(2000, 3000, "complete")]


def test_open_phases_are_closed_as_interrupted(script: Script) -> None:
    script.say("a", 2000)
    script.say("verify tokens=5 context=0", 2500, pid=8)
    assert script.legs[2].status == "running"  # written as it began
    assert script.close(4000) is None
    assert script.spans("a") == [(2000, 4000, "interrupted")]
    assert script.spans("verify") == [(2500, 4000, "interrupted")]
    assert script.passes == []  # nobody knows when it ended


def test_mark_without_a_stamp_takes_the_time_it_came(script: Script) -> None:
    script.say("a", 0, came=2000)
    script.say("end", 0, came=3000)
    assert script.spans("a") == [(2000, 3000, "complete")]


@pytest.mark.parametrize("stamp", [0, 999, 2001, 10**18, 2**63 - 1])
def test_stamps_before_the_start_and_ahead_are_not_taken(script: Script, stamp: int) -> None:
    script.phases.take(Datagram(f"a t_ns={stamp}".encode(), 7, 2000))
    assert script.legs[2].t0_ns == 2000
    assert script.phases.faults == {"t_ns not taken": 1}


def test_no_phase_ends_before_it_begins(script: Script) -> None:
    script.say("a", 5000)
    script.phases.take(Datagram(b"end t_ns=4000", 7, 6000))
    assert script.spans("a") == [(5000, 6000, "complete")]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"", "empty"),
        (b" \n\t ", "empty"),
        (b"\xff\xfe\x00", "not text"),
        (b"a" * 513, "longer than 512 bytes"),
        (b"a" * 65, "not a name"),
        (b"a\x1b[2J", "not a name"),
        (b" t_ns=1500", "not a name"),  # the name is missing
        (b"a=b tokens=1", "not a name"),
    ],
)
def test_what_is_no_mark_is_counted(script: Script, text: bytes, fault: str) -> None:
    script.phases.take(Datagram(text, 7, 2000))
    assert script.legs == {} and script.phases.faults == {fault: 1}


@pytest.mark.parametrize(
    "word",
    ["tokens=-1", "tokens=x", "tokens=1e9", "tokens=1000000001", "tokens=", "tokens=٣",
     "context=99999999999999999999999999", "stream=1.5", "model=", "model=\x07", "lost=-2"],
)  # fmt: skip
def test_wrong_values_are_left_out_and_counted(script: Script, word: str) -> None:
    script.say(f"verify {word}", 2000)
    key = word.partition("=")[0]
    assert script.phases.faults == {f"{key} not taken": 1}
    assert script.legs[2].attrs == {"pid": 7, "stream": 0}


def test_keys_that_are_not_known_do_no_harm(script: Script) -> None:
    script.say("verify tokens=5 colour=red word context=1", 2000)
    script.say("end", 3000)
    assert script.passes[0].tokens == 5
    assert script.phases.faults == {"key not known": 2}


def test_faults_come_as_one_event(script: Script) -> None:
    script.say("end", 2000)
    script.say(b"\xff", 2000, came=2000)
    script.say(b"\xff", 2000, came=2100)
    script.phases.note_dropped(3)
    event = script.close(3000)
    assert event is not None and (event.kind, event.severity) == ("marks", "warning")
    assert event.detail == {"end without a phase": 1, "not text": 2, "too many at once": 3}


def test_phases_around_lost_marks_are_not_believed(script: Script) -> None:
    script.say("a", 2000, pid=7)
    script.say("verify tokens=1 context=1 thread=9", 2500, pid=7)
    script.say("b", 2600, pid=8)
    script.say("c lost=12", 4000, pid=7)
    script.say("end", 5000, pid=7)
    script.say("end", 5500, pid=8)
    assert script.spans("a") == [(2000, 4000, "interrupted")]
    assert script.spans("verify") == [(2500, 4000, "interrupted")]
    assert script.spans("c") == [(4000, 5000, "complete")]
    assert script.spans("b") == [(2600, 5500, "complete")]
    assert script.phases.faults["lost on the way"] == 12


def test_floods_are_bounded(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgeprof.profiling.phases._MOST_PHASES", 1000)
    times = count(2000)
    for number in range(300):  # more names than any program has
        script.say(f"name{number}", next(times))
    assert len(script.legs) == 256
    for _ in range(1000):
        script.say("name1", next(times))
    assert len(script.legs) == 1000
    for pid in range(300):  # and more processes at once
        script.say("name2", next(times), pid=10_000 + pid)
    assert script.phases.faults["more than 256 names"] == 44
    assert script.phases.faults["more than 1000 phases"] == 256 + 1000 - 1000 + 300


def test_processes_that_come_and_go_are_forgotten(script: Script) -> None:
    times = count(2000)
    for pid in range(1000):
        script.say("a", next(times), pid=pid)
        script.say("end", next(times), pid=pid)
    assert len(script.legs) == 1000 and not script.phases.faults


def test_too_many_phases_at_a_time(script: Script) -> None:
    times = count(2000)
    for pid in range(300):
        script.say("a", next(times), pid=pid)
    assert len(script.legs) == 256
    assert script.phases.faults == {"more than 256 phases at a time": 44}
