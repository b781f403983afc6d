"""The session file: one SQLite database, written while measuring, read as hostile input.

While it is written it has a write-ahead log beside it, so that a kill at any moment leaves a file
that opens. Closing folds the log in, and one file remains. Until then its writer holds a lock on it
that ends with the process: others may read it, and nobody may replace it.
"""

import fcntl
import os
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.session.records import (
    SCHEMA_VERSION,
    Record,
    Sample,
    Session,
    SessionInfo,
    Token,
)
from edgeprof.session.schema import APPLICATION_ID, RECORDS, SESSION, Table, as_number, is_number

if TYPE_CHECKING:
    from edgeprof.session.columns import Columns

C = TypeVar("C", bound="Columns[Any]")

LARGEST_FILE_BYTES = 2 << 30
_MOST_ROWS = 20_000_000
_CHUNK = 1000  # rows at a time
_SHORT_TEXT_BYTES = 32
_LONGEST_CAUSE = 120  # SQLite quotes a damaged text in full
_SIDE_FILES = ("-wal", "-shm", "-journal")
_SQLITE = b"SQLite format 3\0"
_APPLICATION_ID_AT, _HEADER_BYTES = 68, 72
_RECORDED_NOW = "{}: is being recorded right now; choose another -o"
_TABLE_OF = {table.kind: table for table in RECORDS}


def check_output(path: Path, *, force: bool = False) -> None:
    """Say now what would keep a session from being written to ``path`` later.

    Raises UsageFault where something is there already; with ``force`` only where that is not a
    session, or one that is being recorded. Raises EnvironmentFault where its folder cannot be
    written. Changes nothing.
    """
    _check_place(path, force=force)
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}: {folder}") from error


def keep_sessions(path: Path) -> None:
    """Raises UsageFault where ``path`` is a session, or what SQLite keeps beside one: other output
    never takes its place."""
    names = {path.name, *(path.name.removesuffix(suffix) for suffix in _SIDE_FILES)} - {""}
    if any(is_session(path.with_name(name)) for name in names):
        raise UsageFault(f"{path}: is a session; --force does not replace it by something else")


def is_session(path: Path) -> bool:
    """Whether the file says so by its first bytes, whatever became of the others."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError:
        return False
    application_id = int.from_bytes(header[_APPLICATION_ID_AT:], "big")
    return header.startswith(_SQLITE) and application_id == APPLICATION_ID


def remove_session(path: Path) -> None:
    """Delete a session file and what SQLite keeps beside it."""
    for name in (path, *(beside(path, suffix) for suffix in _SIDE_FILES)):
        name.unlink(missing_ok=True)


class SessionWriter:
    """Writes a new session. Nothing is on disk for others to see before ``commit``."""

    def __init__(self, path: Path, info: SessionInfo, *, force: bool = False) -> None:
        check_output(path, force=force)
        self.path = path
        self.info = info
        new = beside(path, ".new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = _claim(new, path)
            try:
                self._create_tables(new)
                _check_place(path, force=force)
                remove_session(path)
                new.replace(path)
                self._connection = sqlite3.connect(path, isolation_level=None)
                self._begin()
            except BaseException:
                for name in (new, path):
                    if _is_named(self._descriptor, name):
                        remove_session(name)
                os.close(self._descriptor)
                raise
        except (OSError, sqlite3.Error) as error:
            raise EnvironmentFault(f"{path}: cannot be written: {error}") from error

    def add(self, record: Record) -> None:
        """Write a record; one with the same id as an earlier one takes its place."""
        table = _TABLE_OF[type(record)]
        self._execute(table.insert_sql, table.to_row(record))

    def update_info(self, **changes: Any) -> None:
        """Replace fields of the session's own row."""
        self.info = msgspec.structs.replace(self.info, **changes)
        self._execute(SESSION.insert_sql, SESSION.to_row(self.info))

    def commit(self) -> None:
        """Make what was added so far survive the end of this process."""
        self._execute("COMMIT")
        self._execute("BEGIN")

    def close(self) -> None:
        """Fold the log into the file, so that the one file can be copied.

        After a write that failed nothing is folded: what was committed is in file and log. Raises
        EnvironmentFault where the file is not there any more.
        """
        try:
            with closing(self._connection):
                if self._connection.in_transaction:
                    self._execute("COMMIT")
                    self._execute("PRAGMA wal_checkpoint(TRUNCATE)")
                    self._execute("PRAGMA journal_mode=DELETE")
            self._look_for_file()
        finally:
            # Not before SQLite is done: closing one descriptor of a file ends all POSIX locks that
            # this process has on it, SQLite's too.
            os.close(self._descriptor)

    def _execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        """Raises EnvironmentFault where the disk is full or gone, or the file is."""
        try:
            self._connection.execute(statement, values)
        except sqlite3.Error as error:
            self._look_for_file()
            raise EnvironmentFault(f"{self.path}: cannot be written: {error}") from error

    def _look_for_file(self) -> None:
        if not _is_named(self._descriptor, self.path):
            raise EnvironmentFault(f"{self.path}: was deleted while it was recorded")

    def _create_tables(self, new: Path) -> None:
        """The empty tables go into a file of another name first, so that the session opens from
        the moment it is there, even without its log."""
        with closing(sqlite3.connect(new, isolation_level=None)) as connection:
            execute = connection.execute
            execute(f"PRAGMA application_id={APPLICATION_ID}")
            execute(f"PRAGMA user_version={SCHEMA_VERSION}")
            execute("BEGIN")
            for table in (SESSION, *RECORDS):
                execute(table.create_sql)
            execute(SESSION.insert_sql, SESSION.to_row(self.info))
            execute("COMMIT")

    def _begin(self) -> None:
        execute = self._connection.execute
        execute("PRAGMA journal_mode=WAL")
        execute("PRAGMA synchronous=NORMAL")
        execute("BEGIN")


def read_session(path: Path) -> Session:
    """Everything in a session file, complete or not, checked value by value.

    Opens it for reading only and runs nothing that the file brings. Raises UsageFault where there
    is no such file, FileFault where it is not a session or was written by a newer edgeprof.
    """
    if not path.is_file():
        what = "is a folder, not a session file" if path.is_dir() else "no such session file"
        raise UsageFault(f"{path}: {what}")
    size = sum(part.stat().st_size for part in (path, beside(path, "-wal")) if part.is_file())
    if size > LARGEST_FILE_BYTES:
        raise FileFault(f"{path}: {size} bytes, more than the {LARGEST_FILE_BYTES} of any session")
    with _read_as_session(path) as connection:
        info = read_info_row(path, connection)
        try:
            return Session(info=info, **_read_records(path, connection))
        except FileFault as fault:
            raise FileFault(f"{fault}{_way_out(path)}") from fault


def read_info(path: Path) -> SessionInfo:
    """Only what a session says of itself; the rest may be damaged. Raises as ``read_session``."""
    with _read_as_session(path) as connection:
        return read_info_row(path, connection)


def _read_records(path: Path, connection: sqlite3.Connection) -> dict[str, Any]:
    """All but the info, by the field of a session."""
    from edgeprof.session.columns import Samples, Tokens  # numpy, which writing does without

    # First what takes the most room while it is read.
    samples = _read_columns(path, connection, Samples)
    tokens = _read_columns(path, connection, Tokens)
    rows = {
        table.name: _read_table(path, connection, table)
        for table in RECORDS
        if table.kind not in (Sample, Token)
    }
    return {
        "legs": rows["leg"],
        "requests": rows["request"],
        "rounds": rows["round"],
        "passes": rows["pass"],
        "tokens": tokens,
        "signals": rows["signal"],
        "samples": samples,
        "events": rows["event"],
    }


@contextmanager
def _read_as_session(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection whose header was checked; what breaks while it is read is told."""
    try:
        with _opened(path) as connection:
            check_header(path, connection)
            yield connection
    except (sqlite3.Error, UnicodeDecodeError, OverflowError) as error:
        cause = str(error)[:_LONGEST_CAUSE]
        raise FileFault(f"{path}: not a readable session: {cause}{_way_out(path)}") from error
    except OSError as error:
        raise FileFault(f"{path}: cannot be read: {error.strerror}") from error


def _way_out(path: Path) -> str:
    """What may still be done with a file that is a session by its first bytes."""
    if not is_session(path):
        return ""
    return f"; edgeprof sessions --repair {shlex.quote(str(path))} saves what can be read"


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A read-only connection.

    SQLite cannot replay a log in a folder it may not write; then a copy is read instead.
    """
    try:
        with closing(connect(path)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master")
            yield connection
            return
    except sqlite3.OperationalError:
        if not beside(path, "-wal").is_file():
            raise
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as folder:
        copy = Path(folder) / "session.sqlite"
        shutil.copyfile(path, copy)
        shutil.copyfile(beside(path, "-wal"), beside(copy, "-wal"))
        with closing(connect(copy)) as connection:
            yield connection


def connect(path: Path) -> sqlite3.Connection:
    """For reading only; nothing that the file brings is run."""
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute("PRAGMA query_only=ON")
    connection.row_factory = sqlite3.Row
    connection.text_factory = _shared_text()
    return connection


def _shared_text() -> Callable[[bytes], str]:
    """Decodes text. Short ones come again in a hundred thousand rows: one object serves all."""
    seen: dict[bytes, str] = {}

    def decode(text: bytes) -> str:
        if len(text) > _SHORT_TEXT_BYTES:
            return text.decode()
        found = seen.get(text)
        if found is None:
            found = seen[text] = text.decode()
        return found

    return decode


def check_header(path: Path, connection: sqlite3.Connection) -> None:
    """Raises FileFault for another kind of file, or a session of a newer edgeprof."""
    if not path.stat().st_size:  # which SQLite takes for a database without tables
        raise FileFault(f"{path}: is empty (0 bytes), which is no session")
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise FileFault(f"{path}: a SQLite file, but not a session of edgeprof")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > SCHEMA_VERSION:
        raise FileFault(
            f"{path}: written by a newer edgeprof (schema {version}, this one reads up to "
            f"{SCHEMA_VERSION}); upgrade edgeprof"
        )


def read_info_row(path: Path, connection: sqlite3.Connection) -> SessionInfo:
    """The one row of table ``session``. Raises FileFault where it is not one."""
    rows = _read_table(path, connection, SESSION)
    if len(rows) != 1:
        raise FileFault(f"{path}: table session has {len(rows)} rows, expected one")
    info: SessionInfo = rows[0]
    return info


def _read_table(path: Path, connection: sqlite3.Connection, table: Table) -> list[Any]:
    """All rows in the order they were written or, where they have one, of their id."""
    names = stored_columns(path, connection, table)
    records: list[Struct] = []
    selected = ", ".join(f'"{name}"' for name in names)
    order = "id" if "id" in names else "rowid"
    rows = connection.execute(f'SELECT {selected} FROM "{table.name}" ORDER BY {order}')
    rows.row_factory = None
    while chunk := rows.fetchmany(_CHUNK):
        if len(records) + len(chunk) > _MOST_ROWS:
            raise FileFault(f"{path}: table {table.name} has more than {_MOST_ROWS} rows")
        try:
            records += table.from_rows([dict(zip(names, row, strict=True)) for row in chunk])
        except (msgspec.MsgspecError, RecursionError):
            records += _one_by_one(path, table, names, chunk, len(records))
    return records


def _one_by_one(
    path: Path, table: Table, names: list[str], chunk: list[tuple[Any, ...]], before: int
) -> Iterator[Struct]:
    """The records in some rows, to tell which of them is none."""
    for number, row in enumerate(chunk, start=before + 1):
        try:
            yield table.from_row(dict(zip(names, row, strict=True)))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise FileFault(f"{path}: table {table.name}, row {number}: {error}") from error


def _read_columns(path: Path, connection: sqlite3.Connection, kind: "type[C]") -> "C":
    """All rows of a table, without a record for each."""
    table = _TABLE_OF[kind.record]
    stored = stored_columns(path, connection, table)
    (count,) = connection.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()
    if count > _MOST_ROWS:
        raise FileFault(f"{path}: table {table.name} has more than {_MOST_ROWS} rows")
    fields = kind.annotations()
    selected = ", ".join(
        as_number(name, annotation) if name in stored else "NULL"
        for name, annotation in fields.items()
    )
    order = "id" if "id" in stored else "rowid"
    rows = connection.execute(f'SELECT {selected} FROM "{table.name}" ORDER BY {order}')
    rows.row_factory = None
    try:
        return kind.read(rows, count)
    except (TypeError, ValueError) as error:
        for name, annotation in fields.items():
            misfit = connection.execute(
                f'SELECT rowid FROM "{table.name}" WHERE NOT ({is_number(name, annotation)})'
            ).fetchone()
            if misfit is not None:
                told = f"table {table.name}, row {misfit[0]}: {name} is not what it should be"
                raise FileFault(f"{path}: {told}") from error
        raise


def stored_columns(path: Path, connection: sqlite3.Connection, table: Table) -> list[str]:
    """The columns of ours that the file has. Views and computed columns would run its own code.

    Raises FileFault for a table that is not as ours are.
    """
    entry = connection.execute(
        "SELECT type, sql FROM sqlite_master WHERE name = ?", (table.name,)
    ).fetchone()
    if entry is None or entry["type"] != "table":
        raise FileFault(f"{path}: no table {table.name} in it")
    if str(entry["sql"]).upper().startswith("CREATE VIRTUAL"):
        raise FileFault(f"{path}: table {table.name} is a virtual one")
    stored = {
        row["name"]: row["hidden"]
        for row in connection.execute(f'PRAGMA table_xinfo("{table.name}")')
    }
    for column in table.columns:
        if column.required and column.name not in stored:
            raise FileFault(f"{path}: table {table.name} has no column {column.name}")
        if stored.get(column.name):
            raise FileFault(f"{path}: column {table.name}.{column.name} is a computed one")
    return [column.name for column in table.columns if column.name in stored]


def _check_place(path: Path, *, force: bool) -> None:
    """Raises UsageFault where a session may not come to lie."""
    if path.is_dir():
        raise UsageFault(f"{path}: is a folder; -o takes the path of a file")
    if not path.exists():
        return
    if is_being_recorded(path):
        raise UsageFault(_RECORDED_NOW.format(path))
    if not force:
        raise UsageFault(f"{path}: exists already; choose another -o, or replace it by --force")
    if not is_session(path):
        raise UsageFault(f"{path}: not a session of edgeprof; --force does not replace it")


def _claim(new: Path, path: Path) -> int:
    """An empty file, locked: the lock goes with it when it takes its name, and ends with us."""
    descriptor = os.open(new, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if not (_lock(descriptor, fcntl.LOCK_EX) and _is_named(descriptor, new)):
            raise UsageFault(_RECORDED_NOW.format(path))
        os.ftruncate(descriptor, 0)
        for suffix in _SIDE_FILES:
            beside(new, suffix).unlink(missing_ok=True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def is_being_recorded(path: Path) -> bool:
    """Whether a process is writing it now."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, kind: int) -> bool:
    """Whether it is ours, or the file system knows no locks. Not one of SQLite's, which are of
    another kind."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _is_named(descriptor: int, path: Path) -> bool:
    """Whether the open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def beside(path: Path, suffix: str) -> Path:
    """What SQLite keeps beside a file, by its suffix."""
    return path.with_name(path.name + suffix)
