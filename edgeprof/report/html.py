"""A session's report as one HTML file: the Markdown report's content, and charts to zoom into.

The file asks no network for anything: styles, scripts and figures are in it, and its own policy
forbids the rest. Text from outside comes in as Markdown that is escaped already, whose tags are not
let through, or through ``answers.safe``.
"""

import base64
import gzip
import hashlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path, PurePath
from string import Template
from typing import TYPE_CHECKING, Any

import msgspec

from edgeprof import __version__
from edgeprof.analysis.summary import Summary
from edgeprof.analysis.timeline import Timeline, timeline_of
from edgeprof.errors import EnvironmentFault
from edgeprof.report.answers import answers_html, safe
from edgeprof.report.headline import stamps
from edgeprof.report.markdown import markdown
from edgeprof.report.printable import printable
from edgeprof.report.table import escaped
from edgeprof.report.whole_file import whole_file
from edgeprof.session.records import Session

if TYPE_CHECKING:
    from markdown_it.token import Token

    from edgeprof.report.charts import Chart

HTML_NAME = "report.html"
_TIMELINE, _ROOFLINE = "timeline", "roofline"
_KEYS = (
    ("+", "Zoom in"),
    ("-", "Zoom out"),
    ("ArrowLeft", "Earlier"),
    ("ArrowRight", "Later"),
    ("0", "Whole"),
)


def check_html() -> None:
    """Raises EnvironmentFault where the libraries of the page are missing."""
    try:
        import markdown_it  # noqa: F401
        import plotly  # noqa: F401
    except ImportError as error:
        raise EnvironmentFault(
            f"an HTML report needs plotly and markdown-it-py ({error}): pip install 'edgeprof[html]'"
        ) from error


def write_html(session: Session, summary: Summary, folder: Path) -> Path:
    """``report.html`` in ``folder``, which is there, an old one replaced; returns its path.

    Raises EnvironmentFault where a library is missing or the file cannot be written.
    """
    check_html()
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as work:
        text = html(session, summary, _figures(session, summary, Path(work)))
    report = folder / HTML_NAME
    with whole_file(report) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
    return report


def html(session: Session, summary: Summary, figures: Mapping[str, bytes]) -> str:
    """The page; ``figures`` are SVG files by the name under which the Markdown report shows them."""
    timeline = timeline_of(session)
    charts = _charts(summary, timeline)
    body, links = _body(session, summary, figures, timeline, charts)
    style, script, library = (_resource(name) for name in ("page.css", "page.js", "plotly"))
    document = Template(_resource("page.html")).substitute(
        policy=_policy([script, library], style),
        version=__version__,
        title=escape(printable(_title(summary))),
        style=style,
        links=links,
        body=body,
        plotly=_packed(library.encode()),
        charts=_packed(msgspec.json.encode(charts)),
        script=script,
    )
    return document


def _figures(session: Session, summary: Summary, work: Path) -> dict[str, bytes]:
    """Those of the Markdown report."""
    from edgeprof.report.session_figures import save_plots  # matplotlib is only needed here

    names = save_plots(session, summary, work, "svg")
    return {name: (work / name).read_bytes() for name in names}


def _charts(summary: Summary, timeline: Timeline) -> "dict[str, Chart]":
    """By the name of the figure that each stands for."""
    from edgeprof.report.charts import roofline_chart, shown_text, timeline_chart
    from edgeprof.report.session_figures import pass_series, roof_lines

    made = {}
    if (chart := timeline_chart(timeline))["panels"]:
        made[_TIMELINE] = {**chart, "x_title": "time since the start (s)"}
    roofs, series = roof_lines(summary), pass_series(summary)
    if roofs and series:
        chart = roofline_chart(roofs, series)
        made[_ROOFLINE] = {**chart, "x_title": "intensity (FLOP per byte)"}
    marks = [line.partition(" ")[0] for line in stamps(summary)]
    stamp = shown_text(", ".join(marks).lower())
    return {name: {**chart, "stamp": stamp} for name, chart in made.items()}


def _body(
    session: Session,
    summary: Summary,
    figures: Mapping[str, bytes],
    timeline: Timeline,
    charts: "Mapping[str, Chart]",
) -> tuple[str, str]:
    """The content, and the links to its sections."""
    from markdown_it import MarkdownIt

    page = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = page.parse(markdown(summary, list(figures)))
    _mark_stamps(tokens, summary)
    _make_tables_readable(tokens)
    tokens = list(_with_figures(tokens, figures, charts))
    if _TIMELINE in charts and not any(_id(_TIMELINE) in one.content for one in tokens):
        at = _first_section(tokens)
        tokens[at:at] = [_raw("<h2>Timeline</h2>"), _raw(_figure(_TIMELINE, "", None, timeline))]
    ...
    raise NotImplementedError
