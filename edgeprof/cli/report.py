"""``edgeprof report``: what a session measured, as text, JSON, or Markdown with plots."""

from pathlib import Path
from typing import Literal

import click

from edgeprof.cli.output import json_text, refuse_contradiction, talk, write_new_file
from edgeprof.errors import PartialResult

Form = Literal["text", "json", "md"]


@click.command()
@click.argument("session", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write there: a folder for Markdown and its plots, a file for text and JSON.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md"]),
    help="Default: text, and md with -o.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "--with-disturbed", is_flag=True, help="Let repetitions count that something disturbed."
)
@click.option("--force", is_flag=True, help="Replace a report that is there.")
def command(
    session: Path,
    output: Path | None,
    form: Form | None,
    as_json: bool,
    with_disturbed: bool,
    force: bool,
) -> None:
    """Show what SESSION measured: what pays, what does not, and why.

    Text on the terminal by default; `-o DIR` writes DIR/report.md with plots beside it and prints
    its path. An incomplete session is reported in full and exits with 4.
    """
    refuse_contradiction(form, as_json)
    chosen: Form = "json" if as_json else form or ("md" if output else "text")
    complete = _report(session, output, chosen, with_disturbed, force)
    if not complete:
        raise PartialResult(f"{session}: the session is incomplete; the figures cover what it has")


def _report(path: Path, output: Path | None, form: Form, with_disturbed: bool, force: bool) -> bool:
    """Whether the session was complete. Output is checked before the session is read."""
    from edgeprof.analysis.summary import summarise
    from edgeprof.report.headline import headlines
    from edgeprof.report.markdown import check_folder, markdown, write_report
    from edgeprof.report.table import terminal_width
    from edgeprof.report.text import session_text
    from edgeprof.session.store import read_session

    if form == "md" and output is not None:
        check_folder(output, force=force)
    summary = summarise(read_session(path), with_disturbed=with_disturbed)
    if form == "md" and output is not None:
        report = write_report(summary, output, force=force)
        for headline in headlines(summary):
            talk(f"{headline.target}: {headline.answer}")
        click.echo(str(report))
    elif form == "json":
        _put(json_text(summary), output, force)
    elif form == "md":
        _put(markdown(summary), output, force)
    else:
        _put(session_text(summary, terminal_width()), output, force)
    return summary.session.complete


def _put(text: str, output: Path | None, force: bool) -> None:
    """On stdout, or into a new file."""
    if output is None:
        click.echo(text.rstrip("\n"))
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    write_new_file(output, text.rstrip("\n") + "\n", force=force)
