"""Which bytes are whose, as a table and sentences: held passes, closure, duty blocks."""

from collections.abc import Iterator

from edgeprof.analysis.attribution import Attribution
from edgeprof.analysis.closure import Closure
from edgeprof.analysis.duty import DutyCheck
from edgeprof.analysis.summary import Summary
from edgeprof.quantity import Quantity
from edgeprof.report.table import Table
from edgeprof.units import show

TITLE = "Bytes a pass, from held legs: mean bandwidth x period, idle subtracted; 90 % intervals"
_HEADERS = (
    "model",
    "pass",
    "tokens",
    "legs",
    "bytes a pass",
    "90 %",
    "bandwidth",
    "modelled bytes",
)


def attribution_table(summary: Summary) -> Table:
    """One row a kind of pass; empty where none was told apart."""
    found = summary.attribution
    rows = [
        (
            phase.model,
            phase.phase,
            str(phase.tokens),
            str(phase.legs),
            show(phase.bytes_per_pass.value, "B"),
            _band(phase.bytes_per_pass),
            show(phase.bandwidth_bytes_per_s.value, "B/s"),
            "-" if phase.modelled_bytes is None else show(phase.modelled_bytes, "B"),
        )
        for phase in (found.phases if found is not None else ())
    ]
    return Table(_HEADERS, rows, left=2)


def attribution_notes(summary: Summary) -> list[str]:
    """Whether it closes, whether the duty blocks agree, and why nothing is said."""
    found = summary.attribution
    return [] if found is None else [*_notes(found)]


def _notes(found: Attribution) -> Iterator[str]:
    if found.refused is not None:
        yield f"Bytes a pass are not told: {found.refused}."
        return
    if found.delay_s is not None and found.idle_bytes_per_s is not None:
        idle = show(found.idle_bytes_per_s.value, "B/s")
        yield (
            f"The counter lags by {show(found.delay_s.value, 's', 2)} on average, found on the "
            f"edges of the legs; idle, the memory moves {idle}."
        )
    yield from (_closed(closure) for closure in found.closure)
    yield from (f"Not closed: {reason}." for reason in found.not_closed)
    yield from (_checked(check) for check in found.duty)


def _closed(closure: Closure) -> str:
    more = closure.interference_frac
    value, low, high = more.value or 0.0, more.low or 0.0, more.high or 0.0
    sure = "" if low > 0 or high < 0 else ", none beyond its interval"
    return (
        f"{closure.variant}: decoding moved {show(closure.measured_bytes, 'B')} in "
        f"{closure.seconds:.1f} s, the held passes make {show(closure.held_bytes, 'B')}; "
        f"interference {100 * value:+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]{sure}."
    )


def _checked(check: DutyCheck) -> str:
    draft, verify = check.draft_over_held, check.verify_over_held
    ratios = "" if draft is None or verify is None else f" ({draft:.2f} and {verify:.2f} of held)"
    return (
        f"Duty blocks: a pass of {check.drafter} {show(check.draft_bytes.value, 'B')}, of "
        f"{check.target} over {check.tokens} tokens {show(check.verify_bytes.value, 'B')}{ratios}."
    )


def _band(quantity: Quantity) -> str:
    if quantity.low is None or quantity.high is None:
        return "-"
    return f"{show(quantity.low, 'B')} to {show(quantity.high, 'B')}"
