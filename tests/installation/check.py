"""Installs a wheel of edgeprof as a user does and tries it: on a board, a laptop, or in an aarch64
root under emulation (docs/aarch64.md). Standard library only; writes into a temporary folder alone.

    python3 tests/installation/check.py dist/edgeprof-VERSION-py3-none-any.whl [--keep] [--core]

Exits with 0 where everything came out as it should, else with 1 and the step that did not.
"""

import argparse
import json
import os
import platform
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MODELS = Path(__file__).with_name("models.py")
RECIPE = """
schema = "edgeprof.recipe/1"
name = "check"
question = "Is drafted output the same as plain output here?"
new_tokens = {new_tokens}
repeats = 1
warmup_requests = 0
context_tokens = {context}
measure_ceiling = false
stop_at_end_token = false

[targets.t]
model = "{model}"

[drafters.n]
kind = "ngram"

[[variants]]
target = "t"

[[variants]]
target = "t"
drafter = "n"
draft_tokens = 3

[[prompts]]
kind = "given"
ids = {ids}
"""
# Llama-2-7B in Q4_K_M reads 4.007 GB a token at 68.256 GB/s: README.md works it out.
DECODE_TOKENS_PER_S = 68.256 / 4.007


class Check:
    """One installation, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = folder / "environment"
        self.python = self.environment / "bin" / "python"
        self.failed: list[str] = []

    def step(self, name: str, work: Callable[[], str]) -> None:
        """Do it, say how long it took and what came of it."""
        begin = time.monotonic()
        try:
            outcome, mark = work(), "ok"
        except (AssertionError, LookupError, ValueError, OSError, sqlite3.Error) as error:
            outcome, mark = f"{type(error).__name__}: {error}", "FAILED"
            self.failed.append(name)
        print(f"{mark:6} {time.monotonic() - begin:7.1f} s  {name}: {outcome}", flush=True)

    def run(self, *command: str | Path, codes: Sequence[int] = (0,)) -> str:
        """Standard output of a command of the environment, which may end with one of ``codes``."""
        done = subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=self.folder,
            env={**os.environ, "EDGEPROF_CACHE": str(self.folder / "cache"), "PYTHONPATH": ""},
        )
        if done.returncode not in codes:
            last = (done.stderr or done.stdout).strip()[-600:]
            raise ValueError(f"{Path(command[0]).name} ended with {done.returncode}: {last}")
        return done.stdout

    def edgeprof(self, *arguments: str | Path, codes: Sequence[int] = (0,)) -> str:
        return self.run(self.environment / "bin" / "edgeprof", *arguments, codes=codes)

    def document(self, *arguments: str | Path, codes: Sequence[int] = (0,)) -> Any:
        return json.loads(self.edgeprof(*arguments, "--json", codes=codes))


def install(check: Check, wheel: Path, extra: str) -> str:
    venv.create(check.environment, with_pip=True)
    requirement = f"{wheel}{extra}"
    check.run(check.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
              "--only-binary=:all:", requirement)  # fmt: skip
    return f"{requirement} for Python {platform.python_version()} on {platform.machine()}"


def version(check: Check) -> str:
    script, module = check.edgeprof("--version"), check.run(check.python, "-m", "edgeprof",
                                                            "--version")  # fmt: skip
    assert script == module, f"{script} is not {module}"
    return script.strip()


def roofline(check: Check) -> str:
    found = check.document("roofline", "--device", "orin-nano", "--model", "7b-q4")
    rate: float = found["passes"][0]["tokens_per_s"]
    assert abs(rate / DECODE_TOKENS_PER_S - 1) < 0.001, rate
    return f"{rate:.2f} tokens/s at best"


def devices(check: Check) -> str:
    count = len(check.document("devices")["devices"])
    assert count > 20, count
    return f"{count} boards"


def doctor(check: Check, job: str) -> str:
    found = check.document("doctor", "--for", job)
    assert found["schema"] == "edgeprof.doctor/1" and found["possible"], found["blocking"]
    served = sum(signal["state"] == "ok" for signal in found["signals"])
    providers = [one["name"] for one in found["onnxruntime"]["providers"] if one["usable"]]
    return f"{job} is possible; {served} signals; providers: {', '.join(providers) or 'none'}"


def run_recipe(check: Check, name: str, model: Path, ids: Sequence[int], context: int) -> str:
    """Plain and drafted output are equal, token for token."""
    recipe, session = check.folder / f"{name}.toml", check.folder / f"{name}.sqlite"
    recipe.write_text(RECIPE.format(new_tokens=24, context=context, model=model, ids=list(ids)))
    check.edgeprof("run", recipe, "-o", session, "--quiet")
    summary = check.document("report", session)
    (comparison,) = summary["comparisons"]
    assert comparison["output"]["identical"] is True, comparison["output"]
    plain = next(leg for leg in summary["legs"] if leg["variant"] == "t")
    return (
        f"drafted output equals plain output; {plain['tokens_per_s']['value']:.0f} tokens/s plain"
    )


def answers(check: Check, name: str, expected: Sequence[int], least_lead: float) -> str:
    """Every leg's tokens against those that float64 numpy gives, which lead clearly."""
    assert least_lead > 1e-3, f"two tokens of the reference are as near as {least_lead}"
    with sqlite3.connect(f"file:{check.folder / name}.sqlite?mode=ro", uri=True) as session:
        rows = session.execute(
            "SELECT request_id, token_id FROM token ORDER BY request_id, position"
        ).fetchall()
    by_request: dict[int, list[int]] = {}
    for request, token in rows:
        by_request.setdefault(request, []).append(token)
    assert by_request, "no tokens"
    for request, tokens in by_request.items():
        assert tokens == list(expected), f"request {request}: {tokens} is not {list(expected)}"
    return f"{len(by_request)} answers equal those of float64 numpy, {len(expected)} tokens each"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--core", action="store_true", help="only what needs no ONNX Runtime")
    parser.add_argument("--keep", action="store_true", help="leave the folder behind")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="edgeprof-check-"))
    check = Check(folder)
    wheel = options.wheel.absolute()
    check.step("install", lambda: install(check, wheel, "" if options.core else "[cpu]"))
    check.step("version", lambda: version(check))
    check.step("roofline", lambda: roofline(check))
    check.step("devices", lambda: devices(check))
    check.step("doctor", lambda: doctor(check, "watch" if options.core else "run"))
    if not options.core:
        check.step("models", lambda: f"{len(made(check)['answer'])} tokens of a reference")
        check.step("run, GGUF", lambda: run_recipe(
            check, "gguf", folder / "target.gguf", [5, 6, 7, 8, 5, 6], 128))  # fmt: skip
        check.step("run, ONNX", lambda: run_recipe(
            check, "onnx", folder / "plain", made(check)["prompt"], 60))  # fmt: skip
        check.step("answers", lambda: answers(
            check, "onnx", made(check)["answer"], made(check)["least_lead"]))  # fmt: skip
    if options.keep:
        print(f"left in {folder}")
    else:
        shutil.rmtree(folder)
    return 1 if check.failed else 0


def made(check: Check) -> Any:
    """The models, made once, and the answer that is expected of one of them."""
    document = check.folder / "models.json"
    if not document.exists():
        text = check.run(check.python, MODELS, check.folder)
        document.write_text(text)
    return json.loads(document.read_text())


if __name__ == "__main__":
    sys.exit(main())
