"""``edgeprof contend`` as its users meet it: a process, its streams, its exit code, and signals."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from started import Start, finish, starting

from edgeprof.session.store import read_session

RECIPE = """
schema = "edgeprof.recipe/1"
name = "tiny"
question = "Does it pay?"
context_tokens = 250
held_context_tokens = 32
seed = 4

[targets.t]
model = "target.gguf"
weights = "fp32"
threads = 1

[drafters.d]
kind = "model"
model = "{draft}"

[[variants]]
target = "t"

[contention]
doses = [1.0]
leg_s = 0.3
repeats = 2
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Callable[..., Path]) -> Path:
    """Two small models and a recipe that names them; a second one whose draft is missing."""
    folder = tmp_path_factory.mktemp("contend")
    tiny_gguf(folder / "target.gguf", layers=4)
    tiny_gguf(folder / "draft.gguf", layers=1)
    (folder / "tiny.toml").write_text(RECIPE.format(draft="draft.gguf"))
    (folder / "lone.toml").write_text(RECIPE.format(draft="gone.gguf"))
    return folder


@pytest.fixture
def start(work: Path, tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path, {"EDGEPROF_CACHE": str(work / "cache")}) as run:
        yield run


def test_one_session_one_document_and_the_report_of_it_on_one_core(
    start: Start, work: Path, tmp_path: Path
) -> None:
    core = min(os.sched_getaffinity(0))
    command = ["contend", work / "tiny.toml", "-o", "s.sqlite", "--antagonist", "spin",
               "--antagonist", "d", "--json"]  # fmt: skip
    code, out, err = finish(start(*command, cores={core}))
    assert code == 0, err
    document = json.loads(out)
    assert document["schema"] == "edgeprof.summary/1"
    assert document["session"]["kind"] == "contend"
    (target,) = document["contention"]["targets"]
    assert target["seed"] == 4
    assert [curve["antagonist"] for curve in target["curves"]] == ["spin", "d"]
    assert [curve["competes_for"] for curve in target["curves"]] == [["cores"], ["bus", "cores"]]
    assert all(regime["overlap_s"] > 0 for regime in target["regimes"])
    assert "legs of " in err and "seed 4" in err and "session: s.sqlite" in err
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]

    code, out, err = finish(start("report", "s.sqlite"))
    assert code == 0, err
    assert "t beside spin at 100 %" in out
    # on a machine whose clocks move meanwhile nothing is compared, and that is said
    assert "the price of sharing cores" in out or "not compared, as" in out
    assert "what target and antagonist kept of their own rates" in out
    code, out, err = finish(start("report", "s.sqlite", "--format", "md"))
    assert code == 0 and "## Contention" in out and "dose" in out


def test_ctrl_c_keeps_what_was_measured_and_leaves_nobody_behind(
    start: Start, work: Path, tmp_path: Path
) -> None:
    command = ["contend", work / "tiny.toml", "-o", "s.sqlite", "-r", "100", "--antagonist", "read"]
    running = start(*command)
    family = wait_for_antagonist(running.pid)
    time.sleep(1.5)
    os.killpg(running.pid, signal.SIGINT)
    code, out, err = finish(running)
    assert code == 130 and "what was measured is kept" in err and "Traceback" not in err
    session = read_session(tmp_path / "s.sqlite")
    assert not session.info.complete and session.info.ended_reason == "interrupted"
    assert session.passes
    psutil.wait_procs(family, timeout=5)
    assert not [process for process in family if process.is_running()]
    code, out, err = finish(start("report", "s.sqlite"))
    assert code == 4 and "Incomplete session: interrupted" in out


def wait_for_antagonist(pid: int) -> list[psutil.Process]:
    """All processes of a run, once an antagonist is among them."""
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s:
        family: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
        if any("edgeprof.profiling.antagonist" in " ".join(p.cmdline()) for p in family):
            return family
        time.sleep(0.05)
    raise AssertionError("no antagonist was started")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["lone.toml"], 2, "gone.gguf: no such model"),
        (["tiny.toml", "--antagonist", "raed"], 2, "did you mean 'read'"),
        (["tiny.toml", "--target", "u"], 2, "'u'"),
        (["tiny.toml", "--target-core", "4000"], 2, "names core 4000"),
        (["tiny.toml", "--dose", "0"], 2, "0"),
        (["tiny.toml", "--dose", "nan"], 2, "nan"),
        (["tiny.toml", "--seconds", "nan"], 2, "nan"),
        (["tiny.toml", "--duration", "fortnight"], 2, "fortnight"),
        (["tiny.toml", "--duration", "1s"], 2, "from 3s to 24h"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    start: Start, work: Path, tmp_path: Path, arguments: list[str], code: int, says: str
) -> None:
    recipe, *options = arguments
    done, out, err = finish(start("contend", work / recipe, *options, "-q"))
    assert done == code, err
    assert says in err and "Traceback" not in err and out == ""
    assert list(tmp_path.iterdir()) == []
