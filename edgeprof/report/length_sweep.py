"""Draft lengths side by side: measured, predicted, the best and the advised one."""

from edgeprof.analysis.length_sweep import LengthSweep
from edgeprof.analysis.summary import Summary
from edgeprof.report.headline import ratio
from edgeprof.report.table import Table

TITLE = "Draft lengths: measured, and predicted from the run named below"


def sweep_table(summary: Summary) -> Table:
    """One row a length; empty where one length alone was run."""
    rows = [
        (
            f"{sweep.target}+{sweep.drafter}",
            str(one.draft_tokens),
            ratio(one.decode_speedup),
            "-" if one.predicted_speedup is None else f"{one.predicted_speedup:.2f}x",
            _mark(sweep, one.draft_tokens),
        )
        for sweep in summary.draft_lengths
        for one in sweep.lengths
    ]
    return Table(("pair", "K", "speed-up", "predicted", ""), rows)


def sweep_notes(summary: Summary) -> list[str]:
    """Whether the advice would have found the best length."""
    return [_note(sweep) for sweep in summary.draft_lengths]


def _mark(sweep: LengthSweep, length: int) -> str:
    marks = {sweep.best_draft_tokens: "best", sweep.advised_draft_tokens: "advised"}
    if sweep.best_draft_tokens == sweep.advised_draft_tokens == length:
        return "best, advised"
    return marks.get(length, "")


def _note(sweep: LengthSweep) -> str:
    pair, best = f"{sweep.target}+{sweep.drafter}", sweep.best_draft_tokens
    if sweep.advised_draft_tokens is None:
        return f"{pair}: best at K = {best}; no advice, as no passes were held."
    verdict = "as good as the best" if sweep.agrees else "more than 5 % below the best"
    return (
        f"{pair}: best at K = {best}; the run at K = {sweep.advised_from} advises "
        f"K = {sweep.advised_draft_tokens}, which is {verdict}."
    )
