"""``edgeprof run``: a recipe in, a session file and its summary out."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from edgeprof.cli.streaming import Streaming
from edgeprof.cli.sweep import draft_lengths, sweep

if TYPE_CHECKING:
    from edgeprof.recipe import Prompt, Recipe, SyntheticTest


@click.command()
@click.argument("recipe", metavar="RECIPE")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="SESSION",
    help="The session file to write; default ./RECIPE-UTC.sqlite.",
)  # fmt: skip
@click.option(
    "-k", "--draft-tokens", type=draft_lengths, metavar="K",
    help="Draft length of all variants with a drafter; 0 leaves them out, lists and ranges (1-16)"
    " find the best.",
)  # fmt: skip
@click.option(
    "--adaptive", is_flag=True,
    help="Draft as many of those tokens as pay, in each round anew, or none.",
)  # fmt: skip
@click.option(
    "--draft-context", type=click.IntRange(1, 1_000_000), metavar="N",
    help="A draft model drafts until the text has N tokens; lookup copies from the last N only.",
)  # fmt: skip
@click.option(
    "--draft-confidence", type=Real(0, 1), metavar="P",
    help="Draft no token in which the drafter has less confidence than this; 0 is off.",
)  # fmt: skip
@click.option(
    "-p", "--prompt-tokens", type=sweep, metavar="N",
    help="Synthetic tests instead of prompts, as in llama-bench: take in N random tokens.",
)  # fmt: skip
@click.option(
    "-n", "--new-tokens", type=sweep, metavar="N",
    help="Longest answer, in tokens; with -p or -d, and of several, synthetic tests that feed N"
    " random tokens one by one.",
)  # fmt: skip
@click.option(
    "-d", "--depth", "depth_tokens", type=sweep, metavar="N",
    help="Do the synthetic tests after N cached tokens. -p, -n and -d take lists (0,512) and ranges"
    " (1-4, 512-4096*2, 0-1024+256).",
)  # fmt: skip
@click.option(
    "-r", "--repeats", type=click.IntRange(1, 1000), help="How often every variant is run."
)
@click.option("--threads", type=click.IntRange(1, 1024), help="Threads of the targets.")
@click.option(
    "--prefill-tokens", type=click.IntRange(1, 1_000_000), metavar="N",
    help="Take prompts in by passes of at most N tokens.",
)  # fmt: skip
@click.option(
    "--temperature", type=Real(0, 100),
    help="Draw tokens at this temperature; 0 takes the most probable one.",
)  # fmt: skip
@click.option(
    "--top-k", type=click.IntRange(0, 1_000_000),
    help="Draw from this many most probable tokens; 0 is off.",
)  # fmt: skip
@click.option(
    "--top-p", type=Real(0, 1, min_open=True),
    help="Draw from the fewest tokens that hold this share of the probability; 1 is off.",
)  # fmt: skip
@click.option(
    "--min-p", type=Real(0, 1, max_open=True),
    help="Draw from tokens with this share of the most probable one's probability; 0 is off.",
)  # fmt: skip
@click.option("--seed", type=click.IntRange(0, (1 << 32) - 1), help="Fixes what is left to chance.")
@click.option(
    "--prompt", "texts", multiple=True, metavar="TEXT",
    help="A prompt of your own instead of the recipe's; may be given again.",
)  # fmt: skip
@click.option(
    "--prompt-file", "files", multiple=True, metavar="PATH", type=click.Path(path_type=Path),
    help="A prompt from a text file; may be given again.",
)  # fmt: skip
@click.option(
    "--prompt-ids", "ids", multiple=True, metavar="IDS",
    help="A prompt as token ids: 1,15,0; may be given again.",
)  # fmt: skip
@click.option(
    "--chat", is_flag=True,
    help="Put prompts into the chat template that came with the model.",
)  # fmt: skip
@click.option("--stream", is_flag=True, help="Show answers on stderr as they come.")
@click.option(
    "--variant", "variants", multiple=True, metavar="NAME",
    help="Run only this variant, named as in reports; may be given again.",
)  # fmt: skip
@recording_options
def command(
    recipe: str,
    output: Path | None,
    sources: tuple[str, ...],
    force: bool,
    as_json: bool,
    quiet: bool,
    stream: bool,
    **asked: Any,
) -> None:
    """Run RECIPE, by name or path, on this machine; record a session and sum it up.

    Models that are not there are fetched and converted first, after saying so. Ctrl-C ends the run
    and keeps what was measured (exit code 130).
    """
    from edgeprof.catalog import find_recipe
    from edgeprof.cli.prepare import prepare
    from edgeprof.profiling.recorder import record
    from edgeprof.session.store import check_output

    path = find_recipe(recipe)
    chosen = _chosen(path, asked)
    output = output or default_output(chosen.name)
    check_output(output, force=force)
    folders = prepare(chosen, path.parent, talk=talk)
    streaming = Streaming(folders) if stream else None
    progress = streaming or progress_of(quiet)
    try:
        session = record(
            chosen,
            folders,
            output,
            progress=progress,
            sources=list(sources) or None,
            force=force,
            on_token=None if streaming is None else streaming.token,
        )
    finally:
        progress.finish()
    show(session, as_json)
    talk(f"session: {output}")
    leave(session)


def _chosen(path: Path, asked: dict[str, Any]) -> "Recipe":
    """The recipe with what the options ask for; what they leave without effect is said."""
    from edgeprof.profiling.prompts import with_prompt_files_read
    from edgeprof.profiling.selection import select
    from edgeprof.recipe import Sampling, read_recipe

    prompts, tests = _prompts(asked), _tests(asked)
    asked["draft_tokens"] = asked["draft_tokens"] or ()
    longest = asked.pop("new_tokens")
    recipe = read_recipe(path)
    chosen = select(
        recipe if prompts or tests else with_prompt_files_read(recipe, path.parent),
        prompts=prompts,
        tests=tests,
        new_tokens=longest[0] if longest and not tests else None,
        **asked,
    )
    if asked["draft_tokens"] == (0,):
        talk("draft length 0: plain decoding only")
    of_drafts = ("draft_tokens", "adaptive", "draft_context", "draft_confidence")
    given = ["--" + n.replace("_", "-") for n in of_drafts if asked[n] not in (None, 0, (), (0,))]
    if given and not chosen.drafters:
        talk(f"no variant drafts; what {', '.join(given)} says changes nothing")
    if chosen.sampling.greedy and chosen.sampling != Sampling():
        talk("temperature 0: greedy; top-k, top-p and min-p change nothing")
    return chosen


def _prompts(asked: dict[str, Any]) -> "list[Prompt]":
    """The prompts that the options give: texts, then files, then ids."""
    from edgeprof.profiling.prompts import ids_prompt, read_prompt, text_prompt

    texts = [*asked.pop("texts"), *map(read_prompt, asked.pop("files"))]
    return [*map(text_prompt, texts), *map(ids_prompt, asked.pop("ids"))]


def _tests(asked: dict[str, Any]) -> "list[SyntheticTest]":
    """The synthetic tests that the options give; one ``-n`` alone is the length of answers."""
    from edgeprof.profiling.selection import synthetic_tests

    prompt_tokens = asked.pop("prompt_tokens") or ()
    depth_tokens = asked.pop("depth_tokens") or ()
    new_tokens = asked["new_tokens"] or ()
    if not prompt_tokens and not depth_tokens and len(new_tokens) < 2:
        return []
    return synthetic_tests(prompt_tokens, new_tokens, depth_tokens)
