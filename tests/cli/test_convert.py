"""The command line of ``edgeprof convert``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_gguf import write_decoder_gguf

from edgeprof.cli.commands import cli
from edgeprof.models.decoder_folder import read_decoder_folder


@pytest.fixture
def gguf(tiny_gguf: Callable[..., Path], tmp_path: Path) -> str:
    return str(tiny_gguf(tmp_path / "tiny.gguf", matrices="Q4_0"))


def test_the_folder_is_printed_and_the_talk_goes_to_stderr(gguf: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    result = CliRunner().invoke(cli, ["convert", gguf, "-o", out])
    assert result.exit_code == 0
    assert result.stdout == out + "\n"
    assert "converting tiny.gguf: 2 layers, as-is" in result.stderr


def test_json_is_the_manifest(gguf: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["convert", gguf, "-o", str(out), "--weights", "fp32", "--no-attention-pad"]
    result = CliRunner().invoke(cli, [*arguments, "--json"])
    document = json.loads(result.stdout)
    assert document == json.loads((out / "edgeprof.json").read_text())
    assert document["schema"] == "edgeprof.decoder/1"
    assert (document["weights"], document["attention_pad"]) == ("fp32", 0)
    manifest = read_decoder_folder(out).manifest
    assert manifest is not None
    assert manifest.weights == "fp32"


def test_an_existing_folder_is_a_usage_fault_until_forced(gguf: str, tmp_path: Path) -> None:
    arguments = ["convert", gguf, "-o", str(tmp_path / "out")]
    assert CliRunner().invoke(cli, arguments).exit_code == 0
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "--force" in refused.stderr
    assert CliRunner().invoke(cli, [*arguments, "--force"]).exit_code == 0


def test_a_file_that_is_no_model_is_one_clear_line(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<html>404</html>")
    result = CliRunner().invoke(cli, ["convert", str(page), "-o", str(tmp_path / "out")])
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert str(page) in result.stderr
    assert not (tmp_path / "out").exists()


def test_head_rows_are_read_from_the_file_named(gguf: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "rows.npy")
    arguments = ["convert", gguf, "-o", str(tmp_path / "out"), "--head-rows", missing]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 2
    assert "rows.npy: no such file" in result.stderr


def test_what_no_container_holds_is_rounded_on_request_and_shown(tmp_path: Path) -> None:
    path = write_decoder_gguf(tmp_path / "m.gguf", "llama", storage="IQ4_NL")
    arguments = ["convert", str(path), "-o", str(tmp_path / "out")]
    refused = CliRunner().invoke(cli, arguments)
    assert refused.exit_code == 1
    assert "stored as IQ4_NL" in refused.stderr
    assert "--requantise" in refused.stderr
    assert not (tmp_path / "out").exists()
    result = CliRunner().invoke(cli, [*arguments, "--requantise", "--json"])
    assert result.exit_code == 0
    account = json.loads(result.stdout)["requantised"]
    # 64 wide: q, k, v and output 64 x (64 + 32 + 32 + 64), three of 64 x 128, twice; 300 tokens.
    assert account["weights"] == 2 * (64 * 192 + 3 * 8192) + 300 * 64
    assert f"relative error {account['relative_rms_error']:.2%}" in result.stderr
