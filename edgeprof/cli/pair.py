"""``edgeprof pair``: may this draft serve that target?"""

from pathlib import Path

import click

from edgeprof.analysis.memory import fit
from edgeprof.catalog import find_kv_type, find_machine, find_model, is_model_name
from edgeprof.cli.output import print_json, warn
from edgeprof.models.pairing import Holder, judge_pair
from edgeprof.models.vocabulary import find_vocabulary
from edgeprof.report.pair import PairAnswer, document, text
from edgeprof.report.table import terminal_width


@click.command()
@click.argument("target")
@click.argument("draft")
@click.option("--device", metavar="D[@MODE]", help="Board whose memory the pair must fit in.")
@click.option("--context", "context_tokens", type=click.IntRange(0, 10_000_000), default=0,
              show_default=True, metavar="N", help="Tokens that the pair must hold.")  # fmt: skip
@click.option("--kv", default="f16", show_default=True, metavar="TYPE",
              help="Type of both KV caches.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    target: str, draft: str, device: str | None, context_tokens: int, kv: str, as_json: bool
) -> None:
    """Say whether DRAFT may draft for TARGET, both by name or path, and what the pair costs.

    Exits with 1, the output still complete, when it may not.
    """
    ours, theirs = _holder(target), _holder(draft)
    cache = find_kv_type(kv)
    board = None if device is None else find_machine(device)
    answer = PairAnswer(
        target=ours,
        draft=theirs,
        pairing=judge_pair(ours, theirs, context_tokens),
        kv=cache,
        context_tokens=context_tokens,
        device=None if board is None else board.profile.name,
        fit=None
        if board is None
        else fit(
            target=ours.spec,
            draft=theirs.spec,
            kv=cache,
            tokens=context_tokens,
            dram_bytes=board.profile.visible_dram_bytes,
        ),
    )
    warn((*ours.spec.warnings, *theirs.spec.warnings))
    if as_json:
        print_json(document(answer))
    else:
        click.echo(text(answer, terminal_width()))
    if not answer.yes:
        raise click.exceptions.Exit(1)


def _holder(name: str) -> Holder:
    spec, _ = find_model(name)
    return Holder(
        spec=spec, vocabulary=None if is_model_name(name) else find_vocabulary(Path(name))
    )
