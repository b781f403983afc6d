"""Reads a recorded log of tegrastats and puts its lines on a time axis that starts at 0 ns.

The stamps in a log are local time in steps of a second: a label that may jump in both directions.
Nothing is filled in where lines are missing. Knows no session and no board.
"""

import io
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain, islice, pairwise
from typing import BinaryIO, NamedTuple, cast

from edgeprof.errors import FileFault, UsageFault
from edgeprof.telemetry.tegrastats_line import (
    LONGEST_LINE,
    TegrastatsLine,
    begins_whole,
    parse_line,
)

LARGEST_LOG_CHARACTERS = 256 << 20
MOST_LINES = 500_000
DEFAULT_INTERVAL_S = 1.0  # of tegrastats itself

_LEADING_LINES = 10_000
_LONGEST_GAP_NS = 86_400 * 10**9  # a longer one may as well be a clock that was set
_LONGEST_SPAN_NS = 3_653 * _LONGEST_GAP_NS
_MOST_UNKNOWN = 1000
_BUSIEST = 1000  # lines of one stamp
_NO_LINES = "no lines"
_SECOND_NS = 10**9
_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class Tally:
    """What was met in a log so far."""

    def __init__(self) -> None:
        self.read = 0
        self.dropped = 0
        self.unknown: Counter[str] = Counter()  # fields, by the word in front
        self.first_stamp: datetime | None = None
        self.last_stamp: datetime | None = None

    def note(self, line: TegrastatsLine) -> None:
        self.read += 1
        self.first_stamp = self.first_stamp or line.stamp
        self.last_stamp = line.stamp or self.last_stamp
        for field in line.unread:
            name = field.partition(" ")[0]
            known = name in self.unknown or len(self.unknown) < _MOST_UNKNOWN
            self.unknown[name if known else "..."] += 1


class Entry(NamedTuple):
    """A line that could be read; ``missed`` lines of tegrastats right before it could not."""

    number: int
    line: TegrastatsLine
    missed: int


class Placed(NamedTuple):
    """A line and its time."""

    t_ns: int
    line: TegrastatsLine


class Gap(NamedTuple):
    """A stretch without readings."""

    since_ns: int
    until_ns: int
    cause: str


class ClockStep(NamedTuple):
    """Stamps that do not tell how much time passed: the axis goes on after one interval."""

    t_ns: int
    line_number: int
    before: datetime
    after: datetime


Moment = Placed | Gap | ClockStep


def read_entries(file: BinaryIO, name: str, tally: Tally) -> Iterator[Entry]:
    """The lines that can be read, the others counted. ``name`` is what messages call the file.

    A first line that begins in its middle and a last one that was cut short are among the others.
    Raises FileFault for a log larger than 256 MiB or longer than 500 000 lines. Closes the file.
    """
    texts = _texts(file, name)
    opening = list(islice(texts, 2))
    before: str | None = None
    missed = 0
    for found in chain(opening, texts):
        torn = (found is opening[0] and _begins_torn(opening)) or _ends_torn(found, before)
        line = None if torn else parse_line(found.text)
        if line is None:
            tally.dropped += 1
            missed += "RAM " in found.text or "CPU [" in found.text
            continue
        if tally.read >= MOST_LINES:
            raise FileFault(f"{name}: more than {MOST_LINES} lines; split it")
        before = found.text
        tally.note(line)
        yield Entry(found.number, line, missed)
        missed = 0


def place(entries: Iterable[Entry], name: str, interval_s: float | None) -> Iterator[Moment]:
    """The lines in the order of their times: one every ``interval_s``, gaps by the stamps; by the
    stamps alone where that is None.

    Raises UsageFault for a log without stamps then, FileFault for one of more than ten years.
    """
    axis = _on_grid(entries, interval_s) if interval_s is not None else _by_stamps(entries, name)
    for moment in axis:
        if isinstance(moment, Placed) and moment.t_ns > _LONGEST_SPAN_NS:
            raise FileFault(f"{name}: its stamps are more than ten years apart")
        yield moment


# --- lines of the file ---


class _Text(NamedTuple):
    """A line that is not blank; ``ended`` by a line end."""

    number: int
    text: str
    ended: bool


def _texts(file: BinaryIO, name: str) -> Iterator[_Text]:
    """Of a line that is too long the beginning, which is no whole line."""
    raw = file if isinstance(file, io.BufferedReader) else io.BufferedReader(_as_raw(file))
    wide = raw.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")  # as a Windows shell redirects
    encoding = "utf-16" if wide else "utf-8-sig"
    with io.TextIOWrapper(raw, encoding, errors="replace") as text_file:
        characters, number, inside = 0, 0, False
        while piece := text_file.readline(LONGEST_LINE):
            characters += len(piece)
            if characters > LARGEST_LOG_CHARACTERS:
                raise FileFault(f"{name}: larger than {LARGEST_LOG_CHARACTERS >> 20} MiB; split it")
            ended = piece.endswith("\n")
            if not inside:
                number += 1
                if piece.strip("\0\r\n\t "):
                    yield _Text(number, piece, ended)
            inside = not ended


def _as_raw(file: BinaryIO) -> io.RawIOBase:
    """It is read from as one that is raw."""
    return cast(io.RawIOBase, file)


def _begins_torn(opening: Sequence[_Text]) -> bool:
    """Whether the first line begins in its middle: unlike a whole line, and unlike the next."""
    first = opening[0].text
    if begins_whole(first) or len(opening) == 1:
        return False
    return _shape(first.split()[:1]) != _shape(opening[1].text.split()[:1])


def _ends_torn(last: _Text, before: str | None) -> bool:
    """Whether a line without an end was cut short: it ends in another field than its forerunner."""
    if last.ended or before is None:
        return False
    return _shape(last.text.split()[-2:]) != _shape(before.split()[-2:])


def _shape(words: Iterable[str]) -> str:
    """Words with every number the same."""
    return _NUMBER.sub("0", " ".join(words))


# --- times ---


def _on_grid(entries: Iterable[Entry], interval_s: float) -> Iterator[Moment]:
    """A line every ``interval_s``, also for those that could not be read."""
    interval_ns = round(interval_s * 1e9)
    t_ns = -interval_ns
    stamped: tuple[datetime, int] | None = None  # the last stamp and the time of its line
    for entry in entries:
        since_ns, stamp = t_ns, entry.line.stamp
        if since_ns < 0:
            t_ns = 0
        else:
            t_ns += (1 + entry.missed) * interval_ns
        cause = _unreadable(entry.missed) if since_ns >= 0 and entry.missed else None
        if stamp is not None and stamped is not None:
            passed_ns = _nanoseconds(stamped[0], stamp)
            excess_ns = passed_ns - (t_ns - stamped[1])
            if not 0 <= passed_ns <= _LONGEST_GAP_NS:
                yield ClockStep(t_ns, entry.number, stamped[0], stamp)
            elif excess_ns >= max(2 * _SECOND_NS, 1.5 * interval_ns):
                t_ns += excess_ns
                cause = _NO_LINES
        if cause is not None:
            yield Gap(since_ns, t_ns, cause)
        if stamp is not None:
            stamped = (stamp, t_ns)
        yield Placed(t_ns, entry.line)


def _by_stamps(entries: Iterable[Entry], name: str) -> Iterator[Moment]:
    """Lines of one second are spread evenly over it."""
    axis = _StampAxis()
    seconds = _from_first_stamp(_seconds(entries), name)
    for second, following in pairwise(chain(seconds, [None])):
        assert second is not None
        yield from axis.put(second, following)


def _seconds(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Lines that follow each other with one stamp; a line without a stamp is alone."""
    second: list[Entry] = []
    for entry in entries:
        stamp = entry.line.stamp
        if second and (stamp is None or stamp != second[0].line.stamp or len(second) >= _BUSIEST):
            yield second
            second = []
        second.append(entry)
    if second:
        yield second


def _from_first_stamp(seconds: Iterator[list[Entry]], name: str) -> Iterator[list[Entry]]:
    """The same; raises UsageFault where no stamp comes."""
    leading: list[list[Entry]] = []
    for second in islice(seconds, _LEADING_LINES):
        leading.append(second)
        if second[0].line.stamp is not None:
            yield from leading
            yield from seconds
            return
    if leading:
        raise UsageFault(
            f"{name}: its lines have no time stamps; give the seconds between two by --interval"
        )


class _StampAxis:
    """Times by the stamps: what was placed so far."""

    def __init__(self) -> None:
        self._last: tuple[datetime, int] | None = None  # the last stamp and its time
        self._passed_ns: int | None = None  # between the last two stamps
        self._line_ns = -1  # the time of the last line
        self._spacing_ns = round(DEFAULT_INTERVAL_S * 1e9)

    def put(self, second: list[Entry], following: list[Entry] | None) -> Iterator[Moment]:
        stamp = second[0].line.stamp
        next_ns = self._line_ns + self._spacing_ns if self._line_ns >= 0 else 0
        start_ns = next_ns
        slots = sum(1 + entry.missed for entry in second)
        if stamp is not None:
            if self._last is not None:
                start_ns = yield from self._start(second[0], next_ns, following)
            self._last = (stamp, start_ns)
            self._spacing_ns = _SECOND_NS // slots
            if slots == 1:
                self._spacing_ns = max(self._passed_ns or 0, _SECOND_NS)
        yield from self._spread(second, start_ns)

    def _start(
        self, first: Entry, next_ns: int, following: list[Entry] | None
    ) -> Generator[Moment, None, int]:
        """Where the second of a stamp starts, after what there is to say of the time before."""
        stamp = first.line.stamp
        assert stamp is not None and self._last is not None
        before, before_ns = self._last
        passed_ns = _nanoseconds(before, stamp)
        if not 0 <= passed_ns <= _LONGEST_GAP_NS:
            yield ClockStep(next_ns, first.number, before, stamp)
            return next_ns
        start_ns = before_ns + passed_ns
        if start_ns <= self._line_ns:  # lines without a stamp reach beyond it
            return next_ns
        after = following[0].line.stamp if following else None
        neighbours = [self._passed_ns, _nanoseconds(stamp, after) if after else None]
        usual_ns = min((near for near in neighbours if near and near > 0), default=_SECOND_NS)
        if passed_ns > 2.5 * max(usual_ns, _SECOND_NS):
            yield Gap(self._line_ns, start_ns, _NO_LINES)
        self._passed_ns = passed_ns
        return start_ns

    def _spread(self, second: list[Entry], start_ns: int) -> Iterator[Moment]:
        t_ns = start_ns
        for entry in second:
            t_ns += entry.missed * self._spacing_ns
            if entry.missed and self._line_ns >= 0:
                yield Gap(self._line_ns, t_ns, _unreadable(entry.missed))
            yield Placed(t_ns, entry.line)
            self._line_ns = t_ns
            t_ns += self._spacing_ns


def _nanoseconds(since: datetime, until: datetime) -> int:
    return round((until - since).total_seconds()) * _SECOND_NS


def _unreadable(lines: int) -> str:
    return "1 unreadable line" if lines == 1 else f"{lines} unreadable lines"
