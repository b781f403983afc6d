"""``edgeprof plan``: what a draft model would bring on a board, and how long it should draft."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import click

from edgeprof.analysis.plan import LONGEST_SHOWN, TYPICAL_ACCEPTANCES, plan
from edgeprof.analysis.speculation import LONGEST_DRAFT
from edgeprof.catalog import (
    MeasuredDevice,
    engines,
    find_engine,
    find_kv_type,
    find_machine,
    find_model,
    measured_engine,
)
from edgeprof.cli.output import warn
from edgeprof.cli.paper import (
    MOST_TOKENS,
    Form,
    chosen_form,
    number,
    output_options,
    put,
    save,
    split,
)
from edgeprof.cli.verify_cost import read_verify_cost
from edgeprof.hardware.profile import DataType
from edgeprof.report.paper import PlanKind, plan_figure
from edgeprof.report.plan import plan_document, plan_rows, plan_sections

_DEAREST_DRAFT = 1000.0


@click.command()
@click.option("--device", required=True, metavar="D[@MODE]", help="Board by name or profile.")
@click.option("--mode", metavar="MODE", help="Power mode by name.")
@click.option("--target", required=True, metavar="MODEL", help="Model that decides.")
@click.option("--draft", metavar="MODEL", help="Model that drafts; or give --draft-cost alone.")
@click.option("--acceptance", "acceptances", multiple=True, metavar="A",
              help="Accepted of evaluated tokens, 0 to 1; several by comma."
                   " Default: 0.5 to 0.9.")  # fmt: skip
@click.option("--context", type=click.IntRange(0, MOST_TOKENS), default=0, show_default=True,
              metavar="C", help="Tokens cached before the round.")  # fmt: skip
@click.option("--verify-cost", type=click.Path(path_type=Path), metavar="FILE",
              help="Measured v(n): CSV n_tokens,pass_cost_vs_1, a session, or the profile"
                   " of a probe.")  # fmt: skip
@click.option("--verify-target", metavar="NAME", help="Which model of the session or profile.")
@click.option("--draft-cost", metavar="C",
              help="Measured cost of a draft pass, in target passes; 0 for an n-gram.")  # fmt: skip
@click.option("-k", "--draft-tokens", "longest", type=click.IntRange(1, LONGEST_DRAFT),
              default=LONGEST_SHOWN, show_default=True, metavar="K",
              help="Longest draft to look at.")  # fmt: skip
@click.option(
    "--kv", default="f16", show_default=True, metavar="TYPE", help="Type of the KV caches."
)
@click.option("--compute", type=click.Choice(get_args(DataType), case_sensitive=False),
              default="fp16", show_default=True, help="Data type of the arithmetic.")  # fmt: skip
@click.option("--engine", metavar="NAME", help="Engine that will run it, such as llama.cpp.")
@output_options(get_args(PlanKind), default="speedup")
def command(
    device: str,
    mode: str | None,
    target: str,
    draft: str | None,
    acceptances: tuple[str, ...],
    context: int,
    verify_cost: Path | None,
    verify_target: str | None,
    draft_cost: str | None,
    longest: int,
    kv: str,
    compute: str,
    engine: str | None,
    plot: Path | None,
    plot_kind: PlanKind,
    data: Path | None,
    force: bool,
    form: Form | None,
    as_json: bool,
) -> None:
    """Say what drafting would bring on a board, and how long to draft.

    The best draft length comes from what verifying is expected to cost, or was measured to, not
    from the roofline. Exits with 1, the output still complete, when both models do not fit.
    """
    chosen = chosen_form(form, as_json)
    if draft is None and draft_cost is None:
        raise click.UsageError("give --draft MODEL, or --draft-cost C where no model drafts")
    if verify_target is not None and verify_cost is None:
        raise click.UsageError("--verify-target needs --verify-cost SESSION or PROFILE")
    wanted = _acceptances(acceptances) if acceptances else TYPICAL_ACCEPTANCES
    target_spec, target_name = find_model(target)
    draft_spec, draft_name = find_model(draft) if draft is not None else (None, None)
    if chosen in ("json", "csv"):  # text and Markdown have them in the answer
        warn((*target_spec.warnings, *(draft_spec.warnings if draft_spec else ())))
    found, table = find_machine(device, mode), engines()
    engine_class = find_engine(engine)
    if engine is None and isinstance(found, MeasuredDevice):
        engine_class = measured_engine(found.measured) or engine_class
    result = plan(
        device=found,
        target=target_spec,
        draft=draft_spec,
        kv=find_kv_type(kv),
        engine=engine_class,
        kernels={name: table.kernels[name] for name in table.kernels_of[engine_class.name]},
        context_tokens=context,
        acceptances=wanted,
        draft_cost=None
        if draft_cost is None
        else number(draft_cost, "--draft-cost", 0, _DEAREST_DRAFT),
        verify_cost=None if verify_cost is None else read_verify_cost(verify_cost, verify_target),
        longest=longest,
        data_type=compute,
    )
    if plot is not None or data is not None:
        save(plan_figure(plot_kind, result), plot, data, force=force)
    names = [target_name] + ([draft_name] if draft_name else [])
    put(chosen, plan_document(result), plan_sections(result, names), plan_rows(result.gains))
    if not result.fit.fits:
        raise click.exceptions.Exit(1)


def _acceptances(texts: Sequence[str]) -> list[float]:
    """From comma lists, each one once, the smallest first."""
    return sorted({number(text, "--acceptance", 0, 1) for text in split(texts, "--acceptance")})
