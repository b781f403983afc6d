"""From the marks of a watched program to the legs and passes of its session.

Marks come from outside: sizes and numbers are bounded, what cannot be taken is counted by reason.
"""

import re
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, get_args

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.marks import END, LARGEST_DATAGRAM_BYTES, LONGEST_NAME
from edgeprof.profiling.marks_inbox import Datagram
from edgeprof.session.records import Event, Leg, Pass, Phase

PROVIDER = "external"
_PASS_PHASES = frozenset(get_args(Phase)) - {"ceiling"}
_LARGEST_COUNT = 1_000_000_000
_LONGEST_MODEL = 128
_MOST_PHASES = 1_000_000
_MOST_NAMES = 256
_MOST_LANES = 256

_LARGEST = {  # of each key that is a number
    "t_ns": (1 << 63) - 1,
    **dict.fromkeys(("tokens", "context", "stream", "thread", "lost"), _LARGEST_COUNT),
}

Lane = tuple[str, int, int]


class Mark(Struct, frozen=True, kw_only=True):
    """One datagram, read; ``faults`` say what of it could not be taken."""

    name: str
    t_ns: int | None = None
    tokens: int | None = None
    context: int | None = None
    model: str | None = None
    stream: int | None = None
    thread: int | None = None
    lost: int = 0
    faults: tuple[str, ...] = ()


class _Open(Struct, frozen=True, kw_only=True):
    """A phase that has begun; ``leg`` is None where it is to become a pass."""

    mark: Mark
    pid: int
    t0_ns: int
    stream: int
    leg: Leg | None


def read_mark(text: bytes) -> Mark | str:
    """The mark in a datagram, or why there is none."""
    if len(text) > LARGEST_DATAGRAM_BYTES:
        return "longer than 512 bytes"
    try:
        words = text.decode().strip("\0").split()
    except UnicodeDecodeError:
        return "not text"
    if not words:
        return "empty"
    name, faults = words[0], []
    if len(name) > LONGEST_NAME or not name.isprintable() or "=" in name:
        return "not a name"
    values: dict[str, Any] = {}
    for word in words[1:]:
        key, _, value = word.partition("=")
        number = _whole_number(value)
        if key == "model" and value.isprintable() and 0 < len(value) <= _LONGEST_MODEL:
            values[key] = value
        elif key in _LARGEST and number is not None and number <= _LARGEST[key]:
            values[key] = number
        else:
            faults.append(f"{key} not taken" if key in (*_LARGEST, "model") else "key not known")
    return Mark(name=name, faults=tuple(faults), **values)


class Phases:
    """Writes legs and passes to ``put`` as phases begin and end; ``leg_id`` holds the passes.

    Other legs are numbered from ``leg_id`` + 1. ``faults`` counts what could not be taken.
    """

    def __init__(
        self, put: Callable[[Leg | Pass], None], *, leg_id: int, command: str, start_ns: int
    ) -> None:
        self.faults: Counter[str] = Counter()
        self._put = put
        self._leg_id = leg_id
        self._command = command
        self._start_ns = start_ns
        self._legs, self._passes = count(leg_id + 1), count(1)
        self._begun = 0
        self._repeats: Counter[str] = Counter()
        self._streams: dict[Lane, int] = {}
        self._open: dict[Lane, _Open] = {}

    def take(self, datagram: Datagram) -> None:
        """One datagram: a phase begins or ends."""
        mark = read_mark(datagram.text)
        if isinstance(mark, str):
            self.faults[mark] += 1
            return
        self.faults.update(mark.faults)
        if mark.lost:
            self.faults["lost on the way"] += mark.lost
            self._interrupt_all_of(datagram.pid, datagram.received_ns)
        lane = _lane(mark, datagram.pid)
        now_ns = self._time_of(mark, lane, datagram.received_ns)
        if lane in self._open:
            self._end(self._open.pop(lane), now_ns)
        elif mark.name == END:
            self.faults["end without a phase"] += 1
        if mark.name != END:
            self._begin(mark, lane, datagram.pid, now_ns)

    def note_dropped(self, datagrams: int) -> None:
        """So many came faster than they were taken."""
        if datagrams:
            self.faults["too many at once"] += datagrams

    def close(self, now_ns: int) -> Event | None:
        """The program has ended, and what is open with it: as interrupted, for no mark did. An
        event where something could not be taken."""
        for phase in self._open.values():
            self._interrupt(phase, now_ns)
        self._open.clear()
        if not self.faults:
            return None
        return Event(
            leg_id=self._leg_id, t_ns=now_ns, kind="marks", severity="warning",
            detail=dict(self.faults),
        )  # fmt: skip

    def _time_of(self, mark: Mark, lane: Lane, received_ns: int) -> int:
        """The mark's own stamp, unless it lies before the phase that it ends, or ahead."""
        earliest_ns = self._open[lane].t0_ns if lane in self._open else self._start_ns
        if mark.t_ns is not None and earliest_ns <= mark.t_ns <= received_ns:
            return mark.t_ns
        if mark.t_ns is not None:
            self.faults["t_ns not taken"] += 1
        return max(received_ns, earliest_ns)

    def _begin(self, mark: Mark, lane: Lane, pid: int, now_ns: int) -> None:
        if mark.name not in self._repeats and len(self._repeats) >= _MOST_NAMES:
            self.faults[f"more than {_MOST_NAMES} names"] += 1
        elif self._begun >= _MOST_PHASES:
            self.faults[f"more than {_MOST_PHASES} phases"] += 1
        elif len(self._open) >= _MOST_LANES:
            self.faults[f"more than {_MOST_LANES} phases at a time"] += 1
        else:
            self._begun += 1
            phase = _Open(mark=mark, pid=pid, t0_ns=now_ns, stream=self._stream(lane), leg=None)
            if not _is_pass(mark):
                phase = replace(phase, leg=self._leg(phase))
            self._open[lane] = phase

    def _end(self, phase: _Open, now_ns: int) -> None:
        mark = phase.mark
        if phase.leg is not None:
            self._put(replace(phase.leg, t1_ns=now_ns, status="complete"))
            return
        role = "draft" if mark.name == "draft" else "target"
        values: dict[str, Any] = {"phase": mark.name, "tokens": mark.tokens}
        self._put(
            Pass(
                id=next(self._passes),
                leg_id=self._leg_id,
                request_id=None,
                round_id=None,
                model=mark.model or role,
                provider=PROVIDER,
                stream=phase.stream,
                context_tokens=mark.context or 0,
                t0_ns=phase.t0_ns,
                t1_ns=now_ns,
                **values,
            )
        )

    def _interrupt_all_of(self, pid: int, now_ns: int) -> None:
        """Where datagrams were lost, nobody knows when the phases of their sender ended."""
        for lane in [lane for lane, phase in self._open.items() if phase.pid == pid]:
            self._interrupt(self._open.pop(lane), now_ns)

    def _interrupt(self, phase: _Open, now_ns: int) -> None:
        leg = phase.leg or self._leg(phase)
        self._put(replace(leg, t1_ns=max(now_ns, leg.t0_ns), status="interrupted"))

    def _leg(self, phase: _Open) -> Leg:
        """Written as it begins, so that it is there whatever happens."""
        mark = phase.mark
        self._repeats[mark.name] += 1
        attrs = {
            "pid": phase.pid,
            "stream": phase.stream,
            "tokens": mark.tokens,
            "context_tokens": mark.context,
            "model": mark.model,
        }
        leg = Leg(
            id=next(self._legs),
            name=mark.name,
            kind="mark",
            variant=self._command,
            repeat=self._repeats[mark.name],
            warmup=False,
            t0_ns=phase.t0_ns,
            attrs={key: value for key, value in attrs.items() if value is not None},
        )
        self._put(leg)
        return leg

    def _stream(self, lane: Lane) -> int:
        """The stream that was named, or one for each process and thread, from 0 in their order."""
        kind, number, _ = lane
        if kind == "stream":
            return number
        if lane not in self._streams and len(self._streams) >= _MOST_LANES:
            ended = next(old for old in self._streams if old not in self._open)
            del self._streams[ended]
        return self._streams.setdefault(lane, max(self._streams.values(), default=-1) + 1)


def _is_pass(mark: Mark) -> bool:
    return mark.name in _PASS_PHASES and mark.tokens is not None and mark.context is not None


def _lane(mark: Mark, pid: int) -> Lane:
    """What has one phase at a time."""
    if mark.stream is not None:
        return "stream", mark.stream, 0
    return "process", pid, mark.thread or 0


def _whole_number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) else None
