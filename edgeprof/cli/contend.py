"""``edgeprof contend``: a target beside antagonists in, a session and what it cost out."""

from pathlib import Path

import click

from edgeprof.cli.output import talk
from edgeprof.cli.recording import (
    Real,
    default_output,
    leave,
    progress_of,
    recording_options,
    show,
)


def _duration(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """As a recipe has it."""
    import msgspec

    from edgeprof.recipe import Sustained

    try:
        msgspec.convert({"duration": value or "1h"}, Sustained)
    except msgspec.ValidationError as error:
        raise click.BadParameter(f"{value}: {error}", ctx, param) from error
    return value


@click.command()
@click.argument("recipe", metavar="RECIPE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="SESSION",
    help="The session file to write; default ./RECIPE-contend-UTC.sqlite.",
)  # fmt: skip
@click.option("--target", metavar="NAME", help="The target of the recipe that decodes.")
@click.option(
    "--antagonist", "antagonists", multiple=True, metavar="NAME",
    help="read, copy, spin, or a model drafter of the recipe; may be given again. Default: all.",
)  # fmt: skip
@click.option(
    "--dose", "doses", multiple=True, metavar="PERCENT",
    type=Real(0, 100, min_open=True),
    help="A part of an antagonist's own rate; may be given again. Default: 25, 50, 75 and 100.",
)  # fmt: skip
@click.option("-r", "--repeats", type=click.IntRange(1, 100), help="How often every leg is run.")
@click.option(
    "--seconds", "leg_s", type=Real(0.2, 600), help="How long a leg lasts; default 3.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that stream or spin.")
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the target.")
@click.option(
    "--target-core", "target_cores", multiple=True, type=click.IntRange(0, 4095), metavar="N",
    help="Keep the target to this core; may be given again.",
)  # fmt: skip
@click.option(
    "--antagonist-core", "antagonist_cores", multiple=True, type=click.IntRange(0, 4095),
    metavar="N", help="Keep the antagonists to this core; may be given again.",
)  # fmt: skip
@click.option(
    "--duration", metavar="TIME", callback=_duration,
    help="Let the target decode alone for so long at the end: 90s, 15m, 1h.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0, (1 << 32) - 1), help="Fixes the order of the legs.")
@recording_options
def command(
    recipe: str,
    output: Path | None,
    target: str | None,
    antagonists: tuple[str, ...],
    doses: tuple[float, ...],
    duration: str | None,
    seed: int | None,
    threads: int | None,
    sources: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    **asked: object,
) -> None:
    """Let a target of RECIPE decode beside antagonists, and show what they cost each other.

    A streaming read, a copy, the recipe's draft and a spinner that only computes each run beside
    the target at several parts of their own rate. What the spinner costs is the price of sharing
    cores; what is left is the memory bus. Ctrl-C keeps what was measured (exit code 130).
    """
    from edgeprof.catalog import find_recipe
    from edgeprof.cli.prepare import prepare
    from edgeprof.profiling.contention_plan import adjusted, contention_recipe, contention_seconds
    from edgeprof.profiling.recorder import record_contention
    from edgeprof.recipe import read_recipe
    from edgeprof.session.store import check_output

    path = find_recipe(recipe)
    changed = adjusted(
        read_recipe(path),
        duration=duration,
        seed=seed,
        threads=threads,
        target=target,
        antagonists=list(dict.fromkeys(antagonists)) or None,
        doses=[dose / 100 for dose in dict.fromkeys(doses)] or None,
        **{key: list(dict.fromkeys(v)) if isinstance(v, tuple) else v for key, v in asked.items()},
    )
    chosen = contention_recipe(changed)
    output = output or default_output(f"{chosen.name}-contend")
    check_output(output, force=force)
    folders = prepare(chosen, path.parent, talk=talk)
    talk(f"legs of {contention_seconds(chosen) / 60:.1f} minutes in all; seed {chosen.seed}")
    progress = progress_of(quiet)
    try:
        session = record_contention(
            chosen, folders, output, progress=progress, sources=list(sources) or None, force=force
        )
    finally:
        progress.finish()
    show(session, as_json)
    talk(f"session: {output}")
    leave(session)
