"""Walks the fields of a protobuf message in a mapped file without copying them.

Every length is checked against the message it lies in; a bound on the number of fields keeps a
hostile file from costing more than a second or two.
"""

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from edgeprof.errors import FileFault

MAX_FIELDS = 1_000_000  # a decoder of 100 layers has some 100 000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Span(NamedTuple):
    """Where in the file a message or a string lies."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


class Field(NamedTuple):
    """One field: its number, and its value (a number) or where its bytes lie."""

    number: int
    value: int | Span


class Message:
    """A mapped protobuf file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._fields_left = MAX_FIELDS

    @property
    def whole(self) -> Span:
        return Span(0, len(self._data))

    def fail(self, what: str) -> NoReturn:
        raise FileFault(f"{self._path}: damaged ONNX file: {what}")

    def fields(self, span: Span) -> Iterator[Field]:
        """The fields of the message there, in their order."""
        position = span.start
        while position < span.stop:
            self._fields_left -= 1
            if self._fields_left < 0:
                self.fail(f"more than {MAX_FIELDS} fields")
            key, position = self._varint(position, span.stop)
            number, kind = key >> 3, key & 7
            if kind == _VARINT:
                value, position = self._varint(position, span.stop)
                yield Field(number, value)
                continue
            if kind == _BYTES:
                length, position = self._varint(position, span.stop)
            elif kind == _FIXED32:
                length = 4
            elif kind == _FIXED64:
                length = 8
            else:
                self.fail(f"wire type {kind} at byte {position}")
            if length > span.stop - position:
                self.fail(
                    f"truncated: a field at byte {position} claims {length} bytes, "
                    f"{span.stop - position} are there; fetch the file again"
                )
            yield Field(number, Span(position, position + length))
            position += length

    def text(self, value: int | Span, limit: int = 1 << 16) -> str:
        """A string; what is not UTF-8 in it is replaced."""
        if isinstance(value, int):
            self.fail("a number where a string should be")
        if value.length > limit:
            self.fail(f"a name of {value.length} bytes")
        return self._data[value.start : value.stop].decode("utf-8", "replace")

    def span(self, value: int | Span) -> Span:
        if isinstance(value, int):
            self.fail("a number where a message should be")
        return value

    def number(self, value: int | Span) -> int:
        """A signed whole number."""
        if not isinstance(value, int):
            self.fail("a message where a number should be")
        return value - (1 << 64) if value >= 1 << 63 else value

    def numbers(self, value: int | Span) -> list[int]:
        """A number, or the numbers of a packed field."""
        if isinstance(value, int):
            return [self.number(value)]
        numbers = []
        position = value.start
        while position < value.stop:
            self._fields_left -= 1
            if self._fields_left < 0:
                self.fail(f"more than {MAX_FIELDS} fields")
            one, position = self._varint(position, value.stop)
            numbers.append(self.number(one))
        return numbers

    def _varint(self, position: int, stop: int) -> tuple[int, int]:
        """The number at ``position``, and where the next field starts."""
        if position < stop and (first := self._data[position]) < 0x80:
            return first, position + 1  # most are one byte
        value = shift = 0
        while position < stop and shift < 70:
            byte = self._data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & ((1 << 64) - 1), position
            shift += 7
        self.fail(f"truncated inside a number at byte {position}")
