"""Measured rates beside the bound."""

import pytest

from edgeprof.analysis.observation import Observation, Standing, compare
from edgeprof.analysis.roofline import PassCost, PassTime
from edgeprof.quantity import Band

COST = PassCost(
    phase="decode", tokens=1, context_tokens=0, weight_bytes=1, kv_read_bytes=0, kv_write_bytes=0,
    flop=1, parts=(),
)  # fmt: skip


def decode(expected: Band | None) -> PassTime:
    """20 tokens/s at best."""
    return PassTime(
        cost=COST, ridge_flop_per_byte=None, bound="memory", time_s=0.05, expected_time_s=expected
    )


@pytest.mark.parametrize(
    ("rate", "standing"),
    [
        (26.2, "above the bound"),  # 131 %
        (20.3, "above expected"),  # 1.5 % is rounding of published clocks
        (15.0, "as expected"),
        (9.9, "below expected"),
    ],
)
def test_f07_a_rate_above_the_bound_is_a_finding(rate: float, standing: Standing) -> None:
    # 0.0625 s to 0.1 s are 16 to 10 tokens/s
    found = compare(Observation(label="x", tokens_per_s=rate), decode(Band(low=0.0625, high=0.1)))
    assert found.standing == standing
    assert found.bound_share == pytest.approx(rate / 20)


def test_without_a_band_only_the_bound_judges() -> None:
    seen = Observation(label="x", tokens_per_s=1.0)
    assert compare(seen, decode(None)).standing == "bounded"
