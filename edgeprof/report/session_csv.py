"""A session's records as tidy CSV: one row a leg, round, pass or sample, units in the names.

Times are seconds since the start of what the session is about, so that tables join on them; a
number is written with a point whatever the machine's language, unless the dialect says otherwise.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from edgeprof.analysis.channels import span_of
from edgeprof.report.whole_file import whole_file
from edgeprof.session.columns import QUALITIES
from edgeprof.session.records import Leg, Session

Dialect = Literal["plain", "decimal-comma"]
Number: TypeAlias = Callable[[float], str]  # how a dialect writes one
Cells: TypeAlias = Iterable[Sequence[Any]]


class _Table(NamedTuple):
    """Its columns, and the cells of a session whose time begins at that nanosecond."""

    columns: tuple[str, ...]
    cells: Callable[[Session, int, Number], Cells]


def session_csv_names() -> list[str]:
    """The files that ``write_session_csv`` writes."""
    return [f"{name}.csv" for name in TABLES]


def write_session_csv(session: Session, folder: Path, dialect: Dialect = "plain") -> Path:
    """One file a table in ``folder``, which is there, old ones replaced; returns the folder."""
    start_ns = span_of(session).t0_ns
    for name, table in TABLES.items():
        path = folder / f"{name}.csv"
        with (
            whole_file(path) as unfinished,
            unfinished.open("w", encoding="utf-8", newline="") as file,
        ):
            delimiter, number = _DIALECTS[dialect]
            writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
            writer.writerow(table.columns)
            writer.writerows(table.cells(session, start_ns, number))
    return folder


def _legs(session: Session, start_ns: int) -> Iterator[tuple[Any, ...]]:
    for leg in session.legs:
        times = _times(leg.t0_ns, leg.t1_ns, start_ns)
        yield (
            leg.id, leg.name, leg.kind, leg.variant, leg.repeat, leg.warmup, leg.status, *times,
        )  # fmt: skip


def _rounds(session: Session, start_ns: int) -> Iterator[tuple[Any, ...]]:
    legs = _by_id(session)
    for one in session.rounds:
        yield (
            one.id, one.leg_id, _variant(legs, one.leg_id), one.request_id, one.drafted,
            one.evaluated, one.accepted, one.emitted, *_times(one.t0_ns, one.t1_ns, start_ns),
            _warmup(legs, one.leg_id),
        )  # fmt: skip


def _passes(session: Session, start_ns: int) -> Iterator[tuple[Any, ...]]:
    legs = _by_id(session)
    for one in session.passes:
        yield (
            one.id, one.leg_id, _variant(legs, one.leg_id), one.request_id, one.round_id, one.phase,
            one.model, one.provider, one.stream, one.tokens, one.context_tokens,
            *_times(one.t0_ns, one.t1_ns, start_ns), _warmup(legs, one.leg_id),
        )  # fmt: skip


def _samples(session: Session, start_ns: int, number: Number) -> Iterator[Sequence[Any]]:
    """Straight from the columns, each written as a whole: there may be millions."""
    for signal in session.signals:
        name, unit, source = (
            _cell(one, number) for one in (signal.name, signal.unit, signal.source)
        )
        for part in session.samples.of_signal(signal.id).chunks():
            starts = map(number, ((part.t0_ns - start_ns) / 1e9).tolist())
            reads = map(number, ((part.t1_ns - part.t0_ns) / 1e9).tolist())
            values = (number(value) if value == value else None for value in part.value.tolist())
            qualities = (QUALITIES[code] for code in part.quality.tolist())
            yield from zip(
                repeat(name), repeat(unit), repeat(source), starts, reads, values, qualities,
                strict=False,
            )  # fmt: skip


def _plain(value: float) -> str:
    return f"{value:.10g}"


def _with_comma(value: float) -> str:
    return _plain(value).replace(".", ",")


_DIALECTS: dict[Dialect, tuple[str, Number]] = {
    "plain": (",", _plain), "decimal-comma": (";", _with_comma),
}  # fmt: skip


def _written(
    rows: Callable[[Session, int], Iterable[tuple[Any, ...]]],
) -> Callable[[Session, int, Number], Cells]:
    """The rows with their values as cells."""

    def cells(session: Session, start_ns: int, number: Number) -> Cells:
        return ([_cell(value, number) for value in row] for row in rows(session, start_ns))

    return cells


_WHEN = ("start_s", "duration_s")
TABLES = {
    "legs": _Table(
        ("leg_id", "name", "kind", "variant", "repeat", "warmup", "status", *_WHEN), _written(_legs)
    ),
    "rounds": _Table(
        (
            "round_id", "leg_id", "variant", "request_id", "drafted_tokens", "evaluated_tokens",
            "accepted_tokens", "emitted_tokens", *_WHEN, "warmup",
        ),
        _written(_rounds),
    ),
    "passes": _Table(
        (
            "pass_id", "leg_id", "variant", "request_id", "round_id", "phase", "model", "provider",
            "stream", "tokens", "context_tokens", *_WHEN, "warmup",
        ),
        _written(_passes),
    ),
    "samples": _Table(
        ("signal", "unit", "source", "start_s", "read_s", "value", "quality"), _samples
    ),
}  # fmt: skip


def _by_id(session: Session) -> dict[int, Leg]:
    return {leg.id: leg for leg in session.legs}


def _variant(legs: dict[int, Leg], leg_id: int) -> str | None:
    leg = legs.get(leg_id)
    return None if leg is None else leg.variant


def _warmup(legs: dict[int, Leg], leg_id: int) -> bool | None:
    leg = legs.get(leg_id)
    return None if leg is None else leg.warmup


def _times(t0_ns: int, t1_ns: int | None, start_ns: int) -> tuple[float, float | None]:
    return (t0_ns - start_ns) / 1e9, None if t1_ns is None else (t1_ns - t0_ns) / 1e9


def _cell(value: Any, number: Number) -> Any:
    """Unknown is empty; no cell of text is a formula to a spreadsheet."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return f"'{value}"
    return value
