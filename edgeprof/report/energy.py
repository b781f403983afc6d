"""What tokens cost in joules, as a table and sentences."""

from edgeprof.analysis.summary import Summary
from edgeprof.quantity import Quantity
from edgeprof.report.table import Table

ENERGY_TITLE = "Energy of decoding; idle power is in it unless it says above idle"
_NONE = "-"


def energy_table(summary: Summary) -> Table:
    """One row a variant that has an energy; against plain is a ratio of joules a token."""
    headers = (
        "variant", "W", "J a token", "J an accepted token", "J a token above idle",
        "against plain", "answers",
    )  # fmt: skip
    ratios = {one.variant: one.energy_ratio for one in summary.comparisons}
    rows = []
    for leg in summary.legs:
        energy = leg.energy
        if energy is None or energy.per_token_j is None:
            continue
        rows.append(
            (
                leg.variant if leg.kind == "decode" else f"{leg.name} {leg.variant}",
                _shown(energy.power_w, 2),
                _shown(energy.per_token_j, 3),
                _shown(energy.per_accepted_token_j, 3),
                _shown(energy.above_idle_per_token_j, 3),
                _shown(ratios.get(leg.variant) if leg.kind == "decode" else None, 2),
                str(energy.answers),
            )
        )
    return Table(headers, rows)


def energy_notes(summary: Summary) -> list[str]:
    """Of which rail, what the board draws idle, and what was too short."""
    energies = [leg.energy for leg in summary.legs if leg.energy is not None]
    drawn = _idle(summary)
    if not any(energy.per_token_j for energy in energies):
        return [] if drawn is None else [drawn]
    notes = [f"The rail: {scope}." for scope in dict.fromkeys(e.scope for e in energies) if scope]
    notes.append(drawn or "Idle power was not measured: set idle_s in the recipe.")
    if left_out := sum(energy.left_out for energy in energies):
        notes.append(
            f"{left_out} answers were too short for the rail's readings, and are left out."
        )
    return notes


def _idle(summary: Summary) -> str | None:
    power = None if summary.idle is None else summary.idle.power_w
    if power is None or power.value is None:
        return None
    return f"Idle, models loaded and nothing running: {power.value:.2f} W."


def no_energy(summary: Summary) -> str | None:
    """Why there is no energy, in the words of the first variant that has none."""
    reasons = (leg.energy.reason for leg in summary.legs if leg.energy is not None)
    return next((reason for reason in reasons if reason), None)


def _shown(quantity: Quantity | None, digits: int) -> str:
    if quantity is None or quantity.value is None:
        return _NONE
    if quantity.low is None or quantity.high is None:
        return f"{quantity.value:.{digits}f}"
    return f"{quantity.value:.{digits}f} [{quantity.low:.{digits}f}, {quantity.high:.{digits}f}]"
