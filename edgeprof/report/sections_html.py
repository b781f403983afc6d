"""The Markdown report as sections of HTML: rows have names, plots lie inside, no tag gets through.

Only this module knows the Markdown library.
"""

import re
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from edgeprof.report.table import escaped

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

    Tokens = Sequence[Token]


class PageSection(NamedTuple):
    """A section; the opening has no title."""

    id: str
    title: str
    html: str

    @classmethod
    def of(cls, title: str, content: str) -> "PageSection":
        """``content`` is HTML under a heading of its own."""
        name = "section-" + re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        heading = f'<h2 id="{name}">{escape(title)}</h2>'
        return cls(name, escape(title), f"<section>{heading}\n{content}</section>")


def sections_html(
    text: str, figures: Mapping[str, str], stamps: Sequence[str]
) -> list[PageSection]:
    """The opening and the sections of a Markdown report.

    ``figures`` holds, by the name of an image, the HTML of what takes its place, or the ``data:``
    address of the image itself. ``stamps`` are the sentences that must catch the eye.
    """
    page = _library(figures)
    tokens = page.parse(text)
    _mark_stamps(tokens, stamps)
    _name_rows(tokens)
    _free_images(tokens)
    starts = [i for i, one in enumerate(tokens) if one.type == "heading_open" and one.tag == "h2"]
    bounds = [*starts, len(tokens)]
    return [
        PageSection("", "", _rendered(page, tokens[: bounds[0]])),
        *(
            PageSection.of(tokens[start + 1].content, _rendered(page, tokens[start + 3 : end]))
            for start, end in pairwise(bounds)
        ),
    ]


def _library(figures: Mapping[str, str]) -> "MarkdownIt":
    from markdown_it import MarkdownIt

    def image(_: object, tokens: "Tokens", index: int, *more: Any) -> str:
        about = escape(tokens[index].content)
        shown = figures.get(str(tokens[index].attrs["src"]), about)
        if not shown.startswith("data:"):
            return shown
        return f'<figure><img src="{shown}" alt="{about}"><figcaption>{about}</figcaption></figure>'

    page = MarkdownIt("commonmark", {"html": False}).enable("table")
    page.disable(["autolink", "link", "reference"])  # a report leads nowhere, whatever is in it
    page.add_render_rule("image", image)
    page.add_render_rule("table_open", lambda *_: '<div class="wide" role="group"><table>\n')
    page.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return page


def _rendered(page: "MarkdownIt", tokens: "Tokens") -> str:
    return str(page.renderer.render(tokens, page.options, {}))


def _mark_stamps(tokens: "Tokens", stamps: Sequence[str]) -> None:
    bold = {f"**{escaped(stamp)}**" for stamp in stamps}
    for opening, inline in pairwise(tokens):
        if opening.type == "paragraph_open" and inline.content in bold:
            opening.attrSet("class", "stamp")


def _name_rows(tokens: "Tokens") -> None:
    """The first cell of a row names it; a heading without words heads nothing."""
    in_head = first = False
    for place, token in enumerate(tokens):
        if token.type in ("thead_open", "thead_close"):
            in_head = token.type == "thead_open"
        elif token.type == "tr_open":
            first = True
        elif token.type in ("th_open", "td_open"):
            _name_cell(tokens, place, in_head=in_head, first=first)
            first = False


def _name_cell(tokens: "Tokens", place: int, *, in_head: bool, first: bool) -> None:
    opening, closing = tokens[place], tokens[place + 2]
    is_name = bool(tokens[place + 1].content) if in_head else first
    opening.tag = closing.tag = "th" if is_name else "td"
    aligned = opening.attrs.pop("style", "")
    opening.attrs |= {"class": "right"} if aligned == "text-align:right" else {}
    opening.attrs |= {"scope": "col" if in_head else "row"} if is_name else {}


def _free_images(tokens: "Tokens") -> None:
    """A plot stands for itself, in no paragraph."""
    for opening, inline, closing in zip(tokens, tokens[1:], tokens[2:], strict=False):
        children = inline.children or []
        if opening.type == "paragraph_open" and [one.type for one in children] == ["image"]:
            opening.hidden = closing.hidden = True
