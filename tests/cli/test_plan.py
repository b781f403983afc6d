"""``edgeprof plan`` from the command line."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgeprof.cli.commands import cli

PAIR = ["--device", "orin-nano", "--target", "qwen2.5-7b", "--draft", "qwen2.5-0.5b:q8_0"]
GIVEN = ["--device", "orin-nano", "--target", "qwen2.5-7b", "--draft-cost", "0.12"]
# Orin Nano, Qwen3.5-4B, K-quant, matrix-vector kernel: ggml-org/llama.cpp PR #28285
MVQ = (1, 1.359, 1.476, 1.858, 2.039, 2.298, 2.796, 3.086)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["plan", *map(str, arguments)], env={"COLUMNS": "100"})


def answer(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    content: dict[str, Any] = json.loads(done.stdout)
    return content


@pytest.fixture
def mvq(tmp_path: Path) -> Path:
    path = tmp_path / "mvq.csv"
    rows = [f"{tokens},{cost}" for tokens, cost in enumerate(MVQ, 1)]
    path.write_text("\n".join(["n_tokens,pass_cost_vs_1", *rows]))
    return path


def test_document_has_the_keys_of_its_schema() -> None:
    content = answer(*PAIR)
    assert content["schema"] == "edgeprof.plan/1"
    assert {
        "draft_cost_ratio", "verify_cost", "by_draft_length", "best_draft_length", "best_speedup",
        "break_even_acceptance", "fit",
    } <= set(content)  # fmt: skip
    assert set(content["verify_cost"][0]) == {
        "tokens", "bound", "expected_low", "expected_high", "measured",
    }  # fmt: skip
    assert set(content["by_draft_length"][0]) == {
        "draft_length", "expected_tokens_per_round", "speedup", "break_even_acceptance",
    }  # fmt: skip
    assert set(content["by_draft_length"][0]["speedup"]) == {"low", "high"}
    assert content["fit"]["fits"] is True


def test_document_of_a_measured_kernel(mvq: Path) -> None:
    content = answer(*GIVEN, "--verify-cost", mvq, "--acceptance", "0.8")
    # 2.44 / (2 x 0.12 + 1.476)
    assert content["best_draft_length"] == 2
    assert round(content["best_speedup"], 2) == 1.42
    assert content["draft_cost_ratio"] == 0.12
    assert content["draft"] is None
    assert [row["measured"] for row in content["verify_cost"]] == [*MVQ, *[None] * 9]
    two = content["by_draft_length"][1]
    assert two["expected_tokens_per_round"] == pytest.approx(1 + 0.8 + 0.64)
    assert two["speedup"]["low"] == two["speedup"]["high"] == content["best_speedup"]
    # (1 + a + a^2) = 1.716 at a = 0.4829
    assert content["break_even_acceptance"] == pytest.approx(0.4829, abs=1e-4)


def test_a_session_is_a_measured_kernel_too(session_file: Path) -> None:
    content = answer(
        *GIVEN, "--verify-cost", session_file, "--verify-target", "fp32", "--acceptance", "0.8"
    )
    measured = {row["tokens"]: row["measured"] for row in content["verify_cost"]}
    assert (measured[3], measured[4], measured[5]) == (1.0, None, pytest.approx(1.2))
    # K 4: 3.3616 / (0.48 + 1.2) = 2.001; K 3, v(4) halfway: 2.952 / (0.36 + 1.1) = 2.022
    assert content["best_draft_length"] == 3
    assert content["best_speedup"] == pytest.approx(2.952 / 1.46)


def test_text_of_the_default_range(mvq: Path) -> None:
    shown = run(*PAIR)
    assert shown.exit_code == 0
    assert shown.stderr == ""
    for line in (
        "Qwen2.5-0.5B Q8_0 for Qwen2.5-7B Q4_K_M on Jetson Orin Nano 8GB",
        "Best draft length",
        "measure v(n)",
        "0.12 by bytes alone",
        "On paper verifying turns compute-bound at 47 tokens (fp16 peak).",
        "By kernel, at acceptance 0.7",
        "By acceptance",
        "Fits: ",
    ):
        assert line in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 100
    measured = run(*GIVEN, "--verify-cost", mvq, "--acceptance", "0.8").stdout
    assert "Best draft length 2: 1.42x (1.42) at acceptance 0.8; it pays from 0.483 on." in measured
    assert "measured" in measured
    assert "By acceptance" not in measured
    assert "By kernel" not in measured  # one measured cost is no matter of kernels any more


def test_f12_a_draft_that_does_not_pay(tmp_path: Path) -> None:
    flat = tmp_path / "flat.csv"
    flat.write_text("n_tokens,pass_cost_vs_1\n9,1\n")
    shown = run("--device", "orin-nano", "--target", "qwen2.5-7b", "--draft-cost", "0.3",
                "--verify-cost", flat, "--acceptance", "0.2").stdout  # fmt: skip
    assert "Drafting does not pay at acceptance 0.2: it needs an acceptance of 0.300 at" in shown


def test_f12_the_speedup_below_one_is_told(tmp_path: Path) -> None:
    flat = tmp_path / "flat.csv"
    flat.write_text("n_tokens,pass_cost_vs_1\n9,1\n")
    content = answer("--device", "orin-nano", "--target", "qwen2.5-7b", "--draft-cost", "0.3",
                     "--verify-cost", flat, "--acceptance", "0.5")  # fmt: skip
    # 1.99609 / (8 x 0.3 + 1) = 0.587
    assert content["by_draft_length"][7]["speedup"]["high"] == pytest.approx(0.587, abs=5e-4)
    # (1 - 0.72146^9) / (1 - 0.72146) = (1 - 0.05296) / 0.27854 = 3.400
    assert content["by_draft_length"][7]["break_even_acceptance"] == pytest.approx(0.7215, abs=1e-4)


def test_f18_a_pair_that_does_not_fit() -> None:
    pair = ["--device", "orin-nano", "--target", "llama2-7b:q4_0", "--draft", "qwen2.5-0.5b:q8_0",
            "--context", "4096"]  # fmt: skip
    done = run(*pair)
    assert done.exit_code == 1
    assert done.stdout.index("DOES NOT FIT: 8.46 GiB against 7.44 GiB") < done.stdout.index("Best")
    for part in ("weights", "KV", "draft weights", "draft KV", "runtime", "system"):
        assert f"\n{part} " in done.stdout
    assert json.loads(run(*pair, "--json").stdout)["fit"]["fits"] is False


def test_a_board_that_nobody_measured() -> None:
    content = answer("--device", "xavier-nx-8", *PAIR[2:])
    assert content["best_draft_length"] is content["best_speedup"] is None
    assert content["draft_cost_ratio"] is None
    assert content["by_draft_length"][0]["speedup"] == {"low": None, "high": None}
    shown = run("--device", "xavier-nx-8", *PAIR[2:])
    assert "What drafting brings is not known" in shown.stdout
    plot = run("--device", "xavier-nx-8", *PAIR[2:], "--csv", "never-written.csv")
    assert plot.exit_code == 1
    assert "nothing to plot" in plot.stderr


def test_markdown_and_csv() -> None:
    page = run(*PAIR, "--format", "md").stdout
    assert page.startswith("# Qwen2.5-0.5B Q8_0 for Qwen2.5-7B Q4_K_M on Jetson Orin Nano")
    assert "| kernel" in page
    rows = list(csv.DictReader(io.StringIO(run(*PAIR, "--format", "csv").stdout)))
    assert len(rows) == 5 * 16  # acceptances, draft lengths
    assert {row["acceptance"] for row in rows} == {"0.5", "0.6", "0.7", "0.8", "0.9"}
    assert sum(row["best"] == "true" for row in rows) == 5


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        ("speedup", "acceptance,draft_length,speedup,speedup_low,speedup_high,best"),
        ("map", "acceptance,draft_cost,speedup,best_draft_length"),
        ("fit", "board,part,bytes"),
    ],
)
def test_plots_and_the_data_behind(tmp_path: Path, kind: str, columns: str) -> None:
    plot, data = tmp_path / "plan.svg", tmp_path / "plan.csv"
    files: list[str | Path] = ["--plot", plot, "--csv", data]
    done = run(*PAIR, "--plot-kind", kind, *files)
    assert done.exit_code == 0
    assert plot.read_text().startswith("<?xml")
    assert data.read_text().startswith(columns + "\n")
    again = run(*PAIR, *files)
    assert (again.exit_code, again.stdout) == (2, "")
    assert "exists already" in again.stderr
    assert run(*PAIR, *files, "--force").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--acceptance", "1.1"], "--acceptance takes a number from 0 to 1, got '1.1'"),
        (["--acceptance", "-0.1"], "from 0 to 1"),
        (["--acceptance", "nan"], "got 'nan'"),
        (["--acceptance", "0.5,x"], "got 'x'"),
        (["--acceptance", ""], "empty list"),
        (["--draft-cost", "-1"], "--draft-cost takes a number from 0 to 1000"),
        (["--draft-cost", "inf"], "from 0 to 1000"),
        (["--context", "-1"], "0<=x<=10000000"),
        (["-k", "0"], "1<=x<=64"),
        (["-k", "65"], "1<=x<=64"),
        (["--kv", "q9"], "no KV cache type named 'q9'"),
        (["--mode", "25W"], "no power mode of orin-nano-8gb named '25W'"),
        (["--verify-target", "int4"], "--verify-target needs --verify-cost"),
        (["--verify-cost", "none.csv"], "none.csv: cannot be read"),
        (["--format", "csv", "--json"], "contradict each other"),
    ],
)
def test_f14_nonsense_is_refused_with_the_allowed_range(arguments: list[str], message: str) -> None:
    done = run(*PAIR, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_something_must_draft() -> None:
    done = run("--device", "orin-nano", "--target", "7b-q4")
    assert done.exit_code == 2
    assert "--draft-cost C where no model drafts" in done.stderr


def test_what_is_wrong_with_a_model_is_told_in_every_form(tmp_path: Path) -> None:
    """A configuration without head_dim: 64 / 4 is taken, and said."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
        "num_hidden_layers": 2, "num_attention_heads": 4, "tie_word_embeddings": True,
    }))  # fmt: skip
    asked = ["--device", "orin-nano", "--target", str(path), "--draft-cost", "0.1", "--format"]
    for form, where in (
        ("text", "stdout"),
        ("md", "stdout"),
        ("json", "stderr"),
        ("csv", "stderr"),
    ):
        told = " ".join(getattr(run(*asked, form), where).split())  # a long path wraps elsewhere
        assert "no head_dim; 64 / 4 = 16 taken" in told, form
