"""``edgeprof import``: a log that another program recorded in, a session file out."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from edgeprof.cli.output import print_json, talk, warn
from edgeprof.cli.reading_progress import reading_progress
from edgeprof.errors import EnvironmentFault, UsageFault

if TYPE_CHECKING:
    from edgeprof.profiling.importing import Imported

_SHORTEST_S, _LONGEST_S = 0.001, 3600.0
_MOST_NAMED = 5


@click.group()
def command() -> None:
    """Turn what another program recorded into a session."""


@command.command()
@click.argument("log", type=click.Path(path_type=Path, allow_dash=True))
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="SESSION", required=True,
              help="The session file to write.")  # fmt: skip
@click.option("--interval", "interval_s", type=float, metavar="SECONDS",
              help="The time between two lines; needed where they have no stamps.")  # fmt: skip
@click.option("--device", metavar="D",
              help="The board of the log; without it EMC load gives no bandwidth.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the session that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="Show no progress where it takes long.")
def tegrastats(
    log: Path,
    output: Path,
    interval_s: float | None,
    device: str | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Turn LOG, recorded by tegrastats (- is stdin), into a session.

    Times come from the stamps of the lines, which are of whole seconds; with --interval from that,
    and gaps from the stamps. Fields that are not known are skipped and counted. Up to 500 000 lines
    and 256 MiB.
    """
    from edgeprof.profiling.importing import import_tegrastats

    if interval_s is not None and not _SHORTEST_S <= interval_s <= _LONGEST_S:
        raise UsageFault(
            f"--interval {interval_s:g} is not between {_SHORTEST_S:g} and {_LONGEST_S:g} seconds"
        )
    name = "stdin" if str(log) == "-" else str(log)
    size = log.stat().st_size if log.is_file() else None
    with _opened(log) as file, reading_progress(size, quiet=quiet) as progress:
        imported = import_tegrastats(
            file,
            name,
            output,
            device=device,
            interval_s=interval_s,
            force=force,
            progress=progress,
        )
    if as_json:
        print_json(_document(imported, name, output, device))
    else:
        click.echo("\n".join(_text(imported)))
    warn(imported.warnings)
    talk(f"session: {output}")


@contextmanager
def _opened(log: Path) -> Iterator[BinaryIO]:
    if str(log) == "-":
        yield sys.stdin.buffer
        return
    if log.is_dir():
        raise UsageFault(f"{log}: is a folder; LOG is a file")
    if not log.exists():
        raise UsageFault(f"{log}: no such file")
    try:
        file = log.open("rb")
    except OSError as error:
        raise EnvironmentFault(f"{log}: cannot be read: {error.strerror}") from error
    with file:
        yield file


def _text(imported: "Imported") -> Iterator[str]:
    named = ", ".join(list(imported.unknown_names)[:_MOST_NAMED])
    yield (
        f"lines: {imported.lines_read} read, {imported.lines_dropped} dropped;"
        f" unknown fields: {imported.unknown_fields}" + (f" ({named})" if named else "")
    )
    rate = "" if imported.delivered_hz is None else f", {imported.delivered_hz:.3g} lines a second"
    yield (
        f"signals: {len(imported.signals)}; span: {imported.span_s:.1f} s{rate};"
        f" gaps: {imported.gaps}; clock steps: {imported.clock_steps}"
    )
    for absence in imported.absences:
        fix = f"; {absence.fix}" if absence.fix else ""
        yield f"no {absence.signal}: {absence.reason}{fix}"


def _document(imported: "Imported", name: str, output: Path, device: str | None) -> dict[str, Any]:
    return {
        "schema": "edgeprof.import/1",
        "format": "tegrastats",
        "log": name,
        "session": str(output),
        "device": device,
        "lines": {"read": imported.lines_read, "dropped": imported.lines_dropped},
        "unknown_fields": {
            "count": imported.unknown_fields,
            "by_name": imported.unknown_names,
        },
        "signals": imported.signals,
        "span_s": imported.span_s,
        "delivered_hz": imported.delivered_hz,
        "first_stamp": imported.first_stamp,
        "last_stamp": imported.last_stamp,
        "gaps": imported.gaps,
        "clock_steps": imported.clock_steps,
        "absent": imported.absences,
        "warnings": imported.warnings,
    }
