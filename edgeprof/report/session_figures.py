"""The plots beside a session's report: takes their series out of a summary and has them drawn."""

from pathlib import Path

from edgeprof.analysis.latency import TimeShare
from edgeprof.analysis.summary import Summary
from edgeprof.quantity import Quantity
from edgeprof.report.figures import (
    PassSeries,
    RoofLine,
    Spread,
    acceptance_figure,
    rates_figure,
    save_figure,
    session_roofline_figure,
    time_share_figure,
    verify_cost_figure,
)
from edgeprof.report.session_tables import decoded
from edgeprof.session.records import Session

_PARTS = TimeShare.__struct_fields__


def save_plots(session: Session, summary: Summary, folder: Path, form: str) -> list[str]:
    """Draws what the session has figures for; returns the names of the files, old ones replaced."""
    drawn = {}
    if rates := {leg.variant: leg.tokens_per_s_by_repeat for leg in decoded(summary)}:
        drawn["tokens-per-second"] = rates_figure(rates)
    if shares := time_shares(summary):
        drawn["time-share"] = time_share_figure(shares)
    if accepted := accepted_by_position(summary):
        drawn["acceptance"] = acceptance_figure(accepted)
    if costs := verify_spreads(summary):
        drawn["verify-cost"] = verify_cost_figure(costs)
    if (roofs := roof_lines(summary)) and (series := pass_series(summary)):
        drawn["roofline"] = session_roofline_figure(roofs, series)
    names = {f"{stem}.{form}": figure for stem, figure in drawn.items()}
    for name, figure in names.items():
        save_figure(figure, folder / name, force=True)
    return list(names)


def time_shares(summary: Summary) -> dict[str, dict[str, float]]:
    """draft, verify, decode, other of every variant that decoded anything."""
    return {
        leg.variant: {part: _value(getattr(leg.time_share, part)) for part in _PARTS}
        for leg in summary.legs
        if leg.time_share is not None
    }


def accepted_by_position(summary: Summary) -> dict[str, list[float]]:
    """Of every variant that drafted."""
    return {
        leg.variant: leg.acceptance.per_position
        for leg in summary.legs
        if leg.acceptance is not None and leg.acceptance.per_position
    }


def verify_spreads(summary: Summary) -> dict[str, dict[int, Spread]]:
    """v(n) and its band, by target."""
    costs: dict[str, dict[int, Spread]] = {}
    for cost in summary.verify_cost:
        v = cost.measured
        spread = Spread(value=_value(v), low=v.low, high=v.high)
        costs.setdefault(cost.target, {})[cost.tokens] = spread
    return costs


def roof_lines(summary: Summary) -> list[RoofLine]:
    """The measured roofs, one a kernel."""
    return [
        RoofLine(
            label=f"{ceiling.kernel} ceiling",
            bandwidth_bytes_per_s=_value(ceiling.bandwidth_bytes_per_s),
            flop_per_s={"measured": _value(ceiling.flop_per_s)},
        )
        for ceiling in summary.ceilings
        if ceiling.bandwidth_bytes_per_s is not None and ceiling.flop_per_s is not None
    ]


def pass_series(summary: Summary) -> list[PassSeries]:
    """The held passes, one line a model."""
    points: dict[str, list[tuple[int, float, float]]] = {}
    for point in summary.pass_points:
        place = (point.tokens, point.intensity_flop_per_byte, _value(point.flop_per_s))
        points.setdefault(point.model, []).append(place)
    return [PassSeries(label=model, points=places) for model, places in points.items()]


def _value(quantity: Quantity | None) -> float:
    """Of a figure that is there."""
    assert quantity is not None and quantity.value is not None
    return quantity.value
