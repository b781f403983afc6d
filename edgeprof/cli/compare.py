"""``edgeprof compare``: sessions beside each other, with ratios that say whether they differ."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from edgeprof.cli.output import NamedPath, print_json, refuse_contradiction
from edgeprof.errors import PartialResult, UsageFault

if TYPE_CHECKING:
    from edgeprof.analysis.across import Conflict


@click.command()
@click.argument("sessions", type=NamedPath(), nargs=-1, required=True, metavar="A B [...]")
@click.option("--format", "form", type=click.Choice(["text", "md", "json"]), help="Default: text.")
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "--force", is_flag=True, help="Compare boards, power modes or model files that differ, too."
)
def command(
    sessions: tuple[Path, ...],
    form: Literal["text", "md", "json"] | None,
    as_json: bool,
    force: bool,
) -> None:
    """Compare session A with B and others: ratios with intervals, and what differs around them.

    The first is the base. Answers to the same prompt are paired; the interval is a 95 % bootstrap
    over prompts and repeats. Sessions of other boards, power modes or model files are refused
    unless --force asks for them.
    """
    from edgeprof.analysis.across import compare_sessions, conflicts_of
    from edgeprof.analysis.summary import summarise
    from edgeprof.report.across import across_sections
    from edgeprof.report.sections import as_markdown, as_text
    from edgeprof.report.table import terminal_width
    from edgeprof.session.store import read_session

    refuse_contradiction(form, as_json)
    if len(sessions) < 2:
        raise click.UsageError("compare takes two sessions or more")
    read = [read_session(path) for path in sessions]
    summaries = [summarise(session) for session in read]
    if (conflicts := conflicts_of(summaries)) and not force:
        raise UsageFault(_refusal(conflicts, sessions))
    across = compare_sessions(read, summaries)
    if as_json or form == "json":
        print_json(across)
    else:
        found = across_sections(across, _names(sessions))
        click.echo(as_markdown(found) if form == "md" else as_text(found, terminal_width()))
    if not all(summary.session.complete for summary in summaries):
        raise PartialResult("a session is incomplete; the figures cover what it has")


def _refusal(conflicts: Sequence["Conflict"], sessions: Sequence[Path]) -> str:
    told = []
    for one in conflicts:
        values = zip(sessions, one.values, strict=True)
        told.append(f"{one.what} ({', '.join(f'{path}: {value}' for path, value in values)})")
    return f"the sessions differ in {'; '.join(told)}; --force compares them all the same"


def _names(sessions: Sequence[Path]) -> list[str]:
    """The shortest that tell the files apart: their names, with as many folders as it takes; one
    path given twice is numbered."""
    parts = [(*path.parts[:-1], path.stem) for path in sessions]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-depth:]) for one in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{path.stem} ({n})" for n, path in enumerate(sessions, 1)]
