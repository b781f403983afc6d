"""Draft lengths side by side: measured, predicted, the best and the advised one."""

from edgeprof.analysis.length_sweep import LengthSweep, SweptLength
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
    pair, best = f"{sweep.target}+{sweep.drafter}", _at(sweep, sweep.best_draft_tokens)
    found = f"{pair}: best at K = {best.draft_tokens}"
    if (best.decode_speedup.value or 0.0) < 1:
        found = f"{pair}: no length pays, the best is K = {best.draft_tokens}"
    if sweep.advised_draft_tokens is None:
        return f"{found}; no advice, as no passes were held."
    advised = _at(sweep, sweep.advised_draft_tokens)
    source = f"the run at K = {sweep.advised_from}"
    predicted = advised.predicted_speedup
    if predicted is not None and predicted < 1:
        return (
            f"{found}; {source} advises plain decoding, with {predicted:.2f}x predicted at "
            f"K = {advised.draft_tokens}, the most of all."
        )
    return f"{found}; {source} advises K = {advised.draft_tokens}, which is {_judged(sweep)}."


def _judged(sweep: LengthSweep) -> str:
    if sweep.agrees:
        return "as good as the best"
    best = _at(sweep, sweep.best_draft_tokens).decode_speedup
    advised = _at(sweep, sweep.advised_draft_tokens or 0).decode_speedup
    told = "more than 5 % below the best"
    if advised.high is not None and best.low is not None and advised.high >= best.low:
        return f"{told}, though their intervals overlap"
    return told


def _at(sweep: LengthSweep, length: int) -> SweptLength:
    return next(one for one in sweep.lengths if one.draft_tokens == length)
