"""A session's summary on a terminal: the answer first, then the figures it rests on."""

import textwrap
from collections.abc import Iterator

from edgeprof.analysis.caveats import OBSERVED_KINDS
from edgeprof.analysis.summary import Summary
from edgeprof.hardware.measured import MeasuredProfile
from edgeprof.report.attribution import TITLE as BYTES_TITLE
from edgeprof.report.attribution import attribution_notes, attribution_table
from edgeprof.report.contention import (
    ALTERNATION_TITLE,
    COST_TITLE,
    CURVE_TITLE,
    KEPT_TITLE,
    alternation_notes,
    alternation_table,
    contention_notes,
    contention_sentences,
    cost_table,
    curve_table,
    kept_table,
    sustained_table,
    sustained_title,
)
from edgeprof.report.energy import ENERGY_TITLE, energy_notes, energy_table
from edgeprof.report.headline import contrast, headlines, stamps
from edgeprof.report.length_sweep import TITLE as SWEEP_TITLE
from edgeprof.report.length_sweep import sweep_notes, sweep_table
from edgeprof.report.measured import ceilings_title, kernel_table
from edgeprof.report.printable import printable
from edgeprof.report.session_tables import (
    ceiling_table,
    pass_table,
    share_notes,
    share_table,
    synthetic_table,
    term_table,
    variant_table,
    verify_table,
)
from edgeprof.report.signals import (
    absent_lines,
    observed,
    phase_notes,
    phase_table,
    signal_table,
    telling,
)
from edgeprof.report.table import Table, table

_LINE = 100  # longer lines are hard to read, however wide the window


def session_text(summary: Summary, width: int, probe: MeasuredProfile | None = None) -> str:
    """The whole report; sentences fold at ``width`` columns or at 100. ``probe`` is the profile of
    the machine that the session is of, where there is one."""
    sections = _sections(summary, width, probe)
    return printable("\n\n".join(section for section in sections if section))


def _sections(summary: Summary, width: int, probe: MeasuredProfile | None) -> Iterator[str]:
    line = min(width, _LINE)
    yield _title(summary)
    yield _headlines(summary, line)
    yield _section(_decoding_title(summary), variant_table(summary), width)
    title = "Synthetic tests: random tokens, mean and standard deviation of n repeats"
    yield _section(title, synthetic_table(summary), width)
    yield _noted(SWEEP_TITLE, sweep_table(summary), sweep_notes(summary), width)
    title = "Where time, memory traffic and energy of decoding go"
    yield _noted(title, share_table(summary), share_notes(summary), width)
    title = "A round beside one plain token: speed-up = tokens / (1 + the terms), in plain tokens"
    yield _section(title, term_table(summary), width)
    title = "v(n): the time of an n-token pass over that of a one-token pass, from held passes"
    yield _section(title, verify_table(summary, bands=False), width)
    title = (
        "Held passes under the ceilings of their kernel; bandwidth is bytes over time (modelled)"
    )
    yield _section(title, pass_table(summary), width)
    title = "Ceilings: the most that a large product reached here, lower bounds of the machine"
    yield _section(title, ceiling_table(summary), width)
    yield _noted(BYTES_TITLE, attribution_table(summary), attribution_notes(summary), width)
    if probe is not None:
        yield _section(ceilings_title(probe), kernel_table(probe), width)
    yield from _contention(summary, width)
    yield _noted(ENERGY_TITLE, energy_table(summary), energy_notes(summary), width)
    yield _phases(summary, width)
    title = "Signals: means over time; windows are those that the sources declare"
    yield _section(title, signal_table(telling(summary.signals)), width)
    yield _listed("Not measured", absent_lines(summary), line)
    yield _limits(summary, line)
    yield _listed("Warnings", summary.warnings, line)


def _title(summary: Summary) -> str:
    session, device = summary.session, summary.device
    name = session.recipe.get("name") or session.kind
    where = f" on {device['name']}" if device.get("name") else ""
    title = f"{name}{where}, {session.created_utc}, edgeprof {session.edgeprof_version}"
    return "\n".join([*stamps(summary), title])


def _headlines(summary: Summary, line: int) -> str:
    if summary.session.kind in OBSERVED_KINDS:
        return "\n".join(_folded(sentence, line) for sentence in observed(summary))
    found = headlines(summary)
    if not found and (told := contention_sentences(summary)):
        return "\n".join(_folded(sentence, line) for sentence in told)
    if not found and synthetic_table(summary).rows:
        return ""  # nothing was to be compared: the table is the answer
    if not found:
        return "No variant with a drafter was compared with plain decoding."
    lines = []
    for headline in found:
        lines.append(_folded(f"{headline.target}: {headline.answer}", line))
        lines.append(_folded(headline.output, line, indent=2))
        lines.append(_folded(headline.reason, line, indent=2))
    if difference := contrast(summary):
        lines.append(_folded(difference, line))
    return "\n".join(lines)


def _decoding_title(summary: Summary) -> str:
    """What the table holds, and why it compares no answers where they were sampled."""
    reasons = {comparison.output.not_comparable for comparison in summary.comparisons} - {None}
    title = "Decoding: mean and standard deviation of n repeats"
    return "; ".join([title, *(f"answers {reason}" for reason in reasons)])


def _section(title: str, content: Table, width: int) -> str:
    if not content.rows:
        return ""
    heading = _folded(title, min(width, _LINE), hanging=0)
    return f"{heading}\n{table(content.headers, content.rows, left=content.left, width=width)}"


def _phases(summary: Summary, width: int) -> str:
    content = phase_table(summary.phases, summary.session.duration_s)
    notes = [_folded(note, min(width, _LINE)) for note in phase_notes(summary)]
    section = _section("Phases that the program announced", content, width)
    return "\n".join([section, *notes]) if section else ""


def _noted(title: str, content: Table, notes: list[str], width: int) -> str:
    """A table and sentences below it; either may be missing."""
    section = _section(title, content, width)
    folded = [_folded(note, min(width, _LINE)) for note in notes]
    return "\n".join([section, *folded] if section else folded)


def _contention(summary: Summary, width: int) -> Iterator[str]:
    yield _section(KEPT_TITLE, kept_table(summary), width)
    yield _section(COST_TITLE, cost_table(summary), width)
    yield _noted(CURVE_TITLE, curve_table(summary), contention_notes(summary), width)
    yield _noted(ALTERNATION_TITLE, alternation_table(summary), alternation_notes(summary), width)
    yield _section(sustained_title(summary), sustained_table(summary), width)


def _limits(summary: Summary, line: int) -> str:
    lines = []
    for comparison in summary.comparisons:
        verdict = comparison.verdict
        if verdict.limits:
            lines.append(f"{comparison.variant} ({verdict.outcome})")
        for limit in verdict.limits:
            lines.append(_folded(f"{limit.name}: {limit.evidence}", line, indent=2))
            lines.append(_folded(f"try: {limit.advice}", line, indent=4))
    return "\n".join(["Limits", *lines]) if lines else ""


def _listed(title: str, items: list[str], line: int) -> str:
    bullets = [_folded(f"- {item}", line, hanging=2) for item in items]
    return "\n".join([title, *bullets]) if items else ""


def _folded(sentence: str, line: int, *, indent: int = 0, hanging: int = 2) -> str:
    return textwrap.fill(
        sentence,
        width=max(line, 40),
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hanging),
        break_long_words=False,
        break_on_hyphens=False,
    )
