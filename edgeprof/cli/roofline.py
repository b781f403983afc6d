"""``edgeprof roofline``: how fast a model can go on a board, on paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from edgeprof.analysis.outlook import Outlook, outlook
from edgeprof.catalog import find_device, find_kv_type, find_model
from edgeprof.errors import UsageFault
from edgeprof.report.roofline import document, set_document, text
from edgeprof.report.table import terminal_width

_DATA_TYPES = ("fp16", "bf16", "fp32", "int8", "int4", "fp8", "fp4")
_MOST_TOKENS = 10_000_000


@click.command()
@click.option("--device", "devices", multiple=True, required=True, metavar="D[@MODE]",
              help="Board by name or profile; several by comma or by repeating.")  # fmt: skip
@click.option("--mode", "modes", metavar="MODE", help="Power mode by name; several by comma.")
@click.option("--model", required=True, metavar="NAME[:FORMAT]", help="Model, such as 7b-q4.")
@click.option("--draft", metavar="NAME[:FORMAT]", help="Draft model, for its pass and the fit.")
@click.option("--context", "contexts", multiple=True, default=("0",), metavar="C",
              help="Tokens cached before the pass; several by comma or by repeating.")  # fmt: skip
@click.option("--tokens", type=click.IntRange(1, _MOST_TOKENS), metavar="T",
              help="Add a pass over T positions.")  # fmt: skip
@click.option("-k", "--draft-tokens", "draft_length", type=click.IntRange(1, 1024), default=4,
              show_default=True, metavar="K",
              help="Draft length; verifying takes K + 1 positions.")  # fmt: skip
@click.option(
    "--kv", default="f16", show_default=True, metavar="TYPE", help="Type of the KV cache."
)
@click.option("--compute", type=click.Choice(_DATA_TYPES, case_sensitive=False), default="fp16",
              show_default=True, help="Data type of the arithmetic.")  # fmt: skip
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE",
              help="Draw the roofline too: .svg, .png or .pdf.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite an existing plot.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    devices: tuple[str, ...],
    modes: str | None,
    model: str,
    draft: str | None,
    contexts: tuple[str, ...],
    tokens: int | None,
    draft_length: int,
    kv: str,
    compute: str,
    plot: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """Say how fast a model can go on a board, and why.

    Exits with 1, the output still complete, when it does not fit in memory.
    """
    target, target_name = find_model(model)
    draft_spec, draft_name = find_model(draft) if draft else (None, None)
    results = [
        outlook(
            device=find_device(device, mode),
            model=target,
            draft=draft_spec,
            kv=find_kv_type(kv),
            data_type=compute,
            contexts=_counts(contexts, "--context"),
            draft_length=draft_length,
            tokens=tokens,
        )
        for device in _split(devices)
        for mode in (_split((modes,)) if modes else [None])
    ]
    if plot is not None:
        _draw(results, plot, force)
    if as_json:
        content = document(results[0]) if len(results) == 1 else set_document(results)
        click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))
    else:
        names = [target_name] + ([draft_name] if draft_name else [])
        click.echo("\n\n\n".join(text(result, names, terminal_width()) for result in results))
    if not all(result.fit.fits for result in results):
        raise click.exceptions.Exit(1)


def _draw(results: Sequence[Outlook], path: Path, force: bool) -> None:
    from edgeprof.report.figures import outlook_figure, save_figure  # loads matplotlib

    save_figure(outlook_figure(results), path, force=force)
    click.echo(f"plot written to {path}", err=True)


def _counts(texts: Sequence[str], option: str) -> list[int]:
    """Numbers of tokens from comma lists, each one once."""
    counts = []
    for item in _split(texts):
        if not item.isascii() or not item.isdigit() or int(item) > _MOST_TOKENS:
            raise UsageFault(f"{option} takes whole numbers from 0 to {_MOST_TOKENS}, got '{item}'")
        counts.append(int(item))
    return list(dict.fromkeys(counts))


def _split(texts: Sequence[str]) -> list[str]:
    items = list(_items(texts))
    if not items:
        raise UsageFault("an option was given an empty list")
    return items


def _items(texts: Sequence[str]) -> Iterator[str]:
    for text_ in texts:
        yield from (item.strip() for item in text_.split(",") if item.strip())
