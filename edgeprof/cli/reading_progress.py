"""Shows on stderr how far the reading of a long file is: a bar on a terminal, else a line every few
seconds. Nothing where it is soon done.
"""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from edgeprof.cli.output import talk

_PATIENCE_S = 2.0
_LINE_EVERY_S = 5.0


class ReadingProgress:
    """Told of the characters and lines that were read; ``total`` is the size of the file in bytes,
    None where it is not known."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._due_s = time.monotonic() + _PATIENCE_S
        self._bar: Any = None
        self._done = 0  # characters that the bar shows
        self._open = ExitStack()

    def __call__(self, characters: int, lines: int) -> None:
        if time.monotonic() < self._due_s:
            return
        if self._total and sys.stderr.isatty():
            self._draw(characters)
            return
        share = f" ({min(characters / self._total, 1):.0%} of the file)" if self._total else ""
        talk(f"{lines} lines read{share}")
        self._due_s = time.monotonic() + _LINE_EVERY_S

    def _draw(self, characters: int) -> None:
        if self._bar is None:
            self._bar = self._open.enter_context(
                click.progressbar(length=self._total, label="reading", file=sys.stderr)
            )
        self._bar.update(characters - self._done)
        self._done = characters

    def close(self) -> None:
        self._open.close()


@contextmanager
def reading_progress(total: int | None, *, quiet: bool) -> Iterator[ReadingProgress | None]:
    """None where nothing is to be shown."""
    progress = None if quiet else ReadingProgress(total)
    try:
        yield progress
    finally:
        if progress is not None:
            progress.close()
