"""The replay source: a recorded log of tegrastats, or a session, played again at its own pace.

Every reading is marked as replayed; one that was simulated stays so, its source tells the rest.
Needs no child: a thread waits for the next time and writes a byte into a pipe.
"""

import math
import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from edgeprof.errors import EdgeprofError, FileFault, UsageFault
from edgeprof.hardware.board_files import printable
from edgeprof.session.records import Event, Sample, Session, Signal
from edgeprof.session.store import read_session
from edgeprof.telemetry.chain import WHOLE_SOURCE
from edgeprof.telemetry.source import (
    SOURCE_ORDER,
    Absence,
    Batch,
    BoardFigures,
    Channel,
    Reading,
    SourceName,
)
from edgeprof.telemetry.sources.tegrastats import board_readings, emc_absences, tegrastats_channel
from edgeprof.telemetry.tegrastats_log import Gap, Placed, Tally, place, read_entries

_SQLITE = b"SQLite format 3\0"
_FOR_EVER_S = 1e9


class Recording(Struct, frozen=True, kw_only=True):
    """A file that can be played; ``device`` is what a session says of its board, None of a log."""

    path: Path
    device: dict[str, Any] | None


def find_recording(path: Path, line_interval_s: float | None) -> Recording:
    """The log or session at ``path``, once it is sure that there is something to play in it.

    Raises UsageFault or FileFault, which say why not.
    """
    if not path.is_file():
        raise UsageFault(f"{path}: not a file that holds a recording")
    if _is_sqlite(path):
        session = read_session(path)
        if all(sample.value is None for sample in session.samples):
            raise FileFault(f"{path}: a session without a single reading")
        return Recording(path=path, device=session.info.device)
    with path.open("rb") as file:
        entries = read_entries(file, str(path), Tally())
        if next(place(entries, str(path), line_interval_s), None) is None:
            raise FileFault(f"{path}: neither a session nor a log: no line of tegrastats in it")
    return Recording(path=path, device=None)


class Moment(NamedTuple):
    """What came between two times of the recording: readings by signal, None where a gap was."""

    t0_ns: int
    t1_ns: int
    readings: Mapping[str, Reading] | None


class ReplayStream:
    """Plays the file at ``path``, ``speed`` times as fast as it was recorded.

    A log whose lines have no stamps needs ``line_interval_s``. Times are those of playing; gaps
    come as events, and a last absence says that it was played to its end. ``interval_s`` is the
    time between the first two readings.
    """

    source: SourceName = "replay"
    silence_s = _FOR_EVER_S  # a recording may have gaps of any length
    restart_after_s: float | None = None  # what was played is not played again

    def __init__(
        self,
        path: Path,
        board: BoardFigures,
        speed: float = 1.0,
        *,
        line_interval_s: float | None = None,
    ) -> None:
        if not (math.isfinite(speed) and speed > 0):
            raise ValueError(f"speed must be positive and finite, got {speed}")
        self.interval_s = 1.0
        self.open = False
        self._path = path
        self._board = board
        self._speed = speed
        self._line_interval_s = line_interval_s
        self._channels: dict[str, Channel] = {}
        self._absences: list[Absence] = []
        self._played: deque[Batch | Absence | Event] = deque()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._readable = self._writable = -1

    def start(self) -> Sequence[Absence]:
        try:
            recording = self._recording()
            opening = list(islice(recording, 2))
        except (EdgeprofError, OSError) as error:
            return [self._absence(str(error))]
        if not opening:
            return [self._absence(f"{self._path.name}: no readings in it")]
        apart_ns = opening[-1].t1_ns - opening[0].t1_ns
        if apart_ns > 0:
            self.interval_s = apart_ns / 1e9 / self._speed
        self._readable, self._writable = os.pipe()
        os.set_blocking(self._readable, False)
        os.set_blocking(self._writable, False)
        self.open = True
        moments = chain(opening, recording)
        self._thread = threading.Thread(target=self._play, args=(moments,), daemon=True)
        self._thread.start()
        return self._absences

    def fileno(self) -> int:
        return self._readable

    def receive(self, now_ns: int) -> Iterator[Batch | Absence | Event]:
        if not self.open:
            return
        with suppress(BlockingIOError):
            os.read(self._readable, 1 << 16)
        while self._played:
            told = self._played.popleft()
            self.open = not isinstance(told, Absence)
            yield told

    def channel(self, name: str) -> Channel:
        return self._channels.get(name) or tegrastats_channel(name)

    def close(self) -> None:
        self.open = False
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            os.close(self._readable)
            os.close(self._writable)

    def _play(self, moments: Iterator[Moment]) -> None:
        """The thread: everything at its time, and why no more comes."""
        start_ns, first_ns = time.monotonic_ns(), None
        end = f"{self._path.name} was played to its end"
        try:
            for t0_ns, t1_ns, told in moments:
                first_ns = t1_ns if first_ns is None else first_ns
                due0_ns = start_ns + round((t0_ns - first_ns) / self._speed)
                due1_ns = start_ns + round((t1_ns - first_ns) / self._speed)
                if self._stop.wait(_seconds_until(due1_ns)):
                    return
                if told is None:
                    self._put(_gap(due0_ns, due1_ns))
                else:
                    self._put(Batch(t0_ns=due0_ns, t1_ns=due1_ns, readings=told))
        except (EdgeprofError, OSError) as error:
            end = str(error)
        self._put(self._absence(end))

    def _put(self, told: Batch | Absence | Event) -> None:
        self._played.append(told)
        with suppress(BlockingIOError):  # nobody listens, and it is readable as it is
            os.write(self._writable, b"\n")

    def _recording(self) -> Iterator[Moment]:
        if not _is_sqlite(self._path):
            return self._from_log()
        session = read_session(self._path)
        chosen = _chosen(session)
        self._channels = {signal.name: _channel(signal) for signal in chosen.values()}
        return _from_session(session, chosen)

    def _from_log(self) -> Iterator[Moment]:
        """Signals that had a value once and are missing in a line are unknown there."""
        known: dict[str, None] = {}
        with self._path.open("rb") as file:
            entries = read_entries(file, self._path.name, Tally())
            for moment in place(entries, self._path.name, self._line_interval_s):
                if isinstance(moment, Gap):
                    yield Moment(moment.since_ns, moment.until_ns, None)
                if not isinstance(moment, Placed):
                    continue
                found = self._readings(moment)
                if not known:
                    self._absences = list(emc_absences(_given(found), self._board, self.source))
                known.update(dict.fromkeys(_given(found)))
                told = {name: found.get(name, Reading(None)) for name in {**found, **known}}
                yield Moment(moment.t_ns, moment.t_ns, told)

    def _readings(self, placed: Placed) -> Mapping[str, Reading]:
        found = board_readings(placed.line, self._board)
        return {name: _replayed(reading) for name, reading in found.items()}

    def _absence(self, reason: str) -> Absence:
        """Of the whole source."""
        return Absence(signal=WHOLE_SOURCE, source=self.source, reason=printable(reason))


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def _chosen(session: Session) -> Mapping[int, Signal]:
    """By id the signals to play: of several sources for one name the first by rank."""
    rank: dict[str, int] = {source: number for number, source in enumerate(SOURCE_ORDER)}
    best: dict[str, Signal] = {}
    for signal in session.signals:
        rival = best.get(signal.name)
        if rival is None or rank.get(signal.source, 99) < rank.get(rival.source, 99):
            best[signal.name] = signal
    return {signal.id: signal for signal in best.values()}


def _channel(signal: Signal) -> Channel:
    recorded = f"recorded from {signal.source}"
    return Channel(
        name=signal.name,
        node=signal.node,
        window_s=signal.window_s,
        window_kind=signal.window_kind,
        window_basis=signal.window_basis,
        note=f"{recorded}: {signal.note}" if signal.note else recorded,
    )


def _from_session(session: Session, chosen: Mapping[int, Signal]) -> Iterator[Moment]:
    """Values only: what the first source said word for word stays in the session replayed."""
    samples = (sample for sample in session.samples if sample.signal_id in chosen)
    for (t1_ns, t0_ns), together in groupby(sorted(samples, key=_times), key=_times):
        told = {
            chosen[sample.signal_id].name: _replayed(Reading(sample.value, None, sample.quality))
            for sample in together
        }
        yield Moment(t0_ns, t1_ns, told)


def _times(sample: Sample) -> tuple[int, int]:
    return sample.t1_ns, sample.t0_ns


def _given(found: Mapping[str, Reading]) -> list[str]:
    return [name for name, reading in found.items() if reading.value is not None]


def _replayed(reading: Reading) -> Reading:
    """What was suspect stays so: no conclusion may be drawn from it. So does what was simulated:
    that it is replayed, its source tells."""
    return reading._replace(quality="replayed") if reading.quality == "ok" else reading


def _seconds_until(due_ns: int) -> float:
    return min(max(due_ns - time.monotonic_ns(), 0) / 1e9, _FOR_EVER_S)


def _gap(since_ns: int, until_ns: int) -> Event:
    detail = {"source": "replay", "since_ns": since_ns, "until_ns": until_ns}
    return Event(leg_id=None, t_ns=until_ns, kind="gap", severity="warning", detail=detail)
