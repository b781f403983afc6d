"""What of a session a timeline shows, for the session that was made by hand."""

from math import isnan
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.timeline import Timeline, line_of, timeline_of
from edgeprof.session.columns import Samples, Tokens
from edgeprof.session.records import Event, Session, Signal

MS = 1_000_000


@pytest.fixture(scope="module")
def timeline(made_session: Session) -> Timeline:
    return timeline_of(made_session)


def test_times_count_from_the_start_of_the_session(timeline: Timeline) -> None:
    first = timeline.legs[0]
    assert (first.t0_s, first.label, first.note) == (
        0.0,
        "decode fp32 0",
        "decode, warm-up, complete",
    )
    # two answers of 100 times 50 ms of prefill and 8 rounds of 20 ms
    assert first.t1_s == pytest.approx(2 * 100 * (0.050 + 8 * 0.020))
    assert timeline.duration_s == pytest.approx(timeline.legs[-1].t1_s)


def test_passes_come_by_phase_in_the_order_of_a_round(
    timeline: Timeline, made_session: Session
) -> None:
    assert list(timeline.passes) == ["prefill", "draft", "verify", "decode", "ceiling"]
    assert sum(map(len, timeline.passes.values())) == len(made_session.passes)
    assert timeline.left_out == {}


def test_a_round_knows_its_tokens_and_its_times(timeline: Timeline) -> None:
    drafted = next(one for one in timeline.rounds if one.drafted == 2)  # fp32+draft k=2, its first
    assert (drafted.accepted, drafted.emitted) == (2, 3)
    assert drafted.draft_s == pytest.approx(0.006)
    assert drafted.target_s == pytest.approx(0.020)
    assert drafted.t1_s - drafted.t0_s == pytest.approx(0.030)


def test_p15_what_is_too_much_to_draw_is_thinned_and_counted(made_session: Session) -> None:
    timeline = timeline_of(made_session, most_points=8, most_stretches=8)
    assert len(timeline.rounds) <= 8 and len(timeline.legs) <= 8
    assert all(len(some) <= 8 for some in timeline.passes.values())
    assert timeline.left_out["rounds"] == len(made_session.rounds) - len(timeline.rounds)
    drawn = sum(map(len, timeline.passes.values()))
    assert timeline.left_out["passes"] == len(made_session.passes) - drawn
    assert 4 in {one.emitted for one in timeline.rounds}  # the round that gave most is still there


def test_signals_have_gaps_where_nothing_is_known(maker: Any) -> None:
    leg = maker.leg("decode", "t")
    start = maker.now
    maker.now += 10_000 * MS
    maker.end_leg()
    maker.signal("power_w.total", "W", [(start + t * 1000 * MS, 5.0 + t) for t in (0, 1, 2, 7, 8)])
    (line,) = timeline_of(maker.session()).lines
    assert line.times_s.tolist() == [0.0, 1.0, 2.0, 4.5, 7.0, 8.0]
    assert isnan(line.values[3])
    assert line.values[[0, 1, 2, 4, 5]].tolist() == [5.0, 6.0, 7.0, 12.0, 13.0]
    assert line.usual_s == 1.0  # three of the four pairs of neighbours
    assert leg == 1


def test_a_single_reading_stands_for_as_long_as_was_asked_for(maker: Any) -> None:
    maker.leg("decode", "t")
    maker.signal("power_w.total", "W", [(maker.now, 5.0)])
    maker.end_leg()
    (line,) = timeline_of(maker.session()).lines
    assert line.usual_s == 0.0  # nobody knows
    maker.signals[0] = replace(maker.signals[0], asked_hz=4.0)
    (line,) = timeline_of(maker.session()).lines
    assert line.usual_s == 0.25


def test_p15_eight_hours_keep_their_peaks_and_their_gap() -> None:
    """57 600 samples at 2 Hz, all 10 W but one of 99 W and one of 1 W; one gap."""
    values = np.full(57_600, 10.0)
    values[31_234], values[44_444] = 99.0, 1.0
    held = np.arange(57_599) != 50_399
    line = line_of(
        Channel(
            signal=Signal(id=1, name="power_w.total", unit="W", source="sysfs"),
            times_ns=np.arange(57_600) * 500 * MS + 7 * MS,
            values=values,
            held=held,
            qualities={"ok": 57_600},
            suspect=None,
        ),
        7 * MS,
        600,
    )
    assert len(line.values) <= 601
    assert line.times_s[line.values == 99.0].tolist() == [31_234 / 2]
    assert line.times_s[line.values == 1.0].tolist() == [44_444 / 2]
    assert line.times_s[np.isnan(line.values)].size == 1


def test_a_leg_that_nobody_saw_end_reaches_to_the_end(maker: Any) -> None:
    maker.leg("decode", "t", status="running")
    maker.signal("temp_c.cpu", "deg C", [(maker.now + 3000 * MS, 40.0)])
    timeline = timeline_of(maker.session())
    assert [(one.t0_s, one.t1_s) for one in timeline.legs] == [(0.0, 3.0)]


def test_events_are_there_with_what_they_tell(maker: Any) -> None:
    maker.leg("decode", "t")
    maker.now += 5000 * MS
    maker.end_leg()
    hot = Event(
        leg_id=1, t_ns=maker.now - 2000 * MS, kind="throttling", severity="warning",
        detail={"zone": "gpu"},
    )  # fmt: skip
    (moment,) = timeline_of(replace(maker.session(), events=[hot])).moments
    assert (moment.t_s, moment.kind, moment.detail) == (3.0, "throttling", {"zone": "gpu"})


def test_an_empty_session_has_an_empty_timeline(made_session: Session) -> None:
    empty = replace(
        made_session, legs=[], requests=[], rounds=[], passes=[], tokens=Tokens.of([]), signals=[],
        samples=Samples.of([]), events=[],
    )  # fmt: skip
    timeline = timeline_of(empty)
    assert timeline.duration_s == 0.0
    assert not (timeline.legs or timeline.passes or timeline.rounds or timeline.lines)
