"""Text from a session or file as a terminal or a page may show it: nothing in it steers either."""

import re
from html import escape

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

_STEERING = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def printable(text: str) -> str:
    """``text`` with control characters, those of escape sequences included, as U+FFFD.

    Tabs and ends of lines stay.
    """
    return _CONTROLS.sub("\ufffd", text)


def named(text: str) -> str:
    """As ``printable``, for a page that knows all scripts: characters that turn the direction of
    writing, or that nobody sees, show as their code points. Those that join letters stay."""
    return _STEERING.sub(lambda found: f"{{U+{ord(found[0]):04X}}}", printable(text))


def as_html(text: str) -> str:
    """Text as HTML: nothing in it is a tag, and nothing in it steers the reader's eye."""
    return escape(named(text))
