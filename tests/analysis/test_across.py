"""Sessions beside each other: ratios worked out by hand, noise told from difference."""

import random
from typing import Any

import msgspec
import pytest
from made_session import SessionMaker

from edgeprof.analysis.across import Across, Cell, compare_sessions, conflicts_of, ratio_of
from edgeprof.analysis.summary import summarise
from edgeprof.session.records import Session


def across(*sessions: Session) -> Across:
    return compare_sessions(sessions, [summarise(session) for session in sessions])


def slower(made_session: Session, factor: float) -> Session:
    """The same session with every answer's decoding stretched."""
    requests = [
        msgspec.structs.replace(
            request,
            t1_ns=request.first_token_ns
            + round(((request.t1_ns or 0) - (request.first_token_ns or 0)) * factor),
        )
        for request in made_session.requests
        if request.first_token_ns is not None
    ]
    return msgspec.structs.replace(made_session, requests=requests)


def test_a_session_beside_itself_is_no_difference(made_session: Session) -> None:
    found = across(made_session, made_session)
    assert found.ratios and found.conflicts == [] and found.differences == []
    assert {one.finding for one in found.ratios} == {"no difference beyond noise"}
    assert all(one.ratio.value == 1.0 and one.paired for one in found.ratios)


def test_twice_the_decode_time_is_half_the_rate(made_session: Session) -> None:
    found = across(made_session, slower(made_session, 2.0))
    rates = {one.name: one for one in found.ratios if one.metric == "tokens_per_s"}
    # 8 tokens in 160 ms and, in the second repeat, in 200: 16 over 0.36 s against half of that
    assert rates["fp32"].base_value == pytest.approx(16 / 0.36)
    assert rates["fp32"].value == pytest.approx(16 / 0.72)
    assert rates["fp32"].ratio.value == pytest.approx(0.5)
    # repeats are drawn apart: at worst the base drew twice the fast one, the other the slow one;
    # four answers in each: t(3) is 3.182, and means of four vary by sqrt(3/4) too little
    widened = 1.25 ** (3.182 / 1.96 * (4 / 3) ** 0.5)
    assert rates["fp32"].ratio.low == pytest.approx(0.5 / widened)
    assert rates["fp32"].ratio.high == pytest.approx(0.5 * widened)
    assert rates["fp32"].finding == "lower"
    first = [one for one in found.ratios if one.metric == "ttft_s"]
    assert {one.finding for one in first} == {"no difference beyond noise"}


def test_one_repeat_must_differ_by_more_than_runs_commonly_do(shape: Any) -> None:
    """Every prompt alike 8 % slower: no spread at all, and still no more than one run to the next;
    with a second repeat each, which shows none, it is a difference."""

    def finding(repeats: int) -> str:
        makers = SessionMaker(), SessionMaker()
        for one, ms in zip(makers, (20.0, 21.6), strict=True):
            for repeat in range(repeats):
                one.decode_leg("t", repeat=repeat, rounds=[shape(0, 0, 0, 1, 0.0, ms, 0.0)] * 8)
        rate, _ = across(*(one.session() for one in makers)).ratios
        assert rate.ratio.value == pytest.approx(20 / 21.6)
        return rate.finding

    assert finding(1) == "no difference beyond noise"
    assert finding(2) == "lower"


def test_ten_per_cent_between_repeats_that_differ_by_more_is_noise(made_session: Session) -> None:
    found = across(made_session, slower(made_session, 1.1))
    assert {one.finding for one in found.ratios} == {"no difference beyond noise"}


def test_the_interval_covers_what_is_true() -> None:
    """Of sessions with the same true rate 95 % of the intervals hold 1; here at least 88 of 100."""
    rng = random.Random(1)
    covered = 0
    for _ in range(100):
        base, other = (
            {
                (str(prompt), repeat): [Cell(100.0, 1.0 + 0.1 * rng.gauss(0, 1))]
                for prompt in range(8)
                for repeat in range(5)
            }
            for _ in range(2)
        )
        ratio = ratio_of(base, other, source="test")
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        covered += ratio.low <= 1 <= ratio.high
    assert covered >= 88


def test_p14_one_prompt_and_one_repeat_have_no_band() -> None:
    cell = {("p", 0): [Cell(10.0, 1.0)]}
    ratio = ratio_of(cell, {("p", 0): [Cell(20.0, 1.0)]}, source="test")
    assert ratio is not None and ratio.value == 2.0
    assert ratio.low is None and ratio.high is None


def test_other_prompts_are_compared_each_over_its_own() -> None:
    base = {("a", 0): [Cell(10.0, 1.0)], ("b", 0): [Cell(10.0, 1.0)]}
    other = {("c", 0): [Cell(30.0, 1.0)], ("d", 0): [Cell(30.0, 1.0)]}
    ratio = ratio_of(base, other, source="test")
    assert ratio is not None and (ratio.low, ratio.value, ratio.high) == (3.0, 3.0, 3.0)


def test_what_only_one_session_has_undisturbed_is_left_out(maker: Any, shape: Any) -> None:
    """20 ms a token on one prompt and 100 on another: without the other, the same prompt alone."""
    fast, slow = ([shape(0, 0, 0, 1, 0.0, ms, 0.0)] * 8 for ms in (20.0, 100.0))
    other = SessionMaker()
    for one in (maker, other):
        for repeat in (0, 1):
            for prompt in ("a", "b"):
                answers = {prompt: list(range(9))}
                one.decode_leg("t", repeat=repeat, rounds=fast, answers=answers)
    maker.decode_leg("t", rounds=slow, answers={"c": list(range(9))})
    (rate, _) = across(maker.session(), other.session()).ratios
    assert (rate.base_value, rate.value, rate.ratio.value) == pytest.approx((50.0, 50.0, 1.0))
    assert (rate.paired, rate.prompts, rate.prompts_left_out) == (True, 2, 1)


def test_a_prompt_counts_once_however_many_of_its_repeats_are_left() -> None:
    """a at 10 tokens/s and b at 2, 8 tokens each: 16 over 4.8 s, in both sessions."""
    a, b = Cell(8.0, 0.8), Cell(8.0, 4.0)
    base = {("a", 0): [a], ("a", 1): [a], ("a", 2): [a], ("b", 0): [b]}
    other = {("a", 0): [a], ("b", 0): [b], ("b", 1): [b], ("b", 2): [b]}
    ratio = ratio_of(base, other, source="test")
    assert ratio is not None and ratio.value == pytest.approx(1.0)


def test_sessions_that_share_one_prompt_of_many_are_compared_each_over_its_own(
    maker: Any, shape: Any
) -> None:
    fast = [shape(0, 0, 0, 1, 0.0, 20.0, 0.0)] * 8
    other = SessionMaker()
    for one, prompts in ((maker, "abc"), (other, "cde")):
        one.decode_leg("t", rounds=fast, answers={prompt: list(range(9)) for prompt in prompts})
    (rate, _) = across(maker.session(), other.session()).ratios
    assert (rate.paired, rate.prompts, rate.prompts_left_out) == (False, None, 0)


def test_legs_that_were_left_out_are_told(made_session: Session) -> None:
    slow = [
        msgspec.structs.replace(leg, attrs={**leg.attrs, "processor": {"others_s": 10.0}})
        if leg.kind == "decode" and leg.repeat == 1 and leg.variant.startswith("fp32")
        else leg
        for leg in made_session.legs
    ]
    disturbed = msgspec.structs.replace(made_session, legs=slow)
    told = "session 2: 3 legs were disturbed and left out; its report tells by what"
    assert told in across(made_session, disturbed).warnings


def test_boards_modes_and_model_files_must_agree(made_session: Session) -> None:
    info = made_session.info
    models = {
        name: msgspec.structs.replace(model, sha256="0" * 64) for name, model in info.models.items()
    }
    other = msgspec.structs.replace(
        made_session,
        info=msgspec.structs.replace(
            info, device={**info.device, "name": "Other", "power_mode": "MAXN"}, models=models
        ),
    )
    summaries = [summarise(made_session), summarise(other)]
    conflicts = {one.what: one.values for one in conflicts_of(summaries)}
    assert {"board", "power mode"} <= set(conflicts)
    assert any(what.startswith("model ") for what in conflicts)
    found = across(made_session, other)
    assert {one.key for one in found.differences} >= {"device.name", "device.power_mode"}


def test_no_private_key_is_shown(made_session: Session) -> None:
    info = made_session.info
    other = msgspec.structs.replace(
        made_session,
        info=msgspec.structs.replace(info, device={**info.device, "serial_number": "1423"}),
    )
    found = across(made_session, other)
    assert b"1423" not in msgspec.json.encode(found) and found.differences == []


def test_nothing_shared_is_nothing_compared(made_session: Session, maker: Any, shape: Any) -> None:
    maker.decode_leg("other", rounds=[shape(0, 0, 0, 1, 0.0, 20.0, 0.0)] * 8)
    found = across(made_session, maker.session())
    assert found.ratios == []
    assert {leg["session"] for leg in found.legs} == {0, 1}
