"""What the pages tell people to type: every command is there, and every line of edgeprof is taken.

Lines that need neither board nor much time are run, as processes, in a folder that holds files of
the names that the pages use. The others (run, watch, fetch ..., and those with a name that stands
for something) are parsed by the command itself, whose options and values must be its own. Lines of
other programs are looked at where the repository can tell: make's targets, pip's extras.
"""

import configparser
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from emulated.tree import build

from edgeprof.cli.commands import COMMANDS, cli
from edgeprof.session.records import SCHEMA_VERSION, Session
from edgeprof.session.schema import RECORDS, SESSION

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {page.name: page.read_text() for page in PAGES}
# Those that end within seconds, and change nothing but what -o names; `watch` where it has an end.
RUN = {"compare", "devices", "doctor", "import", "models", "pair", "plan", "report", "roofline",
       "sessions"}  # fmt: skip
# What a word in capitals stands for where a line is only parsed.
STANDS_FOR = {
    "SECONDS": "1", "N": "4", "D": "orin-nano-8gb", "D@M": "orin-nano-8gb@15W", "M": "15W",
    "T": "qwen2.5-7b", "T2": "qwen2.5-0.5b", "T3": "smollm2-135m", "JOB": "run", "PORT": "8000",
}  # fmt: skip
# Names that a page gives to files; a line with another one is not run.
SESSIONS = (
    "session.sqlite",
    "first.sqlite",
    "board.sqlite",
    "llama.sqlite",
    "a.sqlite",
    "b.sqlite",
)


class Line(NamedTuple):
    """A line of a page, and the words of edgeprof's command line in it."""

    page: str
    text: str
    words: tuple[str, ...]
    in_prose: bool  # there it may name an option alone, and not be a whole call

    @property
    def command(self) -> str:
        return next((word for word in self.words if not word.startswith("-")), "")

    @property
    def is_form(self) -> bool:
        """It shows how a command is written, ``[NAME]`` and all, and cannot be typed."""
        return bool(re.search(r"\[|\.\.\.|…|\b[A-Z]\|", self.text)) or "|" in self.words


def code_lines() -> Iterator[tuple[str, str]]:
    """Page and line of every block of shell code, continued lines joined."""
    for page, text in TEXT.items():
        for kind, block in re.findall(r"```(sh|console)\n(.*?)```", text, re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                if kind == "console" and not line.startswith("$ "):
                    continue  # what was printed
                yield page, line.removeprefix("$ ").strip()


def inline_code() -> Iterator[tuple[str, str]]:
    """What stands between backticks in the running text."""
    for page, text in TEXT.items():
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        for code in re.findall(r"`((?:edgeprof|python -m edgeprof) [^`]+)`", prose):
            yield page, " ".join(code.replace("\\|", "|").split())


def edgeprof_lines() -> Iterator[Line]:
    for in_prose, found in ((False, code_lines()), (True, inline_code())):
        for page, text in dict.fromkeys(found):
            words = own_words(text)
            if words is not None:
                yield Line(page, text, words, in_prose)


def own_words(text: str) -> tuple[str, ...] | None:
    """The words behind ``edgeprof``, up to a pipe or the next command; None where it is another
    program's line."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return None
    while words and (words[0] in ("sudo", "exec") or re.fullmatch(r"\w+=\S*", words[0])):
        words = words[1:]
    if words[:3] == ["python", "-m", "edgeprof"]:
        words = words[2:]
    if not words or words[0].rpartition("/")[2] != "edgeprof":
        return None
    ends = [place for place, word in enumerate(words) if word in ("|", ">", ">>", "&&", ";", "&")]
    return tuple(words[1 : ends[0] if ends else None])


LINES = [line for line in edgeprof_lines() if line.words]
TYPED = [line for line in LINES if not line.is_form]


def label(line: Line) -> str:
    return f"{line.page}: {line.text}"


def can_be_run(line: Line) -> bool:
    """Whether all that it names is known, or lies in the folder of the test."""
    if line.in_prose:
        return False
    if not line.command:
        return line.words[0] in ("--help", "--version")
    ends = line.command in RUN or (line.command == "watch" and "--for" in line.words)
    if not ends or line.command not in COMMANDS:
        return False
    capitals = [word for word in line.words if re.fullmatch(r"[A-Z][A-Z0-9@_]*", word)]
    files = [word for word in line.words if word.endswith((".sqlite", ".gguf", ".log", ".csv"))]
    return not capitals and all(file in (*SESSIONS, "board.log") for file in files)


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


@pytest.mark.parametrize("line", LINES, ids=label)
def test_options_and_commands_of_every_line_exist(line: Line) -> None:
    if line.command not in COMMANDS:
        assert line.words[0] in ("--help", "--version"), label(line)
        return
    known = set(options(load(line.command)))
    own = line.words[: line.words.index("--")] if "--" in line.words else line.words
    used = {
        word.partition("=")[0] for word in re.findall(r"(?<![\w-])--?[a-z][\w-]*", " ".join(own))
    }
    assert used <= known | {"--help", "-h"}, f"{label(line)}: {used - known}"


@pytest.mark.parametrize("line", TYPED, ids=label)
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
        assert line.in_prose, f"{label(line)}: {error.message}"
    except click.UsageError as error:
        raise AssertionError(f"{label(line)}: {error.message}") from error


def options(command: click.Command) -> Iterator[str]:
    """All names of options of a command, and of those below it."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options(below)


def load(name: str) -> click.Command:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    made_session: Session,
    write_session: Callable[..., Path],
) -> Path:
    """The files that the pages speak of, by their names."""
    place = tmp_path_factory.mktemp("docs")
    for name in SESSIONS:
        write_session(place / name, made_session)
    log = (ROOT / "tests" / "data" / "tegrastats_lines.jsonl").read_text().splitlines()[0]
    (place / "board.log").write_text(f"{line_of(log)}\n" * 5)
    shutil.copytree(ROOT / "device_profiles", place / "device_profiles")
    build(place / "DIR", "orin-nano-super")
    return place


def line_of(document: str) -> str:
    found: str = json.loads(document)["line"]
    return found


def test_lines_that_need_no_board_run(folder: Path) -> None:
    """Exit code 3 is an answer of a machine that is no board; a traceback or a usage error none."""
    lines = [line for line in TYPED if can_be_run(line)]
    assert len(lines) > 10
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda line: run(line, folder), lines))
    for line, process in zip(lines, done, strict=True):
        assert process.returncode in (0, 3, 4), f"{label(line)}: {process.stderr}"
        assert "Traceback" not in process.stderr, label(line)
        # `here` is a machine that was probed, which this one need not be.
        assert process.stdout or "edgeprof probe" in process.stderr, label(line)


def run(line: Line, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Each in a folder of its own, so that what one writes is not in another's way."""
    own = folder / f"run-{abs(hash(line))}"
    shutil.copytree(folder, own, ignore=shutil.ignore_patterns("run-*"), symlinks=True)
    words = list(line.words)
    if "-o" in words and words[words.index("-o") + 1] in SESSIONS:  # the line is to make it
        (own / words[words.index("-o") + 1]).unlink()
    return subprocess.run(
        [sys.executable, "-m", "edgeprof", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        cwd=own,
        env={**os.environ, "COLUMNS": "100"},
    )


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


def test_the_session_format_is_that_of_the_code(folder: Path) -> None:
    page = TEXT["session-format.md"]
    versions = re.findall(r"^\| (\d+) \| [\d.]+ \|", page, re.MULTILINE)
    assert versions[-1] == str(SCHEMA_VERSION), "a row for the version that is written now"
    for table in (SESSION, *RECORDS):
        (row,) = re.findall(rf"^\| `{table.name}` \| (.*) \|$", page, re.MULTILINE)
        columns = {column.name for column in table.columns}
        assert {*re.findall(r"`(\w+)`", row)} <= columns, table.name
    statements = re.findall(r'sqlite3 session\.sqlite "([^"]+)"', page)
    assert statements
    with sqlite3.connect(folder / "session.sqlite") as session:
        for statement in statements:
            assert session.execute(statement).fetchall()
