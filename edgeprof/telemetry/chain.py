"""Which source serves which signal: per signal the first that works, or all side by side.

Opens one source after the other while something is missing, closes those that add nothing, and
replaces a stream that falls silent. Knows no source by its workings: how each is opened is an
argument, and so is the time.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from edgeprof.session.records import Event, Severity
from edgeprof.telemetry.progress import Progress
from edgeprof.telemetry.source import (
    SOURCE_ORDER,
    Absence,
    Batch,
    Offer,
    Reader,
    Setting,
    SourceName,
    Stream,
)

Opener = Callable[[], Offer | Stream]

WHOLE_SOURCE = "*"  # the signal of an absence that is the whole source's

# What a source is opened for where nobody serves it yet; a family counts with any member.
_BOARD = (
    "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s",
    "gpu_busy_frac", "gpu_clock_hz", "power_w", "temp_c",
)  # fmt: skip
_HOST = (
    "cpu_busy_frac", "cpu_online", "ram_used_bytes", "ram_total_bytes", "swap_used_bytes", "temp_c",
)  # fmt: skip
_GIVES: Mapping[SourceName, Sequence[str]] = {
    "sysfs": (*_BOARD, *_HOST),
    "tegrastats": _BOARD,
    "jtop": _BOARD,
    "host": _HOST,
}
_BATCHES_TO_JUDGE_BY = 3
_ATTEMPTS = 3  # at a stream that never says anything
_LONGEST_PAUSE_S = 30
_SHORTEST_SILENCE_S = 3.0
_OPENING_PATIENCE_NS = 10_000_000_000
_WELL_AFTER_NS = 60_000_000_000  # then the next loss counts as the first again


class Chain:
    """The sources of one sampler. ``openers`` is in the order of their rank.

    With ``side_by_side`` every source is opened and gives all it can. ``left_out`` names openings
    and readers that hung before, as ``progress`` is told them: ``sysfs: EMC activity``.
    """

    def __init__(
        self,
        openers: Mapping[SourceName, Opener],
        progress: Progress,
        *,
        side_by_side: bool = False,
        left_out: Collection[str] = (),
    ) -> None:
        self._openers = openers
        self._progress = progress
        self._side_by_side = side_by_side
        self._left_out = left_out
        self._opened: set[SourceName] = set()
        self._rank = {source: rank for rank, source in enumerate(SOURCE_ORDER)}
        self._owners: dict[str, SourceName] = {}
        self._served: dict[SourceName, _Served] = {}
        self.streams: list[Stream] = []  # those that are open

    def serves(self, source: SourceName, name: str, *, known: bool) -> bool:
        """Whether a reading of that source is the signal's; one that is known may make it so."""
        owner = self._owners.get(name)
        if owner == source or self._side_by_side:
            return True
        if not known or (owner is not None and self._rank[owner] < self._rank[source]):
            return False
        self._owners[name] = source
        return True

    def release(self, source: SourceName, name: str) -> None:
        """A signal or family of that source gives nothing, so that another source may."""
        for owned, owner in list(self._owners.items()):
            if owner == source and name in (owned, owned.partition(".")[0], WHOLE_SOURCE):
                del self._owners[owned]

    def yield_to_others(self, source: SourceName, name: str) -> None:
        """A channel gave nothing so far, or gives nothing any more. Processor load and memory are
        not yielded: what the kernel does not tell one source it does not tell another."""
        if name.partition(".")[0] in _BOARD:
            self.release(source, name)

    def look(self, now_ns: int) -> Iterator[Reader | Setting | Event]:
        """Do what is due: replace streams that are lost, open what is missing. Call often."""
        for served in list(self._served.values()):
            yield from self._attend(served, now_ns)
        for source in self._openers:
            if self._on_trial():
                return
            missing = self._missing(_GIVES.get(source, ()))
            if source not in self._opened:
                if self._side_by_side or missing:
                    self._opened.add(source)
                    yield from self._open(source, now_ns)
            elif (spare := self._served.get(source)) and spare.is_spare and missing - spare.in_vain:
                self._served[source] = again = _Served(spare.stream, spare.in_vain)
                yield from self._start(again, now_ns)

    def hear(self, stream: Stream, now_ns: int) -> Iterator[Batch | Event]:
        """What a stream has told."""
        served = self._served[stream.source]
        for told in stream.receive(now_ns):
            if isinstance(told, Absence):
                served.said_why = not stream.open
                self.release(told.source, told.signal)
                yield _absent(self._without_idle_fix(told), now_ns)
                continue
            if isinstance(told, Batch):
                if served.lost_since_ns is not None:
                    yield _gap(served, told.t0_ns, now_ns)
                served.batches += 1
                served.heard_ns = now_ns
            yield told

    def close(self, now_ns: int) -> Iterator[Event]:
        """End all streams, with their last words, and tell of those that are lost right now."""
        for served in self._served.values():
            if served.lost_since_ns is not None and served.batches:
                yield _gap(served, now_ns, now_ns)
        for stream in self.streams:
            for told in _last_words(stream, now_ns):
                if isinstance(told, Absence):
                    yield _absent(self._without_idle_fix(told), now_ns)
                else:
                    yield told
            stream.close()
        self.streams.clear()

    def _on_trial(self) -> bool:
        """Whether it is not clear yet what the source opened last adds."""
        return not self._side_by_side and any(served.on_trial for served in self._served.values())

    def _missing(self, names: Iterable[str]) -> set[str]:
        return {*names} - {*self._owners, *(name.partition(".")[0] for name in self._owners)}

    def _without_idle_fix(self, absence: Absence) -> Absence:
        """What another source gives needs no mending."""
        return replace(absence, fix=None) if absence.signal in self._owners else absence

    def _open(self, source: SourceName, now_ns: int) -> Iterator[Reader | Setting | Event]:
        if _opening(source) in self._left_out:
            yield _absent(_hung(WHOLE_SOURCE, source, "opening it"), now_ns)
            return
        self._progress.begin(_opening(source), now_ns, patience_ns=_OPENING_PATIENCE_NS)
        opened = self._openers[source]()
        self._progress.end()
        if isinstance(opened, Offer):
            for absence in opened.absences:
                yield _absent(absence, now_ns)
            yield from self._claim(opened.readers, now_ns)
            yield from opened.settings
        else:
            self._served[source] = served = _Served(opened)
            yield from self._start(served, now_ns)

    def _claim(self, readers: Sequence[Reader], now_ns: int) -> Iterator[Reader | Event]:
        """Of a source that comes late only the readers that add something."""
        names = [[channel.name for channel in reader.channels] for reader in readers]
        needed = [self._side_by_side or self._missing(map(_enough, some)) for some in names]
        for reader, signals, is_needed in zip(readers, names, needed, strict=True):
            if step_of(reader) in self._left_out:
                for name in signals:
                    yield _absent(_hung(name, reader.source, f"a read of {reader.name}"), now_ns)
            elif is_needed:
                for name in signals:
                    self._owners.setdefault(name, reader.source)
                yield reader

    def _start(self, served: "_Served", now_ns: int) -> Iterator[Event]:
        stream = served.stream
        served.started_ns = served.heard_ns = now_ns
        served.retry_ns = None
        served.attempts += 1
        self._progress.begin(_opening(served.source), now_ns, patience_ns=_OPENING_PATIENCE_NS)
        absences = stream.start()
        self._progress.end()
        for absence in absences:
            yield _absent(absence, now_ns)
        served.said_why = bool(absences) and not stream.open
        if stream.open:
            self.streams.append(stream)
        else:
            yield from self._lose(served, now_ns)

    def _attend(self, served: "_Served", now_ns: int) -> Iterator[Event]:
        stream = served.stream
        if stream not in self.streams:
            if served.retry_ns is not None and now_ns >= served.retry_ns:
                yield from self._start(served, now_ns)
        elif not stream.open or _is_overdue(stream, served.heard_ns, now_ns):
            yield from self._lose(served, now_ns)
        elif served.on_trial and served.batches >= _BATCHES_TO_JUDGE_BY:
            served.on_trial = False
            if served.source not in self._owners.values() and not self._side_by_side:
                self._drop(served)
                served.is_spare = True
                served.in_vain |= self._missing(_GIVES.get(served.source, ()))

    def _lose(self, served: "_Served", now_ns: int) -> Iterator[Event]:
        """Try again after a pause, unless that is without hope."""
        was_silent = served.stream.open
        if was_silent and (absence := _give_up(served.stream)):
            served.said_why = True
            yield _absent(absence, now_ns)
        self._drop(served)
        served.on_trial = False
        is_over = served.source == "replay"  # a recording that was played to its end is no loss
        if served.batches and served.lost_since_ns is None and not is_over:
            served.lost_since_ns = served.heard_ns
        if now_ns - served.started_ns > _WELL_AFTER_NS:
            served.losses = 0
        served.losses += 1
        if served.losses > 1 or served.said_why:  # others may fill in until it is back
            self.release(served.source, WHOLE_SOURCE)
        if served.batches == 0 and not served.said_why and served.attempts == _ATTEMPTS:
            how = "said nothing" if was_silent else "ended without a word"
            reason = f"it {how}, {_ATTEMPTS} times in a row"
            yield _absent(Absence(signal=WHOLE_SOURCE, source=served.source, reason=reason), now_ns)
        elif (pause_s := _pause_s(served)) is not None:
            served.retry_ns = now_ns + round(pause_s * 1e9)

    def _drop(self, served: "_Served") -> None:
        if served.stream in self.streams:
            self.streams.remove(served.stream)
        served.stream.close()


class _Served:
    """A stream and how it fared so far; ``is_spare`` says that it was closed as it added nothing to
    what others gave, ``in_vain`` what was looked for in it then."""

    def __init__(self, stream: Stream, in_vain: Iterable[str] = ()) -> None:
        self.stream = stream
        self.source = stream.source
        self.in_vain = {*in_vain}
        self.is_spare = False
        self.on_trial = True
        self.said_why = False
        self.batches = self.attempts = self.losses = 0
        self.started_ns = self.heard_ns = 0
        self.lost_since_ns: int | None = None
        self.retry_ns: int | None = None


def step_of(reader: Reader) -> str:
    """How a read of it is called."""
    return f"{reader.source}: {reader.name}"


def _opening(source: SourceName) -> str:
    return f"{source}: start"


def _enough(name: str) -> str:
    """What does instead of a signal: for a thermal zone any other one."""
    family = name.partition(".")[0]
    return family if family == "temp_c" else name


def _is_overdue(stream: Stream, heard_ns: int, now_ns: int) -> bool:
    """Whether it was silent for too long; some know better themselves."""
    overdue: Callable[[int], bool] | None = getattr(stream, "overdue", None)
    if overdue is not None:
        return overdue(now_ns)
    usual_s = max(3 * stream.interval_s, _SHORTEST_SILENCE_S)
    silence_s: float = getattr(stream, "silence_s", usual_s)
    return now_ns - heard_ns > silence_s * 1e9


def _give_up(stream: Stream) -> Absence | None:
    """Why it is silent; some know."""
    give_up: Callable[[], Absence | None] | None = getattr(stream, "give_up", None)
    return None if give_up is None else give_up()


def _last_words(stream: Stream, now_ns: int) -> Iterable[Absence | Event]:
    at_end: Callable[[int], Iterable[Absence | Event]] | None = getattr(stream, "at_end", None)
    return () if at_end is None else at_end(now_ns)


def _pause_s(served: _Served) -> float | None:
    """Until it is started again: 1, 2, 4 ... seconds. None where it said why it never will do."""
    own_s: float | None = getattr(served.stream, "restart_after_s", 0.0 if served.batches else None)
    if served.said_why and own_s is None:
        return None
    return max(own_s or 0.0, min(2.0 ** (served.losses - 1), _LONGEST_PAUSE_S))


def _hung(signal: str, source: SourceName, step: str) -> Absence:
    reason = f"{step} did not return; the sampler was started again without it"
    return Absence(signal=signal, source=source, reason=reason)


def _absent(absence: Absence, now_ns: int) -> Event:
    detail = {
        "signal": absence.signal,
        "source": absence.source,
        "reason": absence.reason,
        "fix": absence.fix,
    }
    return _event("absent", "info", detail, now_ns)


def _gap(served: _Served, until_ns: int, now_ns: int) -> Event:
    detail = {
        "source": served.source,
        "since_ns": served.lost_since_ns,
        "until_ns": until_ns,
    }
    served.lost_since_ns = None
    return _event("gap", "warning", detail, now_ns)


def _event(kind: str, severity: Severity, detail: dict[str, Any], now_ns: int) -> Event:
    return Event(leg_id=None, t_ns=now_ns, kind=kind, severity=severity, detail=detail)
