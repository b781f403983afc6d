import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeprof.cli.fetch import command

KEYS = {"schema", "path", "sha256", "byte_length"}


def edgeprof(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "edgeprof", "fetch", *arguments], capture_output=True, text=True
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"abc")
    return path


def test_the_path_is_all_that_goes_to_stdout(model: Path) -> None:
    done = edgeprof(str(model))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{model}\n", "")


def test_json(model: Path) -> None:
    done = CliRunner().invoke(command, [str(model), "--json"])
    document = json.loads(done.stdout)
    assert set(document) == KEYS
    assert document["schema"] == "edgeprof.fetch/1"
    # SHA-256 of "abc", from the standard that defines it (FIPS 180-2, appendix B.1)
    assert document["sha256"] == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert document["byte_length"] == 3


def test_list() -> None:
    done = CliRunner().invoke(command, ["--list"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == [
        "smollm2-135m",
        "smollm2-135m-draft",
    ]
    document = json.loads(CliRunner().invoke(command, ["--list", "--json"]).stdout)
    assert document["schema"] == "edgeprof.sources/1"
    assert document["models"][0]["byte_length"] == 98_362_432


def test_an_unknown_name_exits_2_with_the_nearest() -> None:
    done = edgeprof("smollm-135m")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'smollm2-135m'?" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [[], ["smollm2-135m", "--list"]])
def test_exactly_one_thing_is_asked(arguments: list[str]) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2
    assert "either a NAME or SOURCE, or --list" in done.stderr


def test_a_fetched_model_is_found_at_once(smollm2_gguf: Path) -> None:
    done = edgeprof("SmolLM2-135M")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{smollm2_gguf}\n", "")


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, edgeprof.cli.fetch;"
        "print(sorted({'numpy', 'gguf', 'onnx', 'huggingface_hub'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
