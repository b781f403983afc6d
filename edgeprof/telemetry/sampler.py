"""Polls readers on a grid of deadlines that does not drift, and hears streams in between.

Knows nothing of processes, files or boards: clocks, waiting and where records go are arguments.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from edgeprof.session.records import Event, Sample, Severity, Signal
from edgeprof.telemetry.chain import Chain, step_of
from edgeprof.telemetry.clock_moves import moves_of
from edgeprof.telemetry.losses import Presence
from edgeprof.telemetry.plausibility import Finding, Judge, Scene
from edgeprof.telemetry.progress import Progress
from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.source import (
    BoardFigures,
    Channel,
    Reader,
    Reading,
    Setting,
    SourceName,
    Stream,
)

Record = Signal | Sample | Event
# Waits so many seconds, or until a stream may be heard: which, or None when it is time to end.
Wait = Callable[[Sequence[Stream], float], Sequence[Stream] | None]

_UNKNOWN = Reading(None)
_LARGEST_SHARE = 0.2  # of the time, spent in one reader; slower ones are read less often
_USUAL_FASTEST_NS = 50_000_000
_LATENCY_READS = 3
_SLOW_READ_NS = 100_000_000  # one such read tells enough
_LOOK_EVERY_NS = 200_000_000
_SETTING_EVERY_NS = 1_000_000_000
_ASLEEP_NS = 100_000_000
_UNKNOWN_IN_A_ROW = 20
_MOST_SIGNALS = 512
_COUNTERS = "throttle_events."


class Sampler:
    """Samples what ``chain`` chooses until ``wait`` says that it is time to end.

    ``clock`` gives monotonic nanoseconds, ``boot_clock`` those that go on while the machine sleeps.
    ``interval_s`` is the least time between two reads, and where that is shorter than usual, slower
    readers become faster in proportion; None leaves every reader its own rate.
    """

    def __init__(
        self,
        chain: Chain,
        emit: Callable[[Record], None],
        *,
        board: BoardFigures,
        scene: Scene,
        progress: Progress,
        clock: Callable[[], int],
        boot_clock: Callable[[], int],
        wait: Wait,
        interval_s: float | None = None,
    ) -> None:
        self._chain = chain
        self._emit = emit
        self._board = board
        self._scene = scene
        self._progress = progress
        self._clock = clock
        self._boot_clock = boot_clock
        self._wait = wait
        self._interval_ns = None if interval_s is None else interval_s * 1e9
        self._start_ns = clock()
        self._look_ns = self._next_ns = self._start_ns
        self._tracks: list[_Track] = []
        self._lanes: dict[tuple[SourceName, str], _Lane] = {}
        self._settings: list[_Set] = []
        self._announced = 0
        self._asleep_ns: int | None = None

    def run(self) -> None:
        self._look()
        while True:
            left_ns = min(self._next_ns, self._look_ns) - self._clock()
            heard = self._wait(self._chain.streams, max(left_ns, 0) / 1e9)
            if heard is None:
                break
            for stream in heard:
                self._hear(stream)
            self._read()
            if self._clock() >= self._look_ns or not all(stream.open for stream in heard):
                self._look()
            self._progress.steps += 1
        self._close(self._clock())

    def _close(self, now_ns: int) -> None:
        self._emit_all(self._chain.close(now_ns))
        for lane in self._lanes.values():
            self._emit_all(lane.presence.close(now_ns))
            if lane.moves is not None:
                self._emit_all(lane.moves.close(now_ns))

    def _read(self) -> None:
        """Read what is due. Deadlines that were missed meanwhile are left out."""
        now_ns = self._clock()
        if now_ns < self._next_ns:
            return
        for track in self._tracks:
            if track.deadline_ns <= now_ns:
                self._take(track)
                track.deadline_ns = self._next_on_grid(track.period_ns)
        self._find_next()

    def _find_next(self) -> None:
        deadlines = (track.deadline_ns for track in self._tracks)
        self._next_ns = min(deadlines, default=self._look_ns)

    def _next_on_grid(self, period_ns: int) -> int:
        """Readers of one rate share their deadlines, so that the wake-ups are few."""
        return self._start_ns + ((self._clock() - self._start_ns) // period_ns + 1) * period_ns

    def _take(self, track: "_Track") -> None:
        self._progress.begin(track.step, t0_ns := self._clock())
        readings = track.reader.read()
        t1_ns = self._clock()
        self._progress.end()
        for lane in track.lanes:
            self._pass_on(lane, readings.get(lane.channel.name, _UNKNOWN), t0_ns, t1_ns)

    def _hear(self, stream: Stream) -> None:
        for told in self._chain.hear(stream, self._clock()):
            if isinstance(told, Event):
                self._emit(told)
                continue
            for name, reading in told.readings.items():
                lane = self._lanes.get((stream.source, name))
                if lane is None and len(self._lanes) < _MOST_SIGNALS:
                    channel = stream.channel(name)
                    asked_s: float = getattr(stream, "asked_s", stream.interval_s)
                    lane = self._lane(stream.source, channel, 1 / asked_s, stream.interval_s)
                if lane is not None:
                    self._pass_on(lane, reading, told.t0_ns, told.t1_ns)

    def _look(self) -> None:
        for told in self._chain.look(self._clock()):
            if isinstance(told, Reader):
                self._add(told)
            elif isinstance(told, Setting):
                self._settings.append(_Set(told))
            else:
                self._emit(told)
        self._tracks.sort(key=lambda track: track.period_ns)  # the fast ones do not wait for others
        self._notice_settings(self._clock())
        self._notice_sleep()
        self._look_ns = self._next_on_grid(_LOOK_EVERY_NS)
        self._find_next()

    def _add(self, reader: Reader) -> None:
        """Measure how long a read takes, which also opens the window of those that average since
        the read before; announce the signals."""
        latency_ns = self._latency_ns(reader)
        asked_ns = self._asked_ns(reader)
        slowed = max(math.ceil(latency_ns / _LARGEST_SHARE / asked_ns), 1)
        track = _Track(reader, asked_ns * slowed)
        track.deadline_ns = self._next_on_grid(track.period_ns)
        self._tracks.append(track)
        for channel in reader.channels:
            lane = self._lane(reader.source, channel, 1e9 / asked_ns, track.period_ns / 1e9)
            track.lanes.append(lane)
            if self._chain.serves(reader.source, channel.name, known=False):
                self._announce(lane)

    def _asked_ns(self, reader: Reader) -> int:
        own_ns = 1e9 / reader.rate_hz
        if self._interval_ns is None:
            return round(own_ns)
        return round(max(own_ns * min(self._interval_ns / _USUAL_FASTEST_NS, 1), self._interval_ns))

    def _latency_ns(self, reader: Reader) -> float:
        latencies: list[int] = []
        while len(latencies) < _LATENCY_READS and max(latencies, default=0) < _SLOW_READ_NS:
            self._progress.begin(step_of(reader), t0_ns := self._clock())
            reader.read()
            latencies.append(self._clock() - t0_ns)
            self._progress.end()
        return median(latencies)

    def _lane(
        self, source: SourceName, channel: Channel, asked_hz: float, period_s: float | None = None
    ) -> "_Lane":
        judge = Judge(channel.name, source, self._board, self._scene)
        lane = _Lane(source, channel, judge, asked_hz, period_s or 1 / asked_hz)
        self._lanes[source, channel.name] = lane
        return lane

    def _announce(self, lane: "_Lane") -> int:
        channel = lane.channel
        self._announced += 1
        lane.signal_id = self._announced
        between_readings = channel.window_kind == "boxcar" and channel.window_s is None
        self._emit(
            Signal(
                id=lane.signal_id,
                name=channel.name,
                unit=unit_of(channel.name),
                source=lane.source,
                window_s=lane.period_s if between_readings else channel.window_s,
                window_kind=channel.window_kind,
                window_basis=channel.window_basis,
                node=channel.node,
                note=channel.note,
                asked_hz=lane.asked_hz,
                calibrated=channel.calibrated,
            )
        )
        return lane.signal_id

    def _pass_on(self, lane: "_Lane", reading: Reading, t0_ns: int, t1_ns: int) -> None:
        """Emit a reading where its source serves the signal, marked where it is not believed."""
        value, raw, quality, reason = lane.judge.of_one_clock(reading, t1_ns)
        if value is not None and not math.isfinite(value):
            value, raw = None, raw or str(value)
        source, name = lane.source, lane.channel.name
        if not self._chain.serves(source, name, known=value is not None):
            return
        signal_id = lane.signal_id
        if signal_id is None:
            if value is None:
                return
            signal_id = self._announce(lane)
        if value is None:
            lane.unknown += 1
            self._emit_all(lane.presence.unknown(t1_ns, reason))
            never = lane.unknown == _UNKNOWN_IN_A_ROW and not lane.delivered
            if never or lane.presence.lost:
                self._chain.yield_to_others(source, name)
        else:
            lane.delivered = True
            self._emit_all(lane.presence.known(t0_ns, t1_ns))
            if finding := lane.judge(value, t1_ns):
                quality = "suspect"
                self._tell_suspect(lane, finding, t1_ns)
            elif lane.moves is not None:
                self._emit_all(lane.moves.note(value, t1_ns))
            if name.startswith(_COUNTERS):
                self._tell_throttling(lane, value, t1_ns)
        self._emit(
            Sample(
                signal_id=signal_id,
                t0_ns=t0_ns,
                t1_ns=t1_ns,
                value=value,
                raw=raw,
                quality=quality,
            )
        )

    def _tell_suspect(self, lane: "_Lane", finding: Finding, now_ns: int) -> None:
        """Once a channel and kind of doubt."""
        if finding.kind in lane.told:
            return
        lane.told.add(finding.kind)
        detail = {
            "signal": lane.channel.name,
            "source": lane.source,
            "reason": finding.reason,
            "since_ns": finding.since_ns,
        }
        self._tell("suspect", "warning", detail, now_ns)

    def _tell_throttling(self, lane: "_Lane", count: float, now_ns: int) -> None:
        before, lane.count = lane.count, count
        if before is not None and count > before:
            counter = lane.channel.name.removeprefix(_COUNTERS)
            detail = {"counter": counter, "from": int(before), "to": int(count)}
            self._tell("throttling", "warning", detail, now_ns)

    def _notice_settings(self, now_ns: int) -> None:
        for one in self._settings:
            if now_ns < one.next_ns:
                continue
            one.next_ns = now_ns + _SETTING_EVERY_NS
            value, before = one.setting.read(), one.value
            one.value = value if value is not None else before
            if before is not None and one.value != before:
                detail = {"source": one.setting.source, "from": before, "to": value}
                self._tell(one.setting.kind, "warning", detail, now_ns)

    def _notice_sleep(self) -> None:
        """The difference of the two clocks lies between two bounds, however slow this is."""
        before_ns = self._clock()
        boot_ns = self._boot_clock()
        after_ns = self._clock()
        if self._asleep_ns is not None and boot_ns - after_ns - self._asleep_ns > _ASLEEP_NS:
            asleep_s = (boot_ns - after_ns - self._asleep_ns) / 1e9
            self._tell("suspend", "warning", {"asleep_s": asleep_s}, after_ns)
        self._asleep_ns = boot_ns - before_ns

    def _tell(self, kind: str, severity: Severity, detail: dict[str, Any], now_ns: int) -> None:
        self._emit(Event(leg_id=None, t_ns=now_ns, kind=kind, severity=severity, detail=detail))

    def _emit_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self._emit(event)


class _Set:
    """A setting, what it was last, and when it is looked at next."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.value: str | None = None
        self.next_ns = 0


class _Track:
    """A reader, its channels and its next deadline."""

    def __init__(self, reader: Reader, period_ns: int) -> None:
        self.reader = reader
        self.step = step_of(reader)
        self.period_ns = period_ns
        self.deadline_ns = 0
        self.lanes: list[_Lane] = []


class _Lane:
    """A channel on its way: its id once it is announced, and what is remembered of it."""

    def __init__(
        self,
        source: SourceName,
        channel: Channel,
        judge: Judge,
        asked_hz: float,
        period_s: float,
    ) -> None:
        self.source = source
        self.channel = channel
        self.judge = judge
        self.asked_hz = asked_hz
        self.period_s = period_s
        self.presence = Presence(channel.name, source)
        self.moves = moves_of(channel.name, source)
        self.signal_id: int | None = None
        self.delivered = False
        self.unknown = 0
        self.told: set[str] = set()
        self.count: float | None = None
