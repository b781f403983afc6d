"""``edgeprof report``: what a session measured, as text, JSON, or files that go into a folder."""

import gc
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from edgeprof.cli.output import NamedPath, json_text, refuse_contradiction, talk, write_new_file
from edgeprof.errors import FileFault, PartialResult

if TYPE_CHECKING:
    from edgeprof.analysis.summary import SessionHead, Summary
    from edgeprof.session.records import Session

Form = Literal["text", "json", "md", "html", "csv", "trace"]
Dialect = Literal["plain", "decimal-comma"]


class _Wishes(NamedTuple):
    """What the options say about the files."""

    figures: str
    csv_dialect: Dialect
    with_disturbed: bool
    contention: Path | None


class _Files(NamedTuple):
    """The files of one form: all names that may come to lie in the folder, and what writes them
    there and returns the path of the one to open."""

    names: Callable[[_Wishes], list[str]]
    write: Callable[["Session", "Summary", Path, _Wishes], Path]


def _markdown() -> _Files:
    from edgeprof.report.left_over import figures_shown, remove_left_over
    from edgeprof.report.markdown import report_names, write_report

    def write(session: "Session", summary: "Summary", folder: Path, wishes: _Wishes) -> Path:
        before = figures_shown(folder)
        report = write_report(session, summary, folder, figures=wishes.figures)
        if left := remove_left_over(folder, before):
            names = ", ".join(path.name for path in left)
            talk(f"removed from {folder}, where the replaced report had left them: {names}")
        return report

    return _Files(lambda wishes: report_names(wishes.figures), write)


def _html() -> _Files:
    from edgeprof.report.html import HTML_NAME, check_html, write_html

    check_html()
    return _Files(
        lambda _: [HTML_NAME],
        lambda session, summary, folder, _: write_html(session, summary, folder),
    )


def _csv() -> _Files:
    from edgeprof.report.session_csv import session_csv_names, write_session_csv

    return _Files(
        lambda _: session_csv_names(),
        lambda session, _, folder, wishes: write_session_csv(session, folder, wishes.csv_dialect),
    )


def _trace() -> _Files:
    from edgeprof.report.trace import TRACE_NAME, check_trace, write_trace

    check_trace()
    return _Files(
        lambda _: [TRACE_NAME],
        lambda session, summary, folder, _: write_trace(session, summary, folder),
    )


# Where a form of its own files plugs in: name -> what gives its _Files, imported when asked for.
_FORMS: dict[str, Callable[[], _Files]] = {
    "md": _markdown,
    "html": _html,
    "csv": _csv,
    "trace": _trace,
}


@click.command()
@click.argument("session", type=NamedPath())
@click.option(
    "-o",
    "output",
    type=NamedPath(),
    metavar="PATH",
    help="Write there: a file for text and JSON, a folder for all else. Without it these go to "
    "stdout, Markdown too (without plots), and the others into ./SESSION-report.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", *_FORMS]),
    help="Default: text, and md with -o or --open.",
)
@click.option("--json", "as_json", is_flag=True, help="Short for --format json.")
@click.option(
    "--figures",
    type=click.Choice(["svg", "png", "pdf"]),
    default="svg",
    help="The form of the figures beside a Markdown report.",
    show_default=True,
)
@click.option(
    "--csv-dialect",
    type=click.Choice(["plain", "decimal-comma"]),
    default="plain",
    show_default=True,
    help="decimal-comma: 3,14 and semicolons, for spreadsheets in a language that writes so.",
)
@click.option("--open", "open_it", is_flag=True, help="Show what was written.")
@click.option(
    "--with-disturbed", is_flag=True, help="Let repetitions count that something disturbed."
)
@click.option(
    "--contention",
    type=NamedPath(),
    metavar="SESSION",
    help="A session of edgeprof contend on this machine, whose kappa the verdict is to use.",
)
@click.option("--force", is_flag=True, help="Replace a report that is there.")
def command(
    session: Path,
    output: Path | None,
    form: Form | None,
    as_json: bool,
    figures: str,
    csv_dialect: Dialect,
    open_it: bool,
    with_disturbed: bool,
    contention: Path | None,
    force: bool,
) -> None:
    """Show what SESSION measured: what pays, what does not, and why.

    Text on the terminal by default; `-o DIR` writes DIR/report.md with plots beside it and prints
    its path. An incomplete session is reported in full and exits with 4, one in which nothing was
    measured with 1.
    """
    refuse_contradiction(form, as_json)
    wishes = _Wishes(figures, csv_dialect, with_disturbed, contention)
    chosen: Form = "json" if as_json else form or ("md" if output or open_it else "text")
    if open_it and chosen not in _FORMS:
        raise click.UsageError(f"--open shows what is written as files, and {chosen} is not")
    on_stdout = output is None and not open_it and chosen in ("text", "json", "md")
    with _all_kept():
        if chosen in _FORMS and not on_stdout:
            folder = output or Path(f"{session.stem}-report")
            head = _write_files(session, folder, chosen, wishes, force, open_it)
        else:
            head = _write_text(session, output, chosen, wishes, force)
    if not head.complete:
        raise PartialResult(f"{session}: the session is incomplete; the figures cover what it has")
    if head.nothing_measured is not None:
        raise FileFault(f"{session}: nothing was measured: {head.nothing_measured}")


@contextmanager
def _all_kept() -> Iterator[None]:
    """Without the collector of cycles. Up to a million records live until the report is written,
    and to go through them again and again takes a tenth of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _write_files(
    path: Path, folder: Path, form: Form, wishes: _Wishes, force: bool, open_it: bool
) -> "SessionHead":
    """What the session says of itself. The folder is checked before the session is read."""
    from edgeprof.report.folder import check_folder, report_folder
    from edgeprof.report.headline import headlines
    from edgeprof.session.store import read_session

    files = _FORMS[form]()
    check_folder(folder, files.names(wishes), force=force)
    session = read_session(path)
    summary = _summary(session, wishes)
    with report_folder(folder):
        report = files.write(session, summary, folder, wishes)
    for headline in headlines(summary):
        talk(f"{headline.target}: {headline.answer}; {headline.output}")
    click.echo(str(report))
    if open_it and not webbrowser.open(report.absolute().as_uri()):
        talk(f"no browser was found here; open {report} elsewhere")
    return summary.session


def _write_text(
    path: Path, output: Path | None, form: Form, wishes: _Wishes, force: bool
) -> "SessionHead":
    """What the session says of itself."""
    import msgspec

    from edgeprof.catalog import measured_like
    from edgeprof.report.markdown import markdown
    from edgeprof.report.measured import ceilings_document
    from edgeprof.report.table import terminal_width
    from edgeprof.report.text import session_text
    from edgeprof.session.store import read_session

    session = read_session(path)
    summary = _summary(session, wishes)
    probe = measured_like(session.info.device, session.info.environment)
    if form == "json":
        beside = None if probe is None else ceilings_document(probe)
        _put(json_text({**msgspec.to_builtins(summary), "probe": beside}), output, force)
    elif form == "md":
        _put(markdown(summary, probe=probe), output, force)
    else:
        _put(session_text(summary, terminal_width(), probe), output, force)
    return summary.session


def _summary(session: "Session", wishes: _Wishes) -> "Summary":
    """With what another session lends, where one is named."""
    from edgeprof.analysis.lent import lent
    from edgeprof.analysis.summary import summarise
    from edgeprof.session.store import read_session

    beside = None
    if wishes.contention is not None:
        lender = read_session(wishes.contention)
        beside = lent(session, lender, summarise(lender).contention)
    return summarise(session, with_disturbed=wishes.with_disturbed, beside=beside)


def _put(text: str, output: Path | None, force: bool) -> None:
    """On stdout, or into a new file."""
    if output is None:
        click.echo(text.rstrip("\n"))
        return
    output.parent.mkdir(parents=True, exist_ok=True)
    write_new_file(output, text.rstrip("\n") + "\n", force=force)
