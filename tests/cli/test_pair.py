"""``edgeprof pair`` as a user meets it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from edgeprof.cli.commands import cli

Tiny = Callable[..., Path]


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["pair", *arguments], env={"COLUMNS": "100"})
    return done.exit_code, done.stdout, done.stderr


def test_two_files_of_one_tokenizer(tiny_gguf: Tiny, tmp_path: Path) -> None:
    target = tiny_gguf(tmp_path / "t.gguf", layers=4)
    draft = tiny_gguf(tmp_path / "d.gguf", layers=1, context=128)
    code, out, _ = run(str(target), str(draft))
    assert code == 0
    assert out.startswith("Yes: ")
    assert "stops helping at 128 tokens" in out


def test_two_files_of_different_tokenizers(tiny_gguf: Tiny, tmp_path: Path) -> None:
    target, draft = tiny_gguf(tmp_path / "t.gguf"), tiny_gguf(tmp_path / "d.gguf", vocab=320)
    code, out, _ = run(str(target), str(draft), "--json")
    content = json.loads(out)
    assert code == 1
    assert content["schema"] == "edgeprof.pair/1"
    assert content["compatible"] is False
    assert content["first_difference"]["id"] == 300
    assert content["first_difference"]["target"] is None
    assert "token 300 is " in content["reasons"][0]


def test_names_are_compared_by_family() -> None:
    code, out, _ = run("qwen2.5-7b:q4_k_m", "qwen2.5-0.5b:q8_0", "--json")
    content = json.loads(out)
    assert code == 0
    assert (content["target"]["vocab_size"], content["draft"]["vocab_size"]) == (152064, 151936)
    # streamed 494 032 768 weights in Q8_0 and F32 against 4 370 558 976 B
    assert content["draft_cost_ratio"] == pytest.approx(0.120, abs=0.0005)
    code, out, _ = run("llama3.1-8b", "qwen2.5-0.5b")
    assert code == 1
    assert out.startswith("No: ")


def test_a_pair_that_does_not_fit() -> None:
    """Llama-2-7B in Q4_0 takes 3.825 GB, its cache of 4096 tokens 2.147; with 0.5 GiB of runtime
    and 1.86 GiB of system that leaves nothing of 7.44 GiB visible."""
    code, out, _ = run("llama2-7b:q4_0", "tinyllama-1.1b:q4_0", "--device", "orin-nano",
                       "--context", "4096", "--json")  # fmt: skip
    content = json.loads(out)
    assert code == 1
    assert content["fit"]["fits"] is False
    assert any("the pair needs" in reason for reason in content["reasons"])


def test_a_draft_as_large_as_its_target_is_told() -> None:
    code, out, _ = run("qwen2.5-0.5b", "qwen2.5-0.5b")
    assert code == 0
    assert "cannot make the target faster" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ("qwen2.5-7b",),
        ("nothing", "qwen2.5-0.5b"),
        ("qwen2.5-7b", "./nothing.gguf"),
        ("qwen2.5-7b", "qwen2.5-0.5b", "--context", "-1"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...]) -> None:
    assert run(*arguments)[0] == 2
