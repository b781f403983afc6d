"""A session's report as Markdown, its plots beside it: the answer, the figures, their origin."""

from collections.abc import Iterator
from pathlib import Path, PurePath

from edgeprof.analysis.caveats import OBSERVED_KINDS
from edgeprof.analysis.summary import Summary
from edgeprof.catalog import measured_like
from edgeprof.hardware.measured import MeasuredProfile
from edgeprof.report.attribution import attribution_notes, attribution_table
from edgeprof.report.contention import (
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
from edgeprof.report.energy import energy_notes, energy_table, no_energy
from edgeprof.report.environment import environment_table
from edgeprof.report.headline import contrast, headlines, stamps
from edgeprof.report.length_sweep import sweep_notes, sweep_table
from edgeprof.report.measured import ceilings_title, kernel_table
from edgeprof.report.session_tables import (
    acceptance_table,
    bench_table,
    ceiling_table,
    latency_table,
    memory_table,
    model_table,
    output_table,
    pass_table,
    repeat_table,
    round_table,
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
)
from edgeprof.report.table import escaped, pipe_table
from edgeprof.report.whole_file import whole_file
from edgeprof.session.records import Session

REPORT_NAME = "report.md"

# file name without its suffix -> what it shows; the caption is the alternative text too
PLOTS = {
    "tokens-per-second": "Decode tokens/s: bars are means, dots are repeats",
    "time-share": "Where the decode time goes",
    "acceptance": "Acceptance by drafted position",
    "verify-cost": "v(n): what checking n tokens in one pass costs",
    "roofline": "Held passes under the measured ceilings; numbers are tokens in a pass",
    "timeline": "What the machine did over time; bands of grey tell the legs apart",
    "traffic": "Bytes of a pass and bandwidth, phase by phase, from held passes; modelled, by the "
    "model's size, where no counter told them",
    "contention": "Speed of the target beside an antagonist, over the bandwidth that it takes",
    "energy": "Energy of one emitted token",
}

_UNREAD = {
    "power_w": "power and energy: no power sensor was read in this session",
    "gpu_busy_frac": "GPU load: no GPU was read in this session",
    "temp_c": "temperatures: no sensor was read",
}

_HOW = """\
- A decode rate counts the tokens after the first, over the time from the first token to the end of
  the answer. Prefill is not in it. Warm-up is kept in the session and left out of every figure.
- tokens/s is the mean of the repeats, each over all prompts, with their standard deviation.
- A speed-up compares answers to the same prompt in the same repeat; its band is a 95 % bootstrap
  over prompts and repeats. It is measured. *predicted* is E / (K c + v(K+1)) from the acceptance
  of the variant and from held passes, time outside passes left out.
- Held passes repeat one size of pass at one depth, sizes interleaved; v(n) is a ratio of medians.
- The ceilings are what one large product reached through the same runtime. They are lower bounds
  of the machine: a figure above them is shown as it is.
- {counter} Bandwidth is (streamed weight bytes + keys and values) over
  pass time, and labelled modelled.
- Synthetic tests feed random tokens in passes of at most 512, as llama-bench does: pp512 takes in a
  prompt of 512, tg128 feeds 128 one by one, @d4096 does so after 4096 that are not in the figure.
- Memory is the machine's, read at both ends of a leg and sampled between; the decoder's own peak is
  that of its resident memory. Memory that the GPU holds apart is in neither.
- All tokens of a round come at its end, so gaps between tokens are bursty under speculation; TPOT
  is the figure to compare."""

_NO_COUNTER = "No counter of memory traffic was read."
_COUNTER = "The counter of memory traffic averages over its window and is not split by pass."

_HOW_OBSERVED = """\
- Means are weighted by time, and 5 to 95 % are percentiles of the samples. Where three times the
  usual time passed between two readings, nothing is said of the time between.
- A window is the time that a source averages over, as it declares it; the basis says whether that
  is documented, assumed or measured. Hz and jitter are what was delivered, not what was asked for.
- EMC busy is a share of the running memory clock, of all who use the memory, reads and writes.
- A phase has a bandwidth only where it lasted for six windows of the counter; the first five are
  left out of it, for they still hold what was before."""


_HOW_CONTENDED = """\
- Every leg repeats one-token passes of the target at one depth. Legs alone have the same threads,
  cores and provider as those beside an antagonist; all come in random order, once a repeat.
- Only the time in which both ran counts: from the moment at which both had begun to that at which
  the first of them ended.
- An antagonist's dose is a part of its own rate, at which its passes begin; *antagonist kept* is
  what it reached of that.
- *cores* is the slowdown beside the spinner, which moves no bytes, at the same processor time
  taken; *bus* is the rest. kappa is that rest x ceiling over the antagonist's bytes in the time of
  a pass: 0 is slack, 1 a shared bus, above 1 row conflicts, the cache or clocks come on top.
- The ceiling is fitted on what both moved, less what sharing cores costs. With >= no dose slowed
  the target through the bus: it is the most that was seen.
- Efficiency is the sum of what both kept: 1 is a zero sum, 2 independent.
- Intervals are 95 %, bootstrap over repeats, widened for few repeats."""


def report_names(figures: str = "svg") -> list[str]:
    """All files that a report may consist of, its figures in the form of that suffix."""
    return [REPORT_NAME, *(f"{stem}.{figures}" for stem in PLOTS)]


def write_report(session: Session, summary: Summary, folder: Path, *, figures: str = "svg") -> Path:
    """``report.md`` and its plots in ``folder``, which is there, old ones replaced.

    Returns the path of the report.
    """
    from edgeprof.report.session_figures import save_plots  # matplotlib is only needed here

    report = folder / REPORT_NAME
    plots = save_plots(session, summary, folder, figures)
    probe = measured_like(session.info.device, session.info.environment)
    with whole_file(report) as unfinished:
        unfinished.write_text(markdown(summary, plots, probe), encoding="utf-8")
    return report


def markdown(
    summary: Summary, plots: list[str] | None = None, probe: MeasuredProfile | None = None
) -> str:
    """The document; ``plots`` are the names of the files that lie beside it, ``probe`` the profile
    of the machine that the session is of, where there is one."""
    shown = plots or []
    sections = [*_opening(summary), *_results(summary, shown, probe), *_board(summary, shown)]
    sections += _background(summary)
    return "\n\n".join(section for section in sections if section) + "\n"


def _opening(summary: Summary) -> Iterator[str]:
    session = summary.session
    name = session.recipe.get("name") or session.kind
    board = summary.device.get("name")
    yield f"# {escaped(str(name))}" + (f" on {escaped(str(board))}" if board else "")
    for stamp in stamps(summary):
        yield f"**{escaped(stamp)}**"
    if question := session.recipe.get("question"):
        yield f"*{escaped(str(question))}*"
    if session.kind in OBSERVED_KINDS:
        yield "**" + " ".join(escaped(sentence) for sentence in observed(summary)) + "**"
        return
    lines = [
        f"- **{escaped(h.target)}: {escaped(h.answer)}.** {_capital(escaped(h.output))}. "
        f"{_capital(escaped(h.reason))}."
        for h in headlines(summary)
    ] + [f"- {escaped(sentence)}" for sentence in contention_sentences(summary)]
    nothing = "No variant with a drafter was compared with plain decoding."
    yield "\n".join(lines) or ("" if synthetic_table(summary).rows else nothing)
    yield contrast(summary) or ""


def _results(summary: Summary, plots: list[str], probe: MeasuredProfile | None) -> Iterator[str]:
    yield _titled("Speed", pipe_table(variant_table(summary)), _plot("tokens-per-second", plots))
    yield pipe_table(repeat_table(summary))
    yield pipe_table(latency_table(summary))
    yield _titled("Draft lengths", pipe_table(sweep_table(summary)), *sweep_notes(summary))
    yield _titled("Synthetic tests", pipe_table(synthetic_table(summary)))
    if summary.session.kind not in OBSERVED_KINDS:
        yield _titled("As llama-bench lists it", pipe_table(bench_table(summary)))
    yield _titled("Output", _output(summary))
    yield _titled(
        "Where the time goes",
        pipe_table(share_table(summary)),
        *map(escaped, share_notes(summary)),
        _plot("time-share", plots),
        _balance(summary),
    )
    yield _titled("Acceptance", pipe_table(acceptance_table(summary)), _plot("acceptance", plots))
    yield _titled(
        "Cost of verification",
        pipe_table(verify_table(summary, bands=True)),
        _plot("verify-cost", plots),
    )
    yield _titled(
        "Passes under the roof",
        pipe_table(ceiling_table(summary)),
        pipe_table(pass_table(summary)),
        _plot("roofline", plots),
    )
    if probe is not None:
        title = escaped(ceilings_title(probe))
        yield f"{title}:\n\n{pipe_table(kernel_table(probe))}"


def _board(summary: Summary, plots: list[str]) -> Iterator[str]:
    """What the memory bus, the rails and the sensors showed meanwhile."""
    yield _titled("Contention", _plot("contention", plots))
    yield _titled("Energy", _plot("energy", plots))
    yield _titled("Timeline", _plot("timeline", plots))
    yield _titled(
        "Bytes a pass",
        pipe_table(attribution_table(summary)),
        _plot("traffic", plots),
        *map(escaped, attribution_notes(summary)),
    )
    yield _titled(
        "Contention",
        pipe_table(kept_table(summary)),
        pipe_table(cost_table(summary)),
        pipe_table(curve_table(summary)),
        *map(escaped, contention_notes(summary)),
    )
    yield _titled(
        "What alternating costs",
        pipe_table(alternation_table(summary)),
        *map(escaped, alternation_notes(summary)),
    )
    yield _titled(sustained_title(summary), pipe_table(sustained_table(summary)))
    yield _titled("Energy", pipe_table(energy_table(summary)), *map(escaped, energy_notes(summary)))
    yield _titled(
        "Phases",
        pipe_table(phase_table(summary.phases, summary.session.duration_s)),
        *phase_notes(summary),
    )
    yield _titled("Signals", pipe_table(signal_table(summary.signals)))
    yield _titled("Memory (GiB)", pipe_table(memory_table(summary)))
    yield _titled("Limits", _limits(summary))


def _background(summary: Summary) -> Iterator[str]:
    yield _titled("Warnings", "\n".join(f"- {escaped(text)}" for text in summary.warnings))
    yield _titled(
        "Environment", pipe_table(environment_table(summary)), pipe_table(model_table(summary))
    )
    yield _titled("Not measured", "\n".join(f"- {line}" for line in _not_measured(summary)))
    yield _titled("How it was measured", _how(summary))


def _output(summary: Summary) -> str:
    if not summary.comparisons:
        return ""
    output = summary.comparisons[0].output
    if output.not_comparable is not None:
        return (
            f"Answers are {output.not_comparable}. Speculative sampling gives each token the "
            "target's own distribution, whatever drafts."
        )
    return f"The reference is {output.reference}.\n\n{pipe_table(output_table(summary))}"


def _balance(summary: Summary) -> str:
    rounds = pipe_table(round_table(summary))
    if not rounds:
        return ""
    return (
        "A round in units of the time of one plainly decoded token; tokens over cost is the "
        f"measured speed-up:\n\n{rounds}\n\n"
        "The same against one plain token: speed-up = tokens / (1 + the terms). Draft and "
        "verification are held passes, in situ is what passes take longer while decoding than "
        "held, by their means and less what plain decoding's do:\n\n"
        f"{pipe_table(term_table(summary))}"
    )


def _limits(summary: Summary) -> str:
    lines = []
    for comparison in summary.comparisons:
        verdict = comparison.verdict
        name = f"**{escaped(comparison.variant)}** {verdict.outcome}: {escaped(verdict.because)}"
        lines.append(f"- {name}.")
        lines += [
            f"  - {limit.name}: {escaped(limit.evidence)}. *Try:* {escaped(limit.advice)}."
            for limit in verdict.limits
        ]
    return "\n".join(lines)


def _not_measured(summary: Summary) -> Iterator[str]:
    """What a reader may look for and will not find, and why."""
    yield from (escaped(line) for line in absent_lines(summary))
    if summary.session.kind not in OBSERVED_KINDS:
        yield from _not_decoded(summary)


def _not_decoded(summary: Summary) -> Iterator[str]:
    """What a run of decoding lacks, less what the sources have told the reason of."""
    for family, reason in _UNREAD.items():
        told = any(one.signal.partition(".")[0] == family for one in summary.absent)
        if not told and not _has(summary, family):
            yield reason
    if not _has(summary, "dram_bandwidth_bytes_per_s"):
        yield "bytes of the memory bus: no counter was read; bandwidth is modelled from the weights"
    if _has(summary, "power_w") and (why := no_energy(summary)):
        yield f"energy: {escaped(why)}"
    if summary.session.kind == "contend":
        return
    if not summary.contention.targets:
        yield "contention for the memory bus: edgeprof contend measures it"
    if not summary.verify_cost:
        yield "v(n), the cost of verification: no held passes in this session"
    if not summary.ceilings:
        yield "ceilings of the machine: no ceiling legs in this session"
    for comparison in summary.comparisons:
        if comparison.predicted_speedup is None:
            yield f"predicted speed-up of {escaped(comparison.variant)}: v or c was not held"


def _how(summary: Summary) -> str:
    if summary.session.kind in OBSERVED_KINDS:
        return _HOW_OBSERVED
    if summary.session.kind == "contend":
        return _HOW_CONTENDED
    counted = _has(summary, "dram_bandwidth_bytes_per_s")
    return _HOW.format(counter=_COUNTER if counted else _NO_COUNTER)


def _has(summary: Summary, family: str) -> bool:
    """Whether a signal of that name or family was read, be it to believe or not."""
    return any(signal.n and signal.name.partition(".")[0] == family for signal in summary.signals)


def _titled(title: str, *parts: str) -> str:
    """Empty where there is nothing to say."""
    body = [part for part in parts if part]
    return "\n\n".join([f"## {title}", *body]) if body else ""


def _plot(stem: str, plots: list[str]) -> str:
    found = (name for name in plots if PurePath(name).stem == stem)
    return "".join(f"![{PLOTS[stem]}]({name})" for name in found)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
