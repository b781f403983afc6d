"""Mistakes that paper rooflines are known to make, each by its name in the failure catalogue."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgeprof.cli.commands import cli


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["roofline", *arguments], env={"COLUMNS": "100"})


def answer(model: str, *arguments: str, device: str = "orin-nano") -> dict[str, Any]:
    done = run("--device", device, "--model", model, *arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def decode(content: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = content["passes"][0]
    assert first["phase"] == "decode"
    return first


def test_f03_an_input_embedding_is_resident_but_not_read() -> None:
    untied = answer("qwen2.5-7b:q4_k_m")
    # 152064 rows of 3584 weights in Q4_K: 14 blocks of 144 bytes, 2016 a row
    kept, read = (untied["model"][f"{part}_weight_bytes"] for part in ("resident", "streamed"))
    assert kept - read == 152_064 * 2_016 == 306_561_024
    assert decode(untied)["weight_bytes"] == read + 2_016


def test_f03_a_tied_table_is_read_once_as_the_head() -> None:
    tied = answer("qwen2.5-0.5b:q8_0")
    kept, read = (tied["model"][f"{part}_weight_bytes"] for part in ("resident", "streamed"))
    assert kept == read == decode(tied)["weight_bytes"]


def test_f04_experts_are_all_resident_and_few_are_read() -> None:
    """Qwen3-30B-A3B: 8 of 128 experts a token."""
    content = answer("qwen3-30b-a3b:q4_k_m", device="agx-orin")
    kept, read = (content["model"][f"{part}_weight_bytes"] for part in ("resident", "streamed"))
    assert read < 0.15 * kept
    assert content["fit"]["weights_bytes"] == kept
    verify = next(one for one in content["passes"] if one["phase"] == "verify")
    # five tokens need 1 - (15/16)^5 = 27.6 % of the experts, not 6.25 %
    assert 2 < verify["weight_bytes"] / decode(content)["weight_bytes"] < 4.42


def test_f05_heads_of_keys_and_values_are_counted_not_those_of_queries() -> None:
    # Qwen2.5-7B: 28 layers x 4 KV heads (of 28 heads) x 128 x 2 bytes, keys and values
    content = answer("qwen2.5-7b:q4_k_m", "--context", "32768")
    assert content["model"]["kv_bytes_per_token"] == 2 * 28 * 4 * 128 * 2 == 57_344
    assert decode(content)["kv_read_bytes"] == 1_879_048_192


def test_f06_growth_of_the_cache() -> None:
    # Qwen3-0.6B: 28 layers x 8 KV heads x 128, fp16, 4096 tokens: 448 MiB
    content = answer("qwen3-0.6b:q8_0", "--context", "4096")
    assert decode(content)["kv_read_bytes"] == 448 * 2**20 == 469_762_048


def test_f07_a_measured_rate_above_the_roof_is_a_finding() -> None:
    # 17.03 tokens/s at best, 22.3 are 1.31 times that
    shown = run("--device", "orin-nano", "--model", "7b-q4", "--measured", "mine=22.3")
    assert shown.exit_code == 0
    assert "ABOVE THE BOUND: mine: 22.3 tokens/s decoding is 1.31 times" in shown.stdout
    (found,) = answer("7b-q4", "--measured", "mine=22.3")["measured"]
    assert found["tokens_per_s"] == 22.3  # not clipped
    assert found["standing"] == "above the bound"
    assert found["bound_share"] == pytest.approx(22.3 / 17.034, rel=1e-3)
    (inside,) = answer("7b-q4", "--measured", "14.2")["measured"]
    assert (inside["label"], inside["standing"]) == ("measured", "as expected")


def test_f10_the_roof_is_dense_and_of_the_data_type() -> None:
    """The board is sold with 67 TOPS: sparse, INT8, and CPU and GPU at their highest clocks."""
    content = answer("7b-q4", device="orin-nano-super@MAXN_SUPER")
    peaks = content["device"]["peak_flop_per_s"]
    # 8 SMs x 1020 MHz x 4096 and x 2048
    assert peaks["int8"] == pytest.approx(8 * 1.02e9 * 4096, rel=0.001)
    assert peaks["fp16"] == peaks["int8"] / 2 < 17e12
    ridge = decode(content)["ridge_flop_per_byte"]
    assert ridge == peaks["fp16"] / content["device"]["peak_bandwidth_bytes_per_s"]


def test_f11_verifying_many_tokens_is_not_free_on_a_weak_gpu() -> None:
    content = answer("qwen2.5-7b:q4_k_m", "-k", "16", device="orin-nano@7W")
    one, many = decode(content), content["passes"][1]
    assert (many["tokens"], many["bound"]) == (17, "compute")
    # 17 x 14.14 GFLOP over 4 SMs x 408 MHz x 2048 = 3.342 TFLOP/s: 71.9 ms against 64.0
    assert many["time_s"] == pytest.approx(0.0719, abs=2e-4)
    assert one["time_s"] == pytest.approx(0.0640, abs=1e-4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measured", "0"], "--measured takes a number from 1e-06 to 1e+09, got '0'"),
        (["--measured", "-5"], "--measured takes a number"),
        (["--measured", "mine=nan"], "got 'nan'"),
        (["--measured", "mine="], "got ''"),
        (["--measured", "9" * 400], "--measured takes a number"),
        (["--context", "-1"], "--context takes whole numbers from 0 to 10000000, got '-1'"),
        (["--tokens", "nan"], "not a valid integer range"),
        (["-k", "1.5"], "not a valid integer range"),
    ],
)
def test_f14_nonsense_numbers_are_refused_with_their_range(
    arguments: list[str], message: str
) -> None:
    done = run("--device", "orin-nano", "--model", "7b-q4", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("kv", "size"), [("f16", 57_344), ("q8_0", 30_464), ("q4_0", 16_128), ("fp8", 28_672)]
)
def test_f16_quantised_caches_include_their_block_scales(kv: str, size: int) -> None:
    # 2 x 28 layers x 512 elements x 2, 34/32, 18/32 and 1 bytes
    content = answer("qwen2.5-7b:q4_k_m", "--kv", kv)
    assert content["model"]["kv_bytes_per_token"] == size


def test_f17_what_does_not_fit_says_so_before_any_rate() -> None:
    shown = run("--device", "orin-nano", "--model", "llama2-7b:f16")
    assert shown.exit_code == 1
    first = shown.stdout.index("DOES NOT FIT: 14.91 GiB against 7.44 GiB visible")
    assert first < shown.stdout.index("tokens/s")
    several = run("--device", "orin-nano,agx-orin", "--model", "llama2-7b:f16")
    assert several.exit_code == 1
    assert several.stdout.index("DOES NOT FIT") < several.stdout.index("decode")
    assert "orin-nano-8gb 15W: 14.91 GiB against 7.44 GiB visible" in several.stdout
    assert "agx-orin-64gb MODE_30W: 14.91" not in several.stdout


def test_f18_draft_and_target_are_resident_with_both_caches() -> None:
    pair = ["--draft", "qwen2.5-0.5b:q8_0", "--context", "4091"]  # and the 5 of verifying: 4096
    fit = answer("llama2-7b:q4_0", *pair)["fit"]
    assert fit["kv_bytes"] == 2_147_483_648
    assert fit["draft_kv_bytes"] == 50_331_648
    assert fit["total_bytes"] / 2**30 == pytest.approx(8.46, abs=0.005)
    assert fit["fits"] is False
    shown = run("--device", "orin-nano", "--model", "llama2-7b:q4_0", *pair).stdout
    for part in ("weights", "KV", "draft weights", "draft KV", "runtime", "system"):
        assert f"\n{part} " in shown
