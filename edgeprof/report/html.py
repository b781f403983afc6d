"""A session's report as one HTML file: what the Markdown report holds, and charts to zoom into.

The file asks no network for anything: styles, scripts and figures are in it, and its own policy
forbids the rest. Text from outside comes in as Markdown that is escaped already and whose tags are
not let through, or through ``as_html``.
"""

import base64
import gzip
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import msgspec

from edgeprof import __version__
from edgeprof.analysis.summary import Summary
from edgeprof.analysis.timeline import Timeline, timeline_of
from edgeprof.errors import EnvironmentFault
from edgeprof.report.answers import answers_html
from edgeprof.report.headline import stamps
from edgeprof.report.markdown import PLOTS, markdown
from edgeprof.report.printable import as_html, named
from edgeprof.report.sections_html import PageSection, sections_html
from edgeprof.report.whole_file import whole_file
from edgeprof.session.records import Session

HTML_NAME = "report.html"
_AFTER_ANSWERS = ("Warnings", "Environment")  # the first of these follows the generated text


class PageChart(NamedTuple):
    """What the script of the page draws, as JSON, and what is said of it."""

    document: dict[str, Any]
    label: str
    notes: str


def check_html() -> None:
    """Raises EnvironmentFault where a library of the page is missing."""
    try:
        import markdown_it  # noqa: F401
        import plotly  # noqa: F401
    except ImportError as error:
        raise EnvironmentFault(
            f"an HTML report needs plotly and markdown-it-py ({error}): "
            "pip install 'edgeprof[html]'"
        ) from error


def write_html(session: Session, summary: Summary, folder: Path) -> Path:
    """``report.html`` in ``folder``, which is there, an old one replaced; returns its path.

    Raises EnvironmentFault where a library is missing or the file cannot be written.
    """
    check_html()
    from edgeprof.report.session_figures import save_plots  # matplotlib is only needed here

    with tempfile.TemporaryDirectory(prefix=".edgeprof-", dir=folder) as work:
        names = save_plots(session, summary, Path(work), "svg")
        plots = {name: (Path(work) / name).read_bytes() for name in names}
    report = folder / HTML_NAME
    with whole_file(report) as unfinished:
        unfinished.write_text(html(session, summary, plots), encoding="utf-8")
    return report


def html(session: Session, summary: Summary, plots: Mapping[str, bytes]) -> str:
    """The page; ``plots`` are SVG files by the names that the Markdown report gives them."""
    timeline = timeline_of(session)
    charts = dict(_charts(summary, timeline))
    sections = list(_sections(session, summary, plots, charts))
    style, script = _part("page.css"), _part("page.js")
    library = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    return Template(_part("page.html")).substitute(
        policy=_policy(script, library),
        version=__version__,
        title=as_html(_title(summary)),
        style=style,
        links="".join(f'<a href="#{one.id}">{one.title}</a>' for one in sections if one.title),
        body="\n".join(one.html for one in sections),
        plotly=_packed(library.encode()),
        charts=_packed(msgspec.json.encode({name: one.document for name, one in charts.items()})),
        script=script,
    )


def _charts(summary: Summary, timeline: Timeline) -> Iterator[tuple[str, PageChart]]:
    """By name, which is that of the plot they stand in for; those that there is something for."""
    from edgeprof.report.charts import missing_panels, roofline_chart, timeline_chart
    from edgeprof.report.session_figures import pass_series, roof_lines

    stamp = {"stamp": ", ".join(_marks(summary))}
    document = timeline_chart(timeline)
    if document["panels"] and timeline.duration_s > 0:
        notes = " ".join(_timeline_notes(timeline, missing_panels(timeline)))
        yield "timeline", PageChart(document | stamp, "Timeline of the session", notes)
    roofs, series = roof_lines(summary), pass_series(summary)
    if roofs and series:
        notes = f"{PLOTS['roofline']}."
        document = roofline_chart(roofs, series)
        yield "roofline", PageChart(document | stamp, "Roofline with measured passes", notes)


def _sections(
    session: Session,
    summary: Summary,
    plots: Mapping[str, bytes],
    charts: Mapping[str, PageChart],
) -> Iterator[PageSection]:
    """Those of the Markdown report; the timeline after its opening, the answers after its figures.
    A chart stands in for the plot of its name, which shows where scripts do not run."""
    text = named(markdown(summary, [name for name in plots if name != "timeline.svg"]))
    figures = {name: _address(plot) for name, plot in plots.items()}
    for name, chart in charts.items():
        figures[f"{name}.svg"] = _place(name, chart, figures.get(f"{name}.svg"))
    opening, *rest = sections_html(text, figures, [named(stamp) for stamp in stamps(summary)])
    yield opening
    if "timeline" in charts:
        yield PageSection.of("Timeline", figures["timeline.svg"])
    answers = answers_html(session)
    for section in rest:
        if answers and section.title in _AFTER_ANSWERS:
            yield PageSection.of("Generated text", answers)
            answers = ""
        yield section


def _place(name: str, chart: PageChart, still: str | None) -> str:
    """Where a chart is drawn: its keys above, what is said of it below; ``still`` is the address of
    the plot that it stands in for."""
    return Template(_part("chart.html")).substitute(
        name=name,
        label=chart.label,
        notes=as_html(chart.notes),
        still=f'<img src="{still}" alt="{chart.label}">' if still else "",
    )


def _timeline_notes(timeline: Timeline, missing: list[str]) -> Iterator[str]:
    if timeline.left_out:
        counts = ", ".join(f"{count} {what}" for what, count in timeline.left_out.items())
        yield (
            f"Left out of the drawing, and kept in the session: {counts}; drawn are the lowest and "
            "the highest of every stretch of time."
        )
    if missing:
        yield f"Nothing was read of: {', '.join(missing).lower()}."


def _address(plot: bytes) -> str:
    """That of a plot which lies in the page."""
    return "data:image/svg+xml;base64," + base64.b64encode(plot).decode()


def _title(summary: Summary) -> str:
    session, board = summary.session, summary.device.get("name")
    name = str(session.recipe.get("name") or session.kind)
    marks = _marks(summary)
    return name + (f" on {board}" if board else "") + (f" ({', '.join(marks)})" if marks else "")


def _marks(summary: Summary) -> list[str]:
    """The stamps in a word each: incomplete, nothing measured, simulated, replayed."""
    words = [stamp.partition(" ")[0].lower() for stamp in stamps(summary)]
    return ["nothing measured" if word == "nothing" else word for word in words]


def _policy(*scripts: str) -> str:
    """Only the two scripts of the page run, and nothing is loaded from anywhere. Styles are free,
    for Plotly writes them into what it draws."""
    hashes = (
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    )
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _packed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode()


def _part(name: str) -> str:
    return files("edgeprof.report").joinpath(name).read_text(encoding="utf-8")
