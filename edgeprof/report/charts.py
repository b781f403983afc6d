"""The interactive charts of a page, as the JSON that Plotly's script draws.

Knows nothing of that script's Python package, of sizes or of themes: the page lays panels out for
the width it has. Names come from outside, and Plotly reads tags in them: all that it shows is
escaped here. What a trace of the timeline says under the pointer is in its ``told``, as plain text:
the page looks up what contains the pointed time, for Plotly would name the nearest of all.
"""

import base64
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import msgspec
import numpy as np

from edgeprof.analysis.thinning import Floats
from edgeprof.analysis.timeline import Line, Moment, RoundMark, Stretch, Timeline
from edgeprof.report.figures import PALETTE, PassSeries, RoofLine
from edgeprof.report.printable import named
from edgeprof.report.signal_words import label, scale
from edgeprof.units import show

Chart = dict[str, Any]

# Families of signals that share a panel: title and the names before any member.
_PANELS = {
    "Memory bandwidth": ("dram_bandwidth_bytes_per_s",),
    "Busy": ("emc_busy_frac", "gpu_busy_frac", "cpu_busy_frac"),
    "Power": ("power_w",),
    "Temperature": ("temp_c",),
    "Clocks": ("emc_clock_hz", "gpu_clock_hz"),
    "Memory in use": ("ram_used_bytes", "swap_used_bytes"),
}
_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY, _ = PALETTE
_GREY, _LIGHT_GREY = "#777777", "#aaaaaa"
_COLOURS = (_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY, _GREY)  # seen on black too
_PHASES = {
    "prefill": _PURPLE, "draft": _ORANGE, "verify": _BLUE, "decode": _SKY, "ceiling": _GREY,
}  # fmt: skip
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = {"error": "x", "warning": "triangle-up"}
_LANE_PX, _PANEL_PX = 26, 130
_LONGEST_TEXT = 160
_SHORT_S = 10.0


def timeline_chart(timeline: Timeline) -> Chart:
    """Panels over one time axis, each only where the session has something for it."""
    panels: list[Chart] = []
    traces: list[Chart] = []

    def put(title: str, unit: str, found: Sequence[Chart], **more: Any) -> None:
        if found:
            traces.extend({**trace, "panel": len(panels)} for trace in found)
            panels.append({"title": title, "unit": unit, **more})

    lanes = list(_lanes(timeline))
    order = list(dict.fromkeys(trace["y"][0] for trace in lanes))
    put("Legs and passes", "", lanes, lanes=order[::-1], height=_LANE_PX * len(order) + 10)
    put("Tokens a round", "", list(_rounds(timeline.rounds)), height=_PANEL_PX)
    for title, families in _PANELS.items():
        lines = [one for one in timeline.lines if one.name.partition(".")[0] in families]
        unit = scale(families[0]).unit
        put(title, unit, [_line(one, i) for i, one in enumerate(lines)], height=_PANEL_PX)
    return {
        "panels": panels,
        "traces": traces,
        "x_title": "time since the start (s)",
        "shown_s": _shown_s(timeline),
    }


def _shown_s(timeline: Timeline) -> list[float]:
    """From where to where the whole is: events shortly before and after, as of what was set up,
    belong to it; an odd one far away does not make the rest invisible."""
    lasted_s = timeline.duration_s
    margin_s = max(_SHORT_S, 0.1 * lasted_s)
    near = [one.t_s for one in timeline.moments if -margin_s <= one.t_s <= lasted_s + margin_s]
    return [min(0.0, *near), max(lasted_s, *near)] if near else [0.0, lasted_s]


def missing_panels(timeline: Timeline) -> list[str]:
    """The titles of the panels that no signal of the session fills."""
    there = {one.name.partition(".")[0] for one in timeline.lines}
    return [title for title, families in _PANELS.items() if not there.intersection(families)]


def roofline_chart(roofs: Sequence[RoofLine], series: Sequence[PassSeries]) -> Chart:
    """Measured passes under the measured roofs, both axes logarithmic."""
    points = [(x, y) for one in series for _, x, y in one.points if x > 0 and y > 0]
    left = min((x for x, _ in points), default=1.0) / 3
    right = 3 * max(
        [x for x, _ in points]
        + [
            peak / roof.bandwidth_bytes_per_s for roof in roofs for peak in roof.flop_per_s.values()
        ],
        default=100.0,
    )
    traces = [
        *(trace for i, roof in enumerate(roofs) for trace in _roof(roof, i, left, right)),
        *(_points(one, len(roofs) + i) for i, one in enumerate(series)),
    ]
    return {
        "panels": [{"title": "FLOP/s over FLOP per byte", "unit": "", "height": 380}],
        "traces": [{**trace, "panel": 0} for trace in traces],
        "x_title": "intensity (FLOP per byte)",
        "logarithmic": True,
    }


def shown_text(text: str) -> str:
    """Text from outside as Plotly may show it: no tag, and not too long."""
    return escape(_plain_text(text), quote=False)  # Plotly reads no &quot;


def _plain_text(text: str) -> str:
    """As text that is shown as such: nothing in it steers the eye, and it is not too long."""
    flat = named(" ".join(text.split()))
    return flat if len(flat) <= _LONGEST_TEXT else flat[: _LONGEST_TEXT - 1] + "…"


def _lanes(timeline: Timeline) -> Iterator[Chart]:
    if timeline.legs:
        yield _stretches("legs", timeline.legs[::2], _GREY)
    if len(timeline.legs) > 1:
        yield _stretches("legs", timeline.legs[1::2], _LIGHT_GREY)  # neighbours stay apart
    for phase, passes in timeline.passes.items():
        yield _stretches(phase, passes, _PHASES.get(phase, _GREY))
    if timeline.moments:
        yield _moments(timeline.moments)


def _stretches(lane: str, stretches: Sequence[Stretch], colour: str) -> Chart:
    """A bar each: a thick line from its start to its end."""
    times = [(one.t0_s, one.t1_s, np.nan) for one in stretches]
    notes = (
        f"{_plain_text(one.label)} ({_plain_text(one.note)}), {show(one.t1_s - one.t0_s, 's')}"
        for one in stretches
    )
    return {
        "type": "scatter",
        "mode": "lines",
        "name": lane,
        "x": _packed(np.array(times).ravel()),
        "y": [lane] * (3 * len(stretches)),
        "told": _spans([f"{lane}: {note}" for note in notes], stride=3, end=1),
        "line": {"width": 14, "color": colour, "simplify": False},
        "showlegend": False,
    }


def _spans(texts: list[str], *, stride: int, end: int) -> Chart:
    """What is said of the spans of a trace, one text each: of every ``stride`` places in its ``x``
    the first is where a span begins, and the one at ``end`` where it ends."""
    return {"texts": texts, "stride": stride, "end": end}


def _moments(moments: Sequence[Moment]) -> Chart:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "events",
        "x": _packed(np.array([one.t_s for one in moments])),
        "y": ["events"] * len(moments),
        "told": _spans([_moment_text(one) for one in moments], stride=1, end=0),
        "marker": {
            "size": 9,
            "color": _VERMILION,
            "symbol": [_SYMBOLS.get(one.severity, "circle") for one in moments],
        },
        "showlegend": False,
    }  # fmt: skip


def _moment_text(one: Moment) -> str:
    """With its time, for a mark is told by whoever points near it."""
    detail = msgspec.json.encode(one.detail).decode()
    return _plain_text(f"{one.kind} at {one.t_s:.3f} s: {detail}")


def _rounds(rounds: Sequence[RoundMark]) -> Iterator[Chart]:
    """Steps of drafted, accepted and emitted tokens; nothing where nothing was ever drafted."""
    if not any(one.drafted for one in rounds):
        return
    times = _packed(
        np.array([(one.t0_s, one.t0_s, one.t1_s, one.t1_s, np.nan) for one in rounds]).ravel()
    )

    def steps(name: str, heights: list[int], **more: Any) -> Chart:
        values = [(0.0, height, height, 0.0, np.nan) for height in heights]
        return {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": times,
            "y": _packed(np.array(values).ravel()),
            **more,
        }

    yield steps(
        "emitted",
        [one.emitted for one in rounds],
        line={"width": 1.5, "color": _BLUE, "dash": "dot"},
        told=_spans([_round_text(one) for one in rounds], stride=5, end=2),
    )
    yield steps(
        "drafted", [one.drafted for one in rounds], line={"width": 1, "color": _ORANGE},
        fill="tozeroy", fillcolor=f"{_ORANGE}55",
    )  # fmt: skip
    yield steps(
        "accepted", [one.accepted for one in rounds], line={"width": 1, "color": _GREEN},
        fill="tozeroy",
    )  # fmt: skip


def _round_text(one: RoundMark) -> str:
    """``round 12: 3 drafted, 2 accepted, 3 emitted; draft 5 ms, target 20 ms of 27 ms``."""
    tokens = f"{one.drafted} drafted, {one.accepted} accepted, {one.emitted} emitted"
    draft, target, whole = (show(s, "s") for s in (one.draft_s, one.target_s, one.t1_s - one.t0_s))
    return f"round {one.id}: {tokens}; draft {draft}, target {target} of {whole}"


def _line(line: Line, index: int) -> Chart:
    unit = scale(line.name)
    name = line.name.partition(".")[2] or label(line.name)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": shown_text(name),
        "x": _packed(line.times_s),
        "y": _packed((unit.factor * line.values).astype(np.float32)),
        "told": {
            "name": _plain_text(name),
            "unit": unit.unit,
            "digits": max(unit.digits, 0) + 1,
            "source": _plain_text(line.source),
            "usual_s": line.usual_s,
        },
        "line": {
            "width": 1.5,
            "color": _COLOURS[index % len(_COLOURS)],
            "dash": _DASHES[index // len(_COLOURS) % len(_DASHES)],
        },
    }


def _roof(roof: RoofLine, index: int, left: float, right: float) -> Iterator[Chart]:
    """The slope of memory up to each ceiling, then flat."""
    slope = roof.bandwidth_bytes_per_s
    for position, (name, peak) in enumerate(roof.flop_per_s.items()):
        x = [left, max(peak / slope, left), right]
        yield {
            "type": "scatter",
            "mode": "lines",
            "name": shown_text(f"{roof.label}, {name}"),
            "x": x,
            "y": [min(slope * one, peak) for one in x],
            "line": {
                "width": 2,
                "color": _COLOURS[index % len(_COLOURS)],
                "dash": _DASHES[position % len(_DASHES)],
            },
            "hovertemplate": shown_text(
                f"{roof.label}: {show(slope, 'B/s')}, {show(peak, 'FLOP/s')}"
            )
            + "<extra></extra>",
        }


def _points(series: PassSeries, index: int) -> Chart:
    points = [point for point in series.points if point[1] > 0 and point[2] > 0]
    name = shown_text(series.label)
    return {
        "type": "scatter",
        "mode": "lines+markers+text",
        "name": f"{name} (measured)",
        "x": [x for _, x, _ in points],
        "y": [y for _, _, y in points],
        "text": [str(tokens) for tokens, _, _ in points],
        "textposition": "top center",
        "hovertemplate": f"{name}, %{{text}} tokens: %{{y:.3s}}FLOP/s at %{{x:.3g}} FLOP/B"
        "<extra></extra>",
        "line": {"width": 1, "color": _COLOURS[index % len(_COLOURS)]},
        "marker": {"size": 8},
    }


def _packed(values: Floats) -> dict[str, str]:
    """Numbers as Plotly takes them in without parsing text; NaN is a gap."""
    kind = {"float64": "f8", "float32": "f4"}[values.dtype.name]
    return {"dtype": kind, "bdata": base64.b64encode(values.tobytes()).decode()}
