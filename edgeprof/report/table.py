"""Plain tables for a terminal; on one too narrow for them, ``key: value`` lines; pipe tables.

Written out here because the lightest table library takes as long to import as everything else that
a paper roofline needs.
"""

import shutil
import textwrap
from collections.abc import Sequence
from typing import NamedTuple

from edgeprof.report.printable import printable

_GAP = "  "
_NO_TERMINAL = 100  # where nobody says how wide it is: a pipe, a file


class Table(NamedTuple):
    """``left`` columns hold names, the others figures."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


def terminal_width() -> int:
    """Columns of the terminal, or of COLUMNS where that is set."""
    return shutil.get_terminal_size(fallback=(_NO_TERMINAL, 24)).columns


def table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1, width: int
) -> str:
    """The rows under their headers: ``left`` columns of words to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    if sum(widths) + len(_GAP) * (len(widths) - 1) > width:
        return "\n\n".join(key_values(headers, row) for row in rows)
    rule = ["-" * column for column in widths]
    return "\n".join(_line(row, widths, left) for row in (headers, rule, *rows))


def pipe_table(content: Table) -> str:
    """A pipe table, padded so that it reads well as plain text too."""
    if not content.rows:
        return ""
    lines = [[escaped(cell) for cell in row] for row in (content.headers, *content.rows)]
    widths = [max(3, *map(len, column)) for column in zip(*lines, strict=True)]
    rule = [
        "-" * width if index < content.left else "-" * (width - 1) + ":"
        for index, width in enumerate(widths)
    ]
    padded = [
        [
            cell.ljust(width) if index < content.left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in (lines[0], rule, *lines[1:])
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in padded)


def escaped(text: str) -> str:
    """Text from outside as text: no cell ends, no line, tag, link or emphasis begins."""
    flat = printable(" ".join(text.split()))
    for character in "\\|<`*":
        flat = flat.replace(character, f"\\{character}")
    return flat.replace("](", "]\\(").replace("][", "]\\[")


def fold(text: str, width: int) -> str:
    """Lines longer than the terminal, broken between words and indented."""
    return "\n".join(
        textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False)
        if len(line) > width
        else line
        for line in text.split("\n")
    )


def key_values(keys: Sequence[str], values: Sequence[str]) -> str:
    """One ``key: value`` line for each value that there is."""
    return "\n".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True) if value)


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(width) if index < left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return _GAP.join(cells).rstrip()
