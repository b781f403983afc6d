"""``edgeprof probe`` as it is called, and who uses its profile."""

import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_profile import Save
from msgspec.structs import replace

from edgeprof.cli.commands import cli
from edgeprof.cli.verify_cost import read_verify_cost
from edgeprof.errors import FileFault, UsageFault
from edgeprof.hardware.measured import MeasuredProfile, Missing, read_measured


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


def test_a_profile_is_shown_again(save: Save, this_profile: MeasuredProfile) -> None:
    disturbed = replace(this_profile, disturbed=["other programs took 40 % of the processor"])
    path = save(replace(disturbed, missing=[Missing(part="fp32", cause="was killed")]))
    done = run("probe", "--from", str(path))
    assert done.exit_code == 0
    for words in (
        "DISTURBED: other programs took 40 %",
        "40.0 GB/s [36.0, 44.0]",
        "240 GFLOP/s",
        "int4:4",
        "v(8)",
        "Qwen2.5-7B Q4_K_M, synthetic weights",
        "4.00 tokens/s",
        "4 of 28 layers, scaled by their bytes",
        "fp32: was killed",
    ):
        assert words in done.stdout


def test_json_holds_the_file_and_what_follows(save: Save, this_profile: MeasuredProfile) -> None:
    done = run("probe", "--json", "--from", str(save(this_profile)))
    found = json.loads(done.stdout)
    assert (found["schema"], found["complete"]) == ("edgeprof.probe/1", True)
    assert found["machine"]["l4t"] is None  # unknown is null
    (kernel,) = found["kernel"]
    assert (kernel["label"], kernel["ridge_rows"]) == ("int4:4", pytest.approx(2.5))
    # 120 MB at 30 GB/s take 4 ms; 8 rows of 384 MFLOP at 240 GFLOP/s take 12.8
    assert [one["roofline_cost"] for one in kernel["pass"]] == pytest.approx([1, 1, 1.6, 3.2])


def test_csv_is_what_verify_cost_takes(
    save: Save, this_profile: MeasuredProfile, tmp_path: Path
) -> None:
    out = tmp_path / "passes.csv"
    assert run("probe", "--from", str(save(this_profile)), "--csv", str(out)).exit_code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["int4:4"] * 4 + ["qwen2.5-7b:q4_k_m"] * 3
    assert (rows[3]["n_tokens"], rows[3]["pass_cost_vs_1"]) == ("8", "3.5")


def heights(line: Any) -> list[float]:
    return [float(y) for y in line.get_ydata()]


def test_the_plot_draws_roofs_points_and_both_curves(this_profile: MeasuredProfile) -> None:
    from edgeprof.report.measured_figure import probe_figure

    roofs, costs = probe_figure(this_profile).axes
    points = [heights(line) for line in roofs.lines if len(heights(line)) == 4]
    assert points == [pytest.approx([96e9, 160e9, 192e9, 384e6 * 8 / 0.014])]
    curves = [heights(line) for line in costs.lines]
    assert [1.0, 1.2, 2.0, 3.5] in curves
    assert [pytest.approx(v) for v in (1, 1, 1.6, 3.2)] in curves
    assert [1.0, 1.25, 1.5] in curves  # of the model


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["-o", "there.toml"], 2, "exists already"),
        (["-o", "p.txt"], 2, "ends in .toml"),
        (["-o", "there.toml/p.toml"], 3, "cannot be written"),
        (["-o", "no/such/folder/p.toml"], 3, "cannot be written"),
        (["--plot", "p.jpg"], 2, ".svg, .png or .pdf"),
        (["--shapes", "qwen9-7b"], 2, "no model named"),
        (["--shapes", "qwen3-30b-a3b:q4_k_m"], 2, "dense decoders"),
        (["--threads", "0"], 2, "0 is not in the range"),
        (["--provider", "cuda"], 3, "docs/install.md"),
        (["--from", "there.toml", "--threads", "2"], 2, "measures nothing"),
        (["--from", "there.toml"], 1, "not a profile"),
        (["--from", "none.toml"], 2, "none.toml: cannot be read"),
        (["--json", "--format", "text"], 2, "contradict"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.toml").write_text("x = 1\n")
    done = run("probe", *arguments)
    assert (done.exit_code, done.stdout) == (code, "")
    assert told in done.stderr
    assert Path("there.toml").read_text() == "x = 1\n"


@pytest.mark.parametrize("package", ["onnxruntime", "onnx"])
def test_a_missing_package_is_named_with_the_way_to_get_it(package: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom edgeprof.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, "probe", "-o", str(tmp_path / "p.toml")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3
    assert package in done.stderr and "pip install 'edgeprof[cpu]'" in done.stderr
    assert "Traceback" not in done.stderr and not list(tmp_path.iterdir())


def test_ctrl_c_ends_with_130_and_a_profile_marked_incomplete(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    with subprocess.Popen(
        [sys.executable, "-m", "edgeprof", "probe", "--threads", "1", "-o", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    ) as process:
        assert process.stderr is not None
        told = ""
        while "[2/" not in told:
            told += process.stderr.read(1)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err and "INCOMPLETE" in out
    assert not read_measured(path).complete


# ---- who uses it


def test_here_is_the_machine_as_it_was_measured(save: Save, this_profile: MeasuredProfile) -> None:
    save(this_profile)
    done = run("roofline", "--device", "here", "--model", "llama2-7b:q4_0", "--json")
    found = json.loads(done.stdout)
    device = found["device"]
    assert device["peak_bandwidth_bytes_per_s"] is None  # no datasheet
    assert device["sustained_bandwidth_bytes_per_s"] == 40e9
    decode = found["passes"][0]
    # 4 bits a weight: the rate of the int4 kernel, 240 GFLOP/s
    assert decode["ridge_flop_per_byte"] == pytest.approx(6.0)
    assert decode["time_s"] == pytest.approx(decode["total_bytes"] / 40e9)
    assert found["probe"]["kernels"][0]["label"] == "int4:4"
    text = run("roofline", "--device", "here", "--model", "llama2-7b:q4_0", "--explain").stdout
    assert "the most that a probe read here" in text
    assert "nothing beats it" not in text
    beside = run("roofline", "--device", "here,orin-nano", "--model", "llama2-7b:q4_0").stdout
    assert "what large kernels were measured to reach" in beside


def test_a_boards_measurements_stand_beside_its_datasheet(
    save: Save, this_profile: MeasuredProfile
) -> None:
    machine = replace(this_profile.machine, kind="board", profile="orin-nano-8gb", power_mode="7W")
    path = save(replace(this_profile, machine=machine))
    done = run("roofline", "--device", str(path), "--model", "llama2-7b:q4_0", "--json")
    found = json.loads(done.stdout)
    assert (found["device"]["name"], found["device"]["mode"]) == ("orin-nano-8gb", "7W")
    assert found["device"]["peak_bandwidth_bytes_per_s"] == pytest.approx(68.256e9)
    assert found["probe"]["read_bandwidth_bytes_per_s"] == 40e9


@pytest.mark.parametrize("fault", ["none", "incomplete", "another", "damaged"])
def test_here_without_a_profile_of_this_machine(
    save: Save, this_profile: MeasuredProfile, fault: str
) -> None:
    if fault == "incomplete":
        save(replace(this_profile, complete=False))
    elif fault == "another":
        save(replace(this_profile, machine=replace(this_profile.machine, name="another")))
    elif fault == "damaged":
        save(this_profile).write_text("schema = ")
    done = run("roofline", "--device", "here", "--model", "7b-q4")
    assert done.exit_code == 3
    assert "run `edgeprof probe` first" in done.stderr


def test_plan_takes_machine_and_costs_from_a_profile(
    save: Save, this_profile: MeasuredProfile
) -> None:
    path = save(this_profile)
    arguments = ["plan", "--device", "here", "--target", "qwen2.5-7b:q4_k_m", "--draft-cost", "0"]
    done = run(*arguments, "--verify-cost", str(path), "--acceptance", "0.8", "--json")
    found = json.loads(done.stdout)
    measured = {one["tokens"]: one["measured"] for one in found["verify_cost"]}
    assert (measured[2], measured[4]) == (1.25, 1.5)  # of the model, where there is one
    # K = 3: (1 + 0.8 + 0.64 + 0.512) / 1.5
    assert found["best_draft_length"] == 3
    assert found["best_speedup"] == pytest.approx(2.952 / 1.5)


def test_plan_names_the_costs_that_a_probe_measured_and_nobody_chose(
    save: Save, this_profile: MeasuredProfile
) -> None:
    path = save(this_profile)
    arguments = ["plan", "--device", "here", "--target", "qwen2.5-7b:q4_k_m", "--draft-cost", "0"]
    hint = "--verify-cost PROFILE --verify-target NAME"
    text = " ".join(run(*arguments).stdout.split())
    names = [one.name for one in this_profile.models] + [one.label for one in this_profile.kernels]
    assert hint in text and f"v(n) here, of {', '.join(names)}:" in text
    assert hint not in " ".join(run(*arguments, "--verify-cost", str(path)).stdout.split())
    board = ["plan", "--device", "agx-orin-64", "--target", "7b-q4", "--draft-cost", "0"]
    assert hint not in " ".join(run(*board).stdout.split())


def test_verify_cost_of_a_kernel_by_name(save: Save, this_profile: MeasuredProfile) -> None:
    path = save(this_profile)
    assert read_verify_cost(path, "int4:4") == {1: 1.0, 2: 1.2, 4: 2.0, 8: 3.5}
    with pytest.raises(UsageFault, match="int4:4"):
        read_verify_cost(path, "int4:5")
    with pytest.raises(FileFault, match="no passes"):
        read_verify_cost(save(replace(this_profile, kernels=[], models=[])))
    two = replace(this_profile, models=[], kernels=this_profile.kernels * 2)
    assert read_verify_cost(save(two))  # of one name: one
