"""The paper figures by kind: the rows behind one at once, the drawing when it is wanted.

Drawing loads matplotlib, the rows do not; and neither loads before a figure is asked for.
"""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from edgeprof.errors import EdgeprofError
from edgeprof.report.sections import Row

if TYPE_CHECKING:
    from edgeprof.analysis.observation import Observation
    from edgeprof.analysis.outlook import Outlook
    from edgeprof.analysis.plan import Plan

OutlookKind = Literal["roofline", "context", "fit"]
PlanKind = Literal["speedup", "map", "fit"]


class PaperFigure(NamedTuple):
    """``draw`` makes a matplotlib figure of the same series that ``rows`` hold."""

    rows: list[Row]
    draw: Callable[[], Any]


def outlook_figure(
    kind: OutlookKind,
    results: "Sequence[Outlook]",
    observations: "Sequence[Observation]" = (),
) -> PaperFigure:
    """The roofs and passes, decoding over depth, or what lies in memory."""
    from edgeprof.report import paper_series

    if kind == "context":
        rates = paper_series.rates_by_context(results)
        return PaperFigure(paper_series.rate_rows(rates), lambda: _figures().rates_figure(rates))
    if kind == "fit":
        return _memory(results)
    roofline = paper_series.roofline_series(results, observations)
    return PaperFigure(
        paper_series.roofline_rows(roofline), lambda: _figures().roofline_figure(roofline)
    )


def plan_figure(kind: PlanKind, result: "Plan") -> PaperFigure:
    """Speed-up over draft length, over acceptance and draft cost, or what lies in memory."""
    from edgeprof.report import paper_series

    if kind == "fit":
        return _memory([result])
    if result.middle is None:
        raise EdgeprofError(
            "nothing to plot: what drafting brings is not known for this board;"
            " give --verify-cost and --draft-cost"
        )
    if kind == "map":
        cells = paper_series.gain_map(result)
        return PaperFigure(paper_series.map_rows(cells), lambda: _figures().map_figure(cells))
    gains = paper_series.gains_by_length(result)
    return PaperFigure(paper_series.gain_rows(gains), lambda: _figures().gains_figure(gains))


def _memory(results: "Sequence[Outlook] | Sequence[Plan]") -> PaperFigure:
    from edgeprof.report import paper_series

    bars = paper_series.memory_bars(results)
    return PaperFigure(paper_series.memory_rows(bars), lambda: _figures().memory_figure(bars))


def _figures() -> ModuleType:
    from edgeprof.report import paper_figures

    return paper_figures
