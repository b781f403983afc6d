"""``edgeprof sessions``: which sessions lie in a folder, and what can be saved of a damaged one."""

from pathlib import Path
from typing import Any

import click

from edgeprof.cli.output import NamedPath, print_json, talk
from edgeprof.errors import FileFault, PartialResult


@click.command()
@click.argument("folder", type=NamedPath(), default=Path(), metavar="[DIR]")
@click.option("--json", "as_json", is_flag=True, help="One document, edgeprof.sessions/1.")
@click.option(
    "--repair",
    type=NamedPath(),
    metavar="FILE",
    help="Write what can be read of FILE to a new session; FILE stays as it is.",
)
@click.option(
    "-o",
    "output",
    type=NamedPath(),
    metavar="PATH",
    help="The new session of --repair. Default: FILE's name with -repaired, beside it.",
)
@click.option("--force", is_flag=True, help="Replace an incomplete session that is at -o.")
def command(
    folder: Path, as_json: bool, repair: Path | None, output: Path | None, force: bool
) -> None:
    """List the sessions in DIR (the current folder by default), the newest first.

    `--repair FILE` recovers one after a crash: it prints the path of a new session with all that
    could be read, and exits with 4 where something was lost.
    """
    if repair is not None:
        _repair(repair, output or repair.with_name(f"{repair.stem}-repaired.sqlite"), force)
        return
    if output is not None or force:
        raise click.UsageError("-o and --force belong to --repair")
    if not folder.is_dir():
        raise click.UsageError(f"{folder}: no such folder")
    found = _sessions_in(folder)
    if as_json:
        print_json({"schema": "edgeprof.sessions/1", "folder": str(folder), "sessions": found})
    elif not found:
        talk(f"no session lies in {folder}")
    else:
        _print_table(found)


def _sessions_in(folder: Path) -> list[dict[str, Any]]:
    """By the time of their making, those that cannot be read last."""
    from edgeprof.session.store import is_session

    found = [_entry(path) for path in sorted(folder.iterdir()) if is_session(path)]
    return sorted(found, key=lambda one: one["created_utc"] or "", reverse=True)


def _entry(path: Path) -> dict[str, Any]:
    """What a session says of itself; only that is read."""
    from edgeprof.session.store import is_being_recorded, read_info

    entry: dict[str, Any] = {
        "path": str(path),
        "file_bytes": path.stat().st_size,
        "state": "damaged",
        "created_utc": None,
        "kind": None,
        "recipe": None,
        "device": None,
        "power_mode": None,
        "edgeprof_version": None,
        "reason": None,
    }
    try:
        info = read_info(path)
    except FileFault as fault:
        return {**entry, "reason": str(fault)}
    recording = is_being_recorded(path)
    return {
        **entry,
        "state": "recording" if recording else "complete" if info.complete else "incomplete",
        "created_utc": info.created_utc,
        "kind": info.kind,
        "recipe": info.recipe.get("name"),
        "device": info.device.get("name"),
        "power_mode": info.device.get("power_mode"),
        "edgeprof_version": info.edgeprof_version,
        "reason": info.ended_reason,
    }


def _print_table(found: list[dict[str, Any]]) -> None:
    from edgeprof.report.printable import printable
    from edgeprof.report.table import table, terminal_width
    from edgeprof.units import show

    headers = ("session", "created (UTC)", "kind", "recipe", "board", "state", "size")
    rows = [
        (
            Path(one["path"]).name,
            *(str(one[key] or "-") for key in ("created_utc", "kind", "recipe", "device", "state")),
            show(one["file_bytes"], "B"),
        )
        for one in found
    ]
    click.echo(printable(table(headers, rows, left=6, width=terminal_width())))
    for one in found:
        if one["state"] in ("damaged", "incomplete"):
            why = one["reason"] or "its recorder was killed"
            talk(f"{one['path']}: {one['state']}: {why}")


def _repair(path: Path, output: Path, force: bool) -> None:
    from edgeprof.session.repair import repair

    tables = repair(path, output, force=force)
    for one in tables:
        lost = f", {one.refused} that make no sense left out" if one.refused else ""
        broken = ", the rest cannot be read" if one.damaged else ""
        talk(f"{one.table}: {one.rows} rows{lost}{broken}")
    click.echo(str(output))
    if any(one.refused or one.damaged for one in tables):
        raise PartialResult(f"{path}: not all of it could be recovered; {output} has the rest")
