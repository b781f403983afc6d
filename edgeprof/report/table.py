"""Plain tables for a terminal; on one too narrow for them, ``key: value`` lines.

Written out here because the lightest table library takes as long to import as everything else that
a paper roofline needs.
"""

import shutil
import textwrap
from collections.abc import Sequence

_GAP = "  "
_NO_TERMINAL = 100  # where nobody says how wide it is: a pipe, a file


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
