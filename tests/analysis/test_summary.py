"""Figures of the session made by hand; its numbers stand in tests/made_session.py."""

import json
from typing import Any

import msgspec
import pytest

from edgeprof.analysis.summary import (
    Comparison,
    Summary,
    VariantFigures,
    summarise,
    without_private,
)
from edgeprof.quantity import Quantity
from edgeprof.session.records import Event, PassAgreement, Session


@pytest.fixture(scope="module")
def summary(made_session: Session) -> Summary:
    return summarise(made_session)


def leg(summary: Summary, variant: str) -> VariantFigures:
    return next(leg for leg in summary.legs if leg.variant == variant)


def comparison(summary: Summary, variant: str) -> Comparison:
    return next(c for c in summary.comparisons if c.variant == variant)


def value(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.value is not None
    return quantity.value


def test_one_entry_a_variant_and_no_warmup(summary: Summary) -> None:
    names = ["fp32", "fp32+draft k=2", "fp32+ngram k=3", "int4", "int4+draft k=2"]
    assert [leg.variant for leg in summary.legs] == names
    assert leg(summary, "fp32").answers == 4  # 2 prompts x 2 repeats
    assert leg(summary, "fp32").tokens == 4 * 9


def test_rates(summary: Summary) -> None:
    plain = leg(summary, "fp32")
    # 8 tokens in 8 x 20 ms, and in 8 x 25 ms in the slower repeat.
    assert plain.tokens_per_s_by_repeat == pytest.approx([50.0, 40.0])
    assert value(plain.tokens_per_s) == pytest.approx(45.0)
    assert plain.tokens_per_s is not None and plain.tokens_per_s.n == 2
    # 8 tokens in 4 rounds of 30 ms = 66.7, of 37.5 ms = 53.3
    assert value(leg(summary, "fp32+draft k=2").tokens_per_s) == pytest.approx(60.0)


def test_latencies(summary: Summary) -> None:
    plain, drafted = leg(summary, "fp32"), leg(summary, "fp32+draft k=2")
    assert value(plain.ttft_s) == pytest.approx((0.050 + 0.0625) / 2)
    assert value(plain.tpot_s) == pytest.approx((0.020 + 0.025) / 2)
    assert drafted.itl_s is not None
    # Of the 8 gaps of an answer 4 are 0 and 4 a whole round; sorted, 16 zeros, 8 of 30, 8 of 37.5:
    # the median lies between the last zero and the first 30, rank 15.5.
    assert value(drafted.itl_s.p50) == pytest.approx(0.015)
    assert value(drafted.itl_s.p99) == pytest.approx(0.0375)
    assert drafted.itl_s.p50.n == 32


def test_time_shares(summary: Summary) -> None:
    share = leg(summary, "fp32+draft k=2").time_share
    assert share is not None
    parts = [value(part) for part in (share.draft, share.verify, share.decode, share.other)]
    assert parts == pytest.approx([6 / 30, 20 / 30, 0, 4 / 30])
    lookup = leg(summary, "fp32+ngram k=3").time_share
    assert lookup is not None
    assert value(lookup.decode) == pytest.approx(80 / 104)  # 4 plain rounds of 20 ms in 104


def test_bandwidth_is_bytes_over_time_and_says_so(summary: Summary) -> None:
    bandwidth = leg(summary, "fp32").bandwidth
    assert bandwidth is not None and bandwidth.kind == "modelled"
    # 500 MB and 10 tokens of 50 kB a pass, which takes 20 ms in one repeat and 25 in the other.
    assert value(bandwidth) == pytest.approx(500.5e6 / 0.0225)
    assert "keys and values" in bandwidth.source


def test_what_no_sensor_gave_is_null(summary: Summary) -> None:
    plain = leg(summary, "fp32")
    assert plain.power_w is None and plain.energy_per_token_j is None
    assert plain.gpu_busy_frac is None
    assert leg(summary, "int4").memory is None  # the samples fall into other legs


def test_memory(summary: Summary) -> None:
    memory = leg(summary, "fp32").memory
    assert memory is not None
    assert value(memory.available_before_bytes) == 8e9 - 2e9
    assert value(memory.peak_used_bytes) == 3e9
    assert value(memory.swap_growth_bytes) == 3e6  # 1 MB at first, 4 MB at most


def test_a_model_that_the_cache_may_serve_has_no_modelled_bandwidth(
    made_session: Session, summary: Summary
) -> None:
    """The cache is 32 MB: the draft's 20 MB are below twice that, the 80 MB of int4 are above."""
    shown = {point.model: point.bandwidth_bytes_per_s for point in summary.pass_points}
    assert shown["draft"] is None and shown["int4"] is not None
    assert {p.bandwidth_share for p in summary.pass_points if p.model == "draft"} == {None}
    environment = {**made_session.info.environment, "last_level_cache_bytes": 41_000_000}
    info = msgspec.structs.replace(made_session.info, environment=environment)
    larger = summarise(msgspec.structs.replace(made_session, info=info))
    assert leg(larger, "int4").bandwidth is None and leg(larger, "fp32").bandwidth is not None
    assert any("no bandwidth of DRAM then" in warning for warning in larger.warnings)


def test_speedup_is_paired(summary: Summary) -> None:
    drafted = comparison(summary, "fp32+draft k=2")
    assert drafted.baseline == "fp32"
    speedup = drafted.decode_speedup
    assert speedup is not None
    assert (speedup.kind, speedup.n) == ("measured", 4)
    # 160 ms against 120, in every pair: the slower second repeat slows both alike.
    assert [speedup.value, speedup.low, speedup.high] == pytest.approx([4 / 3] * 3)


def test_speedup_band_spans_the_prompts(maker: Any, shape: Any) -> None:
    for prompt, pass_ms in (("chat", 10.0), ("code", 20.0)):
        answers = {prompt: list(range(9))}
        maker.decode_leg("fp32", answers=answers)
        fast = [shape(1, 1, 0, 1, 0.0, pass_ms, 0.0)] * 8
        maker.decode_leg("fp32+ngram k=3", answers=answers, rounds=fast)
    speedup = summarise(maker.session()).comparisons[0].decode_speedup
    assert speedup is not None
    # 2 x 160 ms against 80 + 160; a draw of two prompts may hold either one alone: 1.0 or 2.0
    assert [speedup.value, speedup.low, speedup.high] == pytest.approx([320 / 240, 1.0, 2.0])
    assert summarise(maker.session()).comparisons[0].verdict.outcome == "no difference beyond noise"


def test_predicted_speedup_of_a_draft_model(summary: Summary) -> None:
    predicted = comparison(summary, "fp32+draft k=2").predicted_speedup
    assert predicted is not None and predicted.kind == "modelled"
    # 2 tokens a round; c = 3 / 20, v(3) = 20 / 20: 2 / (2 x 0.15 + 1)
    assert value(predicted) == pytest.approx(2 / 1.3)
    four_bit = comparison(summary, "int4+draft k=2").predicted_speedup
    assert value(four_bit) == pytest.approx(2 / (2 * 0.3 + 1.8))


def test_predicted_speedup_averages_over_what_was_drafted(summary: Summary) -> None:
    predicted = comparison(summary, "fp32+ngram k=3").predicted_speedup
    # 8 tokens in 5 rounds. One needs v(4), halfway between v(3) = 1.0 and v(5) = 1.2; four are
    # plain: (1.1 + 4 x 1.0) / 5 = 1.02
    assert value(predicted) == pytest.approx(1.6 / 1.02)


def test_prediction_for_other_draft_lengths(summary: Summary) -> None:
    found = comparison(summary, "int4+draft k=2").predicted_by_draft_tokens
    # Of 8 tokens in rounds of 3, 2, 1, 2. At K = 1 they are rounds of 2, 2, 1, 1, 2 tokens, of a
    # draft pass of 3 ms, v(2) = 14 (halfway between 10 and 18) and 2 outside; K = 2 is as measured.
    expected = [(1, 80 / (5 * 19)), (2, 80 / (4 * 26))]
    assert [k for k, _ in expected] == [s.draft_tokens for s in found]
    assert [s.predicted_speedup for s in found] == pytest.approx([s for _, s in expected])


def test_round_terms_add_up_to_the_measured_speedup(summary: Summary) -> None:
    for one in summary.comparisons:
        assert one.round_terms is not None
        assert one.round_terms.speedup == pytest.approx(value(one.decode_speedup))


def test_round_cost_adds_up_to_the_measured_speedup(summary: Summary) -> None:
    for one in summary.comparisons:
        assert one.round_cost is not None
        assert one.round_cost.tokens / one.round_cost.total == pytest.approx(
            value(one.decode_speedup)
        )
    cost = comparison(summary, "int4+draft k=2").round_cost
    assert cost is not None  # in plain tokens of 10 ms
    parts = [cost.tokens, cost.draft, cost.target, cost.other]
    assert parts == pytest.approx([2.0, 0.6, 1.8, 0.2])


def test_equal_output(summary: Summary) -> None:
    output = comparison(summary, "fp32+draft k=2").output
    assert output.identical is True
    assert output.first_divergence is None and output.logit_gap is None
    assert (output.answers_compared, output.tokens_compared) == (4, 36)
    assert "plain one-token decoding" in output.reference


def test_output_that_parts(summary: Summary) -> None:
    output = comparison(summary, "int4+draft k=2").output
    assert output.identical is False
    assert output.first_divergence == 5
    assert output.logit_gap == 0.004
    assert output.answers_identical == 2  # the "chat" prompt in both repeats


def test_answer_that_stops_early_parts_where_it_ends(maker: Any) -> None:
    maker.decode_leg("fp32", answers={"chat": [1, 2, 3]})
    maker.decode_leg("fp32+draft k=2", answers={"chat": [1, 2]})
    (one,) = summarise(maker.session()).comparisons
    assert one.output.identical is False and one.output.first_divergence == 2


def test_verify_cost(summary: Summary) -> None:
    costs = {(c.target, c.tokens): c.measured for c in summary.verify_cost}
    assert value(costs["fp32", 3]) == pytest.approx(1.0)
    assert value(costs["fp32", 5]) == pytest.approx(1.2)
    assert value(costs["int4", 3]) == pytest.approx(1.8)
    unit = costs["int4", 1]
    assert (unit.value, unit.low, unit.high) == (1.0, 1.0, 1.0)


def test_verify_cost_below_one_is_kept(maker: Any) -> None:
    maker.held_leg("verify", "fp32", {1: (10, 10), 2: (9, 9)})
    costs = {c.tokens: c.measured for c in summarise(maker.session()).verify_cost}
    assert costs[2].value == pytest.approx(0.9)


def test_ceilings(summary: Summary) -> None:
    fp32 = next(c for c in summary.ceilings if c.kernel == "fp32 MatMul")
    assert value(fp32.bandwidth_bytes_per_s) == pytest.approx(300e6 / 0.010)
    # 1 row: 150 MFLOP in 10 ms = 15 GFLOP/s; 64 rows: 9.6 GFLOP in 48 ms = 200
    assert value(fp32.flop_per_s) == pytest.approx(200e9)


def test_pass_points(summary: Summary) -> None:
    points = {(p.model, p.tokens): p for p in summary.pass_points}
    one = points["fp32", 1]
    # 500 MB of weights, 1000 tokens of 50 kB: 550 MB in 20 ms, of 30 GB/s
    assert value(one.bandwidth_bytes_per_s) == pytest.approx(27.5e9)
    assert one.bandwidth_share == pytest.approx(27.5 / 30)
    assert one.intensity_flop_per_byte == pytest.approx(600e6 / 550e6)
    three = points["int4", 3]
    assert value(three.flop_per_s) == pytest.approx(3 * 600e6 / 0.018)
    assert three.flop_share == pytest.approx(100 / 150)
    # The draft ran with one thread; no ceiling was measured with one.
    assert points["draft", 1].flop_share is None


def test_a_figure_above_its_ceiling_is_kept_and_noted(maker: Any) -> None:
    maker.held_leg("verify", "fp32", {1: (10, 10)})  # 550 MB in 10 ms = 55 GB/s
    maker.ceiling_leg("fp32 MatMul", 300_000_000, 150_000_000, {1: 10, 64: 48})
    summary = summarise(maker.session())
    assert summary.pass_points[0].bandwidth_share == pytest.approx(55 / 30)
    assert any("183 % of the measured streaming ceiling" in text for text in summary.warnings)


def test_r40_answer_without_tokens_has_no_rate(maker: Any) -> None:
    maker.decode_leg("fp32", answers={"chat": []}, rounds=[])
    maker.decode_leg("fp32+draft k=2", answers={"chat": []}, rounds=[])
    summary = summarise(maker.session())
    assert leg(summary, "fp32").tokens_per_s is None
    assert leg(summary, "fp32").ttft_s is None
    assert leg(summary, "fp32").answers == 1
    assert summary.comparisons[0].verdict.outcome == "not comparable"


def test_r35_rate_that_falls_in_every_repeat_is_flagged(maker: Any) -> None:
    start = maker.now
    for repeat, slower in enumerate((1.0, 1.05, 1.12)):
        maker.decode_leg("fp32", repeat=repeat, slower=slower)
    maker.signal("temp_c.gpu", "deg C", [(start, 48.0), (maker.now, 71.0)])
    summary = summarise(maker.session())
    # 50, 50 / 1.05 = 47.6, 50 / 1.12 = 44.6
    assert "fp32: tokens/s fell in every repeat (50.0, 47.6, 44.6; gpu 48 to 71 degrees C)" in (
        summary.warnings
    )


def test_r35_noise_is_no_trend(maker: Any) -> None:
    for repeat, slower in enumerate((1.0, 1.12, 1.05)):
        maker.decode_leg("fp32", repeat=repeat, slower=slower)
    assert not any("fell" in text for text in summarise(maker.session()).warnings)


def test_p14_single_repeat_is_said(maker: Any) -> None:
    maker.decode_leg("fp32")
    summary = summarise(maker.session())
    rate = leg(summary, "fp32").tokens_per_s
    assert rate is not None and (rate.n, rate.low, rate.high) == (1, None, None)
    assert any("n=1" in text for text in summary.warnings)


def test_leg_cut_short_does_not_count_beside_whole_ones(maker: Any) -> None:
    maker.decode_leg("fp32")
    maker.decode_leg("fp32", repeat=1, slower=3.0, status="interrupted")
    assert leg(summarise(maker.session()), "fp32").tokens_per_s_by_repeat == pytest.approx([50.0])


def test_leg_cut_short_counts_when_it_is_all_there_is(maker: Any) -> None:
    maker.decode_leg("fp32", status="died")
    maker.requests[-1] = msgspec.structs.replace(maker.requests[-1], t1_ns=None)
    maker.info = msgspec.structs.replace(maker.info, complete=False, ended_reason="killed")
    summary = summarise(maker.session())
    assert leg(summary, "fp32").answers == 1
    assert summary.warnings[0].startswith("the session is incomplete (killed)")
    assert "fp32: no leg was completed; its figures come from 1 answer" in summary.warnings


def test_speculation_without_its_baseline_is_not_compared(maker: Any) -> None:
    maker.decode_leg("fp32+draft k=2")
    (one,) = summarise(maker.session()).comparisons
    assert one.baseline is None and one.decode_speedup is None
    assert one.output.identical is None
    assert one.verdict.outcome == "not comparable"


@pytest.mark.parametrize(
    ("sampling", "compared"),
    [
        ({"temperature": 0.7}, False),
        ({"temperature": 0}, True),
        ({"temperature": None}, True),
        ("hot", True),
        (None, True),
    ],
)
def test_only_greedy_answers_are_compared(maker: Any, sampling: Any, compared: bool) -> None:
    maker.decode_leg("fp32")
    maker.decode_leg("fp32+draft k=2")
    recipe = {**maker.info.recipe, "sampling": sampling}
    maker.info = msgspec.structs.replace(maker.info, recipe=recipe)
    (one,) = summarise(maker.session()).comparisons
    assert (one.output.identical is not None) == compared
    assert (one.output.not_comparable is None) == compared
    assert one.decode_speedup is not None


def test_clocks_that_differ_forbid_a_comparison(maker: Any) -> None:
    maker.decode_leg("fp32")
    plain = maker.legs[-1]
    maker.decode_leg("fp32+draft k=2")
    drafted = maker.legs[-1]
    maker.signal("gpu_clock_hz", "Hz", [(plain.t0_ns + 1, 1e9), (drafted.t0_ns + 1, 9e8)])
    (one,) = summarise(maker.session()).comparisons
    assert one.verdict.outcome == "not comparable"
    assert "gpu_clock_hz was 10.0 % lower" in one.verdict.because


def test_warnings_about_the_machine(summary: Summary) -> None:
    # 20 MB of draft weights against 32 MB of cache; 80 and 500 MB are more than twice as much.
    cached = [text for text in summary.warnings if "last-level cache" in text]
    assert len(cached) == 1 and "of them: draft (20 MB);" in cached[0]
    assert any(text.startswith("int4: the same token gets logits") for text in summary.warnings)


def test_simulated_and_suspect_samples_are_stamped(maker: Any) -> None:
    maker.decode_leg("fp32")
    time = maker.legs[-1].t0_ns
    maker.signal("ram_used_bytes", "B", [(time, 1e9), (time + 1, 2e9)], quality="simulated")
    maker.signal("swap_used_bytes", "B", [(time, 9e9)], quality="suspect")
    summary = summarise(maker.session())
    assert "simulated, not read from this machine's board: 2 samples" in summary.warnings
    assert "left out as suspect: 1 sample" in summary.warnings
    memory = leg(summary, "fp32").memory
    assert memory is not None and memory.swap_growth_bytes is None


def test_events_reach_the_reader(maker: Any) -> None:
    maker.decode_leg("fp32")
    for _ in range(2):
        detail = {"reason": "killed by signal 9"}
        maker.events.append(Event(leg_id=1, t_ns=1, kind="death", severity="error", detail=detail))
    assert "death (2 times): reason killed by signal 9" in summarise(maker.session()).warnings


def test_last_words_of_a_process_stay_in_the_session(maker: Any) -> None:
    detail = {"process": "decoder", "stderr": "Traceback (most recent call last): ..."}
    maker.events.append(Event(leg_id=1, t_ns=1, kind="death", severity="error", detail=detail))
    assert "death: process decoder" in summarise(maker.session()).warnings


def test_p05_document_has_the_agreed_keys_and_no_nan(summary: Summary) -> None:
    document = json.loads(msgspec.json.encode(summary), parse_constant=pytest.fail)
    assert document["schema"] == "edgeprof.summary/1"
    top = {"session", "environment", "legs", "comparisons", "contention", "warnings"}
    assert top <= set(document)
    legs = {
        "name", "kind", "variant", "tokens_per_s", "ttft_s", "tpot_s", "itl_s", "acceptance",
        "time_share", "bandwidth", "gpu_busy_frac", "power_w", "energy_per_token_j", "memory",
    }  # fmt: skip
    assert legs <= set(document["legs"][1])
    assert set(document["legs"][1]["itl_s"]) == {"p50", "p90", "p99"}
    acceptance = {
        "draft_acceptance_rate", "conditional_acceptance", "mean_acceptance_length",
        "per_position", "conditional_per_position", "histogram",
    }  # fmt: skip
    assert acceptance <= set(document["legs"][1]["acceptance"])
    quantity = {"value", "low", "high", "n", "kind", "source", "window_s"}
    assert set(document["legs"][0]["tokens_per_s"]) == quantity
    compared = {
        "target", "drafter", "baseline", "decode_speedup", "predicted_speedup", "output", "verdict",
    }  # fmt: skip
    assert compared <= set(document["comparisons"][0])
    output = {"reference", "identical", "first_divergence", "logit_gap"}
    assert output <= set(document["comparisons"][0]["output"])
    limit = document["comparisons"][2]["verdict"]["limits"][0]
    assert set(limit) == {"name", "evidence", "advice", "gain"}
    assert document["legs"][0]["memory"]["peak_used_bytes"]["value"] == 3e9


def test_empty_session_is_summarised(maker: Any) -> None:
    summary = summarise(maker.session())
    assert summary.legs == [] and summary.comparisons == []


def test_p11_no_serial_number_and_no_host_name(summary: Summary) -> None:
    assert "serial_number" not in summary.device
    assert "hostname" not in summary.environment
    nested = {"board": {"chip_uuid": "x", "name": "y"}, "Serial": "z"}
    assert without_private(nested) == {"board": {"name": "y"}}


def test_variants_stand_together_by_target(maker: Any) -> None:
    for variant in ("fp32", "int4", "int4+draft k=2", "fp32+draft k=2"):
        maker.decode_leg(variant)
    names = [leg.variant for leg in summarise(maker.session()).legs]
    assert names == ["fp32", "fp32+draft k=2", "int4", "int4+draft k=2"]


def test_values_out_of_place_in_free_fields_do_no_harm(maker: Any) -> None:
    maker.decode_leg("fp32")
    maker.legs[-1] = msgspec.structs.replace(
        maker.legs[-1], attrs={"target": ["x"], "drafter": 3, "draft_tokens": "many"}
    )
    maker.ceiling_leg("fp32 MatMul", "much", None, {1: 10})
    maker.info = msgspec.structs.replace(
        maker.info, environment={"memory_bytes": "all", "last_level_cache_bytes": []}
    )
    summary = summarise(maker.session())
    assert leg(summary, "fp32").target == "fp32"
    assert summary.ceilings[0].bandwidth_bytes_per_s is None


def test_counts_beyond_reason_do_not_fill_the_memory(maker: Any, shape: Any) -> None:
    maker.decode_leg("fp32+draft k=2", rounds=[shape(10**9, 1, 1, 10**9, 0.0, 20.0, 0.0)])
    acceptance = leg(summarise(maker.session()), "fp32+draft k=2").acceptance
    assert acceptance is not None and len(acceptance.per_position) == 1024


def test_passes_slower_in_the_run_than_held_are_noted(maker: Any) -> None:
    maker.decode_leg("fp32", slower=2.0)  # passes of 40 ms
    maker.held_leg("verify", "fp32", {1: (20, 20, 20)})
    maker.decode_leg("int4")
    maker.held_leg("verify", "int4", {1: (9, 9, 9)})  # 10 ms in the run: near enough
    found = [text for text in summarise(maker.session()).warnings if "something else" in text]
    assert len(found) == 1
    assert found[0].startswith(
        "fp32: one-token passes took 40.0 ms while decoding and 20.0 ms held"
    )


def test_speedup_against_a_disturbed_baseline_is_not_comparable(maker: Any) -> None:
    maker.decode_leg("fp32", slower=3.0)
    maker.decode_leg("fp32+draft k=2")
    maker.held_leg("verify", "fp32", {1: (20, 20, 20), 3: (20, 20, 20)})
    (one,) = summarise(maker.session()).comparisons
    assert one.verdict.outcome == "not comparable"
    assert "0.33 of a plainly decoded token, and 1.00 on held passes" in one.verdict.because


def test_r09_a_run_that_swapped_says_so_and_how_much_was_read_back(maker: Any) -> None:
    maker.decode_leg("fp32")
    attrs = {**maker.legs[-1].attrs, "memory": {"major_faults": 310}}
    maker.legs[-1] = msgspec.structs.replace(maker.legs[-1], attrs=attrs)
    detail = {"growth_bytes": 1_200_000_000}
    maker.events.append(Event(leg_id=None, t_ns=1, kind="swap", severity="warning", detail=detail))
    assert (
        "swapping: swap grew by 1.20 GB during the run, 310 pages were read back from disk; the "
        "figures measure the disk too, use a smaller model or context"
    ) in summarise(maker.session()).warnings


def test_r41_a_self_check_that_fails_is_told(maker: Any) -> None:
    models = maker.info.models
    twin = msgspec.structs.replace(models["fp32"], role="draft")
    maker.info = msgspec.structs.replace(maker.info, models={**models, "draft": twin})
    maker.decode_leg("fp32+draft k=2")  # two answers, each with 4 of 7 compared tokens accepted
    (told,) = (text for text in summarise(maker.session()).warnings if "same model" in text)
    assert told.endswith(
        "accepted 8 of 14 drafted tokens, and all must stand: do not trust this model"
    )


def test_passes_of_a_draft_that_differ_are_no_warning(maker: Any) -> None:
    """Whatever a draft proposes is checked."""
    draft = maker.info.models["draft"]
    differing = PassAgreement(
        reference_tokens=8, max_logit_difference={1: 0.5, 8: 0.0}, after_rollback=0.0
    )
    for role, told in (("draft", False), ("target", True)):
        model = msgspec.structs.replace(draft, role=role, agreement=differing)
        maker.info = msgspec.structs.replace(maker.info, models={"draft": model})
        warnings = summarise(maker.session()).warnings
        assert any(text.startswith("draft: the same token gets") for text in warnings) is told
