"""What the pages tell people to type: the lines of their blocks of shell code, and what stands
between backticks. Runs nothing."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click

from edgeprof.cli.commands import cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = {page.name: page.read_text() for page in PAGES}
# How the running text names what other programs are to do.
_PROGRAMS = r"(?:\.venv/bin/)?(?:pip|python3?|make|sudo|git|docker|sqlite3|tegrastats)"


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

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


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
        for code in re.findall(r"`([^`]+)`", prose):
            yield page, " ".join(code.replace("\\|", "|").split())


def _edgeprof_lines() -> Iterator[Line]:
    for in_prose, found in ((False, code_lines()), (True, inline_code())):
        for page, text in dict.fromkeys(found):
            words = _own_words(text)
            if words:
                yield Line(page, text, words, in_prose)


def _own_words(text: str) -> tuple[str, ...] | None:
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


def _other_lines() -> Iterator[tuple[str, str]]:
    """Page and line of what other programs are to do, without the comment behind it."""
    named = ((page, text) for page, text in inline_code() if re.match(rf"{_PROGRAMS} ", text))
    for page, text in (*code_lines(), *named):
        line = " ".join(re.split(r"(?:^|\s)# ", text)[0].split())
        if line and not line.startswith("#") and _own_words(text) is None:
            yield page, line


def load(name: str) -> click.Command:
    """A command of edgeprof."""
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


LINES = list(_edgeprof_lines())
OTHER_LINES = list(dict.fromkeys(_other_lines()))
