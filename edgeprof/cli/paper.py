"""What the paper commands share: forms of output, figures and the data behind them, lists."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from edgeprof.cli.output import print_json, refuse_contradiction, talk, write_new_file
from edgeprof.errors import UsageFault
from edgeprof.report.paper import PaperFigure
from edgeprof.report.sections import Row, Section, as_csv, as_markdown, as_text
from edgeprof.report.table import terminal_width

Form = Literal["text", "json", "md", "csv"]
FORMS: tuple[Form, ...] = ("text", "json", "md", "csv")
Command = TypeVar("Command", bound=Callable[..., Any])
MOST_TOKENS = 10_000_000
_COUNT = re.compile("[0-9]{1,8}")  # no more digits than MOST_TOKENS has
_LONGEST_NUMBER = 32


def output_options(plot_kinds: Sequence[str], *, default: str) -> Callable[[Command], Command]:
    """The options of a paper command that say what comes out, in which form, and where."""
    options = (
        click.option("--plot", type=click.Path(path_type=Path), metavar="FILE",
                     help="Draw a figure too: .svg, .png or .pdf."),
        click.option("--plot-kind", type=click.Choice(plot_kinds), default=default,
                     show_default=True, help="What --plot draws and --csv holds."),
        click.option("--csv", "data", type=click.Path(path_type=Path), metavar="FILE",
                     help="Write the data of the figure."),
        click.option("--force", is_flag=True, help="Overwrite an existing plot or CSV."),
        click.option("--format", "form", type=click.Choice(FORMS), help="Default: text."),
        click.option("--json", "as_json", is_flag=True, help="Short for --format json."),
    )  # fmt: skip

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def chosen_form(form: Form | None, as_json: bool) -> Form:
    """The form asked for; ``--json`` is short for ``--format json``."""
    refuse_contradiction(form, as_json)
    return "json" if as_json else form or "text"


def put(form: Form, document: Any, sections: Iterable[Section], rows: Sequence[Row]) -> None:
    """The answer on stdout. Sections are taken only where a person reads them."""
    if form == "json":
        print_json(document)
    elif form == "csv":
        click.echo(as_csv(rows), nl=False)
    elif form == "md":
        click.echo(as_markdown(sections))
    else:
        click.echo(as_text(sections, terminal_width()))


def save(figure: PaperFigure, plot: Path | None, data: Path | None, *, force: bool) -> None:
    """The figure, the data behind it, or both; existing files are kept unless ``force``."""
    if plot is not None and data is not None and plot.resolve() == data.resolve():
        raise UsageFault(f"--plot and --csv both name {plot}; the data needs a file of its own")
    if data is not None:
        write_new_file(data, as_csv(figure.rows), force=force)
        talk(f"data written to {data}")
    if plot is not None:
        from edgeprof.report.figures import save_figure  # loads matplotlib

        save_figure(figure.draw(), plot, force=force)
        talk(f"plot written to {plot}")


def counts(texts: Sequence[str], option: str) -> list[int]:
    """Numbers of tokens from comma lists, each one once."""
    found = []
    for item in split(texts, option):
        if not _COUNT.fullmatch(item) or int(item) > MOST_TOKENS:
            raise UsageFault(f"{option} takes whole numbers from 0 to {MOST_TOKENS}, got '{item}'")
        found.append(int(item))
    return list(dict.fromkeys(found))


def number(text: str, option: str, low: float, high: float) -> float:
    """A number from ``low`` to ``high``; nan is none."""
    try:
        value = float(text) if len(text) <= _LONGEST_NUMBER else math.nan
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise UsageFault(f"{option} takes a number from {low:g} to {high:g}, got '{text[:40]}'")
    return value


def split(texts: Sequence[str], option: str) -> list[str]:
    """The items of comma lists."""
    items = list(_items(texts))
    if not items:
        raise UsageFault(f"{option} was given an empty list")
    return items


def _items(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield from (item.strip() for item in text.split(",") if item.strip())
