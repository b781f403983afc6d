"""The sums behind a paper answer add up to its figures."""

from typing import Any

import pytest

from edgeprof.analysis.outlook import Outlook, outlook
from edgeprof.catalog import find_device, find_engine, find_kv_type, find_model
from edgeprof.report.explain import Term, explain, explain_sections
from edgeprof.report.sections import as_text


def answer(model: str = "qwen2.5-7b:q4_k_m", **choices: Any) -> Outlook:
    return outlook(
        device=find_device("orin-nano"),
        model=find_model(model)[0],
        kv=find_kv_type("f16"),
        **choices,
    )


def of(terms: list[Term], subject: str) -> dict[str, Term]:
    found = {term.figure: term for term in terms if term.subject.startswith(subject)}
    assert found
    return found


def test_bytes_of_a_model_group_by_group() -> None:
    terms = [t for t in explain(answer()) if t.subject == "model qwen2.5-7b:q4_k_m"]
    by_figure = {term.figure: term for term in terms}
    head = by_figure["lm_head Q6_K"]
    # 152064 rows of 3584 = 14 blocks of 210 bytes
    assert head.sum == "1 x 152064 rows x 2940 B (3584 weights)"
    assert head.value == 447_068_160
    groups = [t for t in terms if t.figure not in ("resident weights", "cache a token")]
    assert sum(t.value for t in groups) == by_figure["resident weights"].value
    # 4 370 042 880 read, 516 096 of biases, 306 561 024 of embedding
    assert by_figure["resident weights"].value == 4_370_042_880 + 516_096 + 306_561_024
    assert by_figure["resident weights"].source
    cache = by_figure["cache a token"]
    assert cache.sum == "28 layers x (4 KV heads x 128 keys + 4 x 128 values) x 2/1 B"
    assert cache.value == 57_344


def test_a_pass_term_by_term() -> None:
    result = answer(contexts=(4096,))
    terms, one = of(explain(result), "decode"), result.passes[0]
    value = {figure: term.value for figure, term in terms.items()}
    assert value["cache read"] == 4096 * 57_344
    assert value["all bytes"] == (
        value["weights read"] + value["cache read"] + value["cache written"]
    )
    # 2 x 7 070 285 824 weights, 4 x 28 layers x 28 heads x 128 x 4097
    assert value["products"] == 14_140_571_648
    assert terms["attention"].sum == "2 x 28 layers x 28 heads x 256 x 4097 tokens seen"
    assert value["attention"] == 2 * 28 * 28 * 256 * 4097
    assert value["products"] + value["attention"] == 15_785_140_224
    assert value["time at best"] == one.time_s == value["memory time"] > value["compute time"]
    assert value["tokens/s at best"] == one.tokens_per_s


def test_a_prefill_uses_the_head_once() -> None:
    terms = of(explain(answer()), "prefill")
    head = 152_064 * 3584
    assert terms["products"].value == 2 * (512 * (7_070_285_824 - head) + head)


def test_device_figures_have_their_sources() -> None:
    terms = of(explain(answer()), "orin-nano-8gb 15W")
    peak = terms["peak bandwidth"]
    assert peak.sum == "EMC 2133 MHz x 2 x 128 bit / 8"
    assert peak.value == 68.256e9
    assert peak.source is not None and "nvpmodel" in peak.source
    assert terms["sustained, low"].value == pytest.approx(0.72 * 68.256e9)
    assert terms["peak rate, fp16"].sum == "8 SMs x 624.75 MHz x 2048 FLOP, dense"
    assert terms["ridge"].value == pytest.approx(149.96, abs=0.01)


def test_memory_adds_up() -> None:
    result = answer(draft=find_model("qwen2.5-0.5b:q8_0")[0])
    terms = of(explain(result), "memory")
    parts = ("weights", "KV", "draft weights", "draft KV", "runtime", "system")
    assert sum(terms[part].value for part in parts) == terms["resident"].value
    assert terms["resident"].value == result.fit.total_bytes


def test_expected_ends_are_those_of_the_answer() -> None:
    result = answer(engine=find_engine("llama.cpp"))
    terms, band = of(explain(result), "expected"), result.passes[0].expected_time_s
    assert band is not None
    assert terms["general, shortest"].value == band.low
    assert terms["general, longest"].value == band.high


def test_experts_and_windows_are_told() -> None:
    moe = outlook(
        device=find_device("agx-orin"),
        model=find_model("qwen3-30b-a3b")[0],
        kv=find_kv_type("f16"),
    )
    # 1 - (1 - 8/128)^5 = 1 - 0.9375^5 = 0.276
    verify = of(explain(moe), "verify")["weights read"]
    assert "of experts 1 - (1 - 8/128)^5 = 0.276" in verify.sum
    gemma = of(explain(answer("gemma3-1b", contexts=(8192,))), "decode")["cache read"]
    assert "512 x cache a token in 22 windowed layers" in gemma.sum


def test_every_sum_is_a_line() -> None:
    terms = explain(answer())
    shown = as_text(explain_sections(terms), 1000)
    assert "peak bandwidth = EMC 2133 MHz x 2 x 128 bit / 8 = 68.26 GB/s" in shown
    assert "cache a token = 28 layers" in shown
    assert len(shown.splitlines()) >= len(terms)
