"""The plots beside a session's report: takes their series out of a summary and has them drawn."""

from pathlib import Path

from matplotlib.figure import Figure

from edgeprof.analysis.channels import channels_of, chosen_channels, span_of
from edgeprof.analysis.latency import TimeShare
from edgeprof.analysis.summary import Summary
from edgeprof.analysis.timeline import line_of
from edgeprof.quantity import Quantity
from edgeprof.report.figures import (
    PassSeries,
    RoofLine,
    Spread,
    acceptance_figure,
    rates_figure,
    save_figure,
    session_roofline_figure,
    stamp,
    time_share_figure,
    verify_cost_figure,
)
from edgeprof.report.measured_figures import (
    ContentionCurve,
    EnergyBar,
    Line,
    Panel,
    Stretch,
    Traffic,
    contention_figure,
    energy_figure,
    timeline_figure,
    traffic_figure,
)
from edgeprof.report.session_tables import decoded
from edgeprof.report.signal_words import label
from edgeprof.session.records import Session

# unit -> factor from SI, and the signals that are drawn in it
_PANELS = (
    ("DRAM (GB/s)", 1e-9, ("dram_bandwidth_bytes_per_s",)),
    ("busy (%)", 100.0, ("emc_busy_frac", "gpu_busy_frac", "cpu_busy_frac")),
    ("power (W)", 1.0, ("power_w.total", "power_w.module_sum", "power_w.")),
    ("heat (°C)", 1.0, ("temp_c.",)),
    ("clock (MHz)", 1e-6, ("emc_clock_hz", "gpu_clock_hz")),
    ("RAM (GiB)", 2.0**-30, ("ram_used_bytes",)),
)
_LINES_A_PANEL = 3
_LONGEST_NAME = 50
_MOST_POINTS = 1200  # a column of text has no more dots
_MOST_STRETCHES = 500
_PARTS = TimeShare.__struct_fields__


def save_plots(session: Session, summary: Summary, folder: Path, form: str) -> list[str]:
    """Draws what the session has figures for; returns the names of the files, old ones replaced."""
    names = {f"{stem}.{form}": figure for stem, figure in figures_of(session, summary).items()}
    for name, figure in names.items():
        save_figure(figure, folder / name, force=True)
    return list(names)


def figures_of(session: Session, summary: Summary) -> dict[str, Figure]:
    """By the stem of their files the figures that the session has something for."""
    drawn: dict[str, Figure] = {}
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
    if panels := timeline_panels(session):
        drawn["timeline"] = timeline_figure(panels, stretches_of(session))
    if rows := traffic_rows(summary):
        drawn["traffic"] = traffic_figure(rows)
    if curves := contention_curves(summary):
        drawn["contention"] = contention_figure(curves)
    if bars := energy_bars(summary):
        drawn["energy"] = energy_figure(bars, scope=energy_scope(summary))
    for figure in drawn.values():
        stamp(figure, origin(summary))
    return drawn


def origin(summary: Summary) -> str:
    """The machine, the day, and that samples are not from a board where they are not."""
    qualities = [q for q in ("simulated", "replayed") if summary.session.samples.get(q)]
    samples = [f"{' and '.join(qualities)} samples"] if qualities else []
    name = str(summary.device.get("name") or "machine not recorded")[:_LONGEST_NAME]
    return ", ".join([name, summary.session.created_utc[:10], *samples])


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


def timeline_panels(session: Session) -> list[Panel]:
    """The channels that stand for their signals, thinned, those of one unit together."""
    start_ns = span_of(session).t0_ns
    chosen = chosen_channels(channels_of(session))
    panels = []
    for unit, factor, families in _PANELS:
        belonging = (name for family in families for name in chosen if _belongs(name, family))
        names = list(dict.fromkeys(belonging))
        found = []
        for name in names[:_LINES_A_PANEL]:
            one = line_of(chosen[name], start_ns, _MOST_POINTS)
            line = Line(
                label=_short(name),
                times_s=one.times_s.tolist(),
                values=(one.values * factor).tolist(),
            )
            found.append(line)
        if found:
            panels.append(Panel(unit=unit, lines=found))
    return panels


def stretches_of(session: Session) -> list[Stretch]:
    """The legs, those of one label that follow each other as one; none where that are too many."""
    start_ns = span_of(session).t0_ns
    found: list[Stretch] = []
    for leg in session.legs:
        if leg.kind == "command" or leg.t1_ns is None:
            continue
        name = leg.name if leg.kind == "mark" else leg.variant if leg.kind == "decode" else leg.kind
        start_s, end_s = (leg.t0_ns - start_ns) / 1e9, (leg.t1_ns - start_ns) / 1e9
        if found and found[-1].label == name:
            start_s = found.pop().start_s
        found.append(Stretch(label=name, start_s=start_s, end_s=end_s))
    return found if len(found) <= _MOST_STRETCHES else []


def traffic_rows(summary: Summary) -> list[Traffic]:
    """One a kind of pass that was held for its bytes; where no counter told them, one a size of
    held pass, by the model's size and the time that the pass took."""
    found = summary.attribution
    measured = [
        Traffic(
            label=f"{one.model} {one.phase} {one.tokens}",
            pass_bytes=_spread(one.bytes_per_pass),
            bandwidth_bytes_per_s=_spread(one.bandwidth_bytes_per_s),
        )
        for one in ([] if found is None else found.phases)
        if one.bytes_per_pass.value is not None and one.bandwidth_bytes_per_s.value is not None
    ]
    return measured or [
        Traffic(
            label=f"{one.model} {one.role} {one.tokens}",
            pass_bytes=Spread(value=one.bandwidth_bytes_per_s.value * one.time_s.value),
            bandwidth_bytes_per_s=_spread(one.bandwidth_bytes_per_s),
            modelled=True,
        )
        for one in summary.pass_points
        if one.bandwidth_bytes_per_s is not None
        and one.bandwidth_bytes_per_s.value is not None
        and one.time_s.value is not None
    ]


def contention_curves(summary: Summary) -> list[ContentionCurve]:
    """One an antagonist whose bandwidth is known, target by target; alone is where it begins."""
    found = []
    for one in summary.contention.targets:
        for curve in one.curves:
            points = [
                (_value(regime.antagonist_bandwidth_bytes_per_s), _spread(regime.target_retained))
                for regime in one.regimes
                if regime.antagonist == curve.antagonist
                and regime.antagonist_bandwidth_bytes_per_s is not None
                and regime.target_retained is not None
            ]
            if points:
                knee = curve.knee_bytes_per_s
                found.append(
                    ContentionCurve(
                        label=f"{one.target} beside {curve.antagonist}",
                        kappa=None if curve.kappa is None else _spread(curve.kappa),
                        points=[(0.0, Spread(value=1.0)), *sorted(points, key=lambda p: p[0])],
                        knee_bytes_per_s=None if knee is None else knee.value,
                    )
                )
    return found


def energy_bars(summary: Summary) -> list[EnergyBar]:
    """Of every variant whose power was measured while it decoded."""
    found = []
    for leg in decoded(summary):
        energy = leg.energy
        if energy is not None and energy.per_token_j is not None:
            above = energy.above_idle_per_token_j
            found.append(
                EnergyBar(
                    label=leg.variant,
                    per_token_j=_spread(energy.per_token_j),
                    above_idle_j=None if above is None else above.value,
                )
            )
    return found


def energy_scope(summary: Summary) -> str:
    """What rail it was, in a few words."""
    scopes = (leg.energy.scope for leg in summary.legs if leg.energy is not None)
    return next((scope for scope in scopes if scope), "").partition(" (")[0]


def _short(name: str) -> str:
    """Without what the panel says already: ``gpu`` of ``temp_c.gpu``, ``GPU`` of its load."""
    member = name.partition(".")[2]
    return member or label(name).rpartition(" ")[0]


def _belongs(name: str, family: str) -> bool:
    return name == family or (family.endswith(".") and name.startswith(family))


def _spread(quantity: Quantity) -> Spread:
    return Spread(value=_value(quantity), low=quantity.low, high=quantity.high)


def _value(quantity: Quantity | None) -> float:
    """Of a figure that is there."""
    assert quantity is not None and quantity.value is not None
    return quantity.value
