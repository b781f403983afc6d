"""A trace, read back with Perfetto's own classes: it holds what the summary counts."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.analysis.summary import Summary, summarise
from edgeprof.errors import FileFault
from edgeprof.report.trace import write_trace
from edgeprof.session.records import Leg, Session

MS = 1_000_000


class ReadTrace:
    """The tracks by number, and every slice, instant and reading with the name of its track."""

    def __init__(self, path: Path) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as kinds

        trace: Any = kinds.Trace()
        trace.ParseFromString(path.read_bytes())
        self.packets = list(trace.packet)
        event: Any = kinds.TrackEvent
        described = (p.track_descriptor for p in self.packets if p.HasField("track_descriptor"))
        self.tracks = {one.uuid: one for one in described}
        self.slices: list[tuple[str, str, int, int, dict[str, Any]]] = []
        self.instants: list[tuple[str, int, dict[str, Any]]] = []
        self.readings: dict[str, list[tuple[int, float]]] = defaultdict(list)
        opened: dict[int, list[Any]] = defaultdict(list)
        for packet in self.packets:
            if not packet.HasField("track_event"):
                continue
            one = packet.track_event
            name = self.tracks[one.track_uuid].name
            if one.type == event.TYPE_SLICE_BEGIN:
                opened[one.track_uuid].append(packet)
            elif one.type == event.TYPE_SLICE_END:
                begin = opened[one.track_uuid].pop()
                notes = dict(_notes(begin.track_event))
                self.slices.append(
                    (name, begin.track_event.name, begin.timestamp, packet.timestamp, notes)
                )
            elif one.type == event.TYPE_INSTANT:
                self.instants.append((one.name, packet.timestamp, dict(_notes(one))))
            else:
                self.readings[name].append((packet.timestamp, one.double_counter_value))
        assert not any(opened.values())

    def on(self, track: str) -> list[tuple[str, str, int, int, dict[str, Any]]]:
        return [one for one in self.slices if one[0].endswith(track)]


def _notes(event: Any) -> Iterator[tuple[str, Any]]:
    for note in event.debug_annotations:
        yield note.name, getattr(note, note.WhichOneof("value"))


@pytest.fixture(scope="module")
def summary(made_session: Session) -> Summary:
    return summarise(made_session)


@pytest.fixture(scope="module")
def trace_path(
    tmp_path_factory: pytest.TempPathFactory, made_session: Session, summary: Summary
) -> Path:
    return write_trace(made_session, summary, tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def trace(trace_path: Path) -> ReadTrace:
    return ReadTrace(trace_path)


def test_it_holds_every_pass_and_the_time_of_every_phase(
    trace: ReadTrace, made_session: Session
) -> None:
    found = [one for one in trace.slices if " passes of " in one[0]]
    assert len(found) == len(made_session.passes)
    took: Counter[str] = Counter()
    for _, phase, t0_ns, t1_ns, _ in found:
        took[phase] += t1_ns - t0_ns
    expected: Counter[str] = Counter()
    for one in made_session.passes:
        expected[one.phase] += one.t1_ns - one.t0_ns
    assert took == expected
    # by hand: three products each of 10, 48, 2 and 64 ms
    assert took["ceiling"] == 3 * (10 + 48 + 2 + 64) * MS


def test_rounds_and_requests_hold_the_summarys_totals(trace: ReadTrace, summary: Summary) -> None:
    names = {one[4]["id"]: one[4] for one in trace.on("decode legs")}
    for variant in summary.legs:
        mine = {
            leg for leg, notes in names.items()
            if notes["variant"] == variant.name and not notes["warmup"]
        }  # fmt: skip
        requests = [one[4] for one in trace.on("requests") if one[4]["leg_id"] in mine]
        assert (len(requests), sum(one["new_tokens"] for one in requests)) == (
            variant.answers,
            variant.tokens,
        )
        rounds = [one[4] for one in trace.on("rounds") if one[4]["leg_id"] in mine]
        if variant.acceptance is not None:
            drafting = [one for one in rounds if one["drafted"]]
            accepted = sum(one["accepted"] for one in drafting)
            drafted = sum(one["drafted"] for one in drafting)
            assert accepted / drafted == variant.acceptance.draft_acceptance_rate
            assert sum(one["emitted"] for one in rounds) / len(rounds) == pytest.approx(
                variant.acceptance.mean_acceptance_length
            )


def test_times_are_those_of_the_session_on_its_own_clock(
    trace: ReadTrace, made_session: Session
) -> None:
    begin, snapshot = trace.packets[:2]
    monotonic = 3  # as linux/time.h has it plus two, by Perfetto's own numbers
    assert begin.trace_packet_defaults.timestamp_clock_id == monotonic
    assert snapshot.clock_snapshot.primary_trace_clock == monotonic
    first = made_session.passes[0]
    assert (first.t0_ns, first.t1_ns) in {(one[2], one[3]) for one in trace.on("of fp32")}


def test_tracks_belong_to_the_session_and_speak_of_phases_and_models(trace: ReadTrace) -> None:
    session, *others = trace.tracks.values()
    assert session.name == "edgeprof tiny, 2026-01-02T03:04:05Z"
    assert {one.parent_uuid for one in others} == {session.uuid}
    names = [one.name for one in others]
    assert "verify passes of fp32" in names and "draft passes of draft" in names
    assert names.index("decode legs") < names.index("rounds") < names.index("events")


def test_signals_are_counters_with_their_unit(trace: ReadTrace, made_session: Session) -> None:
    first = made_session.legs[1].t0_ns
    assert trace.readings["swap_used_bytes (host)"] == [(first, 1e6), (first + MS, 4e6)]
    (track,) = (one for one in trace.tracks.values() if one.name.startswith("temp_c.package"))
    assert track.counter.unit_name == "deg C"


def test_events_are_moments_with_what_they_tell(trace: ReadTrace) -> None:
    ((kind, _, notes),) = trace.instants
    assert kind == "divergence"
    assert notes["severity"] == "warning" and notes["position"] == 5
    assert notes["variant"] == "int4+draft k=2" and notes["logit_gap"] == "0.004"


def mark(id: int, t0_ms: int, t1_ms: int | None) -> Leg:
    return Leg(
        id=id, name="verify", kind="mark", variant="prog", repeat=id, warmup=False,
        t0_ns=t0_ms * MS, t1_ns=None if t1_ms is None else t1_ms * MS,
    )  # fmt: skip


def test_what_overlaps_lies_on_tracks_of_one_name(
    maker: Any, summary: Summary, tmp_path: Path
) -> None:
    legs = [mark(1, 0, 10), mark(2, 5, 15), mark(3, 12, None)]
    session = replace(maker.session(), legs=legs)
    read = ReadTrace(write_trace(session, summary, tmp_path))
    assert [one.name for one in read.tracks.values()].count("mark legs") == 2
    # the last one, whose end nobody saw, reaches to the last end that was seen
    assert [(one[2] // MS, one[3] // MS) for one in read.slices] == [(0, 10), (5, 15), (12, 15)]


def test_simulated_samples_are_called_so(maker: Any, tmp_path: Path) -> None:
    maker.leg("decode", "t")
    maker.signal("power_w.total", "W", [(maker.now, 5.0), (maker.now + 5, None)],
                 quality="simulated")  # fmt: skip
    session = maker.session()
    read = ReadTrace(write_trace(session, summarise(session), tmp_path))
    root = next(iter(read.tracks.values()))
    assert "Simulated samples" in root.description
    assert read.readings["power_w.total (host)"] == [(maker.now, 5.0)]  # unknown is no reading


def test_a_time_before_the_clock_is_told(maker: Any, summary: Summary, tmp_path: Path) -> None:
    maker.now = -5
    maker.leg("decode", "t")
    with pytest.raises(FileFault, match="a time that no clock shows: -5 ns"):
        write_trace(maker.session(), summary, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(which("trace_processor_shell") is None, reason="no trace_processor_shell here")
def test_the_trace_processor_counts_the_same(trace_path: Path, made_session: Session) -> None:
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    config = TraceProcessorConfig(bin_path=which("trace_processor_shell"))
    with TraceProcessor(trace=str(trace_path), config=config) as processor:
        (row,) = processor.query("SELECT count(*) AS n FROM slice WHERE name = 'verify'")
    assert row.n == sum(one.phase == "verify" for one in made_session.passes)
