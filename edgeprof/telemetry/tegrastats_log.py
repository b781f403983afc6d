"""Reads a recorded log of tegrastats and puts its lines on a time axis that starts at 0 ns.

The stamps in a log are local time in steps of a second: a label that may jump in both directions.
Nothing is filled in where lines are missing. Knows no session and no board.
"""

import io
import re
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property
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
# A word that begins with a letter, but not the beginning of `off` or `N/A`.
_FIELD_NAME = re.compile(r"(?<![^ ])(?!(?:o(?:ff?)?|n(?:/a?)?)(?![^ ]))[A-Z][^ @\[]*", re.I)
_LINES_BEFORE, _LINES_AFTER = 4, 8  # what a line is held against, to tell whether it is whole
_TAIL = 40  # characters that hold a line's last field
_PROGRESS_LINES = 1000
_OTHER_KINDS = {
    b"SQLite format 3\0": "a SQLite database",
    b"\x7fELF": "a program",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "compressed by gzip: unpack it first",
    b"BZh": "compressed by bzip2: unpack it first",
    b"\xfd7zXZ": "compressed by xz: unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed by zstd: unpack it first",
    b"%PDF": "a PDF document",
    b"\x89PNG": "a PNG image",
}


class Tally:
    """What was met in a log so far."""

    def __init__(self) -> None:
        self.characters = 0
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


# Is told the characters and the lines that were read so far.
Progress = Callable[[int, int], None]


class Entry(NamedTuple):
    """A line that could be read; ``missed`` lines of tegrastats right before it could not, of which
    ``missed_in_second`` have its stamp."""

    number: int
    line: TegrastatsLine
    missed: int
    missed_in_second: int


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


def read_entries(
    file: BinaryIO, name: str, tally: Tally, progress: Progress | None = None
) -> Iterator[Entry]:
    """The lines that can be read, the others counted. ``name`` is what messages call the file.

    A first line that begins in its middle, a last one that was cut short, and pieces of lines
    anywhere are among the others. Raises FileFault for a log larger than 256 MiB or longer than
    500 000 lines, and for a file of another kind. Closes the file.
    """
    texts = _texts(file, name, tally)
    opening = list(islice(texts, 2))
    before: str | None = None
    missed = _Missed()
    for found, is_piece in _with_pieces_marked(chain(opening, texts)):
        if progress is not None and (tally.read + tally.dropped) % _PROGRESS_LINES == 0:
            progress(tally.characters, tally.read + tally.dropped)
        begins_torn = found is opening[0] and _begins_torn(opening)
        torn = is_piece or begins_torn or _ends_torn(found, before)
        line = None if torn else parse_line(found.text)
        if line is None:
            tally.dropped += 1
            missed.note(found.text)
            continue
        if tally.read >= MOST_LINES:
            raise FileFault(f"{name}: more than {MOST_LINES} lines; split it")
        before = found.text
        tally.note(line)
        yield missed.before(found, line)
        missed = _Missed()


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


class _Missed:
    """The lines of tegrastats that could not be read since the last that could."""

    def __init__(self) -> None:
        self._lines = self._of_stamp = 0
        self._stamp = ""  # as it is printed
        self._has_rest = False  # the rest of the last one may follow as a line of its own

    def note(self, text: str) -> None:
        begins, goes_on = "RAM " in text, "CPU [" in text
        is_rest = self._has_rest and not begins
        self._has_rest = begins and not goes_on
        if is_rest or not (begins or goes_on):
            return
        stamp = _printed_stamp(text)
        self._lines += 1
        self._of_stamp = self._of_stamp + 1 if stamp == self._stamp else 1
        self._stamp = stamp

    def before(self, text: "_Text", line: TegrastatsLine) -> Entry:
        same = self._of_stamp if self._lines and _printed_stamp(text.text) == self._stamp else 0
        return Entry(text.number, line, self._lines, self._lines if line.stamp is None else same)


def _printed_stamp(text: str) -> str:
    return text[: len("09-19-2026 13:00:00")]


class _Text(NamedTuple):
    """A line that is not blank, without what is around it; ``ended`` by a line end."""

    number: int
    text: str
    ended: bool


def _texts(file: BinaryIO, name: str, tally: Tally) -> Iterator[_Text]:
    """Of a line that is too long the beginning, which is no whole line."""
    raw = file if isinstance(file, io.BufferedReader) else io.BufferedReader(_as_raw(file))
    _refuse_other_kinds(raw, name)
    wide = raw.peek(2)[:2] in (b"\xff\xfe", b"\xfe\xff")  # as a Windows shell redirects
    encoding = "utf-16" if wide else "utf-8-sig"
    with io.TextIOWrapper(raw, encoding, errors="replace") as text_file:
        number, ended, told = 0, True, False
        while piece := text_file.readline(LONGEST_LINE):
            tally.characters += len(piece)
            if tally.characters > LARGEST_LOG_CHARACTERS:
                raise FileFault(f"{name}: larger than {LARGEST_LOG_CHARACTERS >> 20} MiB; split it")
            if ended:
                number, told = number + 1, False
            ended = piece.endswith("\n")
            text = piece.strip("\0\r\n\t ")
            if text and not told:
                told = True
                yield _Text(number, text, ended)


def _as_raw(file: BinaryIO) -> io.RawIOBase:
    """It is read from as one that is raw."""
    return cast(io.RawIOBase, file)


def _refuse_other_kinds(file: io.BufferedReader, name: str) -> None:
    """Raises FileFault by how a file begins."""
    opening = file.peek()
    for magic, kind in _OTHER_KINDS.items():
        if opening.startswith(magic):
            raise FileFault(f"{name}: not a tegrastats log, but {kind}")
    if opening.startswith((b"\xff\xfe", b"\xfe\xff")):
        return
    # A crash leaves zeros in a log, before its lines or among them.
    lines = opening.strip(b"\0").decode("utf-8", "replace").splitlines()
    if lines and b"\0" in opening and not any(map(parse_line, lines)):
        raise FileFault(f"{name}: not a tegrastats log, but binary data")


def _with_pieces_marked(texts: Iterator[_Text]) -> Iterator[tuple[_Text, bool]]:
    """Each line, and whether it is a piece of one: it has a part of the fields that lines around it
    have, from the first on or up to the last, and no line around it has just the same."""
    before: deque[_Formed] = deque(maxlen=_LINES_BEFORE)
    following = map(_Formed, texts)
    after = deque(islice(following, _LINES_AFTER))
    while after:
        after.extend(islice(following, 1))
        line = after.popleft()
        is_piece = False
        if not before or line.outline != before[-1].outline:
            is_piece = _is_piece(line.form, [other.form for other in (*before, *after)])
        if not is_piece:
            before.append(line)
        yield line.text, is_piece


_Form = tuple[str, ...]  # the names of a line's fields


class _Formed:
    """A line and the names of its fields. ``outline`` is how it begins and its last name: what has
    them from the line before is no piece."""

    def __init__(self, text: _Text) -> None:
        self.text = text
        self.outline = (text.text[:4], _FIELD_NAME.findall(text.text[-_TAIL:])[-1:])

    @cached_property
    def form(self) -> _Form:
        return tuple(_FIELD_NAME.findall(self.text.text))


def _is_piece(form: _Form, around: Sequence[_Form]) -> bool:
    if not form or form in around:
        return False
    usual = {other for other in around if around.count(other) > 1}
    return any(_begins(other, form) or _ends(other, form) for other in usual)


def _begins(whole: _Form, piece: _Form) -> bool:
    """Whether the line begins with the piece, whose last name may be cut short."""
    last = len(piece) - 1
    return last < len(whole) and piece[:-1] == whole[:last] and whole[last].startswith(piece[-1])


def _ends(whole: _Form, piece: _Form) -> bool:
    """Whether the line ends with the piece, of whose first name the beginning may be missing."""
    end = whole[-len(piece) :]
    return len(end) == len(piece) and piece[1:] == end[1:] and end[0].endswith(piece[0])


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
        slots = sum(1 + missed for missed in _missed_between(second))
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
        for entry, missed in zip(second, _missed_between(second), strict=True):
            t_ns += missed * self._spacing_ns
            if entry.missed and self._line_ns >= 0:
                yield Gap(self._line_ns, t_ns, _unreadable(entry.missed))
            yield Placed(t_ns, entry.line)
            self._line_ns = t_ns
            t_ns += self._spacing_ns


def _missed_between(second: Sequence[Entry]) -> Iterator[int]:
    """What was missed before each line of a second since that second began."""
    yield second[0].missed_in_second
    yield from (entry.missed for entry in second[1:])


def _nanoseconds(since: datetime, until: datetime) -> int:
    return round((until - since).total_seconds()) * _SECOND_NS


def _unreadable(lines: int) -> str:
    return "1 unreadable line" if lines == 1 else f"{lines} unreadable lines"
