"""The terms of a round add up to the measured speed-up, and name where its time went."""

import pytest
from made_session import SessionMaker

from edgeprof.analysis.comparison import Pair, RoundCost, decode_speedup, pairs_of, round_cost
from edgeprof.analysis.round_terms import round_terms, terms_of_cost
from edgeprof.analysis.variants import plain_variant, variants_of

HELD_S = {1: 0.018, 3: 0.019, 5: 0.030}
HELD_DRAFT_S = 0.002


def pairs(maker: SessionMaker, variant: str = "fp32+draft k=2") -> list[Pair]:
    for name in ("fp32", variant):
        maker.decode_leg(name)
    runs = variants_of(maker.session())
    plain = plain_variant(runs, "fp32")
    assert plain is not None
    return pairs_of(runs[1], plain)


def cost_of(found: list[Pair]) -> RoundCost:
    cost = round_cost(found)
    assert cost is not None
    return cost


def test_terms_of_a_round(maker: SessionMaker) -> None:
    """A plain token takes 20 ms, all of it in the pass, held 18. A round: two draft passes of 3 ms,
    held 2; a verify pass of 20, held 19; 4 ms outside. In plain tokens of 20 ms:

    draft 2 x 2 / 20; verification (19 - 18) / 20; fixed 4 / 20;
    in situ (6 - 4) + (20 - 19) - (20 - 18) = 1, / 20.
    """
    found = pairs(maker)
    terms = round_terms(found, cost_of(found), HELD_S, HELD_DRAFT_S)
    assert terms.tokens == 2.0
    assert terms.draft == pytest.approx(0.20)
    assert terms.verification == pytest.approx(0.05)
    assert terms.fixed == pytest.approx(0.20)
    assert terms.in_situ == pytest.approx(0.05)
    assert terms.plain_in_situ == pytest.approx((20 - 18) / 20)
    speedup = decode_speedup(found)
    assert speedup is not None and terms.speedup == pytest.approx(speedup.value)


def test_rejected_work_is_a_part_of_draft_and_verification(maker: SessionMaker) -> None:
    """Accepted 2, 1, 0, 1 of 2. Draft passes in vain: 0, 1, 2, 1 of 2 ms each; the verify pass is
    3 wide (19 ms) where 3, 2, 1, 2 would do (19, 18.5, 18, 18.5): 8 + 0.5 + 1 + 0.5 ms over four
    rounds."""
    found = pairs(maker)
    terms = round_terms(found, cost_of(found), HELD_S, HELD_DRAFT_S)
    assert terms.rejected == pytest.approx((8 + 2) / 4 / 20)


def test_lookup_has_no_draft_passes(maker: SessionMaker) -> None:
    found = pairs(maker, "fp32+ngram k=3")
    terms = round_terms(found, cost_of(found), HELD_S, None)
    assert terms.draft == 0.0
    speedup = decode_speedup(found)
    assert speedup is not None and terms.speedup == pytest.approx(speedup.value)


@pytest.mark.parametrize(
    ("held_s", "held_draft_s"), [({}, 0.002), ({1: 0.018}, 0.002), (HELD_S, None)]
)
def test_without_held_passes_the_terms_still_add_up(
    maker: SessionMaker, held_s: dict[int, float], held_draft_s: float | None
) -> None:
    found = pairs(maker)
    terms = round_terms(found, cost_of(found), held_s, held_draft_s)
    assert terms == terms_of_cost(cost_of(found)) and terms.in_situ is None
    speedup = decode_speedup(found)
    assert speedup is not None and terms.speedup == pytest.approx(speedup.value)
