"""Memory of legs, from what the decoder wrote down and from samples."""

from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.analysis.board import Memory, Readings, memory_of
from edgeprof.analysis.channels import channels_of
from edgeprof.quantity import Quantity

TOLD = {
    "available_before_bytes": 6_000,
    "used_before_bytes": 2_000,
    "swap_growth_bytes": 5,
    "process_peak_bytes": 900,
    "process_growth_bytes": 700,
    "major_faults": 3,
}


def value(quantity: Quantity | None) -> float | None:
    return None if quantity is None else quantity.value


def memory(maker: Any) -> Memory | None:
    session = maker.session()
    return memory_of(session.legs, Readings(channels_of(session)), None)


def told_leg(maker: Any, **changes: Any) -> None:
    maker.decode_leg("fp32")
    attrs = {**maker.legs[-1].attrs, "memory": {**TOLD, **changes}}
    maker.legs[-1] = replace(maker.legs[-1], attrs=attrs)


def test_a_leg_too_short_for_a_sample_has_its_memory_all_the_same(maker: Any) -> None:
    told_leg(maker)
    told_leg(maker, available_before_bytes=1, used_before_bytes=2_100, major_faults=4)
    found = memory(maker)
    assert found is not None
    assert value(found.available_before_bytes) == 6_000  # when the first leg started
    assert value(found.peak_used_bytes) == 2_100 + 700
    assert value(found.swap_growth_bytes) == 5
    assert value(found.process_peak_bytes) == 900
    assert found.major_faults == 7


@pytest.mark.parametrize(
    ("sampled", "peak", "source"), [(2_500.0, 2_700, "growth of"), (2_900.0, 2_900, "sample")]
)
def test_the_larger_of_sample_and_growth_is_the_peak(
    maker: Any, sampled: float, peak: int, source: str
) -> None:
    told_leg(maker)
    maker.signal("ram_used_bytes", "B", [(maker.legs[0].t0_ns + 1, sampled)])
    found = memory(maker)
    assert found is not None and found.peak_used_bytes is not None
    assert (found.peak_used_bytes.value, found.peak_used_bytes.n) == (peak, 1)
    assert source in found.peak_used_bytes.source


def test_r09_swap_within_a_leg_counts_whoever_saw_it(maker: Any) -> None:
    told_leg(maker)
    start = maker.legs[0].t0_ns
    maker.signal("swap_used_bytes", "B", [(start + 1, 100.0), (start + 2, 1_300.0)])
    found = memory(maker)
    assert found is not None and value(found.swap_growth_bytes) == 1_200


def test_what_is_no_number_is_not_taken(maker: Any) -> None:
    told_leg(maker, available_before_bytes="much", process_growth_bytes=None, major_faults=True)
    found = memory(maker)
    assert found is not None
    assert found.available_before_bytes is None and found.peak_used_bytes is None
    assert found.major_faults is None and value(found.process_peak_bytes) == 900
    maker.legs[-1] = replace(maker.legs[-1], attrs={"memory": [1]})
    assert memory(maker) is None
