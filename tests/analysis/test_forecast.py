"""Shorter drafts, played through the tokens of a run with long ones."""

from collections import Counter
from typing import Any

import pytest
from made_session import SessionMaker
from msgspec.structs import replace

from edgeprof.analysis.forecast import (
    Agreement,
    Place,
    RoundTimes,
    between,
    forecasts,
    places_of,
    replay,
    round_times,
)
from edgeprof.analysis.variants import VariantRuns, plain_variant, variants_of
from edgeprof.session.records import Round

A, B, O, S = Agreement.AGREED, Agreement.BONUS, Agreement.OTHER, Agreement.SILENT  # noqa: E741


def rounds(*shapes: tuple[int, int]) -> list[Round]:
    """Each (drafted, accepted)."""
    return [
        Round(id=i, leg_id=1, request_id=1, drafted=drafted, accepted=accepted,
              evaluated=min(accepted + 1, drafted), emitted=accepted + 1, t0_ns=0, t1_ns=1)
        for i, (drafted, accepted) in enumerate(shapes)
    ]  # fmt: skip


def test_the_tokens_of_an_answer() -> None:
    """Two of four stood; all four stood and a bonus came; nothing was drafted; two were all that
    the drafter had to say, and both stood."""
    places = places_of(rounds((4, 2), (4, 4), (0, 0), (2, 2)), longest=4)
    assert places == [
        Place(A, 4), Place(A, 3), Place(O, 2),
        Place(A, 4), Place(A, 3), Place(A, 2), Place(A, 1), Place(B, 0),
        Place(S, 0),
        Place(A, 2), Place(A, 1), Place(S, 0),
    ]  # fmt: skip


PLACES = places_of(rounds((4, 2), (4, 4), (0, 0), (2, 2)), longest=4)  # 12 tokens


@pytest.mark.parametrize(
    ("length", "drafted"),
    [
        # As it was.
        (4, {4: 2, 0: 1, 2: 1}),
        # In brackets what stood, behind it the token that ended the round:
        # (AA)O (AAA)A (B)S (AA)S
        (3, {3: 2, 1: 1, 2: 1}),
        # (AA)O (AA)A (AB)S (AA)S
        (2, {2: 4}),
        # (A)A ()O (A)A (A)A (B)S (A)A ()S
        (1, {1: 6, 0: 1}),
    ],
)
def test_rounds_begin_where_a_shorter_draft_makes_them(
    length: int, drafted: dict[int, int]
) -> None:
    found = replay(PLACES, length)
    assert found.tokens == 12 and found.rounds == Counter(drafted)


def test_a_draft_longer_than_the_answer_ends_with_it() -> None:
    assert replay(PLACES[:2], 8).rounds == Counter({2: 1})


TIMES = RoundTimes(draft_s=[0.2, 0.1], verify_s={1: 1.0, 3: 1.2, 5: 1.6}, other_s=0.05, plain_s=1.0)


@pytest.mark.parametrize(
    ("drafted", "seconds"), [(0, 1.05), (1, 1.35), (2, 1.55), (4, 2.15), (5, None)]
)
def test_what_a_round_takes(drafted: int, seconds: float | None) -> None:
    found = TIMES.round_s(drafted)
    assert found is None if seconds is None else found == pytest.approx(seconds)


def test_between_what_was_measured() -> None:
    assert between({1: 1.0, 3: 2.0}, 2) == 1.5
    assert between({1: 1.0, 3: 2.0}, 4) is None and between({}, 1) is None


def run_of(maker: SessionMaker, variant: str = "fp32+draft k=2") -> tuple[VariantRuns, VariantRuns]:
    for name in ("fp32", variant):
        maker.decode_leg(name)
    runs = variants_of(maker.session())
    plain = plain_variant(runs, "fp32")
    assert plain is not None
    return runs[1], plain


def test_times_are_those_in_place(maker: SessionMaker) -> None:
    """Two draft passes of 3 ms, a verify pass of 20, 4 outside, where held ones take 16 ms: 1.25
    times as long."""
    times = round_times(*run_of(maker), held_s={1: 0.012, 3: 0.016})
    assert times is not None
    assert times.draft_s == pytest.approx([0.003, 0.003])
    assert times.plain_s == pytest.approx(0.020)
    assert times.verify_s == pytest.approx({1: 0.015, 3: 0.020})
    assert times.other_s == pytest.approx(0.004)


def test_the_first_draft_pass_of_a_round_has_a_time_of_its_own(maker: SessionMaker) -> None:
    """The second of the two of 3 ms begins a millisecond late: until then they are 4 and 2."""
    _, plain = run_of(maker)
    late: set[int | None] = set()
    for place, one in enumerate(maker.passes):
        if one.phase == "draft" and one.round_id in late:
            maker.passes[place] = replace(one, t0_ns=one.t0_ns + 1_000_000)
        elif one.phase == "draft":
            late.add(one.round_id)
    runs = variants_of(maker.session())
    times = round_times(runs[1], plain, held_s={1: 0.012, 3: 0.016})
    assert times is not None and times.draft_s == pytest.approx([0.004, 0.002])
    assert times.other_s == pytest.approx(0.004)


def test_a_size_of_which_few_passes_ran_tells_nothing_of_its_time_in_place(
    maker: SessionMaker,
) -> None:
    """Two passes of 4 tokens in 22 ms, and many of one in 20 where held ones took 10: twice."""
    run, plain = run_of(maker, "fp32+ngram k=3")
    times = round_times(run, plain, held_s={1: 0.010, 4: 0.020})
    assert times is not None and times.draft_s == []
    assert times.verify_s == pytest.approx({1: 0.020, 4: 0.040})


def test_the_length_that_was_run_is_the_speed_up_that_was_measured(maker: SessionMaker) -> None:
    """8 tokens in 4 rounds of 30 ms against 8 of 20 ms: 160 / 120. At K = 1 the tokens of an answer
    (3, 2, 1 and 2 of a round) are taken in rounds of 2, 2, 1, 1 and 2, of 3 + 17.5 + 4 ms."""
    run, plain = run_of(maker)
    times = round_times(run, plain, held_s={1: 0.012, 3: 0.016})
    assert times is not None
    one, two = forecasts(run, times, range(1, 4))
    assert two.draft_tokens == 2 and two.predicted_speedup == pytest.approx(160 / 120)
    assert one.predicted_speedup == pytest.approx(160 / (5 * 24.5))
    assert (one.tokens_per_round, two.tokens_per_round) == (1.6, 2.0)
    assert one.low == pytest.approx(one.predicted_speedup)  # both answers are alike


def test_beyond_what_was_run_rounds_go_on_as_they_went(maker: SessionMaker) -> None:
    """4 of 7 evaluated tokens stood; of four rounds one kept both its tokens, and would give 4/7
    more at K = 3 and 4/7 + 16/49 at K = 4. A round then takes 9 + v(4) + 4 ms and 12 + v(5) + 4."""
    run, plain = run_of(maker)
    times = round_times(run, plain, held_s={1: 0.012, 3: 0.016, 5: 0.024})
    assert times is not None
    found = {one.draft_tokens: one for one in forecasts(run, times, range(1, 9))}
    assert list(found) == [1, 2, 3, 4]
    assert found[3].tokens_per_round == pytest.approx(2 + (4 / 7) / 4)
    assert found[3].predicted_speedup == pytest.approx((8 + 4 / 7) * 20 / (4 * (9 + 25 + 4)))
    more = 4 / 7 + 16 / 49
    assert found[4].predicted_speedup == pytest.approx((8 + more) * 20 / (4 * (12 + 30 + 4)))


def test_nothing_decoded_or_held_is_no_forecast(maker: SessionMaker) -> None:
    run, plain = run_of(maker)
    assert round_times(run, plain, held_s={}) is None
    empty: Any = VariantRuns(
        name="x", target="x", drafter="d", drafter_kind="model", draft_tokens=2, legs=[],
        answers=[], unfinished=0,
    )  # fmt: skip
    assert round_times(empty, plain, held_s={1: 1.0}) is None
    assert round_times(run, empty, held_s={1: 1.0}) is None
