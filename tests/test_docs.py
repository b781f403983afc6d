"""What the pages tell people to type: every command is there, and every line of edgeprof is taken.

Each line is parsed by the command itself, whose options and values must be its own; test_docs_typed
runs them. Lines of other programs are looked at where the repository can tell: make's targets,
pip's extras.
"""

import configparser
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from docs_lines import LINES, PAGES, ROOT, TEXT, Line, code_lines, load

from edgeprof.cli.commands import COMMANDS
from edgeprof.session.records import SCHEMA_VERSION, Session
from edgeprof.session.schema import RECORDS, SESSION

# What a word in capitals stands for where a line is only parsed.
STANDS_FOR = {
    "SECONDS": "1", "N": "4", "D": "orin-nano-8gb", "D@M": "orin-nano-8gb@15W", "M": "15W",
    "T": "qwen2.5-7b", "T2": "qwen2.5-0.5b", "T3": "smollm2-135m", "JOB": "run", "PORT": "8000",
}  # fmt: skip
TYPED = [line for line in LINES if not line.is_form]


def test_every_command_is_on_a_page_and_in_the_readme() -> None:
    docs = "\n".join(text for page, text in TEXT.items() if page != "README.md")
    for name in COMMANDS:
        assert re.search(rf"edgeprof {name}\b", TEXT["README.md"]), name
        assert re.search(rf"edgeprof {name}\b", docs), f"no page of docs/ speaks of {name}"


def test_every_page_is_linked_from_the_readme() -> None:
    for page in TEXT:
        assert page == "README.md" or f"docs/{page}" in TEXT["README.md"], page


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", TEXT[page.name]):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            file = page if not path else page.parent / path
            assert file.exists(), f"{page.name}: {target}"
            if anchor and file.suffix == ".md":
                assert anchor in anchors(file.read_text()), f"{page.name}: {target}"


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", title.lower()) for title in titles)
    return {title.replace(" ", "-") for title in plain}


@pytest.mark.parametrize("line", LINES, ids=str)
def test_options_and_commands_of_every_line_exist(line: Line) -> None:
    if line.command not in COMMANDS:
        assert line.words[0] in ("--help", "--version")
        return
    known = set(options(load(line.command)))
    own = line.words[: line.words.index("--")] if "--" in line.words else line.words
    used = {
        word.partition("=")[0] for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(own))
    }
    assert used <= known | {"--help", "-h"}, f"{line}: {used - known}"


@pytest.mark.parametrize("line", TYPED, ids=str)
def test_every_line_parses(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command itself; paths need not be there."""
    if line.command not in COMMANDS or {"--help", "--version"} & {*line.words}:
        return
    monkeypatch.setattr(click.Path, "convert", lambda self, value, param, ctx: Path(value))
    words = [STANDS_FOR.get(word, word) for word in line.words]
    place = words.index(line.command)
    command = load(line.command)
    try:
        command.make_context(line.command, words[place + 1 :])
    except (click.MissingParameter, click.BadOptionUsage) as error:
        assert line.in_prose, f"{line}: {error.message}"
    except click.UsageError as error:
        raise AssertionError(f"{line}: {error.message}") from error


def options(command: click.Command) -> Iterator[str]:
    """All names of options of a command, and of those below it."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options(below)


def test_targets_of_make_and_extras_of_pip_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = {*config["options.extras_require"]}
    for page, line in code_lines():
        words = line.split("#")[0].split()
        if words[:1] == ["make"]:
            for target in (word for word in words[1:] if "=" not in word):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: {line}"
        for named in re.findall(r"(?:edgeprof|\.)\[([\w,]+)\]", line):
            assert {*named.split(",")} <= extras, f"{page}: {line}"


def test_the_session_format_is_that_of_the_code(
    tmp_path: Path, made_session: Session, write_session: Callable[..., Path]
) -> None:
    page = TEXT["session-format.md"]
    versions = re.findall(r"^\| (\d+) \| [\d.]+ \|", page, re.MULTILINE)
    assert versions[-1] == str(SCHEMA_VERSION), "a row for the version that is written now"
    for table in (SESSION, *RECORDS):
        (row,) = re.findall(rf"^\| `{table.name}` \| (.*) \|$", page, re.MULTILINE)
        columns = {column.name for column in table.columns}
        assert {*re.findall(r"`(\w+)`", row)} <= columns, table.name
    statements = re.findall(r'sqlite3 session\.sqlite "([^"]+)"', page)
    assert statements
    with sqlite3.connect(write_session(tmp_path / "session.sqlite", made_session)) as session:
        for statement in statements:
            assert session.execute(statement).fetchall()
