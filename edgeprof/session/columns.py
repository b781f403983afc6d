"""Samples and tokens as columns: hours of them take no Python object each.

Sequences like any other, which make a record when one is asked for. Text that is no choice of a few
words (``raw`` of a sample) stays in the file: nothing is computed from it, and it would take most
of the memory.
"""

import types
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, ClassVar, Generic, Literal, TypeVar, get_args, get_origin, overload

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import fields

from edgeprof.session.records import Quality, Sample, Token
from edgeprof.session.schema import NO_INTEGER

QUALITIES: tuple[Quality, ...] = get_args(Quality)

_CHUNK = 10_000

R = TypeVar("R", bound=Struct)
Self = TypeVar("Self", bound="Columns[Any]")


class Columns(Sequence[R], Generic[R]):
    """Records of one kind, grouped by what they belong to, in each group in the order of writing.

    Every column is an array, found by the name of its field: whole numbers are int64 and
    ``NO_INTEGER`` where None, floats are float64 and NaN where None, words of a ``Literal`` are
    int8, their place in it.
    """

    record: ClassVar[type[Struct]]
    owner: ClassVar[str]  # the field to group by

    def __init__(self, columns: dict[str, npt.NDArray[Any]]) -> None:
        """The columns of records that are grouped already."""
        self._columns = columns

    @classmethod
    def read(cls: type[Self], rows: Iterable[tuple[Any, ...]], count: int) -> Self:
        """``count`` rows with a number for each of ``annotations``: words by their place.

        Raises TypeError or ValueError for what is no number.
        """
        columns = {
            name: np.empty(count, _dtype(annotation))
            for name, annotation in cls.annotations().items()
        }
        left, place = islice(rows, count), 0
        # A column of some rows at a time: twice as fast as row by row.
        while chunk := list(islice(left, _CHUNK)):
            end = place + len(chunk)
            for column, values in zip(columns.values(), zip(*chunk, strict=True), strict=True):
                column[place:end] = np.fromiter(values, column.dtype, len(chunk))
            place = end
        if place < count:
            raise ValueError(f"{place} rows instead of {count}")
        owners = columns[cls.owner]
        if count and owners.min() >= 0:  # small numbers are sorted much faster
            owners = columns[cls.owner] = owners.astype(np.min_scalar_type(owners.max()))
        order = owners.argsort(kind="stable")
        for name in columns:
            columns[name] = columns[name][order]
        return cls(columns)

    @classmethod
    def of(cls: type[Self], records: Sequence[Struct]) -> Self:
        """Records that are at hand."""
        kinds = cls.annotations()
        rows = (
            tuple(_coded(getattr(record, name), kind) for name, kind in kinds.items())
            for record in records
        )
        return cls.read(rows, len(records))

    @classmethod
    def annotations(cls) -> dict[str, Any]:
        """The fields that are kept and their types."""
        return {
            field.name: field.type for field in fields(cls.record) if _dtype(field.type) is not None
        }

    def column(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def _of_owner(self: Self, owner: int) -> Self:
        """Those of one signal or request, none of them copied."""
        owners = self._columns[self.owner]
        limits = np.iinfo(owners.dtype)
        if not limits.min <= owner <= limits.max:
            return self._part(slice(0))
        wanted = owners.dtype.type(owner)  # another type would have all owners cast each time
        return self._part(slice(owners.searchsorted(wanted), owners.searchsorted(wanted, "right")))

    def chunks(self: Self) -> Iterator[Self]:
        """All of them, some thousands at a time."""
        for first in range(0, len(self), _CHUNK):
            yield self._part(slice(first, first + _CHUNK))

    def _part(self: Self, part: slice) -> Self:
        return type(self)({name: column[part] for name, column in self._columns.items()})

    def __len__(self) -> int:
        return len(self._columns[self.owner])

    def __iter__(self) -> Iterator[R]:
        kinds = self.annotations()
        for chunk in self.chunks():
            columns = [_decoded(chunk.column(name).tolist(), kind) for name, kind in kinds.items()]
            for values in zip(*columns, strict=True):
                yield self.record(**dict(zip(kinds, values, strict=True)))  # type: ignore[misc]

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self: Self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._part(index)
        place = range(len(self))[index]
        (found,) = self._part(slice(place, place + 1))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


class Samples(Columns[Sample]):
    """Signal by signal."""

    record = Sample
    owner = "signal_id"

    def of_signal(self, signal_id: int) -> "Samples":
        """Views of the samples of one signal."""
        return self._of_owner(signal_id)

    @property
    def t0_ns(self) -> npt.NDArray[np.int64]:
        return self.column("t0_ns")

    @property
    def t1_ns(self) -> npt.NDArray[np.int64]:
        return self.column("t1_ns")

    @property
    def value(self) -> npt.NDArray[np.float64]:
        """NaN where it is unknown."""
        return self.column("value")

    @property
    def quality(self) -> npt.NDArray[np.int8]:
        """Places in ``QUALITIES``."""
        return self.column("quality")


class Tokens(Columns[Token]):
    """Request by request."""

    record = Token
    owner = "request_id"

    def of_request(self, request_id: int) -> "Tokens":
        """Views of the tokens of one answer."""
        return self._of_owner(request_id)


def words_of(annotation: Any) -> tuple[str, ...]:
    """The words that a field may hold; none where it is not a choice of some."""
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def _dtype(annotation: Any) -> str | None:
    """None for what is not kept."""
    if words_of(annotation):
        return "i1"
    optional = get_origin(annotation) is types.UnionType
    kinds = set(get_args(annotation)) - {type(None)} if optional else {annotation}
    return {frozenset({int}): "i8", frozenset({float}): "f8"}.get(frozenset(kinds))


def _coded(value: Any, annotation: Any) -> Any:
    if words := words_of(annotation):
        return words.index(value)
    return NO_INTEGER if value is None and _dtype(annotation) == "i8" else value


def _decoded(values: list[Any], annotation: Any) -> list[Any]:
    if words := words_of(annotation):
        return [words[place] for place in values]
    if get_origin(annotation) is not types.UnionType:
        return values
    unknown = NO_INTEGER if _dtype(annotation) == "i8" else None
    return [None if value == unknown or value != value else value for value in values]
