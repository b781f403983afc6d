"""``edgeprof roofline`` from the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgeprof.cli import cli

EXAMPLE = ["--device", "orin-nano", "--model", "7b-q4"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["roofline", *arguments])


def answer(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_the_example_of_the_readme_as_text() -> None:
    shown = run(*EXAMPLE)
    assert shown.exit_code == 0
    assert shown.stderr == ""
    for line in (
        "Llama-2-7B Q4_K_M on Jetson Orin Nano 8GB (original firmware), 15W",
        "orin-nano = orin-nano-8gb in mode 15W",
        "7b-q4 = llama2-7b:q4_k_m",
        "decode        1      0  4.01 GB    3.30   memory  58.7 ms      17.0  5.31-14.8",
        "Decoding is memory-bound",
        "Fits: 6.16 GiB of 7.44 GiB visible",
    ):
        assert line in shown.stdout


def test_document_has_exactly_the_keys_of_its_schema() -> None:
    content = answer(*EXAMPLE)
    assert set(content) == {"schema", "device", "model", "passes", "fit"}
    assert content["schema"] == "edgeprof.roofline/1"
    assert set(content["device"]) == {
        "name", "mode", "peak_bandwidth_bytes_per_s", "sustained_bandwidth_bytes_per_s",
        "peak_flop_per_s", "dram_bytes",
    }  # fmt: skip
    assert set(content["model"]) == {
        "name", "quantisation", "parameters", "resident_weight_bytes", "streamed_weight_bytes",
        "kv_bytes_per_token",
    }  # fmt: skip
    assert set(content["passes"][0]) == {
        "phase", "tokens", "context_tokens", "weight_bytes", "kv_read_bytes", "kv_write_bytes",
        "total_bytes", "flop", "intensity_flop_per_byte", "ridge_flop_per_byte", "bound", "time_s",
        "tokens_per_s", "expected_tokens_per_s",
    }  # fmt: skip
    assert set(content["fit"]) == {
        "weights_bytes", "kv_bytes", "draft_weights_bytes", "draft_kv_bytes", "runtime_bytes",
        "system_bytes", "total_bytes", "dram_bytes", "fits",
    }  # fmt: skip


def test_document_of_the_example() -> None:
    content = answer(*EXAMPLE)
    device, model, decode = content["device"], content["model"], content["passes"][0]
    assert (device["name"], device["mode"]) == ("orin-nano-8gb", "15W")
    assert device["peak_bandwidth_bytes_per_s"] == 68.256e9
    assert device["dram_bytes"] == 8 * 2**30
    assert (model["name"], model["quantisation"]) == ("llama2-7b", "q4_k_m")
    assert model["parameters"] == 6_738_415_616
    assert model["streamed_weight_bytes"] == 4_006_535_168
    assert (decode["phase"], decode["tokens"], decode["context_tokens"]) == ("decode", 1, 0)
    assert decode["total_bytes"] == 4_007_061_760
    assert decode["bound"] == "memory"
    assert round(decode["time_s"], 4) == 0.0587
    assert round(decode["tokens_per_s"], 1) == 17.0
    assert content["fit"]["fits"] is True


def test_several_boards_and_modes_make_a_set() -> None:
    content = answer("--device", "orin-nx,agx-orin@MAXN", "--device", "THOR", "--model", "7b-q4")
    assert content["schema"] == "edgeprof.roofline-set/1"
    assert [r["device"]["name"] for r in content["results"]] == [
        "orin-nx-16gb", "agx-orin-64gb", "agx-thor-t5000",
    ]  # fmt: skip
    modes = answer("--device", "orin-nano", "--mode", "7w,15w", "--model", "7b-q4")
    assert [result["device"]["mode"] for result in modes["results"]] == ["7W", "15W"]


def test_contexts_tokens_and_draft() -> None:
    content = answer(
        *EXAMPLE, "--context", "0,4096", "--context", "100", "--tokens", "8", "-k", "2",
        "--draft", "tinyllama-1.1b:q4_0", "--kv", "q8_0",
    )  # fmt: skip
    passes = [(p["phase"], p["tokens"], p["context_tokens"]) for p in content["passes"]]
    for context in (0, 4096, 100):
        for phase, tokens in (("decode", 1), ("verify", 3), ("verify", 8), ("draft", 1)):
            assert (phase, tokens, context) in passes
    assert content["model"]["kv_bytes_per_token"] == 2 * 32 * 4096 * 34 // 32
    assert content["fit"]["kv_bytes"] == (4096 + 8) * 278_528
    assert content["fit"]["draft_weights_bytes"] > 6e8


def test_exit_1_with_complete_output_when_it_does_not_fit() -> None:
    done = run("--device", "orin-nano", "--model", "llama2-7b:f16", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["fit"]["fits"] is False
    shown = run("--device", "orin-nano", "--model", "llama2-7b:f16")
    assert shown.exit_code == 1
    assert "DOES NOT FIT" in shown.stdout


def test_compute_type_decides_the_ridge() -> None:
    ridge = answer(*EXAMPLE)["passes"][0]["ridge_flop_per_byte"]
    assert answer(*EXAMPLE, "--compute", "INT8")["passes"][0]["ridge_flop_per_byte"] == 2 * ridge
    assert answer(*EXAMPLE, "--compute", "fp8")["passes"][0]["ridge_flop_per_byte"] is None


def test_plot(tmp_path: Path) -> None:
    path = tmp_path / "roofline.svg"
    done = run(*EXAMPLE, "--plot", str(path), "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["schema"] == "edgeprof.roofline/1"
    assert done.stderr == f"plot written to {path}\n"
    assert path.read_text().startswith("<?xml")
    assert run(*EXAMPLE, "--plot", str(path)).exit_code == 2
    assert run(*EXAMPLE, "--plot", str(path), "--force").exit_code == 0
    assert run(*EXAMPLE, "--plot", str(tmp_path / "roofline.gif")).exit_code == 2
    assert run(*EXAMPLE, "--plot", str(tmp_path / "none" / "roofline.svg")).exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "-1"], "whole numbers from 0 to 10000000, got '-1'"),
        (["--context", "nan"], "got 'nan'"),
        (["--context", "1e3"], "got '1e3'"),
        (["--context", "99999999999"], "got '99999999999'"),
        (["--context", ","], "empty list"),
        (["--tokens", "0"], "1<=x<=10000000"),
        (["-k", "0"], "1<=x<=1024"),
        (["--kv", "q9"], "no KV cache type named 'q9'"),
        (["--compute", "int3"], "int3"),
        (["--mode", "25W"], "no power mode of orin-nano-8gb named '25W'"),
        (["--draft", "model.gguf"], "not read from files"),
    ],
)
def test_nonsense_is_refused_with_the_allowed_range(arguments: list[str], message: str) -> None:
    done = run(*EXAMPLE, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""
