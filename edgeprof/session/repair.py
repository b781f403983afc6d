"""What can be read of a damaged session, into a new file. The damaged one is not touched.

A copy is opened, so that not even SQLite's own recovery writes to the original. Rows are read one
by one from both ends of each table; what lies between is lost, and counted where that is known.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edgeprof.errors import FileFault, UsageFault
from edgeprof.session.records import SessionInfo
from edgeprof.session.schema import RECORDS, Table
from edgeprof.session.store import (
    LARGEST_FILE_BYTES,
    SessionWriter,
    beside,
    check_header,
    check_output,
    is_being_recorded,
    read_info,
    read_info_row,
    stored_columns,
)

_PAGE_BYTES_AT, _PAGES_AT = 16, 28  # in the header of every SQLite file, big-endian
_LARGEST_PAGE_BYTES = 65536  # which is written as 1


class Recovered(NamedTuple):
    """Of one table: rows in the new file, rows that no record could be made of, and whether some of
    it could not be read."""

    table: str
    rows: int
    refused: int
    damaged: bool


def repair(path: Path, output: Path, *, force: bool = False) -> list[Recovered]:
    """Writes all that ``path`` still holds to ``output``; what became of each table.

    Raises UsageFault where ``path`` is no file, is being recorded, or ``output`` is there (unless
    ``force``), is ``path``, or a session that is complete; FileFault where not even the first page
    can be read.
    """
    if not path.is_file():
        raise UsageFault(f"{path}: no such session file")
    if is_being_recorded(path):
        raise UsageFault(f"{path}: is being recorded right now; nothing is to be repaired")
    if output.exists() and output.samefile(path):
        raise UsageFault(f"{path}: a repair goes into a new file; choose another -o")
    check_output(output, force=force)
    if output.exists() and _is_complete(output):
        raise UsageFault(
            f"{output}: is a complete session, which no repair replaces; choose another -o, or "
            "delete it first"
        )
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal", "-journal"):
            if beside(path, suffix).is_file():
                shutil.copyfile(beside(path, suffix), beside(copy, suffix))
        _lengthen(copy)
        try:
            with closing(_open(copy)) as connection:
                check_header(path, connection)
                info = read_info_row(path, connection)
                return _recover(path, connection, info, output, force)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise FileFault(
                f"{path}: nothing can be recovered, its first page is not readable: {error}"
            ) from error


def _is_complete(path: Path) -> bool:
    try:
        return read_info(path).complete
    except FileFault:
        return False


def _lengthen(copy: Path) -> None:
    """Gives a file that was cut the length that its header tells, with nothing in the new pages:
    SQLite does not read a shorter one at all, and of this one all pages that are left."""
    with copy.open("r+b") as file:
        header = file.read(_PAGES_AT + 4)
        page_bytes = int.from_bytes(header[_PAGE_BYTES_AT : _PAGE_BYTES_AT + 2], "big")
        pages = int.from_bytes(header[_PAGES_AT : _PAGES_AT + 4], "big")
        told_bytes = pages * (_LARGEST_PAGE_BYTES if page_bytes == 1 else page_bytes)
        if copy.stat().st_size < told_bytes <= LARGEST_FILE_BYTES:
            file.truncate(told_bytes)


def _open(copy: Path) -> sqlite3.Connection:
    """With its log, which SQLite folds in as far as it is whole."""
    connection = sqlite3.connect(copy)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.row_factory = sqlite3.Row
    return connection


def _recover(
    path: Path, connection: sqlite3.Connection, info: SessionInfo, output: Path, force: bool
) -> list[Recovered]:
    writer = SessionWriter(output, info, force=force)
    try:
        found = [_recover_table(path, connection, table, writer) for table in RECORDS]
        lost = sum(one.refused for one in found)
        if not info.complete or lost or any(one.damaged for one in found):
            reason = info.ended_reason or "the recorder was killed"
            writer.update_info(complete=False, ended_reason=f"{reason}; recovered from {path.name}")
    finally:
        writer.close()
    return found


def _recover_table(
    path: Path, connection: sqlite3.Connection, table: Table, writer: SessionWriter
) -> Recovered:
    rows = refused = 0
    try:
        names = stored_columns(path, connection, table)
    except (FileFault, sqlite3.Error):
        return Recovered(table.name, 0, 0, True)
    damage: list[str] = []
    for row in _readable(connection, table, names, damage):
        try:
            record: Any = table.from_row(dict(zip(names, row, strict=True)))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            refused += 1
            continue
        writer.add(record)
        rows += 1
    return Recovered(table.name, rows, refused, bool(damage))


def _readable(
    connection: sqlite3.Connection, table: Table, names: list[str], damage: list[str]
) -> Iterator[tuple[Any, ...]]:
    """Rows from the first on and, where that breaks off, from the last back; ``damage`` is told."""
    columns = ", ".join(f'"{name}"' for name in names)
    last = None
    for direction in ("ASC", "DESC"):
        statement = f'SELECT rowid, {columns} FROM "{table.name}" ORDER BY rowid {direction}'
        backwards: list[tuple[Any, ...]] = []
        try:
            for rowid, *values in connection.execute(statement):
                if direction == "DESC":
                    if last is not None and rowid <= last:
                        break
                    backwards.append(tuple(values))
                else:
                    last = rowid
                    yield tuple(values)
            else:
                if direction == "ASC":
                    return
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
            damage.append(str(error))
        yield from reversed(backwards)
