"""What the commands that record share: options, progress, the summary and the exit code."""

import math
import signal
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edgeprof.cli.output import print_json, talk
from edgeprof.cli.streaming import Silence
from edgeprof.errors import PartialResult

if TYPE_CHECKING:
    from edgeprof.session.records import Leg, Session

Command = TypeVar("Command", bound=Callable[..., Any])

_SOURCES = ("sysfs", "tegrastats", "jtop", "host")
_OPTIONS = (
    click.option(
        "--source", "sources", multiple=True, metavar="NAME",
        type=click.Choice(_SOURCES, case_sensitive=False),
        help="Take all that this source tells of the board: " + ", ".join(_SOURCES) + "; may be"
        " given again. Default: per signal the first that works.",
    ),
    click.option("--force", is_flag=True, help="Replace the session that is there."),
    click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON document."),
    click.option("-q", "--quiet", is_flag=True, help="No progress."),
)  # fmt: skip


class Real(click.FloatRange):
    """A number within a range; click lets one through that is no number, for it is below nothing
    and above nothing."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def recording_options(command: Command) -> Command:
    """Which sources of the board are read, and what is written and shown."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def show(session: "Session", as_json: bool) -> None:
    """Print what a session measured."""
    from edgeprof.analysis.summary import summarise
    from edgeprof.report.table import terminal_width
    from edgeprof.report.text import session_text

    summary = summarise(session)
    if as_json:
        print_json(summary)
    else:
        click.echo(session_text(summary, terminal_width()))


def leave(session: "Session") -> None:
    """The exit code says how the run ended."""
    from edgeprof.profiling.recorder import INTERRUPTED

    if session.info.ended_reason == INTERRUPTED:
        talk("interrupted; what was measured is kept")
        raise click.exceptions.Exit(128 + signal.SIGINT)
    if not session.info.complete:
        raise PartialResult(
            f"the run ended early: {session.info.ended_reason}; what was measured is kept"
        )


def default_output(name: str) -> Path:
    """A file in the current folder that bears the time."""
    return Path(f"{name}-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}.sqlite")


def progress_of(quiet: bool) -> Silence:
    """A bar on a terminal, lines in a log, or nothing."""
    if quiet:
        return Silence()
    return _Bar() if sys.stderr.isatty() else _Lines()


class _Lines(Silence):
    """One line a stage, for logs; a repeat of all answers is one stage."""

    def __init__(self) -> None:
        self._stage = ""
        self._seconds = 0.0

    def leg(self, leg: "Leg") -> None:
        if leg.t1_ns is None:
            return
        stage = leg.name
        if leg.kind == "decode":
            stage = "warm-up" if leg.warmup else f"repeat {leg.repeat}"
        if stage != self._stage:
            self.finish()
        self._stage = stage
        self._seconds += (leg.t1_ns - leg.t0_ns) / 1e9

    def finish(self) -> None:
        if self._stage:
            talk(f"{self._stage}: {self._seconds:.1f} s")
        self._stage, self._seconds = "", 0.0


class _Bar(Silence):
    """A bar over the legs with the name of the one in hand, for terminals."""

    def plan(self, legs: int) -> None:
        self._bar: Any = click.progressbar(
            length=legs,
            file=sys.stderr,
            item_show_func=lambda name: name,
            show_pos=True,
        )
        self._bar.__enter__()

    def leg(self, leg: "Leg") -> None:
        self._bar.current_item = leg.name
        if leg.kind != "ceiling" and leg.status != "running":
            self._bar.update(1)
        self._bar.render_progress()

    def finish(self) -> None:
        if hasattr(self, "_bar"):
            self._bar.__exit__(None, None, None)
