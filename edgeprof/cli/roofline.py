"""``edgeprof roofline``: how fast a model can go on a board, on paper."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import click

from edgeprof.analysis.observation import Observation
from edgeprof.analysis.outlook import Outline, Outlook, outline, outlook
from edgeprof.catalog import (
    find_board,
    find_engine,
    find_kv_type,
    find_machine,
    find_model,
    is_measured,
)
from edgeprof.cli.output import talk, warn
from edgeprof.cli.paper import (
    MOST_TOKENS,
    Form,
    chosen_form,
    counts,
    number,
    output_options,
    put,
    save,
    split,
)
from edgeprof.errors import EdgeprofError
from edgeprof.hardware.profile import AnnouncedBoard, DataType
from edgeprof.models.names import ModelName
from edgeprof.report.announced import no_roofline
from edgeprof.report.paper import OutlookKind, outlook_figure
from edgeprof.report.roofline import document, roofline_rows, roofline_sections, set_document
from edgeprof.report.sections import Section

_DATA_TYPES = get_args(DataType)
_ALL = "all"


@click.command()
@click.option("--device", "devices", multiple=True, required=True, metavar="D[@MODE]",
              help="Board by name or profile; several by comma or by repeating.")  # fmt: skip
@click.option("--mode", "modes", multiple=True, metavar="MODE",
              help="Power mode by name; several by comma or by repeating; all.")  # fmt: skip
@click.option("--model", required=True, metavar="NAME[:FORMAT]|PATH", help="Model, such as 7b-q4.")
@click.option(
    "--draft", metavar="NAME[:FORMAT]|PATH", help="Draft model, for its pass and the fit."
)
@click.option("--context", "contexts", multiple=True, default=("0",), metavar="C",
              help="Tokens cached before the pass; several by comma or by repeating.")  # fmt: skip
@click.option("--tokens", type=click.IntRange(1, MOST_TOKENS), metavar="T",
              help="Add a pass over T positions.")  # fmt: skip
@click.option("-k", "--draft-tokens", "draft_length", type=click.IntRange(1, 1024), default=4,
              show_default=True, metavar="K",
              help="Draft length; verifying takes K + 1 positions.")  # fmt: skip
@click.option(
    "--kv", default="f16", show_default=True, metavar="TYPE", help="Type of the KV cache."
)
@click.option("--compute", type=click.Choice(_DATA_TYPES, case_sensitive=False), default="fp16",
              show_default=True, help="Data type of the arithmetic.")  # fmt: skip
@click.option("--engine", metavar="NAME", help="Engine that will run it, such as llama.cpp.")
@click.option("--measured", multiple=True, metavar="[NAME=]RATE",
              help="Tokens/s measured decoding at the first depth, to hold beside.")  # fmt: skip
@click.option("--explain", "with_sums", is_flag=True, help="Print the sum behind each figure.")
@output_options(get_args(OutlookKind), default="roofline")
def command(
    devices: tuple[str, ...],
    modes: tuple[str, ...],
    model: str,
    draft: str | None,
    contexts: tuple[str, ...],
    tokens: int | None,
    draft_length: int,
    kv: str,
    compute: str,
    engine: str | None,
    measured: tuple[str, ...],
    with_sums: bool,
    plot: Path | None,
    plot_kind: OutlookKind,
    data: Path | None,
    force: bool,
    form: Form | None,
    as_json: bool,
) -> None:
    """Say how fast a model can go on a board, and why.

    Exits with 1, the output still complete, when it does not fit in memory or when a board's
    figures are not published. D is auto for the board that this runs on, and here for this machine
    as `edgeprof probe` measured it.
    """
    chosen = chosen_form(form, as_json)
    observations = _observations(measured)
    target, target_name = find_model(model)
    draft_spec, draft_name = find_model(draft) if draft is not None else (None, None)
    warn((*target.warnings, *(draft_spec.warnings if draft_spec else ())))
    cache, depths = find_kv_type(kv), counts(contexts, "--context")

    def answer(device: str, mode: str | None) -> Outlook | Outline:
        board = None if is_measured(device) else find_board(device)
        if isinstance(board, AnnouncedBoard):
            return outline(
                board=board,
                model=target,
                draft=draft_spec,
                kv=cache,
                contexts=depths,
                draft_length=draft_length,
                tokens=tokens,
            )
        return outlook(
            device=find_machine(device, mode),
            model=target,
            draft=draft_spec,
            kv=cache,
            data_type=compute,
            contexts=depths,
            draft_length=draft_length,
            tokens=tokens,
            engine=None if engine is None else find_engine(engine),
        )

    asked = [(name, mode) for name in split(devices, "--device") for mode in _modes(name, modes)]
    results = [answer(name, mode) for name, mode in asked]
    published = [result for result in results if isinstance(result, Outlook)]
    if plot is not None or data is not None:
        if not published:
            raise EdgeprofError("nothing to plot: the figures of the board are not published")
        save(outlook_figure(plot_kind, published, observations), plot, data, force=force)
    names = [target_name] + ([draft_name] if draft_name else [])
    documents = [_document(result, observations, with_sums) for result in results]
    put(
        chosen,
        documents[0] if len(documents) == 1 else set_document(documents),
        _sections(results, names, observations, with_sums),
        roofline_rows(results),
    )
    if chosen == "csv":
        for result in results:
            if isinstance(result, Outline):
                talk(no_roofline(result))
    if len(published) < len(results) or not all(result.fit.fits for result in published):
        raise click.exceptions.Exit(1)


def _modes(device: str, modes: Sequence[str]) -> Sequence[str | None]:
    """The modes asked for; ``all`` stands for every mode of the board."""
    wanted = split(modes, "--mode") if modes else [None]
    if not any(mode is not None and mode.lower() == _ALL for mode in wanted):
        return wanted
    board = find_board(device)
    return [None] if isinstance(board, AnnouncedBoard) else [mode.name for mode in board.modes]


def _observations(texts: Sequence[str]) -> list[Observation]:
    """``RATE`` or ``NAME=RATE``."""
    found = []
    for text in texts:
        name, _, rate = text.rpartition("=")
        tokens_per_s = number(rate, "--measured", 1e-6, 1e9)
        found.append(Observation(label=name.strip() or "measured", tokens_per_s=tokens_per_s))
    return found


def _document(
    result: Outlook | Outline, observations: Sequence[Observation], with_sums: bool
) -> dict[str, Any]:
    if not with_sums or not isinstance(result, Outlook):
        return document(result, observations, ())
    from edgeprof.report.explain import explain

    return document(result, observations, explain(result))


def _sections(
    results: Sequence[Outlook | Outline],
    names: Sequence[ModelName],
    observations: Sequence[Observation],
    with_sums: bool,
) -> Iterator[Section]:
    yield from roofline_sections(results, names, observations)
    if with_sums:
        from edgeprof.report.explain import explain, explain_sections

        for result in results:
            if isinstance(result, Outlook):
                yield from explain_sections(explain(result))
