"""Synthetic tests of a session, against rates worked out by hand."""

from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.analysis.summary import summarise
from edgeprof.analysis.synthetic import synthetic_runs


def leg(maker: Any, name: str, passes: list[tuple[int, int, float]], **fields: Any) -> None:
    """A leg of target ``fp32`` whose passes are (tokens, context, ms)."""
    depth = int(name.partition("@d")[2] or 0)
    attrs = {"target": "fp32", "test": name, "depth_tokens": depth}
    leg_id = maker.leg("decode", "fp32", attrs=attrs, **fields)
    maker.legs[-1] = replace(maker.legs[-1], name=name)
    for tokens, context, ms in passes:
        maker.run_pass(leg_id, "decode", "fp32", ms, tokens=tokens, context_tokens=context)
    maker.end_leg()


def test_the_filling_is_not_in_the_figure(maker: Any) -> None:
    # 4 tokens in 4 x 10 ms after a filling of two passes
    passes = [(512, 0, 300.0), (88, 512, 60.0), *((1, 600 + n, 10.0) for n in range(4))]
    leg(maker, "tg4@d600", passes)
    (run,) = synthetic_runs(maker.session())
    assert (run.name, run.target, run.tokens) == ("tg4@d600", "fp32", 4)
    assert run.rates == pytest.approx([100.0])


def test_time_between_passes_is_in_the_figure(maker: Any) -> None:
    leg_id = maker.leg("decode", "fp32", attrs={"test": "tg2", "depth_tokens": 0})
    maker.run_pass(leg_id, "decode", "fp32", 10, context_tokens=0)
    maker.now += 20_000_000
    maker.run_pass(leg_id, "decode", "fp32", 10, context_tokens=1)
    maker.end_leg()
    (run,) = synthetic_runs(maker.session())
    assert run.rates == pytest.approx([2 / 0.040])


def test_repeats_are_told_apart_and_warm_up_and_cut_legs_left_out(maker: Any) -> None:
    leg(maker, "pp1024", [(512, 0, 900.0), (512, 512, 900.0)], warmup=True)
    leg(maker, "pp1024", [(512, 0, 400.0), (512, 512, 600.0)], repeat=1)
    leg(maker, "pp1024", [(512, 0, 300.0), (512, 512, 500.0)], repeat=2)
    leg(maker, "pp1024", [(512, 0, 300.0)], repeat=3, status="interrupted")
    leg(maker, "pp8", [], repeat=1, status="interrupted")
    long, short = synthetic_runs(maker.session())
    assert long.rates == pytest.approx([1024, 1280]) and long.tokens == 2048
    assert (short.name, short.rates, short.tokens) == ("pp8", [], 0)


def test_figures_stand_among_the_legs_and_are_compared_with_nothing(maker: Any) -> None:
    maker.decode_leg("fp32")
    leg(maker, "pp512", [(512, 0, 500.0)], repeat=1)
    leg(maker, "pp512", [(512, 0, 400.0)], repeat=2)
    summary = summarise(maker.session())
    plain, test = summary.legs
    assert (plain.name, plain.kind, plain.variant) == ("fp32", "decode", "fp32")
    assert plain.answers == 2  # the legs of the test are no answers
    assert (test.name, test.kind, test.variant, test.target) == ("pp512", "test", "fp32", "fp32")
    assert test.tokens_per_s is not None and test.tokens_per_s.n == 2
    assert test.tokens_per_s.value == pytest.approx((1024 + 1280) / 2)
    assert test.acceptance is None and test.ttft_s is None and summary.comparisons == []


def test_values_out_of_place_do_no_harm(maker: Any) -> None:
    maker.leg("decode", "fp32", attrs={"test": ["x"], "depth_tokens": "deep"})
    maker.end_leg()
    (run,) = synthetic_runs(maker.session())
    assert run.rates == [] and summarise(maker.session()).legs[0].tokens_per_s is None
