"""A session's report as one HTML file: what the Markdown report holds, and charts to zoom into.

The file asks no network for anything: styles, scripts and figures are in it, and its own policy
forbids the rest. Text from outside comes in as Markdown that is escaped already and whose tags are
not let through, or through ``answers.safe``.
"""

import base64
import gzip
import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import NamedTuple

import msgspec

from edgeprof import __version__
from edgeprof.analysis.summary import Summary
from edgeprof.analysis.timeline import Timeline, timeline_of
from edgeprof.errors import EnvironmentFault
from edgeprof.report.answers import answers_html, safe
from edgeprof.report.headline import stamps
from edgeprof.report.markdown import markdown
from edgeprof.report.sections_html import PageSection, sections_html
from edgeprof.report.whole_file import whole_file
from edgeprof.session.records import Session

HTML_NAME = "report.html"
_ROOFLINE = "roofline"
_BEFORE_TEXT = ("Warnings", "Environment")  # the first of these follows the generated text
_LOOKS = {"+": "Zoom in", "-": "Zoom out", "ArrowLeft": "Left", "ArrowRight": "Right", "0": "Whole"}


class Charts(NamedTuple):
    """What the script of the page draws, by name, as JSON; and what holds the place of each."""

    documents: dict[str, object]
    figures: dict[str, str]


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

    with tempfile.TemporaryDirectory(prefix="edgeprof-") as work:
        names = save_plots(session, summary, Path(work), "svg")
        plots = {name: (Path(work) / name).read_bytes() for name in names}
    report = folder / HTML_NAME
    with whole_file(report) as unfinished:
        unfinished.write_text(html(session, summary, plots), encoding="utf-8")
    return report


def html(session: Session, summary: Summary, plots: Mapping[str, bytes]) -> str:
    """The page; ``plots`` are SVG files by the names that the Markdown report gives them."""
    timeline = timeline_of(session)
    charts = _charts(summary, timeline)
    sections = list(_sections(session, summary, plots, charts))
    style, script = _part("page.css"), _part("page.js")
    library = files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")
    return Template(_part("page.html")).substitute(
        policy=_policy(script, library),
        version=__version__,
        title=safe(_title(summary)),
        style=style,
        links="".join(f'<a href="#{one.id}">{one.title}</a>' for one in sections if one.title),
        body="\n".join(one.html for one in sections),
        plotly=_packed(library.encode()),
        charts=_packed(msgspec.json.encode(charts.documents)),
        script=script,
    )


def _charts(summary: Summary, timeline: Timeline) -> Charts:
    from edgeprof.report.charts import missing_panels, roofline_chart, shown_text, timeline_chart
    from edgeprof.report.session_figures import pass_series, roof_lines

    marks = shown_text(", ".join(line.partition(" ")[0].lower() for line in stamps(summary)))
    charts = Charts({}, {})
    if timeline.duration_s > 0 and (chart := timeline_chart(timeline))["panels"]:
        charts.documents["timeline"] = {
            **chart, "x_title": "time since the start (s)", "stamp": marks,
        }  # fmt: skip
        notes = " ".join(_timeline_notes(timeline, missing_panels(timeline)))
        charts.figures["timeline"] = _figure("timeline", "Timeline of the session", notes)
    roofs, series = roof_lines(summary), pass_series(summary)
    if roofs and series:
        chart = roofline_chart(roofs, series)
        charts.documents[_ROOFLINE] = {
            **chart, "x_title": "intensity (FLOP per byte)", "stamp": marks,
        }  # fmt: skip
        notes = "Held passes under the measured ceilings; numbers are tokens in a pass."
        charts.figures[_ROOFLINE] = _figure(_ROOFLINE, "Roofline with measured passes", notes)
    return charts


def _sections(
    session: Session, summary: Summary, plots: Mapping[str, bytes], charts: Charts
) -> Iterator[PageSection]:
    """Those of the Markdown report; the timeline after its opening, the answers after its figures.
    A chart stands in for the plot of its name."""
    text = markdown(summary, list(plots))
    figures = {name: _image(plot) for name, plot in plots.items()}
    figures |= {f"{name}.svg": figure for name, figure in charts.figures.items()}
    opening, *rest = sections_html(text, figures, stamps(summary))
    yield opening
    if timeline := charts.figures.get("timeline"):
        yield PageSection.of("Timeline", timeline)
    answers = answers_html(session)
    for section in rest:
        if answers and section.title in _BEFORE_TEXT:
            yield PageSection.of("Generated text", answers)
            answers = ""
        yield section


def _figure(name: str, label: str, notes: str) -> str:
    """The place of a chart: its keys, where it is drawn, and what is said below it."""
    keys = "".join(
        f'<button type="button" data-look="{look}">{words}</button>'
        for look, words in _LOOKS.items()
    )
    return (
        f'<figure class="chart" id="{name}">'
        f'<div class="keys" role="group" aria-label="{label}: view" hidden>{keys}</div>'
        f'<div class="drawing" tabindex="0" role="group" aria-label="{label}; plus and minus zoom, '
        f'arrow keys move, 0 shows all">'
        f"<noscript>This chart needs JavaScript; all figures are in the tables too.</noscript></div>"
        f'<p class="note shown" role="status"></p><figcaption>{safe(notes)}</figcaption></figure>'
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


def _image(plot: bytes) -> str:
    """The source of a plot that lies in the page."""
    return "data:image/svg+xml;base64," + base64.b64encode(plot).decode()


def _title(summary: Summary) -> str:
    session, board = summary.session, summary.device.get("name")
    name = str(session.recipe.get("name") or session.kind)
    marks = [line.partition(" ")[0].lower() for line in stamps(summary)]
    return name + (f" on {board}" if board else "") + (f" ({', '.join(marks)})" if marks else "")


def _policy(*scripts: str) -> str:
    """Only the two scripts of the page run, and nothing is loaded from anywhere."""
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
