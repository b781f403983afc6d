"""The tables of a session file, derived from the records: one table a record, one column a field.

Fields that hold dictionaries or lists are stored as JSON text. Knows the types of SQLite, opens no
file.
"""

import types
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Struct

from edgeprof.session.records import (
    Event,
    Leg,
    Pass,
    Request,
    Round,
    Sample,
    SessionInfo,
    Signal,
    Token,
)

NO_INTEGER = -(2**63)  # what stands for an unknown whole number where there is no None
APPLICATION_ID = 0x45647072  # "Edpr", in the header of every session file


class Column(NamedTuple):
    """A field as SQLite stores it."""

    name: str
    declaration: str
    is_json: bool
    is_bool: bool
    required: bool


class Table(NamedTuple):
    """A record type and its columns, in the order of its fields."""

    name: str
    kind: type[Struct]
    columns: tuple[Column, ...]
    insert_sql: str  # writes a row; a later one with the same id takes its place
    json_indices: tuple[int, ...]  # of the columns that hold JSON
    clothed: tuple[Column, ...]  # those that SQLite holds as something else: JSON, truth

    @property
    def create_sql(self) -> str:
        columns = ", ".join(f'"{column.name}" {column.declaration}' for column in self.columns)
        return f'CREATE TABLE "{self.name}" ({columns})'

    def to_row(self, record: Struct) -> tuple[Any, ...]:
        values = msgspec.structs.astuple(record)
        if not self.json_indices:
            return values
        row = list(values)
        for index in self.json_indices:
            if row[index] is not None:
                row[index] = msgspec.json.encode(row[index]).decode()
        return tuple(row)

    def from_row(self, row: dict[str, Any]) -> Struct:
        """The record in ``row``, which is changed on the way.

        Raises msgspec.MsgspecError for a value of the wrong type.
        """
        self._unclothe(row)
        record: Struct = msgspec.convert(row, self.kind, str_keys=True)
        return record

    def from_rows(self, rows: list[dict[str, Any]]) -> list[Struct]:
        """As ``from_row``, many at a time, which is faster."""
        if self.clothed:
            for row in rows:
                self._unclothe(row)
        kinds: Any = list[self.kind]  # type: ignore[name-defined]
        records: list[Struct] = msgspec.convert(rows, kinds, str_keys=True)
        return records

    def _unclothe(self, row: dict[str, Any]) -> None:
        for column in self.clothed:
            if column.name not in row:
                continue
            value = row[column.name]
            if column.is_json and value is not None:
                if not isinstance(value, str):
                    raise msgspec.ValidationError(f"Expected JSON text - at `$.{column.name}`")
                row[column.name] = msgspec.json.decode(value)
            elif column.is_bool and value in (0, 1):
                row[column.name] = bool(value)


def _types_of(annotation: Any) -> set[Any]:
    """The plain types that a field's annotation allows, None apart."""
    origin = get_origin(annotation)
    if origin is types.UnionType:
        return {kind for part in get_args(annotation) for kind in _types_of(part)}
    if origin is Literal:
        return {str}
    return set() if annotation is type(None) else {origin or annotation}


def as_number(name: str, annotation: Any) -> str:
    """SQL for a field as a number: a word by its place among those that it may be (NULL where it is
    none of them), an unknown whole number as ``NO_INTEGER``."""
    if get_origin(annotation) is Literal:
        places = (f"WHEN '{word}' THEN {place}" for place, word in enumerate(get_args(annotation)))
        return f'CASE "{name}" {" ".join(places)} END'
    if _types_of(annotation) == {int} and type(None) in get_args(annotation):
        return f'ifnull("{name}", {NO_INTEGER})'
    return f'"{name}"'


def is_number(name: str, annotation: Any) -> str:
    """SQL that says whether a field holds what it may hold."""
    if get_origin(annotation) is Literal:
        words = ", ".join(f"'{word}'" for word in get_args(annotation))
        return f'ifnull("{name}" IN ({words}), 0)'
    kinds = ["'integer'", *(["'real'"] if float in _types_of(annotation) else [])]
    kinds += ["'null'"] if type(None) in get_args(annotation) else []
    return f'typeof("{name}") IN ({", ".join(kinds)})'


def _column(field: msgspec.structs.FieldInfo) -> Column:
    kinds = _types_of(field.type)
    is_json = bool({dict, list} & kinds)
    whole = kinds <= {int, bool}
    declaration = "INTEGER" if whole else "REAL" if kinds == {float} else "TEXT"
    if field.name == "id":
        declaration += " PRIMARY KEY"
    return Column(field.name, declaration, is_json, bool in kinds, field.required)


def _table(name: str, kind: type[Struct]) -> Table:
    columns = tuple(_column(field) for field in msgspec.structs.fields(kind))
    marks = ", ".join("?" * len(columns))
    return Table(
        name=name,
        kind=kind,
        columns=columns,
        insert_sql=f'INSERT OR REPLACE INTO "{name}" VALUES ({marks})',
        json_indices=tuple(index for index, column in enumerate(columns) if column.is_json),
        clothed=tuple(column for column in columns if column.is_json or column.is_bool),
    )


SESSION = _table("session", SessionInfo)
RECORDS = (
    _table("leg", Leg),
    _table("request", Request),
    _table("round", Round),
    _table("pass", Pass),
    _table("token", Token),
    _table("signal", Signal),
    _table("sample", Sample),
    _table("event", Event),
)
