"""Plans for drafting, against worked cases."""

from itertools import pairwise
from typing import Any

import pytest

from edgeprof.analysis.plan import Plan, plan
from edgeprof.catalog import engines, find_device, find_engine, find_kv_type, find_model

# Orin Nano, Qwen3.5-4B, K-quant: ggml-org/llama.cpp PR #28285, llama-bench -p n -n 0 -r 50
MVQ = dict(zip(range(1, 9), (1, 1.359, 1.476, 1.858, 2.039, 2.298, 2.796, 3.086), strict=True))
MMQ = dict(zip(range(1, 9), (1, 0.926, 0.936, 0.946, 0.957, 0.966, 0.977, 0.987), strict=True))
FLAT = {1: 1.0, 65: 1.0}  # v = 1 throughout


def ask(
    device: str = "orin-nano",
    target: str = "qwen2.5-7b",
    draft: str | None = "qwen2.5-0.5b:q8_0",
    engine: str | None = None,
    **choices: Any,
) -> Plan:
    table, engine_class = engines(), find_engine(engine)
    return plan(
        device=find_device(device),
        target=find_model(target)[0],
        draft=None if draft is None else find_model(draft)[0],
        kv=find_kv_type("f16"),
        engine=engine_class,
        kernels={name: table.kernels[name] for name in table.kernels_of[engine_class.name]},
        **choices,
    )


@pytest.mark.parametrize(("curve", "length", "gain"), [(MVQ, 2, 1.42), (MMQ, 5, 2.36)])
def test_the_kernel_decides_the_best_length(
    curve: dict[int, float], length: int, gain: float
) -> None:
    # 2.44 / (2 x 0.12 + 1.476) and 3.68928 / (5 x 0.12 + 0.966), under one and the same roofline
    result = ask(acceptances=[0.8], draft_cost=0.12, verify_cost=curve)
    assert result.headline.best_draft_length == length
    assert result.headline.best_speedup == pytest.approx(gain, abs=0.005)
    assert len(result.headline.lengths) == 7  # K + 1 = 8 is the last that was measured


@pytest.mark.parametrize(
    ("alpha", "length", "gain"),
    [(0.5, 2, 1.41), (0.6, 3, 1.60), (0.7, 4, 1.87), (0.8, 5, 2.30), (0.9, 9, 3.13)],
)
def test_a_half_billion_draft_by_bytes_alone(alpha: float, length: int, gain: float) -> None:
    """Qwen2.5-0.5B Q8_0 (0.525 GB) for Qwen2.5-7B Q4_K_M (4.370 GB): c 0.120, v 1."""
    ratio = ask().draft_cost.bound
    assert ratio == pytest.approx(0.1202, abs=1e-4)
    result = ask(acceptances=[alpha], draft_cost=ratio, verify_cost=FLAT)
    assert result.headline.best_draft_length == length
    assert result.headline.best_speedup == pytest.approx(gain, abs=0.006)


def test_eight_drafted_tokens_are_too_many() -> None:
    result = ask(acceptances=[0.7], draft_cost=0.1202, verify_cost=FLAT)
    gains = {one.draft_length: one.middle_speedup for one in result.headline.lengths}
    expected = {1: 1.52, 2: 1.77, 3: 1.86, 4: 1.87, 5: 1.84, 8: 1.63, 12: 1.35}
    assert {k: gains[k] for k in expected} == pytest.approx(expected, abs=0.006)
    eight = result.headline.lengths[7]
    assert eight.expected_tokens_per_round == pytest.approx(3.199, abs=5e-4)


def test_break_even_of_each_length() -> None:
    # v(5) as measured, c 0.12: 0.649
    result = ask(acceptances=[0.8], draft_cost=0.12, verify_cost=MVQ)
    assert result.headline.lengths[3].break_even_acceptance == pytest.approx(0.649, abs=5e-4)
    assert result.headline.break_even_acceptance == result.headline.lengths[1].break_even_acceptance


def test_f12_a_dear_draft_slows_down() -> None:
    """Acceptance 0.5, c 0.3, K 8: 1.996 tokens for 8 x 0.3 + 1 = 3.4 passes."""
    result = ask(draft=None, acceptances=[0.5], draft_cost=0.3, verify_cost=FLAT)
    eight = result.headline.lengths[7]
    assert eight.middle_speedup == pytest.approx(1.996 / 3.4, abs=1e-3)
    # 1 + a = 1 + 0.3 at K = 1 is where anything pays at all
    assert result.headline.lengths[0].break_even_acceptance == pytest.approx(0.3)


def test_a_draft_that_never_pays_says_from_where_it_would() -> None:
    result = ask(draft=None, acceptances=[0.2], draft_cost=0.3, verify_cost=FLAT)
    assert result.headline.best_draft_length == 0
    assert result.headline.best_speedup == 1.0
    assert result.headline.break_even_acceptance == pytest.approx(0.3)


def test_a_free_draft_is_capped() -> None:
    result = ask(draft=None, acceptances=[0.9], draft_cost=0.0, verify_cost=FLAT)
    assert result.headline.best_draft_length == 16
    longer = ask(draft=None, acceptances=[0.9], draft_cost=0.0, verify_cost=FLAT, longest=64)
    assert longer.headline.best_draft_length == 64


@pytest.mark.parametrize(
    ("device", "tokens"),
    [
        # 7 070 285 824 weights: 14.14 GFLOP a position; the longer of 4.37 GB / 68.256 GB/s =
        # 64.0 ms and n x 14.14 G / 10.236 T = n x 1.3815 ms: 46.3, and 47 with the cache's bytes
        ("orin-nano@15W", 47),
        # 4.37 / 68.256 against 14.14 G / (4 x 408 MHz x 2048 = 3.342 T) = 4.231 ms: 15.1
        ("orin-nano@7W", 16),
    ],
)
def test_f11_where_verifying_turns_compute_bound(device: str, tokens: int) -> None:
    assert ask(device=device).compute_bound_from_tokens == tokens


def test_f11_the_bound_grows_from_there_on() -> None:
    result = ask(device="orin-nano@7W", longest=20)
    bounds = [row.bound for row in result.verify_cost]
    assert bounds[14] < 1.01  # 15 positions
    assert bounds[20] == pytest.approx(21 * 4.231 / 64.03, rel=0.01)
    assert all(a <= b for a, b in pairwise(bounds))


def test_the_best_length_does_not_come_from_the_bound() -> None:
    """By the bound, verifying is free and long drafts pay; kernels make it dearer."""
    result = ask(acceptances=[0.7], draft="smollm2-135m")
    assert all(row.bound < 1.01 for row in result.verify_cost)
    by_name = {one.costs.name: one for one in result.kernels}
    slow, fast = by_name["matrix-vector"], by_name["matrix-matrix"]
    assert slow.best_draft_length < fast.best_draft_length
    assert slow.best_speedup.high < fast.best_speedup.low
    for one in result.headline.lengths:
        assert one.speedup is not None and one.middle_speedup is not None
        assert one.speedup.low <= one.middle_speedup <= one.speedup.high


def test_measured_costs_beside_what_was_expected() -> None:
    result = ask(acceptances=[0.8], verify_cost={5: 2.0})
    row = result.verify_cost[4]
    assert row.measured == 2.0
    assert row.expected is not None
    assert [one.measured for one in result.verify_cost[:5]] == [1.0, None, None, None, 2.0]
    # c is still a band: so is the speed-up
    band = result.headline.lengths[3].speedup
    assert band is not None and band.low < band.high


def test_nothing_is_made_up_for_a_board_that_nobody_measured() -> None:
    result = ask(device="xavier-nx-8")
    assert result.middle is None
    assert result.kernels == ()
    assert result.headline.best_draft_length is None
    assert result.headline.lengths[0].speedup is None
    assert result.verify_cost[4].expected is None
    measured = ask(device="xavier-nx-8", draft_cost=0.12, verify_cost=MVQ, acceptances=[0.8])
    assert measured.headline.best_draft_length == 2


def test_where_no_rate_is_published_only_short_passes_are_planned() -> None:
    result = ask(device="orin-nano", data_type="fp8", engine="llama.cpp")
    assert result.compute_bound_from_tokens is None
    assert len(result.headline.lengths) == 7


def test_f18_both_models_and_both_caches_are_resident() -> None:
    result = ask(target="llama2-7b:q4_0", context_tokens=4096, acceptances=[0.7])
    deepest = 4096 + (result.headline.best_draft_length or 0) + 1
    assert result.fit.weights_bytes == pytest.approx(3.825e9, abs=1e6)
    assert result.fit.draft_weights_bytes == pytest.approx(0.525e9, abs=1e6)
    assert result.fit.kv_bytes == deepest * 524_288
    assert result.fit.draft_kv_bytes == deepest * 12_288
    assert not result.fit.fits
