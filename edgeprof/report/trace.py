"""A session as a Perfetto trace: legs, requests, rounds and passes as slices, signals as counters.

All times are the session's own, CLOCK_MONOTONIC in nanoseconds, and the trace says so. Nothing is
thinned out. The file is written in batches, so that hours of samples take little memory.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import IO, Any, TypeAlias

import msgspec
from msgspec import Struct

from edgeprof.analysis.summary import Summary
from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.report.headline import stamps
from edgeprof.report.printable import printable
from edgeprof.report.whole_file import whole_file
from edgeprof.session.records import Leg, Pass, Request, Round, Session, Signal

TRACE_NAME = "trace.pftrace"
# What a slice tells beside its name and time: fields of the record.
_ARGUMENTS: dict[type[Struct], tuple[str, ...]] = {
    Leg: ("id", "variant", "repeat", "warmup", "status"),
    Request: ("leg_id", "prompt_kind", "prompt_tokens", "new_tokens", "stop_reason"),
    Round: ("leg_id", "request_id", "drafted", "evaluated", "accepted", "emitted"),
    Pass: ("leg_id", "round_id", "tokens", "context_tokens", "provider"),
}
_SEQUENCE = 1  # all packets come from one writer
_BATCH_PACKETS = 5000
_LARGEST = 2**63 - 1


Lasting: TypeAlias = Leg | Request | Round | Pass


def check_trace() -> None:
    """Raises EnvironmentFault where the library of the trace's classes is missing."""
    try:
        import perfetto.protos.perfetto.trace.perfetto_trace_pb2  # noqa: F401
    except ImportError as error:
        raise EnvironmentFault(
            f"a trace needs perfetto ({error}): pip install 'edgeprof[trace]'"
        ) from error


def write_trace(session: Session, summary: Summary, folder: Path) -> Path:
    """``trace.pftrace`` in ``folder``, which is there, an old one replaced; returns its path.

    Raises EnvironmentFault where the library is missing or the file cannot be written, FileFault
    where the session holds times that no clock shows.
    """
    check_trace()
    path = folder / TRACE_NAME
    with whole_file(path) as unfinished, unfinished.open("wb") as file:
        trace = _Trace(file, _title(summary), " ".join(stamps(summary)))
        end_ns = _last_ns(session)
        for name, records in _tracks(session):
            trace.slices(name, records, end_ns)
        trace.instants("events", session)
        for signal in session.signals:
            trace.counter(session, signal)
        trace.flush()
    return path


class _Trace:
    """Packets on their way into a file; every track belongs to the one of the session."""

    def __init__(self, file: IO[bytes], title: str, description: str) -> None:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self._kinds: Any = perfetto_trace_pb2  # its stubs lack most of what is in it
        self._file = file
        self._batch = self._kinds.Trace()
        self._uuids = count(1)
        self._begin()
        self._session = self._track(title, description=description)

    def slices(self, name: str, records: Sequence[Lasting], end_ns: int) -> None:
        """Those that overlap lie on tracks of one name, which a viewer shows one below another.

        One whose end nobody saw reaches to ``end_ns``.
        """
        taken: list[tuple[int, int]] = []  # until when each track is, and its number
        for one in sorted(records, key=lambda one: one.t0_ns):
            if taken and taken[0][0] <= one.t0_ns:
                _, track = heappop(taken)
            else:
                track = self._track(name, parent=self._session)
            until_ns = max(one.t0_ns, end_ns if one.t1_ns is None else one.t1_ns)
            begin = self._event(track, one.t0_ns, self._kinds.TrackEvent.TYPE_SLICE_BEGIN)
            begin.name = printable(_name(one))
            self._annotate(begin, {key: getattr(one, key) for key in _ARGUMENTS[type(one)]})
            self._event(track, until_ns, self._kinds.TrackEvent.TYPE_SLICE_END)
            heappush(taken, (until_ns, track))

    def instants(self, name: str, session: Session) -> None:
        """What happened, each at its moment."""
        if not session.events:
            return
        track = self._track(name, parent=self._session)
        for event in session.events:
            moment = self._event(track, event.t_ns, self._kinds.TrackEvent.TYPE_INSTANT)
            moment.name = printable(event.kind)
            self._annotate(moment, {"severity": event.severity, **event.detail})

    def counter(self, session: Session, signal: Signal) -> None:
        """All readings of a signal that have a value."""
        samples = session.samples.of_signal(signal.id)
        track = self._track(
            f"{signal.name} ({signal.source})",
            parent=self._session,
            description=signal.note or "",
            unit=signal.unit,
        )
        kind = self._kinds.TrackEvent.TYPE_COUNTER
        for part in samples.chunks():
            known = part.value == part.value
            times_ns = (part.t0_ns + (part.t1_ns - part.t0_ns) // 2)[known].tolist()
            for t_ns, value in zip(times_ns, part.value[known].tolist(), strict=True):
                self._event(track, t_ns, kind).double_counter_value = value

    def flush(self) -> None:
        """Write what is on its way; traces one after another are one trace."""
        self._file.write(self._batch.SerializeToString())
        self._batch = self._kinds.Trace()

    def _begin(self) -> None:
        packet = self._packet()
        packet.sequence_flags = self._kinds.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        clock = self._kinds.BUILTIN_CLOCK_MONOTONIC
        packet.trace_packet_defaults.timestamp_clock_id = clock
        packet = self._packet()
        packet.clock_snapshot.primary_trace_clock = clock
        packet.clock_snapshot.clocks.add(clock_id=clock, timestamp=0)

    def _packet(self) -> Any:
        if len(self._batch.packet) >= _BATCH_PACKETS:
            self.flush()
        return self._batch.packet.add(trusted_packet_sequence_id=_SEQUENCE)

    def _track(
        self, name: str, *, parent: int | None = None, description: str = "", unit: str = ""
    ) -> int:
        """Announce a track; they are shown in the order in which they come."""
        uuid = next(self._uuids)
        track = self._packet().track_descriptor
        track.uuid, track.name = uuid, printable(name)
        if description:
            track.description = printable(description)
        if parent is None:
            track.child_ordering = self._kinds.TrackDescriptor.EXPLICIT
        else:
            track.parent_uuid, track.sibling_order_rank = parent, uuid
        if unit:
            track.counter.unit_name = printable(unit)
        return uuid

    def _event(self, track: int, t_ns: int, kind: int) -> Any:
        if not 0 <= t_ns <= _LARGEST:
            raise FileFault(f"the session has a time that no clock shows: {t_ns} ns")
        packet = self._packet()
        packet.timestamp = t_ns
        event = packet.track_event
        event.track_uuid, event.type = track, kind
        return event

    def _annotate(self, event: Any, arguments: Mapping[str, Any]) -> None:
        """Whole numbers as such, all else as text or JSON; what is unknown is left out."""
        for name, value in arguments.items():
            if value is None:
                continue
            note = event.debug_annotations.add(name=printable(name))
            if isinstance(value, bool):
                note.bool_value = value
            elif isinstance(value, int) and abs(value) <= _LARGEST:
                note.int_value = value
            elif isinstance(value, str):
                note.string_value = printable(value)
            else:
                note.string_value = msgspec.json.encode(value).decode()


def _title(summary: Summary) -> str:
    session = summary.session
    return f"edgeprof {session.recipe.get('name') or session.kind}, {session.created_utc}"


def _tracks(session: Session) -> Iterator[tuple[str, Sequence[Lasting]]]:
    """By the name of their track; legs by kind, passes by phase and model."""
    legs: dict[str, list[Leg]] = defaultdict(list)
    for leg in session.legs:
        legs[f"{leg.kind} legs"].append(leg)
    yield from legs.items()
    yield "requests", session.requests
    yield "rounds", session.rounds
    passes: dict[str, list[Pass]] = defaultdict(list)
    for one in session.passes:
        passes[f"{one.phase} passes of {one.model}"].append(one)
    yield from passes.items()


def _name(one: Lasting) -> str:
    if isinstance(one, Leg):
        return one.name
    return one.phase if isinstance(one, Pass) else f"{type(one).__name__.lower()} {one.id}"


def _last_ns(session: Session) -> int:
    ends = (one.t1_ns for some in (session.legs, session.passes, session.rounds) for one in some)
    return max((end for end in ends if end is not None), default=0)
