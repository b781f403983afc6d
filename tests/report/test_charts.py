"""The interactive charts as JSON: which panel holds what, and the numbers in it."""

import base64
import struct
from math import isnan
from typing import Any

import numpy as np
import pytest

from edgeprof.analysis.timeline import Line, Moment, RoundMark, Stretch, Timeline
from edgeprof.report.charts import missing_panels, roofline_chart, shown_text, timeline_chart
from edgeprof.report.figures import PassSeries, RoofLine

BAD = "<a href='https://example.org'>x</a>\u202e\x00"


def line(name: str, values: list[float], source: str = "sysfs") -> Line:
    times = np.arange(float(len(values)))
    return Line(name=name, source=source, usual_s=1.0, times_s=times, values=np.array(values))


def timeline(**parts: Any) -> Timeline:
    empty: dict[str, Any] = {
        "legs": [], "passes": {}, "rounds": [], "lines": [], "moments": [], "left_out": {},
    }  # fmt: skip
    return Timeline(duration_s=10.0, **{**empty, **parts})


def unpacked(values: dict[str, str]) -> list[float]:
    """As the page's script reads them."""
    raw = base64.b64decode(values["bdata"])
    letter = {"f8": "d", "f4": "f"}[values["dtype"]]
    return list(struct.unpack(f"<{len(raw) // int(values['dtype'][1])}{letter}", raw))


def test_signals_share_a_panel_by_family_in_the_unit_people_use() -> None:
    chart = timeline_chart(
        timeline(
            lines=[
                line("dram_bandwidth_bytes_per_s", [40e9, float("nan"), 42e9]),
                line("gpu_busy_frac", [0.5]),
                line("power_w.total", [14.0]),
                line("power_w.VDD_SOC", [3.0]),
                line("gpu_clock_hz", [624e6]),
                line("cpu_online", [6.0]),  # no panel: a count that seldom moves
            ]
        )
    )
    assert [(one["title"], one["unit"]) for one in chart["panels"]] == [
        ("Memory bandwidth", "GB/s"), ("Busy", "%"), ("Power", "W"), ("Clocks", "MHz"),
    ]  # fmt: skip
    assert [(one["name"], one["panel"]) for one in chart["traces"]] == [
        ("DRAM bandwidth", 0), ("GPU busy", 1), ("total", 2), ("VDD_SOC", 2), ("GPU clock", 3),
    ]  # fmt: skip
    values = unpacked(chart["traces"][0]["y"])
    assert (values[0], values[2]) == (40.0, 42.0) and isnan(values[1])
    assert unpacked(chart["traces"][1]["y"]) == [50.0]


def test_panels_without_signals_are_named() -> None:
    some = timeline(lines=[line("ram_used_bytes", [1.0]), line("temp_c.cpu", [40.0])])
    assert missing_panels(some) == ["Memory bandwidth", "Busy", "Power", "Clocks"]


def test_legs_passes_and_events_have_a_lane_each() -> None:
    leg = Stretch(label="r1", t0_s=0.0, t1_s=2.0, note="decode, complete")
    verify = Stretch(label="fp32", t0_s=1.0, t1_s=1.02, note="5 tokens after 812")
    hot = Moment(t_s=1.5, kind="throttling", severity="warning", detail={"zone": "gpu"})
    chart = timeline_chart(timeline(legs=[leg], passes={"verify": [verify]}, moments=[hot]))
    (panel,) = chart["panels"]
    assert panel["lanes"] == ["events", "verify", "legs"]  # from the bottom
    legs, passes, events = chart["traces"]
    assert unpacked(legs["x"])[:2] == [0.0, 2.0] and isnan(unpacked(legs["x"])[2])
    assert passes["told"] == {
        "texts": ["verify: fp32 (5 tokens after 812), 20.0 ms"], "stride": 3, "end": 1,
    }  # fmt: skip
    assert events["told"] == {
        "texts": ['throttling at 1.500 s: {"zone":"gpu"}'],
        "stride": 1,
        "end": 0,
    }


def test_a_signal_tells_its_value_with_unit_and_source_and_for_how_long_one_stands() -> None:
    (power,) = timeline_chart(timeline(lines=[line("power_w.VDD_SOC", [3.0])]))["traces"]
    assert power["told"] == {
        "name": "VDD_SOC", "unit": "W", "digits": 3, "source": "sysfs", "usual_s": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("at_s", "shown_s"),
    [
        ([], [0.0, 10.0]),
        ([5.0], [0.0, 10.0]),
        ([-3.0, 12.0], [-3.0, 12.0]),  # set up before, noted after
        ([-50_000.0, 4.0], [0.0, 10.0]),  # of a clock that was not the session's
    ],
)
def test_the_whole_holds_the_events_around_it(at_s: list[float], shown_s: list[float]) -> None:
    moments = [Moment(t_s=t, kind="absent", severity="info", detail={}) for t in at_s]
    assert timeline_chart(timeline(moments=moments))["shown_s"] == shown_s


def test_rounds_are_steps_of_drafted_accepted_and_emitted() -> None:
    one = RoundMark(
        id=7, t0_s=1.0, t1_s=1.03, drafted=3, accepted=2, emitted=3, draft_s=0.006, target_s=0.02
    )
    chart = timeline_chart(timeline(rounds=[one]))
    heights = {trace["name"]: unpacked(trace["y"])[:4] for trace in chart["traces"]}
    assert heights == {"drafted": [0, 3, 3, 0], "accepted": [0, 2, 2, 0], "emitted": [0, 3, 3, 0]}
    emitted, *others = chart["traces"]
    assert emitted["told"]["texts"] == [
        "round 7: 3 drafted, 2 accepted, 3 emitted; draft 6.00 ms, target 20.0 ms of 30.0 ms"
    ]
    stride, end = emitted["told"]["stride"], emitted["told"]["end"]
    assert (unpacked(emitted["x"])[0], unpacked(emitted["x"])[end], stride) == (1.0, 1.03, 5)
    assert not any("told" in one for one in others)  # a round is told once


def test_a_session_without_drafts_has_no_panel_of_rounds() -> None:
    plain = RoundMark(
        id=1, t0_s=0.0, t1_s=0.1, drafted=0, accepted=0, emitted=1, draft_s=0.0, target_s=0.1
    )
    assert timeline_chart(timeline(rounds=[plain]))["panels"] == []


def test_nothing_at_all_is_a_chart_without_panels() -> None:
    assert timeline_chart(timeline())["panels"] == []


def test_names_from_outside_are_no_tags() -> None:
    assert shown_text(BAD) == ("&lt;a href='https://example.org'&gt;x&lt;/a&gt;{U+202E}\ufffd")
    assert len(shown_text("x" * 1000)) == 160
    leg = Stretch(label=BAD, t0_s=0.0, t1_s=1.0, note=BAD)
    hot = Moment(t_s=0.5, kind=BAD, severity="error", detail={BAD: BAD})
    chart = timeline_chart(
        timeline(legs=[leg], moments=[hot], lines=[line("power_w." + BAD, [1.0], source=BAD)])
    )
    roofline = roofline_chart(
        [RoofLine(label=BAD, bandwidth_bytes_per_s=1e9, flop_per_s={BAD: 1e9})],
        [PassSeries(label=BAD, points=[(1, 1.0, 1e9)])],
    )
    for trace in chart["traces"]:  # what is told is shown as text, whatever it holds
        assert "\u202e" not in str(trace.pop("told"))
    for text in (str(chart), str(roofline)):
        assert "<a" not in text and "\u202e" not in text


def test_a_roof_bends_at_its_ridge() -> None:
    roof = RoofLine(label="fp32 ceiling", bandwidth_bytes_per_s=30e9, flop_per_s={"measured": 60e9})
    series = PassSeries(label="fp32", points=[(1, 0.5, 10e9), (4, 2.0, 40e9), (8, 0.0, 0.0)])
    line, points = roofline_chart([roof], [series])["traces"]
    assert line["x"][1] == 2.0  # 60 GFLOP/s over 30 GB/s
    assert line["y"][1:] == [60e9, 60e9]
    assert line["y"][0] == pytest.approx(30e9 * line["x"][0])
    # what a logarithmic axis cannot show is left out
    assert (points["x"], points["text"]) == ([0.5, 2.0], ["1", "4"])
