"""Reads the sources on a grid of deadlines that does not drift.

Knows nothing of processes, files or boards: clock, pause and where records go are arguments.
"""

from collections.abc import Callable, Sequence
from itertools import count

from edgeprof.session.records import Sample, Signal
from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.source import Reader, Reading

_UNKNOWN = Reading(None)
_LARGEST_SHARE = 0.2  # of the time, spent in one reader; slower ones are read less often


class _Track:
    """A reader, the ids of its signals and its next deadline."""

    def __init__(self, reader: Reader, signal_ids: dict[str, int], latency_ns: int) -> None:
        self.reader = reader
        self.signal_ids = signal_ids
        self.period_ns = max(round(1e9 / reader.rate_hz), round(latency_ns / _LARGEST_SHARE))
        self.deadline_ns = 0

    def advance(self, now_ns: int) -> None:
        """The next deadline of the grid that lies ahead; those missed are left out."""
        missed = max(now_ns - self.deadline_ns, 0) // self.period_ns
        self.deadline_ns += (missed + 1) * self.period_ns


def sample(
    readers: Sequence[Reader],
    emit: Callable[[Signal | Sample], None],
    *,
    clock: Callable[[], int],
    pause: Callable[[float], bool],
) -> None:
    """Announce every signal, then read until ``pause(seconds)`` returns True.

    ``clock`` gives monotonic nanoseconds. Each reader is read once for its latency, uncounted,
    which also opens the window of those that average since the last read.
    """
    tracks = _announce(readers, emit, clock)
    start_ns = clock()
    for track in tracks:
        track.deadline_ns = start_ns + track.period_ns
    while tracks:
        track = min(tracks, key=lambda candidate: candidate.deadline_ns)
        if pause(max(track.deadline_ns - clock(), 0) / 1e9):
            return
        _take(track, emit, clock)
        track.advance(clock())


def _announce(
    readers: Sequence[Reader], emit: Callable[[Signal | Sample], None], clock: Callable[[], int]
) -> list[_Track]:
    ids = count(1)
    tracks = []
    for reader in readers:
        t0_ns = clock()
        reader.read()
        track = _Track(reader, {}, clock() - t0_ns)
        for channel in reader.channels:
            track.signal_ids[channel.name] = next(ids)
            emit(
                Signal(
                    id=track.signal_ids[channel.name],
                    name=channel.name,
                    unit=unit_of(channel.name),
                    source=reader.source,
                    window_s=track.period_ns / 1e9
                    if channel.window_kind == "boxcar" and channel.window_s is None
                    else channel.window_s,
                    window_kind=channel.window_kind,
                    window_basis=channel.window_basis,
                    node=channel.node,
                    note=channel.note,
                    asked_hz=reader.rate_hz,
                )
            )
        tracks.append(track)
    return tracks


def _take(track: _Track, emit: Callable[[Signal | Sample], None], clock: Callable[[], int]) -> None:
    t0_ns = clock()
    values = track.reader.read()
    t1_ns = clock()
    for name, signal_id in track.signal_ids.items():
        value, raw, quality = values.get(name, _UNKNOWN)
        emit(
            Sample(
                signal_id=signal_id,
                t0_ns=t0_ns,
                t1_ns=t1_ns,
                value=value,
                raw=raw,
                quality=quality,
            )
        )
