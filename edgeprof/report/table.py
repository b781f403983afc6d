"""Plain tables for a terminal, cells folded where it is narrow; on one too narrow for that,
``key: value`` lines; pipe tables.

Written out here because the lightest table library takes as long to import as everything else that
a paper roofline needs.
"""

import shutil
import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import NamedTuple

from edgeprof.report.printable import printable

_GAP = "  "
_NARROWEST_NAME = 12
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
    """The rows under their headers: ``left`` columns of words to the left, numbers to the right.

    Where they do not fit, the widest cells are folded: names anywhere, figures between words and
    into two lines or so.
    """
    columns = list(zip(headers, *rows, strict=True))
    widths = _fitting(columns, left, width - len(_GAP) * (len(columns) - 1))
    if widths is None:
        return "\n\n".join(key_values(headers, row) for row in rows)
    rule = ["-" * column for column in widths]
    lines = (line for row in (headers, rule, *rows) for line in _folded(row, widths))
    return "\n".join(_line(line, widths, left) for line in lines)


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


def _fitting(columns: Sequence[Sequence[str]], left: int, width: int) -> list[int] | None:
    """Widths of the columns that make ``width`` at most, the widest reduced first; None where they
    would become too narrow."""
    widths = [max(map(len, column)) for column in columns]
    least = [
        min(natural, _NARROWEST_NAME) if index < left else _least(column, natural)
        for index, (column, natural) in enumerate(zip(columns, widths, strict=True))
    ]
    while sum(widths) > width:
        spare = [index for index in range(len(widths)) if widths[index] > least[index]]
        if not spare:
            return None
        widths[max(spare, key=lambda index: widths[index])] -= 1
    return widths


def _least(figures: Sequence[str], natural: int) -> int:
    words = (word for cell in figures for word in cell.split())
    return max((natural + 1) // 2, *map(len, words), 1)


def _folded(row: Sequence[str], widths: Sequence[int]) -> Iterator[Sequence[str]]:
    """The lines of a row."""
    cells = [
        textwrap.wrap(cell, column) if len(cell) > column else [cell]
        for cell, column in zip(row, widths, strict=True)
    ]
    return zip_longest(*cells, fillvalue="")


def _line(row: Sequence[str], widths: Sequence[int], left: int) -> str:
    cells = [
        cell.ljust(width) if index < left else cell.rjust(width)
        for index, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return _GAP.join(cells).rstrip()
