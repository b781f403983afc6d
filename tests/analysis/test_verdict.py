"""Outcomes and walls from figures set by hand."""

import msgspec
import pytest

from edgeprof.analysis.acceptance import Acceptance
from edgeprof.analysis.bus import Bus, Together
from edgeprof.analysis.circumstances import Circumstances
from edgeprof.analysis.comparison import Output, RoundCost
from edgeprof.analysis.forecast import Forecast
from edgeprof.analysis.limits import Evidence
from edgeprof.analysis.pass_cost import PassPoint
from edgeprof.analysis.round_terms import RoundTerms
from edgeprof.analysis.verdict import Verdict, judge
from edgeprof.quantity import Quantity


def measured(value: float, low: float | None = None, high: float | None = None) -> Quantity:
    return Quantity(value=value, low=low, high=high, n=9, kind="measured", source="by hand")


def accepted(rate: float, *, rounds: int = 100, without_draft: int = 0) -> Acceptance:
    return Acceptance(
        draft_acceptance_rate=rate,
        conditional_acceptance=rate,
        mean_acceptance_length=1 + rate,
        per_position=[rate],
        conditional_per_position=[rate],
        histogram=[0],
        rounds=rounds,
        rounds_without_draft=without_draft,
    )


def point(tokens: int, bandwidth_share: float, flop_share: float) -> PassPoint:
    return PassPoint(
        model="m",
        role="target",
        tokens=tokens,
        context_tokens=256,
        time_s=measured(0.01),
        intensity_flop_per_byte=1.0,
        flop_per_s=measured(1e9),
        bandwidth_bytes_per_s=measured(1e9),
        bandwidth_share=bandwidth_share,
        flop_share=flop_share,
    )


def evidence(tokens: float, draft: float, target: float, other: float, rate: float) -> Evidence:
    """A model drafts two; the speed-up is what the round's balance gives, known to 2 %."""
    cost = RoundCost(tokens=tokens, draft=draft, target=target, other=other)
    speedup = tokens / cost.total
    return Evidence(
        speedup=measured(speedup, 0.98 * speedup, 1.02 * speedup),
        drafter_kind="model",
        draft_tokens=2,
        acceptance=accepted(rate),
        cost=cost,
        repeats=3,
    )


def names(verdict: Verdict) -> list[str]:
    return [limit.name for limit in verdict.limits]


@pytest.mark.parametrize(
    ("low", "high", "outcome"),
    [
        (1.01, 1.20, "pays"),
        (0.99, 1.20, "no difference beyond noise"),
        (0.80, 1.01, "no difference beyond noise"),
        (0.80, 0.99, "does not pay"),
    ],
)
def test_outcome_is_where_the_band_lies(low: float, high: float, outcome: str) -> None:
    base = evidence(2.0, 0.0, 2.0, 0.0, 0.9)
    banded = msgspec.structs.replace(base, speedup=measured((low + high) / 2, low, high))
    assert judge(banded).outcome == outcome


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(1.15, "pays"), (1.05, "no difference beyond noise"), (0.85, "does not pay")],
)
def test_single_repeat_must_differ_by_more_than_a_tenth(value: float, outcome: str) -> None:
    base = evidence(2.0, 0.0, 2.0, 0.0, 0.9)
    for speedup in (measured(value), measured(value, value - 0.01, value + 0.01)):
        once = msgspec.structs.replace(base, speedup=speedup, repeats=1)
        assert judge(once).outcome == outcome


def test_plain_decoding_that_was_slowed_is_no_baseline() -> None:
    """The target's part of a round took 0.4 of a plain token, and v says 1.3: 0.4 x 1.5 < 1.3."""
    base = evidence(1.5, 0.1, 0.4, 0.0, 0.5)
    verdict = judge(msgspec.structs.replace(base, held_target_cost=1.3))
    assert verdict.outcome == "not comparable" and names(verdict) == ["disturbed run"]
    assert "0.40 of a plainly decoded token, and 1.30 on held passes" in verdict.because


def test_target_that_costs_more_than_held_is_a_finding() -> None:
    base = evidence(1.5, 0.1, 2.6, 0.0, 0.5)
    verdict = judge(msgspec.structs.replace(base, held_target_cost=1.0))
    assert verdict.outcome == "does not pay"


def test_r15_slowdown_names_its_wall() -> None:
    """32.6 tokens/s plain, 24.1 with a draft at acceptance 0.34: 0.74x.

    A round gives 1.4 tokens; at 0.74 it costs 1.4 / 0.74 = 1.89. Even without its largest cost,
    the draft's 0.45, it would cost 1.44 and lose: acceptance is the wall.
    """
    slow = evidence(1.4, 0.45, 1.1, 0.344, 0.34)
    verdict = judge(slow)
    assert slow.speedup is not None and slow.speedup.value == pytest.approx(24.1 / 32.6, abs=0.001)
    assert verdict.outcome == "does not pay"
    # 2.44 / 1.4 = 1.74; 1.894 / (1.894 - 0.25) = 1.15; 1.894 / (1.894 - 0.244) = 1.148
    assert names(verdict) == ["low acceptance", "draft cost", "overhead"]
    assert [limit.gain for limit in verdict.limits] == pytest.approx(
        [1.743, 1.152, 1.148], abs=1e-3
    )
    assert "34 % of the compared tokens" in verdict.limits[0].evidence
    # 1 + a + a^2 = 1.894 at a = 0.57
    assert "more than 1.89 to pay (57 % accepted)" in verdict.limits[0].evidence


def test_walls_are_ranked_by_what_removing_them_gains() -> None:
    """1.9 tokens for 2.4. Two drafted tokens may cost 0.2: 2.4 / (2.4 - 0.7) = 1.41. With four of
    five accepted a round would give 2.44 tokens: 2.44 / 1.9 = 1.28. Verification 0.3, of which 0.1
    is as good as kernels are: 2.4 / 2.2 = 1.09, and overhead 0.2 the same: not named."""
    verdict = judge(evidence(1.9, 0.9, 1.3, 0.2, 0.45))
    assert names(verdict) == ["draft cost", "low acceptance"]
    assert [limit.gain for limit in verdict.limits] == pytest.approx([1.412, 1.284], abs=1e-3)
    assert "0.90 of a plain token" in verdict.limits[0].evidence
    assert "at 0.10 a step predicted 1.12x" in verdict.limits[0].advice  # 1.9 / 1.7


def test_small_costs_are_no_walls() -> None:
    assert names(judge(evidence(2.2, 0.09, 1.05, 0.05, 0.8))) == []


def test_acceptance_no_round_could_reach() -> None:
    # A round of 3.5 plain tokens, and at most 3 come out of two drafted ones.
    verdict = judge(evidence(1.2, 0.6, 2.3, 0.6, 0.2))
    assert "which 2 drafted tokens cannot bring" in verdict.limits[0].evidence


def test_compute_bound_verification_shows_the_arithmetic_ceiling() -> None:
    base = evidence(2.0, 0.2, 1.8, 0.05, 0.7)
    verdict = judge(
        msgspec.structs.replace(
            base, verify_cost=measured(1.8, 1.7, 1.9), verify_pass=point(3, 0.36, 0.67)
        )
    )
    assert names(verdict)[0] == "compute-bound verification"
    text = verdict.limits[0].evidence
    assert "v(3) = 1.80 [1.70, 1.90]" in text
    assert "67 % of the kernel's measured arithmetic and 36 % of its streaming ceiling" in text


def test_dear_verification_far_from_both_ceilings_is_the_kernels() -> None:
    base = evidence(2.0, 0.2, 1.8, 0.05, 0.7)
    verdict = judge(
        msgspec.structs.replace(base, verify_cost=measured(1.8), verify_pass=point(3, 0.3, 0.2))
    )
    assert names(verdict)[0] == "verification cost"
    assert "kernel that reads the weights once" in verdict.limits[0].advice


def test_what_pays_says_why() -> None:
    base = evidence(2.0, 0.1, 1.02, 0.05, 0.7)
    verdict = judge(
        msgspec.structs.replace(base, verify_cost=measured(1.0), one_token=point(1, 0.87, 0.1))
    )
    assert verdict.outcome == "pays"
    assert "2.00 tokens for the time of 1.17 plain ones" in verdict.because
    assert "verifying 3 tokens costs 1.00 of one: decoding is memory-bound, at 87 %" in (
        verdict.because
    )


def test_lookup_that_finds_little_is_told_apart_from_low_acceptance() -> None:
    base = evidence(1.2, 0.0, 1.05, 0.2, 0.9)
    lookup = msgspec.structs.replace(
        base, drafter_kind="ngram", acceptance=accepted(0.9, without_draft=80)
    )
    verdict = judge(lookup)
    assert "few drafts" in names(verdict)
    assert any("20 % of the rounds had a draft" in limit.evidence for limit in verdict.limits)


def forecast(draft_tokens: int, speedup: float) -> Forecast:
    return Forecast(
        draft_tokens=draft_tokens,
        predicted_speedup=speedup,
        low=speedup - 0.07,
        high=speedup + 0.06,
        tokens_per_round=2.0,
    )


def test_a_draft_length_that_is_wrong_names_the_better_one() -> None:
    base = evidence(2.0, 0.2, 1.1, 0.0, 0.7)
    lengths = [forecast(1, 1.20), forecast(2, 1.18), forecast(3, 1.42), forecast(4, 1.42)]
    (limit,) = judge(msgspec.structs.replace(base, forecasts=lengths)).limits
    assert limit.name == "draft length" and limit.gain == pytest.approx(1.42 / 1.18)
    assert limit.advice == "-k 3: K = 3: predicted 1.42x [1.35, 1.48]"
    assert "2 tokens are drafted; more would be better" in limit.evidence


def test_where_no_length_pays_plain_decoding_is_the_advice() -> None:
    base = evidence(1.2, 0.2, 1.1, 0.0, 0.7)
    lengths = [forecast(1, 0.95), forecast(2, 0.80)]
    (limit,) = judge(msgspec.structs.replace(base, forecasts=lengths)).limits
    assert limit.name == "draft length"
    assert limit.advice == (
        "decode plainly: no length is predicted to pay, K = 1: predicted 0.95x [0.88, 1.01]"
    )


def test_a_draft_length_that_is_nearly_best_is_no_wall() -> None:
    base = evidence(2.0, 0.2, 1.1, 0.0, 0.7)
    lengths = [forecast(1, 1.40), forecast(2, 1.30)]  # 8 % less than the best
    assert names(judge(msgspec.structs.replace(base, forecasts=lengths))) == []
    unknown = msgspec.structs.replace(base, forecasts=[forecast(1, 1.9)])  # not at the asked one
    assert names(judge(unknown)) == []


def around(**seen: object) -> Evidence:
    base = evidence(2.0, 0.2, 1.1, 0.0, 0.7)
    return msgspec.structs.replace(base, around=Circumstances(**seen))  # type: ignore[arg-type]


def test_faults_of_the_set_up_come_first() -> None:
    dear = evidence(1.9, 0.9, 1.3, 0.2, 0.45)
    seen = Circumstances(provider="the target ran on the CPU", memory="swap grew by 1 GB")
    verdict = judge(msgspec.structs.replace(dear, around=seen))
    expected = ["wrong provider", "memory pressure", "draft cost", "low acceptance"]
    assert names(verdict) == expected
    assert [limit.gain for limit in verdict.limits[:2]] == [None, None]


@pytest.mark.parametrize(
    ("seen", "name", "words"),
    [
        ({"throttled": "throttled (counter oc1 4 to 7) in 2 legs"}, "throttled", "oc1"),
        ({"clocks": "gpu_clock_hz moved", "clock_gain": 1.3}, "clocks not pinned", "1.30x"),
        ({"cores": "other programs took 1.2 cores"}, "cores fought over", "1.2 cores"),
        ({"provider": "the target ran on the CPU"}, "wrong provider", "cuda"),
        ({"memory": "swap grew by 1 GB in a leg"}, "memory pressure", "swap grew"),
    ],
)
def test_what_the_session_shows_is_named(seen: dict[str, object], name: str, words: str) -> None:
    (limit,) = judge(around(**seen)).limits
    assert limit.name == name and words in limit.evidence + limit.advice


def test_clocks_that_moved_a_little_are_no_wall() -> None:
    assert names(judge(around(clocks="gpu_clock_hz moved", clock_gain=1.03))) == []


def in_situ(amount: float, **seen: object) -> Evidence:
    terms = RoundTerms(
        tokens=2.0, draft=0.2, verification=0.1, fixed=0.0, in_situ=amount, rejected=0.1
    )
    return msgspec.structs.replace(around(**seen), terms=terms)


AT_ONCE = Together(share=0.6)


@pytest.mark.parametrize(
    ("seen", "name"),
    [
        ({}, "alternation"),
        ({"bus": Bus(together=AT_ONCE)}, "bus contention"),
        ({"bus": Bus(together=Together(share=0.6, on_gpu=True))}, "GPU fought over"),
        ({"cores": "4 threads run on 2 cores"}, "cores fought over"),
        ({"memory": "50 pages a second were read back"}, "memory pressure"),
    ],
)
def test_slower_passes_in_place_have_a_cause(seen: dict[str, object], name: str) -> None:
    """1.3 in all without them; 0.5 more, of which 0.1 is usual: 1.8 / 1.4 = 1.29."""
    (limit,) = judge(in_situ(0.5, **seen)).limits
    assert limit.name == name
    if limit.gain is not None:
        assert limit.gain == pytest.approx(1.8 / 1.4)
        assert "0.50 of a plain token longer each round" in limit.evidence


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (0.0, "than held, by their means"),
        (0.2, "those of a round 0.70 longer, a plain token's 0.20 longer"),
        (-0.8, "those of a round 0.30 shorter, a plain token's 0.80 shorter"),
    ],
)
def test_slower_passes_are_told_with_what_they_are_set_against(plain: float, words: str) -> None:
    """0.5 is left after plain decoding's own; alone, passes may even be faster than held ones."""
    found = in_situ(0.5)
    assert found.terms is not None
    terms = msgspec.structs.replace(found.terms, plain_in_situ=plain)
    (limit,) = judge(msgspec.structs.replace(found, terms=terms)).limits
    assert limit.evidence.endswith(words)


def test_overlap_that_costs_nothing_is_no_wall() -> None:
    assert names(judge(in_situ(0.05, bus=Bus(together=AT_ONCE)))) == []


SHARED, SLACK, VAGUE = measured(0.9, 0.8, 1.0), measured(0.1, -0.1, 0.3), measured(0.5, -0.2, 1.2)
MUCH, NOTHING, UNSURE = measured(0.3, 0.2, 0.4), measured(0.0, -0.02, 0.02), measured(0, -0.1, 0.1)
GPU = Together(share=0.6, on_gpu=True)


@pytest.mark.parametrize(
    ("bus", "name"),
    [
        # kappa: a bus with room is not blamed, whatever ran at once or was moved
        (Bus(together=AT_ONCE, kappa=SHARED), "bus contention"),
        (Bus(together=AT_ONCE, kappa=SLACK), "alternation"),
        (Bus(together=AT_ONCE, kappa=SLACK, remainder=MUCH), "alternation"),
        (Bus(together=AT_ONCE, kappa=VAGUE), "bus contention"),  # it tells neither
        # the two took turns, so that the draft was in nobody's way on the bus
        (Bus(kappa=SHARED), "alternation"),
        # the closure's remainder
        (Bus(remainder=MUCH), "bus contention"),
        (Bus(remainder=NOTHING), "alternation"),
        (Bus(remainder=UNSURE), "alternation"),
        (Bus(together=AT_ONCE, remainder=NOTHING), "alternation"),
        (Bus(together=AT_ONCE, remainder=UNSURE), "bus contention"),
        (Bus(together=AT_ONCE, kappa=VAGUE, remainder=NOTHING), "alternation"),
        # pure sharing moves not a byte more
        (Bus(together=AT_ONCE, kappa=SHARED, remainder=NOTHING), "bus contention"),
        # two sessions on one GPU
        (Bus(together=GPU, remainder=MUCH), "GPU fought over"),
        (Bus(together=GPU, kappa=SHARED), "GPU fought over"),
    ],
)
def test_the_bus_is_blamed_by_what_was_measured(bus: Bus, name: str) -> None:
    (limit,) = judge(in_situ(0.5, bus=bus)).limits
    assert limit.name == name and limit.gain == pytest.approx(1.8 / 1.4)


def test_kappa_and_remainder_are_cited_with_their_intervals() -> None:
    bus = Bus(together=AT_ONCE, kappa=SHARED, remainder=MUCH)
    (limit,) = judge(in_situ(0.5, bus=bus)).limits
    assert limit.evidence == (
        "the target ran during 60 % of the draft's time; passes take 0.50 of a plain token longer "
        "each round than held, by their means; kappa of the draft is 0.90 [0.80, 1.00]; "
        "the counter saw 30 % [20, 40] more bytes than the held passes move"
    )
    assert limit.advice == "let draft and target take turns: predicted 1.43x"  # 2 / 1.4
    (limit,) = judge(in_situ(0.5, bus=Bus(remainder=MUCH))).limits
    assert limit.advice.startswith("find what else moves bytes meanwhile")


def test_what_was_measured_not_to_be_is_said_where_another_cause_is_named() -> None:
    (limit,) = judge(in_situ(0.5, bus=Bus(together=AT_ONCE, kappa=SLACK))).limits
    assert limit.evidence.endswith("kappa of the draft is 0.10 [-0.10, 0.30], so the bus is not in "
                                   "the way")  # fmt: skip
    (limit,) = judge(in_situ(0.5, bus=Bus(remainder=UNSURE))).limits
    assert limit.evidence.endswith("the counter saw 0 % [-10, 10] more bytes than the held passes "
                                   "move")  # fmt: skip


def test_other_vocabularies_are_why_little_is_accepted() -> None:
    base = evidence(1.2, 0.2, 1.1, 0.0, 0.15)
    seen = Circumstances(vocabularies="the target knows 1000 tokens and the draft 900")
    (limit,) = judge(msgspec.structs.replace(base, around=seen)).limits
    assert limit.name == "mismatched vocabularies" and "1000 tokens" in limit.evidence
    agreeing = msgspec.structs.replace(evidence(2.0, 0.2, 1.1, 0.0, 0.7), around=seen)
    assert names(judge(agreeing)) == []  # whatever differs, its tokens stand


def test_a_draft_that_is_held_by_its_launches() -> None:
    """c 0.4 at 0.05 of the target's bytes: eight times its share."""
    base = evidence(2.0, 0.8, 1.1, 0.0, 0.7)
    slow = msgspec.structs.replace(base, draft_ratio=measured(0.4), byte_ratio=0.05)
    (limit,) = judge(slow).limits
    assert limit.name == "overhead-bound draft" and "8.0 times its share of bytes" in limit.evidence
    fair = msgspec.structs.replace(base, draft_ratio=measured(0.4), byte_ratio=0.3)
    assert names(judge(fair)) == ["draft cost"]


def test_output_that_differs_is_a_limit() -> None:
    output = Output(
        reference="plain decoding",
        identical=False,
        first_divergence=12,
        logit_gap=0.0031,
        answers_compared=18,
        answers_identical=15,
        tokens_compared=900,
    )
    verdict = judge(msgspec.structs.replace(evidence(2.0, 0.0, 1.0, 0.0, 0.9), output=output))
    (limit,) = verdict.limits
    assert limit.name == "output differs"
    assert limit.evidence.startswith("3 of 18 answers differ from plain decoding")
    assert "position 12" in limit.evidence and "0.0031" in limit.evidence


def test_clocks_come_before_everything() -> None:
    changed = msgspec.structs.replace(
        evidence(2.0, 0.0, 1.0, 0.0, 0.9), clock_change="emc_clock_hz was 9 % lower"
    )
    verdict = judge(changed)
    assert verdict.outcome == "not comparable" and names(verdict) == ["clocks differ"]


def test_nothing_measured_is_not_comparable() -> None:
    verdict = judge(
        Evidence(
            speedup=None,
            drafter_kind="ngram",
            draft_tokens=3,
            acceptance=None,
            cost=None,
            repeats=0,
        )
    )
    assert verdict.outcome == "not comparable" and verdict.limits == []
