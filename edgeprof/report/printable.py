"""Text from a session or file as a terminal or a page may show it: nothing in it steers either."""

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """``text`` with control characters, those of escape sequences included, as U+FFFD.

    Tabs and ends of lines stay.
    """
    return _CONTROLS.sub("\ufffd", text)
