"""``edgeprof models`` as a user meets it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeprof.cli.commands import cli


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["models", *arguments], env={"COLUMNS": "120"})
    return done.exit_code, done.stdout, done.stderr


def test_the_list_names_models_formats_and_short_names() -> None:
    code, out, _ = run()
    assert code == 0
    for word in ("qwen3-30b-a3b", "8 of 128 experts", "iq4_xs", "7b = llama2-7b"):
        assert word in out


def test_the_list_as_json() -> None:
    content = json.loads(run("--json")[1])
    assert content["schema"] == "edgeprof.models/1"
    assert len(content["models"]) == 34
    assert all(entry["source"] for entry in (*content["models"], *content["formats"]))


def test_one_model_by_name() -> None:
    code, out, _ = run("qwen2.5-7b:q4_k_m")
    assert code == 0
    assert "57344 B a token in f16" in out  # 2 x 28 x 4 x 128 x 2
    assert "6.56" in out  # bits of a Q6_K weight


def test_one_model_by_path(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf", matrices="Q4_0")
    code, out, _ = run(str(path), "--json", "--kv", "q8_0")
    content = json.loads(out)
    assert code == 0
    assert content["schema"] == "edgeprof.model/1"
    assert content["resident_weight_bytes"] == sum(g["bytes"] for g in content["groups"])
    # 2 layers x (keys + values) x one 34-byte block of the 2 heads x 16
    assert content["kv_bytes_per_token"] == 2 * 2 * 34
    assert content["source"].startswith(f"GGUF header of {path}")


def test_m19_what_is_missing_is_said_on_stderr(
    tiny_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 500)
    code, out, err = run(str(path))
    assert code == 0
    assert "resident" in out
    assert "warning: " in err and "bytes are missing" in err


def test_m19_a_roofline_of_a_truncated_file_warns(
    tiny_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    path = tiny_gguf(tmp_path / "tiny.gguf")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 500)
    arguments = ["roofline", "--device", "orin-nano", "--model", str(path), "--json"]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0
    assert "bytes are missing" in done.stderr
    assert json.loads(done.stdout)["model"]["name"] == "tiny"


@pytest.mark.parametrize(
    ("argument", "code", "message"),
    [
        ("nothing", 2, "no model named 'nothing'"),
        ("./nothing.gguf", 2, "nothing.gguf: no such file or folder"),
        ("/dev/null", 2, "/dev/null is not a file that holds a model"),
        ("llama2-7b:q9", 2, "no format named 'q9'"),
    ],
)
def test_what_is_not_there(argument: str, code: int, message: str) -> None:
    status, out, err = run(argument)
    assert (status, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "models in this folder: none"),
        ({"a.gguf": b"", "b.gguf": b""}, "models in this folder: a.gguf, b.gguf"),
        ({"a.gguf": b"<!doctype html>"}, "HTML page"),
        ({"a.onnx": b"\x08\x07"}, "it has no graph"),
        ({"model.safetensors": b""}, "no config.json in it"),
        ({"genai_config.json": b"{}"}, "genai_config.json"),
    ],
)
def test_folders_that_hold_no_model(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    status, out, err = run(str(tmp_path))
    assert (status, out) == (1, "")
    assert message in err


def test_a_configuration_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 1, "vocab_size": 4,'
        ' "intermediate_size": 1}'
    )
    status, _, err = run(str(path))
    assert status == 0
    assert "no model_type" in err


def test_a_folder_with_one_gguf(tiny_gguf: Callable[..., Path], tmp_path: Path) -> None:
    tiny_gguf(tmp_path / "tiny.gguf")
    assert run(str(tmp_path))[0] == 0


def test_any_other_file_is_told(tmp_path: Path) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"PK\x03\x04")
    status, _, err = run(str(path))
    assert status == 1
    assert "this file is none of them" in err
