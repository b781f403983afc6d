"""A paper answer as titled sections, and the two forms that a person reads them in."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from edgeprof.report.printable import printable
from edgeprof.report.table import Table, escaped, fold, pipe_table, table

Row = Mapping[str, Any]


class Section(NamedTuple):
    """Sentences (one a line) and tables under a title; the first one's title is the answer's."""

    title: str
    parts: Sequence[str | Table]


def lines(sentences: Sequence[str]) -> list[str]:
    """Sentences as the one part of a section that they make; none make no part."""
    return ["\n".join(sentences)] if sentences else []


def as_text(sections: Iterable[Section], width: int) -> str:
    """For a terminal of that many columns."""
    blocks = (_text_section(section, width) for section in sections)
    return printable(fold("\n\n".join(block for block in blocks if block), width))


def as_markdown(sections: Iterable[Section]) -> str:
    """For a page: pipe tables, and lists where there are several sentences."""
    blocks = []
    for index, section in enumerate(sections):
        if section.title:
            blocks.append(f"{'#' if index == 0 else '##'} {escaped(section.title)}")
        blocks += [block for part in section.parts if (block := _markdown_part(part))]
    return "\n\n".join(blocks)


def as_csv(rows: Sequence[Row]) -> str:
    """Records with the same keys, which become the header; unknown is an empty cell."""
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _text_section(section: Section, width: int) -> str:
    parts = [
        part
        if isinstance(part, str)
        else table(part.headers, part.rows, left=part.left, width=width)
        for part in section.parts
    ]
    return "\n".join([section.title, *parts] if section.title else parts)


def _markdown_part(part: str | Table) -> str:
    if isinstance(part, Table):
        return pipe_table(part)
    lines = [escaped(line) for line in part.split("\n") if line.strip()]
    return lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.6g}" if isinstance(value, float) else value
