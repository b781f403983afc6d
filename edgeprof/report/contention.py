"""What models did to each other, as sentences and tables: doses, curves, alternation, endurance."""

from collections.abc import Iterator, Sequence

from edgeprof.analysis.alternation import Alternation
from edgeprof.analysis.contention import Contended, Curve, Regime, has_room
from edgeprof.analysis.summary import Summary
from edgeprof.analysis.sustained import Shift, Sustained
from edgeprof.quantity import Quantity
from edgeprof.report.table import Table
from edgeprof.units import show

KEPT_TITLE = "Beside an antagonist: what target and antagonist kept of their own rates"
COST_TITLE = "Where the slowdown of a pass comes from: cores shared (by the spinner), and the bus"
CURVE_TITLE = "Curves t(b) = max(t_alone, bytes / (B_c - b)), one an antagonist"
ALTERNATION_TITLE = "Passes in the real run against the same passes held alone, medians"
_ALTERNATION_NOTE = (
    "Medians of single passes. The term in situ and the limits count means of whole rounds, less "
    "what plain decoding's passes take longer than held: where something disturbed one of them, "
    "the two may differ in sign."
)
_NONE = "-"
_WORDS = {"read": "streaming read", "copy": "copy", "spin": "spinner", "model": "model"}
_UNITS = {"Hz": (1e-6, "MHz"), "deg C": (1.0, "°C"), "W": (1.0, "W")}


def contention_sentences(summary: Summary) -> list[str]:
    """The answer: what each antagonist at its largest dose costs each target, and why."""
    return [
        sentence
        for target in summary.contention.targets
        for curve in target.curves
        if (sentence := _sentence(target, curve))
    ]


def kept_table(summary: Summary) -> Table:
    """Rates together over rates alone, one row a dose."""
    headers = (
        "target", "beside", "dose", "tokens/s", "target kept", "antagonist kept", "efficiency",
        "p50", "p99", "W",
    )  # fmt: skip
    rows = []
    for target, regime in _regimes(summary):
        inflation = regime.latency_inflation
        rows.append(
            (
                target.target,
                regime.antagonist,
                f"{100 * regime.dose:g} %",
                _number(regime.target_tokens_per_s, 1, 1),
                _band(regime.target_retained),
                _number(regime.antagonist_retained, 1, 2),
                _band(regime.concurrency_efficiency),
                _times(None if inflation is None else inflation.p50),
                _times(None if inflation is None else inflation.p99),
                _number(regime.power_w, 1, 1),
            )
        )
    return Table(headers, rows, left=2)


def cost_table(summary: Summary) -> Table:
    """Times of a pass in ms and rates in GB/s, one row a dose."""
    headers = (
        "target", "beside", "dose", "pass (ms)", "cores (ms)", "bus (ms)", "antagonist GB/s",
        "both GB/s", "of peak", "of sustained", "kappa",
    )  # fmt: skip
    rows = [
        (
            target.target,
            regime.antagonist,
            f"{100 * regime.dose:g} %",
            _number(regime.pass_s, 1e3, 2),
            _number(regime.core_s, 1e3, 2),
            _number(regime.bus_s, 1e3, 2),
            _number(regime.antagonist_bandwidth_bytes_per_s, 1e-9, 1),
            _number(regime.total_bandwidth_bytes_per_s, 1e-9, 1),
            _percent(regime.peak_share),
            _percent(regime.sustained_share),
            _band(regime.kappa),
        )
        for target, regime in _regimes(summary)
    ]
    return Table(headers, rows, left=2)


def curve_table(summary: Summary) -> Table:
    """One row an antagonist: its own rate, the ceiling under contention, the knee and kappa."""
    headers = (
        "target", "beside", "both need", "alone GB/s", "ceiling GB/s", "knee GB/s", "kappa",
        "bytes are",
    )  # fmt: skip
    rows = [
        (
            target.target,
            f"{curve.antagonist} ({_WORDS[curve.kind]})",
            " and ".join(curve.competes_for) or "nothing",
            _number(curve.alone_bandwidth_bytes_per_s, 1e-9, 1),
            ("" if curve.ceiling_reached else ">= ") + _number(curve.ceiling_bytes_per_s, 1e-9, 1)
            if curve.ceiling_bytes_per_s is not None
            else _NONE,
            _number(curve.knee_bytes_per_s, 1e-9, 1),
            _band(curve.kappa),
            _NONE if target.pass_bytes is None else target.pass_bytes.kind,
        )
        for target in summary.contention.targets
        for curve in target.curves
    ]
    return Table(headers, rows, left=3)


def contention_notes(summary: Summary) -> list[str]:
    """Why something is not told, and how what is told is meant."""
    return [*_notes(summary)]


def alternation_table(summary: Summary) -> Table:
    """What taking turns costs the phases themselves."""
    headers = ("variant", "pass", "tokens", "held (ms)", "real run (ms)", "difference (ms)")
    rows = [
        (
            one.variant,
            f"{one.phase} of {one.model}",
            str(one.tokens),
            _number(one.isolated_s, 1e3, 2),
            _number(one.in_situ_s, 1e3, 2),
            _difference(one),
        )
        for one in summary.contention.alternation
    ]
    return Table(headers, rows, left=2)


def alternation_notes(summary: Summary) -> list[str]:
    """What the table is of, beside the term that the limits go by."""
    return [_ALTERNATION_NOTE] if summary.contention.alternation else []


def sustained_table(summary: Summary) -> Table:
    """A long leg's first minute against its steady state."""
    rows = [row for one in summary.contention.sustained for row in _sustained_rows(one)]
    return Table(("figure", "first minute", "steady"), rows)


def sustained_title(summary: Summary) -> str:
    """Which target, for how long, and what it kept."""
    parts = []
    for one in summary.contention.sustained:
        kept = "" if one.retained is None else f", keeps {100 * one.retained:.1f} % of its start"
        state = {True: "", False: ", not settled yet", None: ""}[one.settled]
        parts.append(f"{one.target} for {show(one.duration_s, 's')}{kept}{state}")
    return "Sustained: " + "; ".join(parts)


def _sentence(target: Contended, curve: Curve) -> str | None:
    regimes = [one for one in target.regimes if one.antagonist == curve.antagonist]
    if not regimes:
        return None
    last = regimes[-1]
    beside = f"{target.target} beside {curve.antagonist} at {100 * last.dose:g} %"
    if last.not_compared is not None:
        return f"{beside}: not compared, as {last.not_compared}."
    if last.target_retained is None:
        return None
    kept = f"{beside} keeps {_band(last.target_retained)} of its speed"
    if "gpu" in curve.competes_for:
        return (
            f"{kept}; both compete for the GPU's SMs and time slices, which is no bus contention."
        )
    if curve.kind == "spin":
        return f"{kept}: the price of sharing cores, for it moves no bytes."
    if curve.kappa is None:
        return f"{kept}; what the bus does in it is not told: {curve.reason}."
    return f"{kept}; kappa is {_band(curve.kappa)}: {_meaning(curve.kappa)}."


def _meaning(kappa: Quantity) -> str:
    """0 is slack, 1 a shared bus, above 1 worse than that; by which of them the interval holds."""
    if kappa.low is None or kappa.high is None:
        return "how sure that is, one repeat does not tell"
    room = has_room(kappa)
    if room is None:
        return "too uncertain to tell slack from a shared bus"
    if room:
        return "the bus has room for both"
    if kappa.low > 1:
        return "worse than a shared bus: row conflicts, the cache or clocks come on top"
    return "they share the bus" if kappa.high >= 1 else "they share the bus in part"


def _notes(summary: Summary) -> Iterator[str]:
    if summary.contention.lent_by is not None:
        yield f"Measured in another session, {summary.contention.lent_by}."
    for target in summary.contention.targets:
        for curve in target.curves:
            if curve.reason is not None and curve.kind != "spin":
                yield f"{target.target}, {curve.antagonist}: no kappa, as {curve.reason}."
        for regime in target.regimes:
            where = f"{target.target}, {regime.antagonist} at {100 * regime.dose:g} %"
            if regime.not_compared is not None:
                yield f"{where}: not compared, as {regime.not_compared}."
            if (two := regime.two_speeds) is not None:
                yield (
                    f"{where}: of {regime.legs} legs {two.fast_legs} had passes of "
                    f"{show(two.fast_s, 's')} and {two.slow_legs} of {show(two.slow_s, 's')}, with "
                    "nothing between; the figures mix both. The cores of a virtual machine may "
                    "have moved: another run may give another mixture."
                )
        if disturbed := sum(regime.disturbed for regime in target.regimes):
            yield (
                f"{target.target}: {disturbed} joint legs were disturbed by other programs and are "
                "left out, unless a regime has no others."
            )
        if target.pass_bytes is not None and target.pass_bytes.kind == "modelled":
            yield (
                f"{target.target}: no counter told the memory's traffic, so bytes are modelled: "
                f"{show(target.pass_bytes.value, 'B')} a pass, {target.pass_bytes.source}."
            )
    for one in summary.contention.alternation:
        if one.not_compared is not None:
            yield f"{one.variant}, {one.phase}: not compared, as {one.not_compared}."


def _regimes(summary: Summary) -> Iterator[tuple[Contended, Regime]]:
    for target in summary.contention.targets:
        for regime in target.regimes:
            yield target, regime


def _sustained_rows(one: Sustained) -> Iterator[Sequence[str]]:
    yield (
        f"{one.target} tokens/s",
        _number(one.first_tokens_per_s, 1, 2),
        _number(one.steady_tokens_per_s, 1, 2),
    )
    for shift in (one.power_w, *one.clocks, *one.temperatures):
        if shift is not None:
            yield _shift(shift)
    if one.throttle_events:
        yield "throttling events", _NONE, str(one.throttle_events)


def _shift(shift: Shift) -> Sequence[str]:
    factor, unit = _UNITS.get(shift.unit, (1.0, shift.unit))
    values = (
        _NONE if value is None else f"{value * factor:.1f} {unit}"
        for value in (shift.first, shift.steady)
    )
    return shift.name, *values


def _difference(one: Alternation) -> str:
    quantity = one.difference_s
    if quantity is None or quantity.value is None:
        return _NONE
    if quantity.low is None or quantity.high is None:
        return f"{1e3 * quantity.value:+.2f}"
    return f"{1e3 * quantity.value:+.2f} [{1e3 * quantity.low:+.2f}, {1e3 * quantity.high:+.2f}]"


def _number(quantity: Quantity | None, factor: float, digits: int) -> str:
    if quantity is None or quantity.value is None:
        return _NONE
    return f"{quantity.value * factor:.{digits}f}"


def _band(quantity: Quantity | None) -> str:
    if quantity is None or quantity.value is None:
        return _NONE
    if quantity.low is None or quantity.high is None:
        return f"{quantity.value:.2f}"
    return f"{quantity.value:.2f} [{quantity.low:.2f}, {quantity.high:.2f}]"


def _times(quantity: Quantity | None) -> str:
    return _NONE if quantity is None or quantity.value is None else f"{quantity.value:.2f}x"


def _percent(quantity: Quantity | None) -> str:
    return _NONE if quantity is None or quantity.value is None else f"{100 * quantity.value:.0f} %"
