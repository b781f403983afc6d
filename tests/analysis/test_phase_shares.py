"""Shares of the memory traffic by phase, from sums on paper; of the energy see ``test_energy``."""

from typing import Any

import pytest

from edgeprof.analysis.attribution import Attribution
from edgeprof.analysis.closure import Closure
from edgeprof.analysis.phase_shares import PhaseShares, traffic_shares
from edgeprof.analysis.variants import VariantRuns
from edgeprof.quantity import Quantity


def parts(shares: PhaseShares | None) -> list[Any]:
    assert shares is not None and shares.reason is None
    return [one.value for one in (shares.draft, shares.verify, shares.decode, shares.other) if one]


def variant(name: str, drafter: str | None) -> VariantRuns:
    return VariantRuns(
        name=name, target="t", drafter=drafter, drafter_kind="model", draft_tokens=3, legs=[],
        answers=[], unfinished=0,
    )  # fmt: skip


def closed(measured_bytes: float) -> Attribution:
    closure = Closure(
        variant="t+d", answers=2, seconds=9.0, held_bytes=8e9, measured_bytes=measured_bytes,
        held_bytes_by_phase={"draft": 2e9, "verify": 6e9},
        interference_frac=Quantity(value=0.25, n=2, kind="measured", source="by hand"),
    )  # fmt: skip
    return Attribution(refused=None, closure=[closure], not_closed=["s+d: too short"])


def test_traffic_is_held_bytes_over_those_that_were_seen() -> None:
    shares = traffic_shares(variant("t+d", "d"), closed(10e9), None)
    assert parts(shares) == pytest.approx([0.2, 0.6, 0.0, 0.2])
    assert shares.other is not None and shares.other.n == 2


def test_held_passes_that_make_more_than_was_seen_leave_less_than_nothing() -> None:
    shares = traffic_shares(variant("t+d", "d"), closed(6.4e9), None)
    assert parts(shares) == pytest.approx([0.3125, 0.9375, 0.0, -0.25])


@pytest.mark.parametrize(
    ("name", "drafter", "attribution", "no_bandwidth", "reason"),
    [
        ("s+d", "d", closed(10e9), None, "too short"),
        ("t", None, closed(10e9), None, "the balance is only made for variants with a drafter"),
        ("t+d", "d", closed(0.0), None, "the counter saw nothing but idle"),
        ("t+d", "d", Attribution(refused="it is stuck"), None, "it is stuck"),
        ("t+d", "d", None, "EMC needs root", "EMC needs root"),
        ("t+d", "d", None, None, "no kind of pass was held"),
    ],
)
def test_without_traffic_there_is_a_reason(
    name: str,
    drafter: str | None,
    attribution: Attribution | None,
    no_bandwidth: str | None,
    reason: str,
) -> None:
    shares = traffic_shares(variant(name, drafter), attribution, no_bandwidth)
    assert shares == PhaseShares(reason=reason)
