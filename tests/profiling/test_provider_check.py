"""Whether a provider works: asked of real children, and of some that misbehave."""

import json
import sys
from pathlib import Path

import pytest

from edgeprof.errors import EnvironmentFault
from edgeprof.profiling.provider_check import probe_provider, require_providers


def test_the_cpu_ran_a_real_operator() -> None:
    state = probe_provider("cpu")
    assert state.usable and state.reason is None and state.onnxruntime


def test_the_runtime_leaves_nothing_in_the_users_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime from 1.29 on would keep a data base there, of what it then sends; where it takes
    itself to be in a CI it does not."""
    for name in ("CI", "XDG_CACHE_HOME", "ORT_DISABLE_TELEMETRY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert probe_provider("cpu").usable
    assert list(tmp_path.iterdir()) == []


def test_i02_a_provider_that_is_not_there_says_so() -> None:
    state = probe_provider("cuda")
    assert not state.usable and "CUDAExecutionProvider" in (state.reason or "")
    with pytest.raises(EnvironmentFault, match=r"provider 'cuda' is not usable here: .*docs/"):
        require_providers({"cpu", "cuda"})
    require_providers({"cpu"})


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that is run in place of the probe."""
    program = tmp_path / "python"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    return program


def script(probe: Path, *lines: str) -> None:
    probe.write_text("\n".join(("#!/bin/sh", *lines, "")))


def test_i02_the_reason_that_was_only_a_warning_is_found(probe: Path) -> None:
    answer = json.dumps({"usable": False, "reason": "the graph: onnxruntime cannot load it"})
    missing = "libcublasLt.so.13: cannot open shared object file: No such file or directory"
    script(
        probe,
        f"echo '[E:onnxruntime] Failed to load library x.so with error: {missing}' >&2",
        f"echo '{answer}'",
    )
    state = probe_provider("cuda")
    assert state.reason == f"{missing}: the graph: onnxruntime cannot load it"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("kill -SEGV $$",), "its probe was killed by SIGSEGV"),
        (
            ("echo 'NvMapMemAllocInternalTagged: 1075072515 error 12' >&2", "kill -ABRT $$"),
            "its probe ran out of memory: NvMapMemAllocInternalTagged: 1075072515 error 12",
        ),
        (("exit 3",), "its probe ended with exit code 3"),
        (("echo '{\"usable\": 7}'",), "its probe ended with exit code 0"),
        (("printf 'what\\033[2J' >&2", "exit 1"), "its probe ended with exit code 1: what [2J"),
    ],
)
def test_r06_a_probe_that_dies_is_an_answer(probe: Path, lines: tuple[str, ...], says: str) -> None:
    script(probe, *lines)
    state = probe_provider("cuda")
    assert (state.usable, state.reason) == (False, says)


def test_a_probe_that_hangs_is_an_answer_too(probe: Path) -> None:
    script(probe, "exec sleep 60")
    state = probe_provider("cuda", wait_s=0.2)
    assert (state.usable, state.reason) == (False, "an operator on it has not come back after 0 s")


def test_a_probe_that_cannot_be_started_is_one_as_well(probe: Path) -> None:
    probe.unlink()
    state = probe_provider("cuda")
    assert (state.usable, state.reason) == (
        False,
        "its probe cannot be started: No such file or directory",
    )
