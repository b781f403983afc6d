"""Which repetitions are left out, and why."""

from typing import Any

import pytest
from made_session import MS, SessionMaker, plain
from msgspec.structs import replace

from edgeprof.analysis.board import Readings
from edgeprof.analysis.channels import channels_of
from edgeprof.analysis.disturbance import (
    Disturbance,
    disturbances_of,
    disturbed_words,
    heating,
    left_out_legs,
)
from edgeprof.analysis.summary import summarise
from edgeprof.session.records import Event, Session


def three_repeats(maker: SessionMaker, *, slow: int | None = 1, **attrs: Any) -> Session:
    """The plain variant three times, in one of them at half the speed and with these attributes."""
    for repeat in range(3):
        maker.decode_leg("fp32", repeat=repeat, slower=2.0 if repeat == slow else 1.0)
        if repeat == slow:
            leg = maker.legs[-1]
            maker.legs[-1] = replace(leg, attrs={**leg.attrs, **attrs})
    return maker.session()


def found(session: Session) -> list[Disturbance]:
    return disturbances_of(session, Readings(channels_of(session)))


def event(session: Session, kind: str, **detail: Any) -> Session:
    """In the middle of the second leg."""
    leg = session.legs[1]
    t_ns = (leg.t0_ns + (leg.t1_ns or 0)) // 2
    told = Event(leg_id=None, t_ns=t_ns, kind=kind, severity="warning", detail=detail)
    return replace(session, events=[told])


def test_a_quiet_session_has_none(maker: SessionMaker) -> None:
    assert found(three_repeats(maker, processor={"others_s": 0.05, "stolen_s": 0.0})) == []


def test_an_antagonist_is_no_other_program(maker: SessionMaker) -> None:
    """It took 0.82 of the 0.84 s that the decoder did not; the rest is edgeprof's own."""
    beside: dict[str, Any] = {
        "processor": {"others_s": 0.84, "stolen_s": 0.0},
        "antagonist_cpu_s": 0.82,
    }
    assert found(three_repeats(maker, **beside)) == []
    beside["antagonist_cpu_s"] = 0.21  # a further program took 0.63 s, 0.75 cores
    (one,) = found(three_repeats(maker, **beside))
    assert one.reasons == ["other programs took 0.8 cores"]


def test_slowness_alone_is_no_disturbance(maker: SessionMaker) -> None:
    """Leaving out what was slow, for no cause that was seen, would choose the result."""
    assert found(three_repeats(maker)) == []


# The slow leg answers two prompts in 2 x (50 + 8 x 20) ms x 2 = 0.84 s.
@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"processor": {"others_s": 0.84, "stolen_s": 0.0}}, "other programs took 1.0 cores"),
        (
            {"processor": {"others_s": 0.0, "stolen_s": 0.42}},
            "the host gave to other machines 0.5 cores",
        ),
        ({"memory": {"swap_growth_bytes": 32 << 20}}, "swap grew by 33.6 MB"),
    ],
)
def test_what_a_leg_says_of_itself(maker: SessionMaker, attrs: dict[str, Any], reason: str) -> None:
    (one,) = found(three_repeats(maker, **attrs))
    assert (one.leg_id, one.repeat, one.reasons, one.left_out) == (2, 1, [reason], True)


@pytest.mark.parametrize(
    ("kind", "detail", "reason"),
    [
        ("throttling", {"counter": "oc1", "from": 4, "to": 7}, "throttled (counter oc1 4 to 7)"),
        ("suspend", {"asleep_s": 9.0}, "the machine slept"),
    ],
)
def test_what_happened_in_a_leg(
    maker: SessionMaker, kind: str, detail: dict[str, Any], reason: str
) -> None:
    (one,) = found(event(three_repeats(maker), kind, **detail))
    assert (one.leg_id, one.reasons) == (2, [reason])


def test_the_power_mode_may_have_changed_a_second_before_that_was_noticed(
    maker: SessionMaker,
) -> None:
    """In the middle of the second leg, 0.42 s after the end of the first."""
    told = found(event(three_repeats(maker), "power_mode", **{"from": "15W", "to": "7W"}))
    assert [one.leg_id for one in told] == [1, 2]
    assert told[0].reasons == ["the power mode changed from 15W to 7W"]


@pytest.mark.parametrize(
    ("noticed_ms", "legs"),
    [
        (100, [1]),  # within the first leg of 420 ms, the reading before 50 ms earlier
        (430, [1]),  # when it had ended
        (470, [1, 2]),  # the reading before was 50 ms earlier, and the second leg began at 460
        (1310, [2]),  # between the legs: it ended at 1300
    ],
)
def test_throttling_is_of_the_time_since_the_reading_before(
    maker: SessionMaker, noticed_ms: int, legs: list[int]
) -> None:
    start_ns = maker.now
    for slower in (1.0, 2.0, 1.0):
        maker.decode_leg("fp32", slower=slower)
        maker.now += 40 * MS
    times = [start_ns + t * MS for t in (0, noticed_ms - 50, noticed_ms, noticed_ms + 50)]
    counts = [0.0, 0.0, 2.0, 2.0]
    maker.signal("throttle_events.oc1", "1", [*zip(times, counts, strict=True)])
    detail = {"counter": "oc1", "from": 0, "to": 2}
    noticed = Event(leg_id=None, t_ns=times[2], kind="throttling", severity="warning",
                    detail=detail)  # fmt: skip
    maker.events.append(noticed)
    assert [one.leg_id for one in found(maker.session())] == legs


def test_an_event_of_another_kind_disturbs_nothing(maker: SessionMaker) -> None:
    assert found(event(three_repeats(maker), "clock_change", signal="gpu_clock_hz")) == []


def test_a_clock_that_fell_in_one_leg(maker: SessionMaker) -> None:
    session = three_repeats(maker)
    hz = [612e6, 550e6, 612e6]
    values = [(leg.t0_ns + MS, hz[i]) for i, leg in enumerate(session.legs)]
    maker.signal("gpu_clock_hz", "Hz", values)
    (one,) = found(maker.session())
    assert one.reasons == ["gpu_clock_hz fell to 550 MHz from 612 MHz"]


def test_a_leg_too_short_for_the_systems_count_is_not_judged(maker: SessionMaker) -> None:
    """One answer of 50 + 20 ms: a hundredth of a second more or less would decide."""
    for repeat in range(2):
        maker.decode_leg("fp32", repeat=repeat, rounds=[plain(20)], answers={"chat": [1, 2]})
        leg = maker.legs[-1]
        maker.legs[-1] = replace(leg, attrs={**leg.attrs, "processor": {"others_s": 0.07}})
    assert found(maker.session()) == []


def test_figures_come_from_the_other_legs(maker: SessionMaker) -> None:
    """Plain decoding makes 50 tokens/s, and 25 in the repeat that was disturbed."""
    session = three_repeats(maker, processor={"others_s": 1.5, "stolen_s": 0.0})
    summary, whole = summarise(session), summarise(session, with_disturbed=True)
    assert [leg.tokens_per_s_by_repeat for leg in summary.legs] == [[50.0, 50.0]]
    assert [leg.tokens_per_s_by_repeat for leg in whole.legs] == [[50.0, 25.0, 50.0]]
    assert [one.leg_id for one in summary.disturbed] == [2] == [d.leg_id for d in whole.disturbed]
    words = "fp32: 1 leg was disturbed (other programs took 1.8 cores), "
    assert summary.warnings[0] == f"{words}left out of all figures"
    assert whole.warnings[0] == f"{words}in the figures all the same"


def test_where_nothing_else_is_there_disturbed_legs_stay(maker: SessionMaker) -> None:
    maker.decode_leg("fp32")
    maker.legs[-1] = replace(maker.legs[-1], attrs={"memory": {"swap_growth_bytes": 1 << 30}})
    session = maker.session()
    (one,) = found(session)
    assert not one.left_out and left_out_legs([one]) == frozenset()
    assert "in the figures all the same" in next(disturbed_words([one]))
    assert summarise(session).legs[0].answers == 2


def compared(maker: SessionMaker, *disturbed: tuple[str, int]) -> tuple[float | None, list[str]]:
    """Two repeats; a leg that was disturbed took twice as long. Undisturbed, 160 ms of plain
    decoding stand against 120 with the draft."""
    for repeat in range(2):
        for variant in ("fp32", "fp32+draft k=2"):
            busy = (variant, repeat) in disturbed
            maker.decode_leg(variant, repeat=repeat, slower=2.0 if busy else 1.0)
            if busy:
                attrs = {**maker.legs[-1].attrs, "processor": {"others_s": 5.0}}
                maker.legs[-1] = replace(maker.legs[-1], attrs=attrs)
    summary = summarise(maker.session())
    (comparison,) = summary.comparisons
    speedup = comparison.decode_speedup
    told = [one for one in summary.warnings if "over all repetitions" in one]
    return None if speedup is None else speedup.value, told


SPECULATIVE = "fp32+draft k=2"


@pytest.mark.parametrize(
    ("disturbed", "speedup", "whole"),
    [
        ([], 160 / 120, False),
        ([("fp32", 1), (SPECULATIVE, 1)], 160 / 120, False),  # the first repeat is undisturbed
        ([(SPECULATIVE, 1)], 160 / 120, False),
        # all of plain decoding was disturbed, and a half of the other: with its quiet half alone
        # it would seem 2.67 times as fast
        ([("fp32", 0), ("fp32", 1), (SPECULATIVE, 1)], 640 / (120 + 240), True),
        # what is undisturbed is of different repeats
        ([("fp32", 0), (SPECULATIVE, 1)], (320 + 160) / (120 + 240), True),
    ],
)
def test_a_variant_and_its_baseline_are_compared_in_a_like_state(
    maker: SessionMaker, disturbed: list[tuple[str, int]], speedup: float, whole: bool
) -> None:
    found, told = compared(maker, *disturbed)
    assert found == pytest.approx(speedup)
    assert len(told) == whole


@pytest.mark.parametrize("junk", [None, "x", {"others_s": "x"}, {"others_s": None}])
def test_attributes_are_free_json(maker: SessionMaker, junk: Any) -> None:
    assert found(three_repeats(maker, processor=junk, memory=junk)) == []


def test_the_hottest_rise_is_told(maker: SessionMaker) -> None:
    session = three_repeats(maker)
    start, end = session.legs[0].t0_ns, session.legs[-1].t1_ns or 0
    maker.signal("temp_c.gpu", "deg C", [(start, 50.0), (end, 61.0)])
    maker.signal("temp_c.cpu", "deg C", [(start, 50.0), (end, 53.0)])
    (told,) = heating(Readings(channels_of(maker.session())))
    assert told.startswith("gpu went from 50 to 61 degrees C during the session")
    assert told in summarise(maker.session()).warnings
    assert list(heating(Readings([]))) == []
