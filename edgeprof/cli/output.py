"""Where the words of a command go: its answer to stdout or a new file, its talk to stderr."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
import msgspec

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.report.printable import printable


class NamedPath(click.Path):
    """A path that is not empty: an unset variable of a script asks for no folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the path is empty", param, ctx)
        return super().convert(value, param, ctx)


def json_text(document: Any) -> str:
    """The document as ``--json`` prints it."""
    try:
        encoded = msgspec.json.encode(document)
    except UnicodeEncodeError:  # the name of a file may be any bytes
        encoded = msgspec.json.encode(_with_utf8(msgspec.to_builtins(document)))
    return msgspec.json.format(encoded, indent=2).decode()


def _with_utf8(part: Any) -> Any:
    """Bytes that are no UTF-8 as ``\\xff``."""
    if isinstance(part, str):
        return part.encode(errors="surrogateescape").decode(errors="backslashreplace")
    if isinstance(part, dict):
        return {_with_utf8(key): _with_utf8(value) for key, value in part.items()}
    return [_with_utf8(one) for one in part] if isinstance(part, list) else part


def print_json(document: Any) -> None:
    """The document, alone on stdout."""
    click.echo(json_text(document))


def talk(line: str) -> None:
    """A word to the person at the terminal, apart from the data on stdout."""
    click.echo(printable(line), err=True)


def warn(warnings: Iterable[str]) -> None:
    """One line each on stderr."""
    for warning in warnings:
        talk(f"warning: {warning}")


def refuse_contradiction(form: str | None, as_json: bool) -> None:
    """UsageError where ``--json``, short for ``--format json``, comes with another form."""
    if as_json and form not in (None, "json"):
        raise click.UsageError("--json and --format contradict each other")


def write_new_file(path: Path, text: str, *, force: bool) -> None:
    """The text in a file, its line ends as they are; one that is there is kept unless ``force``,
    and a session is always.

    Raises UsageFault where it is kept, EnvironmentFault where the path cannot be written.
    """
    from edgeprof.session.store import keep_sessions

    keep_sessions(path)
    try:
        if path.exists() and not force:
            raise UsageFault(
                f"{path}: exists already; choose another name, or replace it by --force"
            )
        with path.open("w" if force else "x", encoding="utf-8", newline="") as file:
            file.write(text)
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}") from error
