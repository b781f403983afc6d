"""``edgeprof run``: a recipe in, a session file and its summary out."""

import math
import signal
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edgeprof.cli.output import print_json, talk
from edgeprof.errors import PartialResult

if TYPE_CHECKING:
    from edgeprof.recipe import Recipe
    from edgeprof.session.records import Leg, Session

_SOURCES = ("sysfs", "tegrastats", "jtop", "host")


class _Real(click.FloatRange):
    """A number within a range; click lets one through that is no number, for it is below nothing
    and above nothing."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


@click.command()
@click.argument("recipe", metavar="RECIPE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="SESSION",
    help="The session file to write; default ./RECIPE-UTC.sqlite.",
)  # fmt: skip
@click.option(
    "-k", "--draft-tokens", type=click.IntRange(0, 64),
    help="Draft length of all variants with a drafter; 0 leaves them out.",
)  # fmt: skip
@click.option(
    "-n", "--new-tokens", type=click.IntRange(1, 1_000_000), help="Longest answer, in tokens."
)
@click.option(
    "-r", "--repeats", type=click.IntRange(1, 1000), help="How often every variant is run."
)
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the targets.")
@click.option(
    "--temperature", type=_Real(0, 100),
    help="Draw tokens at this temperature; 0 takes the most probable one.",
)  # fmt: skip
@click.option(
    "--top-k", type=click.IntRange(0, 1_000_000),
    help="Draw from this many most probable tokens; 0 is off.",
)  # fmt: skip
@click.option(
    "--top-p", type=_Real(0, 1, min_open=True),
    help="Draw from the fewest tokens that hold this share of the probability; 1 is off.",
)  # fmt: skip
@click.option(
    "--min-p", type=_Real(0, 1, max_open=True),
    help="Draw from tokens with this share of the most probable one's probability; 0 is off.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0, (1 << 32) - 1), help="Fixes what is left to chance.")
@click.option(
    "--prompt", "prompts", multiple=True, metavar="TEXT",
    help="A prompt of your own instead of the recipe's; may be given again.",
)  # fmt: skip
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME",
    help="Run only this variant, named as in reports; may be given again.",
)  # fmt: skip
@click.option(
    "--source", "sources", multiple=True, metavar="NAME",
    type=click.Choice(_SOURCES, case_sensitive=False),
    help="Take all that this source tells of the board: " + ", ".join(_SOURCES) + "; may be given"
    " again. Default: per signal the first that works.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace the session that is there.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON document.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
def command(
    recipe: str,
    output: Path | None,
    sources: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    **changes: Any,
) -> None:
    """Run RECIPE, by name or path, on this machine; record a session and sum it up.

    Models that are not there are fetched and converted first, after saying so. Ctrl-C ends the run
    and keeps what was measured (exit code 130).
    """
    from edgeprof.catalog import find_recipe
    from edgeprof.cli.prepare import prepare
    from edgeprof.profiling.recorder import record
    from edgeprof.profiling.selection import select
    from edgeprof.recipe import Sampling, read_recipe
    from edgeprof.session.store import check_output

    path = find_recipe(recipe)
    chosen = select(read_recipe(path), **changes)
    if changes["draft_tokens"] == 0:
        talk("draft length 0: plain decoding only")
    if chosen.sampling.greedy and chosen.sampling != Sampling():
        talk("temperature 0: greedy; top-k, top-p and min-p change nothing")
    output = output or _default_output(chosen)
    check_output(output, force=force)
    folders = prepare(chosen, path.parent, talk=talk)
    progress = _progress(quiet)
    try:
        session = record(
            chosen,
            folders,
            output,
            progress=progress,
            sources=list(sources) or None,
            force=force,
        )
    finally:
        progress.finish()
    _show(session, as_json)
    talk(f"session: {output}")
    _leave(session)


def _show(session: "Session", as_json: bool) -> None:
    from edgeprof.analysis.summary import summarise
    from edgeprof.report.table import terminal_width
    from edgeprof.report.text import session_text

    summary = summarise(session)
    if as_json:
        print_json(summary)
    else:
        click.echo(session_text(summary, terminal_width()))


def _leave(session: "Session") -> None:
    """The exit code says how the run ended."""
    from edgeprof.profiling.recorder import INTERRUPTED

    if session.info.ended_reason == INTERRUPTED:
        talk("interrupted; what was measured is kept")
        raise click.exceptions.Exit(128 + signal.SIGINT)
    if not session.info.complete:
        raise PartialResult(
            f"the run ended early: {session.info.ended_reason}; what was measured is kept"
        )


def _default_output(recipe: "Recipe") -> Path:
    return Path(f"{recipe.name}-{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}.sqlite")


def _progress(quiet: bool) -> "_Silence":
    if quiet:
        return _Silence()
    return _Bar() if sys.stderr.isatty() else _Lines()


class _Silence:
    """No progress at all."""

    def plan(self, legs: int) -> None: ...

    def leg(self, leg: "Leg") -> None: ...

    def finish(self) -> None: ...


class _Lines(_Silence):
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


class _Bar(_Silence):
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
