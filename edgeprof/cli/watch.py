"""``edgeprof watch``: a live view of the board, or a session of any command that runs on it."""

import math
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from edgeprof.cli.output import talk
from edgeprof.errors import UsageFault

if TYPE_CHECKING:
    from edgeprof.profiling.watching import Watch
    from edgeprof.report.live import Frame, Live
    from edgeprof.session.records import Event, Sample, Signal

Form = Literal["block", "lines", "json"]

_SOURCES = ("sysfs", "tegrastats", "jtop", "host", "replay")
_LINE_EVERY_S = 1.0
_FIRST_WORD_S = 3.0  # so long may the sampler take to start


def _seconds(ctx: click.Context, option: click.Parameter, value: float | None) -> float | None:
    """A range lets NaN through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("not a number of seconds")
    return value


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, metavar="[-- CMD ...]", type=click.UNPROCESSED)
@click.option("--interval", "interval_s", type=click.FloatRange(0.01, 3600), callback=_seconds,
              metavar="SECONDS", help="Between two readings and two lines; default: each source at"
              " its own rate, a line a second.")  # fmt: skip
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="SESSION",
              help="Keep a session; default with CMD ./watch-UTC.sqlite, else none.")  # fmt: skip
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
              metavar="DIR", default=Path("/"), help="Read the board's files below DIR; all that is"
              " read there is marked simulated.")  # fmt: skip
@click.option("--device", metavar="D[@M]", help="The board and its mode, if not detected.")
@click.option("--source", "sources", multiple=True, metavar="NAME",
              type=click.Choice(_SOURCES, case_sensitive=False),
              help="Take all that this source gives: " + ", ".join(_SOURCES) + "; may be given"
              " again. Default: per signal the first that works.")  # fmt: skip
@click.option("--replay", type=click.Path(path_type=Path, exists=True, dir_okay=False),
              metavar="FILE", help="Take a recorded log or session for the board.")  # fmt: skip
@click.option("--for", "seconds", type=click.FloatRange(0, 1e9, min_open=True), callback=_seconds,
              metavar="SECONDS", help="Without CMD: end after so long.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the session that is there.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
@click.option("-q", "--quiet", is_flag=True, help="Show nothing; with CMD say nothing.")
def command(
    command: tuple[str, ...],
    interval_s: float | None,
    output: Path | None,
    root: Path,
    device: str | None,
    sources: tuple[str, ...],
    replay: Path | None,
    seconds: float | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show what the board does, or record it while CMD runs.

    With CMD stdout and exit code are CMD's (128 + n after signal n); Ctrl-C reaches it, SIGTERM is
    passed on. It can announce its phases: edgeprof.mark("verify"), or a datagram to the socket in
    $EDGEPROF_MARKS. A CMD that cannot be started is exit code 3. Without CMD: a live view until
    Ctrl-C (130; what was measured is kept) or for some seconds (0).
    """
    from edgeprof.profiling.watching import Watch
    from edgeprof.telemetry.sources.replay import find_recording

    if "replay" in sources and replay is None:
        raise UsageFault("--source replay needs the recording: --replay FILE")
    if replay is not None and not sources:
        sources = ("replay",)
    if command and output is None:
        output = Path(f"watch-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}.sqlite")
    watch = Watch(
        root=root,
        device=device,
        sources=list(sources) or None,
        interval_s=interval_s,
        replay=None if replay is None else find_recording(replay, interval_s),
        output=output,
        force=force,
    )
    if command:
        if as_json or seconds is not None:
            option = "--json" if as_json else "--for"
            raise UsageFault(f"{option} is for watching without a command, whose stdout and end are"
                             " its own; `edgeprof report SESSION --json` sums it up")  # fmt: skip
        _watch_command(watch, command, quiet)
    else:
        _watch_board(watch, seconds, as_json, quiet)


def _watch_command(watch: "Watch", command: Sequence[str], quiet: bool) -> None:
    from edgeprof.profiling.watching import watch_command

    say = _hush if quiet else _say
    view = _Unseen() if quiet or watch.interval_s is None else _printer(watch, "lines", err=True)
    code = watch_command(watch, command, view=view, talk=say)
    _name_session(watch, say)
    raise click.exceptions.Exit(code)


def _watch_board(watch: "Watch", seconds: float | None, as_json: bool, quiet: bool) -> None:
    from edgeprof.profiling.watching import watch_board

    form: Form = "json" if as_json else "block" if _steerable() else "lines"
    view = _Unseen() if quiet else _printer(watch, form)
    stopped = watch_board(watch, view, seconds=seconds)
    view.finish()
    _name_session(watch, _say)
    if stopped:
        raise click.exceptions.Exit(128 + signal.SIGINT)


def _name_session(watch: "Watch", say: Callable[[str], None]) -> None:
    """Unless there is none, or none any more."""
    if watch.output is not None and watch.output.exists():
        say(f"session: {watch.output}")


def _steerable() -> bool:
    """Whether stdout is a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")


def _say(line: str) -> None:
    with suppress(OSError):  # where stderr is gone, the command is still in our charge
        talk(line)


def _hush(line: str) -> None:
    """Quiet was asked for."""


def _printer(watch: "Watch", form: Form, *, err: bool = False) -> "_Printer":
    from edgeprof.profiling.watching import describe_board
    from edgeprof.report.live import Live

    live = Live(describe_board(watch), time.monotonic_ns())
    return _Printer(live, form, watch.interval_s or _LINE_EVERY_S, err=err)


class _Unseen:
    """No view at all."""

    def take(self, record: "Signal | Sample | Event") -> None: ...

    def show(self, now_ns: int) -> None: ...

    def finish(self) -> None: ...


class _Printer(_Unseen):
    """Prints a frame every interval: a block in place, lines, or documents."""

    def __init__(self, live: "Live", form: Form, interval_s: float, *, err: bool) -> None:
        self._live = live
        self._form = form
        self._interval_s = interval_s
        self._err = err
        self._start_ns = time.monotonic_ns()
        self._frames = 0
        self._due_ns = self._start_ns + round(interval_s * 1e9)
        self._told: set[str] = set()
        self._height = 0

    def take(self, record: "Signal | Sample | Event") -> None:
        self._live.take(record)

    def show(self, now_ns: int) -> None:
        """A frame, if it is time; the first not before there is something in it."""
        waiting = not self._live.started and now_ns - self._start_ns < _FIRST_WORD_S * 1e9
        if now_ns < self._due_ns or waiting:
            return
        missed = (now_ns - self._due_ns) // round(self._interval_s * 1e9)
        self._due_ns += (missed + 1) * round(self._interval_s * 1e9)
        self._print(now_ns)

    def finish(self) -> None:
        """At least one frame, however short the time."""
        if not self._frames:
            self._print(time.monotonic_ns())

    def _print(self, now_ns: int) -> None:
        from edgeprof.report.live import live_document, live_line, reasons_now

        frame = self._live.frame(now_ns, self._interval_s)
        self._frames += 1
        if self._form == "json":
            import msgspec

            self._put(msgspec.json.encode(live_document(frame)).decode())
        elif self._form == "lines":
            for reason in reasons_now(frame):
                if reason not in self._told:
                    self._told.add(reason)
                    _say(reason)
            self._put(live_line(frame))
        else:
            self._redraw(frame)

    def _redraw(self, frame: "Frame") -> None:
        """The block over the one before; never taller than the terminal, which would scroll."""
        import shutil

        from edgeprof.report.live import live_block

        size = shutil.get_terminal_size()
        lines = live_block(frame, size.columns - 1)[: max(size.lines - 1, 1)]
        back = f"\x1b[{self._height}A\r\x1b[J" if self._height else ""
        self._height = len(lines)
        self._put(back + "\n".join(lines))

    def _put(self, text: str) -> None:
        if self._err:
            with suppress(OSError):
                click.echo(text, err=True)
        else:
            click.echo(text)
