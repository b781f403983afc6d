"""c and v(n) of engines and kernels, from round numbers."""

import pytest

from edgeprof.analysis.drafting_cost import (
    DraftingCost,
    RoundPasses,
    kernel_costs,
    measured_curve,
    middle,
)
from edgeprof.analysis.roofline import PartCost, PassCost, Roof, pass_cost, roof_of
from edgeprof.catalog import engines, find_device, find_engine, find_kv_type, find_model
from edgeprof.hardware.engines import EngineClass, KernelClass
from edgeprof.quantity import Band


def band(low: float, high: float) -> Band:
    return Band(low=low, high=high)


ROOF = Roof(
    bandwidth_bytes_per_s=100e9,
    flop_per_s=1e12,
    sustained_bytes_per_s=band(100e9, 100e9),
    gpu_clock_hz=1e9,
    sm_clocks_per_s=8e9,
)
ENGINE = EngineClass(
    name="made up",
    engines="none",
    bandwidth_share=band(1, 1),
    unpack_clocks_per_byte=band(0, 0),
    overhead_clocks=band(0, 1e6),  # up to 1 ms at 1 GHz
    compute_share=band(0.5, 1),
    extra_position=band(0, 0),
)
KERNEL = KernelClass(
    title="made up",
    second_position=band(0.9, 1),
    extra_position=band(0, 0.3),
    extra_position_experts=band(0, 0.5),
    source="none",
)


def pass_over(tokens: int, gigabytes: float, gigaflop: float) -> PassCost:
    size, flop = round(gigabytes * 1e9), round(gigaflop * 1e9)
    return PassCost(
        phase="verify",
        tokens=tokens,
        context_tokens=0,
        weight_bytes=size,
        kv_read_bytes=0,
        kv_write_bytes=0,
        flop=flop,
        parts=(PartCost(name="ffn_up", bytes=size, flop=flop),),
    )


def passes(gigaflop: float, *, experts: bool = False) -> RoundPasses:
    """1 GB takes 10 ms, 0.1 GB 1 ms; ``gigaflop`` a position takes as many ms."""
    return RoundPasses(
        target=tuple(pass_over(n, 1.0, n * gigaflop) for n in range(1, 4)),
        draft=pass_over(1, 0.1, 0.1),
        experts=experts,
    )


def test_overhead_makes_a_small_draft_dear() -> None:
    costs = kernel_costs("one", KERNEL, ENGINE, ROOF, passes(0.1))
    assert costs is not None
    assert costs.draft_cost.low == pytest.approx(1 / 10)  # bytes alone
    assert costs.draft_cost.high == pytest.approx((1 + 1) / (10 + 1))


def test_v_is_that_of_the_kernel_and_not_clamped_at_one() -> None:
    costs = kernel_costs("one", KERNEL, ENGINE, ROOF, passes(0.1))
    assert costs is not None
    assert costs.verify_cost(1) == band(1, 1)
    assert costs.verify_cost(2) == band(0.9, 1.3)
    assert costs.verify_cost(3).low == 0.9
    assert costs.verify_cost(3).high == pytest.approx(1 + 2 * 0.3)


def test_f11_arithmetic_takes_over_where_it_is_longer() -> None:
    # 6 GFLOP a position: 3 positions take 18 ms at peak, 36 ms at half of it, against 10 ms (11
    # with the overhead) for one; two take 12 and 24
    costs = kernel_costs("one", KERNEL, ENGINE, ROOF, passes(6.0))
    assert costs is not None
    assert costs.verify_cost(3).low == pytest.approx(18 / 11)
    # at half the peak one position takes 12 ms, so that three take 3 times as long
    assert costs.verify_cost(3).high == pytest.approx(36 / 12)


def test_experts_have_a_growth_of_their_own_and_at_most_that_of_their_union() -> None:
    costs = kernel_costs("one", KERNEL, ENGINE, ROOF, passes(0.1, experts=True))
    assert costs is not None
    assert costs.verify_cost(3) == band(1.0, 2.0)  # 0.9 by the kernel, but more experts are read
    union = RoundPasses(
        target=(pass_over(1, 1.0, 0.1), pass_over(2, 2.5, 0.2)), draft=None, experts=True
    )
    costs = kernel_costs("one", KERNEL, ENGINE, ROOF, union)
    assert costs is not None
    assert costs.verify_cost(2) == band(1.0, 2.5)
    assert costs.draft_cost == band(0, 0)


def test_nothing_is_expected_beyond_what_is_known() -> None:
    unknown = Roof(bandwidth_bytes_per_s=100e9, flop_per_s=None)
    assert kernel_costs("one", KERNEL, ENGINE, unknown, passes(0.1)) is None
    clockless = Roof(
        bandwidth_bytes_per_s=100e9, flop_per_s=None, sustained_bytes_per_s=band(90e9, 90e9)
    )
    assert kernel_costs("one", KERNEL, ENGINE, clockless, passes(0.1)) is None
    slope = Roof(
        bandwidth_bytes_per_s=100e9,
        flop_per_s=None,
        sustained_bytes_per_s=band(90e9, 90e9),
        gpu_clock_hz=1e9,
        sm_clocks_per_s=8e9,
    )
    long = RoundPasses(
        target=tuple(pass_over(n, 1.0, 0.1) for n in range(1, 12)), draft=None, experts=False
    )
    costs = kernel_costs("one", KERNEL, ENGINE, slope, long)
    assert costs is not None
    assert costs.most_tokens == 8


def test_a_135m_draft_costs_several_times_its_bytes_on_an_orin_nano() -> None:
    """SmolLM2-135M decodes in 8.7 ms on an Orin Nano in 15W, where its bytes take 1.5 ms."""
    device, f16 = find_device("orin-nano-super@15W"), find_kv_type("f16")
    roof = roof_of(device.profile, device.mode)
    target, draft = (
        pass_cost(find_model(name)[0], f16, "decode", 1, 0) for name in ("7b-q4", "smollm2-135m")
    )
    table = engines()
    costs = kernel_costs(
        "matrix-matrix",
        table.kernels["matrix-matrix"],
        find_engine("llama.cpp"),
        roof,
        RoundPasses(target=(target,), draft=draft, experts=False),
    )
    assert costs is not None
    by_bytes = draft.total_bytes / target.total_bytes
    assert by_bytes == pytest.approx(0.026, abs=0.001)
    assert costs.draft_cost.low >= by_bytes * 0.99
    assert costs.draft_cost.high > 2.5 * by_bytes


def test_measured_sizes_are_joined_by_straight_lines_and_not_extended() -> None:
    # 2 is halfway from 1 to 3, 4 halfway from 3 to 5; nothing beyond 5
    assert measured_curve({3: 1.5, 5: 2.5}, longest=16) == (1.0, 1.25, 1.5, 2.0, 2.5)
    assert measured_curve({1: 1.0, 2: 0.5, 8: 0.5}, longest=2) == (1.0, 0.5, 0.5)


def test_the_middle_of_ratios_is_their_geometric_mean() -> None:
    corners = [
        DraftingCost(draft_cost=0.1, verify_costs=(1.0, 1.0)),
        DraftingCost(draft_cost=0.4, verify_costs=(1.0, 4.0, 9.0)),
        DraftingCost(draft_cost=0.3, verify_costs=(1.0, 2.0)),
    ]
    between = middle(corners)
    assert between.draft_cost == pytest.approx(0.2)
    assert between.verify_costs == pytest.approx((1.0, 2.0))
    assert between.longest_draft == 1
