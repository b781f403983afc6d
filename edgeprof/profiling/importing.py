"""Turns a recorded log of tegrastats into a session, every reading of it marked as replayed.

Knows nothing of the machine that the log is from but what its lines and the caller say.
"""

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

from msgspec import Struct
from msgspec.structs import replace

from edgeprof import __version__
from edgeprof.catalog import find_device
from edgeprof.errors import FileFault
from edgeprof.hardware.board_files import printable
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.delivery import Delivery
from edgeprof.session.records import SCHEMA_VERSION, Event, Sample, SessionInfo, Severity, Signal
from edgeprof.session.store import SessionWriter, check_output, remove_session
from edgeprof.telemetry.plausibility import Finding, Judge, Scene
from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.source import Absence, BoardFigures, Reading, SourceName
from edgeprof.telemetry.sources.tegrastats import board_readings, emc_absences, tegrastats_channel
from edgeprof.telemetry.tegrastats_log import (
    DEFAULT_INTERVAL_S,
    ClockStep,
    Gap,
    Placed,
    Progress,
    Tally,
    place,
    read_entries,
)

_MOST_SIGNALS = 256
_MOST_SHOWN = 50
_CONTRADICTION = 0.05
_LONG_ENOUGH_NS = 20_000_000_000  # for stamps of a second each to tell an interval
_SOURCE: SourceName = "replay"
_UNKNOWN = Reading(None)


class ImportedSignal(Struct, frozen=True, kw_only=True):
    """A signal of the session: readings with a value, and without."""

    name: str
    unit: str
    samples: int
    unknown: int
    suspect: int


class Imported(Struct, frozen=True, kw_only=True):
    """What became of a log. ``unknown_names`` counts the fields that were skipped by the word in
    front, the most frequent first."""

    lines_read: int
    lines_dropped: int
    unknown_fields: int
    unknown_names: dict[str, int]
    signals: list[ImportedSignal]
    span_s: float
    delivered_hz: float | None
    first_stamp: str | None
    last_stamp: str | None
    gaps: int
    clock_steps: int
    absences: list[Absence]
    warnings: list[str]


def import_tegrastats(
    file: BinaryIO,
    name: str,
    output: Path,
    *,
    device: str | None = None,
    interval_s: float | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Imported:
    """Write a session of what the log says; ``name`` is what it and messages call the log, and
    ``device`` names the board that it is from. ``progress`` is called now and then.

    A log that tells of no time, or of nothing, leaves no file and raises UsageFault or FileFault.
    """
    board = BoardFigures() if device is None else board_figures(Path("/"), device)
    check_output(output, force=force)
    tally = Tally()
    moments = place(read_entries(file, name, tally, progress), name, interval_s)
    first = next(moments, None)
    if first is None:
        dropped = f": {tally.dropped} lines, none of which could be read" if tally.dropped else ""
        raise FileFault(f"{name}: no line of tegrastats in it{dropped}")
    writer = SessionWriter(output, _info(name, device, interval_s), force=force)
    work = _Import(writer, tally, board, interval_s)
    imported = None
    try:
        for moment in chain([first], moments):
            work.take(moment)
        imported = work.finish(name)
    finally:
        writer.close()
        if imported is None:
            remove_session(output)
    return imported


def _info(name: str, device: str | None, interval_s: float | None) -> SessionInfo:
    profile = None if device is None else find_device(device).profile
    return SessionInfo(
        id=uuid.uuid4().hex,
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        edgeprof_version=__version__,
        schema_version=SCHEMA_VERSION,
        kind="import",
        recipe={},
        device={
            "name": None if profile is None else profile.title,
            "kind": "board",
            "profile": None if profile is None else profile.name,
        },
        environment={"log": printable(name), "log_format": "tegrastats", "interval_s": interval_s},
        models={},
    )


class _Import:
    """One log on its way into a session."""

    def __init__(
        self, writer: SessionWriter, tally: Tally, board: BoardFigures, interval_s: float | None
    ) -> None:
        self._writer = writer
        self._tally = tally
        self._board = board
        self._interval_s = interval_s
        self._delivery = Delivery()
        self._scene = Scene()
        self._lanes: dict[str, _Lane] = {}
        self._warnings: list[str] = []
        self._last: Placed | None = None
        self._gaps = self._clock_steps = self._unstamped = 0
        self._steps = self._covered_ns = 0  # between lines without a gap between them
        self._stamped_ns = self._stamped_covered_ns = 0  # the same by the stamps, and by the axis

    def take(self, moment: Placed | Gap | ClockStep) -> None:
        if isinstance(moment, Placed):
            self._take_line(moment)
        elif isinstance(moment, Gap):
            self._gaps += 1
            self._interrupt()
            times = {"since_ns": moment.since_ns, "until_ns": moment.until_ns}
            self._note("gap", "warning", {**times, "reason": moment.cause}, moment.until_ns)
        else:
            self._clock_steps += 1
            self._interrupt()
            stamps = {"from": str(moment.before), "to": str(moment.after)}
            self._note("clock_step", "warning", {**stamps, "line": moment.line_number}, moment.t_ns)

    def finish(self, name: str) -> Imported:
        """Write how the signals were delivered, and what the log could not give."""
        assert self._last is not None
        end_ns = self._last.t_ns
        given = set(self._lanes)
        why = f"{name} tells nothing of the EMC load: tegrastats gives it to root only"
        fix = "record with `sudo tegrastats`"
        absences = list(emc_absences(given, self._board, _SOURCE, why=printable(why), fix=fix))
        for absence in absences:
            detail = {"signal": absence.signal, "reason": absence.reason, "fix": absence.fix}
            self._note("absent", "info", detail, end_ns)
        if self._tally.dropped:
            self._note("dropped", "info", {"lines": self._tally.dropped}, end_ns)
        for signal in self._delivery.signals():
            self._writer.add(_as_recorded(signal))
        stamps = {
            "first_stamp": _text(self._tally.first_stamp),
            "last_stamp": _text(self._tally.last_stamp),
        }
        self._writer.update_info(
            complete=True, environment={**self._writer.info.environment, **stamps}
        )
        return Imported(
            lines_read=self._tally.read,
            lines_dropped=self._tally.dropped,
            unknown_fields=self._tally.unknown.total(),
            unknown_names=dict(self._tally.unknown.most_common(_MOST_SHOWN)),
            signals=[
                ImportedSignal(
                    name=signal,
                    unit=unit_of(signal),
                    samples=lane.known,
                    unknown=lane.unknown,
                    suspect=lane.suspect,
                )
                for signal, lane in self._lanes.items()
            ],
            span_s=end_ns / 1e9,
            delivered_hz=self._steps / self._covered_ns * 1e9 if self._covered_ns else None,
            gaps=self._gaps,
            clock_steps=self._clock_steps,
            absences=absences,
            warnings=[*self._warnings, *self._doubts_of_time()],
            **stamps,
        )

    def _take_line(self, placed: Placed) -> None:
        t_ns, line = placed
        found = board_readings(line, self._board)
        if not found.keys() <= self._lanes.keys():
            for name, reading in found.items():
                if reading.value is not None and name not in self._lanes:
                    self._announce(name)
        for name, lane in self._lanes.items():
            self._put(name, lane, found.get(name, _UNKNOWN), t_ns)
        self._unstamped += line.stamp is None
        if self._last is not None:
            self._steps += 1
            self._covered_ns += t_ns - self._last.t_ns
            self._compare_stamps(self._last, placed)
        self._last = placed

    def _announce(self, name: str) -> None:
        if len(self._lanes) >= _MOST_SIGNALS:
            return
        channel = tegrastats_channel(name)
        signal = self._delivery.announce(
            Signal(
                id=len(self._lanes) + 1,
                name=name,
                unit=unit_of(name),
                source=_SOURCE,
                window_s=channel.window_s,
                window_kind=channel.window_kind,
                window_basis=channel.window_basis,
                node=channel.node,
                note=channel.note,
                asked_hz=1 / self._interval_s if self._interval_s else None,
            )
        )
        self._writer.add(signal)
        self._lanes[name] = _Lane(signal.id, Judge(name, _SOURCE, self._board, self._scene))

    def _put(self, name: str, lane: "_Lane", reading: Reading, t_ns: int) -> None:
        reading = lane.judge.of_one_clock(reading, t_ns)
        finding = None if reading.value is None else lane.judge(reading.value, t_ns)
        if finding is not None:
            self._doubt(name, lane, finding, t_ns)
        suspect = finding is not None or reading.quality == "suspect"
        lane.suspect += suspect
        lane.unknown += reading.value is None
        lane.known += reading.value is not None
        sample = Sample(
            signal_id=lane.signal_id,
            t0_ns=t_ns,
            t1_ns=t_ns,
            value=reading.value,
            raw=reading.raw,
            quality="suspect" if suspect else "replayed",
        )
        self._writer.add(self._delivery.count(sample))

    def _doubt(self, name: str, lane: "_Lane", finding: Finding, t_ns: int) -> None:
        """Once a signal and kind of doubt."""
        if finding.kind in lane.told:
            return
        lane.told.add(finding.kind)
        self._warnings.append(f"{name} is suspect: {finding.reason}")
        detail = {"signal": name, "reason": finding.reason, "since_ns": finding.since_ns}
        self._note("suspect", "warning", detail, t_ns)

    def _interrupt(self) -> None:
        self._delivery.interrupt()
        self._last = None

    def _compare_stamps(self, earlier: Placed, later: Placed) -> None:
        before, after = earlier.line.stamp, later.line.stamp
        if before is not None and after is not None:
            self._stamped_ns += round((after - before).total_seconds()) * 1_000_000_000
            self._stamped_covered_ns += later.t_ns - earlier.t_ns

    def _doubts_of_time(self) -> Iterator[str]:
        if self._interval_s is None and self._unstamped:
            yield (
                f"{self._unstamped} lines have no time stamp and were placed by the lines before "
                f"them, or one every {DEFAULT_INTERVAL_S:g} s; --interval settles it"
            )
        if self._interval_s is None or self._stamped_ns < _LONG_ENOUGH_NS:
            return
        ratio = self._stamped_ns / self._stamped_covered_ns
        if abs(ratio - 1) > _CONTRADICTION:
            yield (
                f"the stamps say one line every {self._interval_s * ratio:.3g} s, not every"
                f" {self._interval_s:g} s as --interval does; times are by --interval"
            )

    def _note(self, kind: str, severity: Severity, detail: dict[str, Any], t_ns: int) -> None:
        detail = {"source": _SOURCE, **detail}
        self._writer.add(Event(leg_id=None, t_ns=t_ns, kind=kind, severity=severity, detail=detail))


class _Lane:
    """A signal that was met, and the count of its readings."""

    def __init__(self, signal_id: int, judge: Judge) -> None:
        self.signal_id = signal_id
        self.judge = judge
        self.known = self.unknown = self.suspect = 0
        self.told: set[str] = set()


def _as_recorded(signal: Signal) -> Signal:
    """The times of a log tell how often it has a line, and nothing of how evenly they came."""
    per_line = signal.window_kind == "boxcar" and signal.delivered_hz
    return replace(
        signal,
        window_s=1 / signal.delivered_hz if per_line and signal.delivered_hz else signal.window_s,
        jitter_s=None,
        read_latency_s=None,
    )


def _text(stamp: datetime | None) -> str | None:
    return None if stamp is None else stamp.isoformat(sep=" ")
