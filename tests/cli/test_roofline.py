"""``edgeprof roofline`` from the command line."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgeprof.cli.commands import cli

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
        # 0.87 x 68.26 GB/s at best; at worst 4.007 GB x (1/(0.8 x 0.72 x 68.26 GB/s) + 0.11 clocks/
        # (8 x 624.75 MHz)) + 3.5e6/624.75 MHz = 195.7 ms
        "decode        1      0  4.01 GB    3.30   memory  58.7 ms      17.0  5.11-14.8",
        "Decoding is memory-bound",
        "Fits: 6.16 GiB of 7.44 GiB visible",
    ):
        assert line in shown.stdout


def test_a_named_engine_narrows_what_is_expected() -> None:
    def band(*arguments: str) -> tuple[float, float]:
        expected = answer(*EXAMPLE, *arguments)["passes"][0]["expected_tokens_per_s"]
        return expected["low"], expected["high"]

    widest, tuned, general = band(), band("--engine", "MLC"), band("--engine", "llama.cpp b9292")
    assert widest[0] == general[0] < tuned[0]
    assert general[1] < tuned[1] == widest[1]
    assert band("--engine", "my own") == widest


def test_a_named_engine_is_the_only_one_told_of() -> None:
    shown = run(*EXAMPLE, "--engine", "ollama").stdout
    assert "general kernels (llama.cpp, Ollama)" in shown
    assert "tuned kernels" not in shown


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


def test_rows_of_an_announced_board_have_bytes_and_no_rates() -> None:
    alone = run("--device", "thor-t3000", "--model", "7b-q4", "--format", "csv")
    assert alone.exit_code == 1
    assert "NO ROOFLINE: Jetson T3000 (thor-t3000) is announced" in alone.stderr
    both = run("--device", "thor-t3000,orin-nano", "--model", "7b-q4", "--format", "csv")
    rows = list(csv.DictReader(both.stdout.splitlines()))
    assert [row["device"] for row in rows] == ["thor-t3000"] * 3 + ["orin-nano-8gb"] * 3
    announced, known = rows[0], rows[3]
    assert announced["total_bytes"] == known["total_bytes"] == "4007061760"
    assert announced["tokens_per_s"] == announced["mode"] == announced["fits"] == ""
    assert alone.stdout.splitlines() == both.stdout.splitlines()[:4]


def test_data_and_figure_need_files_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "both.svg"
    done = run(*EXAMPLE, "--plot", str(file), "--csv", str(tmp_path / "." / "both.svg"))
    assert done.exit_code != 0
    assert isinstance(done.exception, SystemExit)
    assert "--plot and --csv both name" in done.stderr
    assert not file.exists()


def test_an_empty_list_is_told_with_its_option() -> None:
    assert "--context was given an empty list" in run(*EXAMPLE, "--context", ",").stderr
    assert "--mode was given an empty list" in run(*EXAMPLE, "--mode", "").stderr


def test_several_boards_and_modes_make_a_set() -> None:
    content = answer("--device", "orin-nx,agx-orin@MAXN", "--device", "THOR", "--model", "7b-q4")
    assert content["schema"] == "edgeprof.roofline-set/1"
    assert [r["device"]["name"] for r in content["results"]] == [
        "orin-nx-16gb", "agx-orin-64gb", "agx-thor-t5000",
    ]  # fmt: skip
    for asked in (["--mode", "7w,15w"], ["--mode", "7w", "--mode", "15w"]):
        modes = answer("--device", "orin-nano", *asked, "--model", "7b-q4")
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
        (["--context", "1" * 5000], "whole numbers from 0 to 10000000"),
        (["--context", ","], "empty list"),
        (["--mode", ""], "empty list"),
        (["--draft", ""], "no model named ''"),
        (["--tokens", "0"], "1<=x<=10000000"),
        (["-k", "0"], "1<=x<=1024"),
        (["--kv", "q9"], "no KV cache type named 'q9'"),
        (["--compute", "int3"], "int3"),
        (["--mode", "25W"], "no power mode of orin-nano-8gb named '25W'"),
        (["--draft", "model.gguf"], "model.gguf: no such file or folder"),
    ],
)
def test_nonsense_is_refused_with_the_allowed_range(arguments: list[str], message: str) -> None:
    done = run(*EXAMPLE, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_a_board_that_is_only_announced_gets_no_made_up_figure() -> None:
    done = run("--device", "thor-t3000", "--model", "7b-q4")
    assert done.exit_code == 1
    assert "NO ROOFLINE: Jetson T3000 (thor-t3000) is announced for Q1 2027; not" in done.stdout
    both = run(
        "--device", "thor-t3000,thor@MAXN", "--model", "7b-q4", "--draft", "0.5b-q8", "--json"
    )
    assert both.exit_code == 1
    announced, known = json.loads(both.stdout)["results"]
    device, fit = announced["device"], announced["fit"]
    assert {device[key] for key in device if key not in ("name", "peak_flop_per_s")} == {None}
    assert set(device["peak_flop_per_s"].values()) == {None}
    assert (fit["dram_bytes"], fit["fits"]) == (None, None)
    for one, other in zip(announced["passes"], known["passes"], strict=True):
        assert one["total_bytes"] == other["total_bytes"]  # what is moved needs no board
        assert one["time_s"] is one["tokens_per_s"] is one["bound"] is None
        assert set(one) == set(other)
    for part in ("device", "model", "fit"):
        assert set(announced[part]) == set(known[part])
    assert set(known) <= set(announced)


def test_auto_where_there_is_no_board_is_an_environment_fault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from edgeprof import catalog

    found = catalog.identify_board(tmp_path)
    monkeypatch.setattr(catalog, "identify_board", lambda root=tmp_path: found)
    done = run("--device", "auto", "--model", "7b-q4")
    assert done.exit_code == 3
    assert "this is no known board: it has no device tree" in done.stderr


def test_all_modes_are_side_by_side() -> None:
    modes = answer("--device", "orin-nano", "--mode", "all", "--model", "7b-q4")
    assert [result["device"]["mode"] for result in modes["results"]] == ["15W", "7W"]
    shown = run("--device", "orin-nano", "--mode", "ALL", "--model", "7b-q4", "--context", "0,512")
    rows = [row for row in shown.stdout.splitlines() if row.startswith("orin-nano-8gb ")]
    assert [row.split()[1] for row in rows] == ["15W", "15W", "7W", "7W"]
    # 4.007 GB and 4.276 GB (512 x 524 288 B more) over 68.256 GB/s
    assert [row.split()[4] for row in rows] == ["17.0", "16.0", "17.0", "16.0"]


def test_forms_of_output() -> None:
    page = run(*EXAMPLE, "--format", "md").stdout
    assert page.startswith("# Llama-2-7B Q4_K_M on Jetson Orin Nano 8GB")
    assert "## Passes\n\n| pass " in page
    header, decode, *_ = run(*EXAMPLE, "--format", "csv").stdout.splitlines()
    row = dict(zip(header.split(","), decode.split(","), strict=True))
    assert (row["phase"], row["total_bytes"], row["fits"]) == ("decode", "4007061760", "true")
    assert run(*EXAMPLE, "--format", "json").stdout == run(*EXAMPLE, "--json").stdout
    both = run(*EXAMPLE, "--format", "md", "--json")
    assert (both.exit_code, both.stdout) == (2, "")


def test_explain_prints_the_sums() -> None:
    shown = run(*EXAMPLE, "--explain").stdout
    for line in (
        "peak bandwidth = EMC 2133 MHz x 2 x 128 bit / 8 = 68.26 GB/s",
        # 4096 weights are 16 blocks of 210 bytes
        "lm_head Q6_K = 1 x 32000 rows x 3360 B (4096 weights) = 107520000 B",
        "products = 2 x 1 x 6607077376 weights used = 13214154752 FLOP",
        "source of peak bandwidth: NVIDIA nvpmodel conf",
    ):
        assert line in shown
    terms = answer(*EXAMPLE, "--explain")["explain"]
    assert {"subject", "figure", "sum", "value", "unit", "source"} == set(terms[0])
    assert terms[0]["value"] == 68.256e9


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("roofline", "kind,label,intensity_flop_per_byte,flop_per_s"),
        ("context", "board,context_tokens,bound_tokens_per_s,expected_tokens_per_s_low,"),
        ("fit", "board,part,bytes"),
    ],
)
def test_plot_kinds_and_the_data_behind(tmp_path: Path, kind: str, columns: str) -> None:
    plot, data = tmp_path / "a.pdf", tmp_path / "a.csv"
    done = run(*EXAMPLE, "--plot-kind", kind, "--plot", str(plot), "--csv", str(data))
    assert done.exit_code == 0
    assert plot.read_bytes().startswith(b"%PDF")
    assert data.read_text().startswith(columns)
    assert done.stderr == f"data written to {data}\nplot written to {plot}\n"
    assert run(*EXAMPLE, "--csv", str(data)).exit_code == 2
    assert run(*EXAMPLE, "--csv", str(tmp_path / "none" / "a.csv")).exit_code == 3
