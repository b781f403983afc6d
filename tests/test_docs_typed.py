"""Every line of the pages that calls edgeprof is run: by a process, in the order of its page, in a
folder that holds what the page takes to be there.

What a user would put in is put in: a random little model for a real one, a file for a name in
capitals, fewer tokens and seconds; a board is read below the root of an emulated one. Every option
stays. A command that ends by Ctrl-C is ended by it. What other programs are to do stands in a table
with what looks after it instead.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Timer

import click
import pytest
from docs_lines import LINES, OTHER_LINES, ROOT, TEXT, Line, load
from emulated import namespace
from emulated.namespace import EmulatedBoard
from emulated.tree import build
from made_profile import made_profile

from edgeprof.cli.commands import COMMANDS
from edgeprof.hardware.measured import as_toml
from edgeprof.session.records import Session

Done = subprocess.CompletedProcess[str]
EDGEPROF = (sys.executable, "-m", "edgeprof")
LONGEST_S = 60

# What is typed for a word that stands behind a certain other one, and for a word anywhere.
AFTER = {
    ("-p", "512"): "8", ("-n", "128"): "4", ("-n", "32"): "8", ("-d", "0,4096"): "0,16",
    ("-r", "5"): "1", ("-k", "1-16"): "1-2", ("--for", "5"): "0.5", ("--for", "SECONDS"): "0.5",
    ("run", "smollm2-135m"): "tiny.toml", ("run", "NAME|PATH"): "tiny.toml",
    ("contend", "smollm2-135m"): "tiny.toml", ("fetch", "smollm2-135m"): "target.gguf",
    ("fetch", "NAME"): "target.gguf", ("devices", "NAME"): "orin-nano-8gb",
    ("models", "NAME|PATH"): "qwen2.5-7b", ("sessions", "DIR"): ".",
    ("-o", "SESSION"): "new.sqlite", ("--", "CMD"): "llama-cli",
}  # fmt: skip
ANYWHERE = {
    "./recipes/smollm2-135m.toml": "./tiny.toml", "RECIPE": "tiny.toml", "FILE.gguf": "target.gguf",
    "SESSION": "session.sqlite", "A": "before.sqlite", "B": "after.sqlite", "LOG": "board.log",
    "DIR": "new", "MODEL": "qwen2.5-7b:q4_k_m", "D": "orin-nano-8gb", "D@MODE": "orin-nano-8gb@15W",
    "M": "qwen2.5-7b:q4_k_m", "T": "qwen2.5-7b:q4_k_m", "T2": "qwen2.5-0.5b:q4_k_m",
    "TARGET": "qwen2.5-7b", "DRAFT": "qwen2.5-0.5b",
}  # fmt: skip
RECIPE = """
schema = "edgeprof.recipe/1"
name = "tiny"
question = "Does it pay?"
new_tokens = 8
repeats = 1
warmup_requests = 0
context_tokens = 200
held_context_tokens = 32
held_repeats = 1
held_legs = 0
verify_tokens = [1, 2]
measure_ceiling = false

[targets.fp32]
model = "target.gguf"
weights = "fp32"
threads = 1

[drafters.ngram]
kind = "ngram"

[[variants]]
target = "fp32"

[[variants]]
target = "fp32"
drafter = "ngram"
draft_tokens = 2

[[prompts]]
kind = "chat"
text = "the tide turned the other tide"

[contention]
antagonists = ["spin"]
doses = [1.0]
leg_s = 0.2
repeats = 1
"""
READS_A_BOARD = ("doctor", "watch")
# What an endless command says once it is at it, and Ctrl-C may come. What a probe keeps after that
# is seen in tests/cli/test_probe.py: its parts take seconds each.
UNTIL = {"watch": "DRAM", "probe": "[1/"}

CI = "a stage of .ci/run"
INDEX = "takes packages from an index, which a test must not need: "
ROOT_ONLY = "takes root, and changes the machine: "
# What other programs are to do, by how it begins, and what looks after it instead of this file.
ELSEWHERE = {
    "make demo": CI,
    "make test": CI,
    "make lint": f"{CI}, in its parts",
    "python -m build": CI,
    "python3 tests/installation/check.py": CI,
    "python -m pytest tests/hardware tests/test_catalog.py": "a part of the tests",
    "python3 -m venv .venv": "the Makefile's first step, which every stage of .ci/run stands on",
    ". .venv/bin/activate": "of Python's own venv",
    "pip install -e": f"{INDEX}the Makefile installs so; the extras are checked in test_docs",
    ".venv/bin/python -m pip install": f"{INDEX}the Makefile installs so",
    "python3 -m pip install --upgrade pip": f"{INDEX}pip's own advice",
    "pip install --user": "an option that is named",
    "pip install 'edgeprof[": f"{INDEX}the extras are checked in test_docs",
    "pip uninstall": f"{INDEX}test_failures I04 and test_jetpack compare it with jetpack.toml",
    "pip install 'numpy<2'": f"{INDEX}test_jetpack compares it with jetpack.toml",
    "pip install onnxruntime-gpu==1.23.0": f"{INDEX}test_jetpack compares it with jetpack.toml",
    "pip install 'jetson-stats~=4.3.0'": f"{INDEX}test_jtop_copies has the same line for a board",
    "sudo pip install jetson-stats": f"{INDEX}it names how a board's owner installed it",
    "pip wheel --no-deps -w wheelhouse .": f"{INDEX}seen by hand, docs/aarch64.md",
    "pip download -d wheelhouse": f"{INDEX}seen by hand, docs/aarch64.md",
    "pip install --no-index --find-links wheelhouse": "seen by hand, docs/aarch64.md",
    "sudo apt-get install qemu-user-static": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo update-binfmts": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo debootstrap": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo chroot root": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo env QEMU_CPU=cortex-a72 chroot root": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo mount": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo mkdir root/repo": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo cp -r tests": f"{ROOT_ONLY}seen by hand, docs/aarch64.md",
    "sudo jetson_clocks": f"{ROOT_ONLY}NVIDIA's tool, on a board alone",
    'sudo chown "$USER": FILE': f"{ROOT_ONLY}test_doctor K09 has it too",
    'sudo -E env PATH="$PATH" edgeprof ...': f"{ROOT_ONLY}test_doctor K09 has it too",
    "sudo -n": "an option that is named",
    "docker run": "a program that is named",
    "sqlite3 session.sqlite": "test_docs asks the same of Python's sqlite3",
    "mark": "test_telemetry_page sends it",
    "tegrastats --interval 500 | tee board.log": "NVIDIA's tool; the folder has its log",
}


def words_typed(line: Line) -> list[str]:
    """The words of a line with all that a user replaces; of a form with all that is optional."""
    words = list(line.words)
    if line.is_form:
        words = re.sub(r"\[\.\.\.\]|[\[\]]", "", " ".join(words)).split()
    before = ["edgeprof", *words]
    typed = [
        AFTER.get((before[place], word), ANYWHERE.get(word, word))
        for place, word in enumerate(words)
    ]
    command = line.command
    if command in READS_A_BOARD or "--detect" in typed:
        typed[typed.index(command) + 1 : typed.index(command) + 1] = ["--root", "board"]
    return typed


def is_whole(line: Line) -> bool:
    """Running text also names a command, or an option of it, without what else it needs."""
    words = words_typed(line)
    if not line.in_prose or not line.command:
        return True
    if len(line.words) == 1:
        return False
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(click.Path, "convert", lambda self, value, param, ctx: Path(value))
            load(line.command).make_context(line.command, words[words.index(line.command) + 1 :])
    except (click.MissingParameter, click.BadOptionUsage):
        return False
    return True


def options(line: Line) -> set[str]:
    return {word for word in line.words if word.startswith("-")}


def calls() -> Iterator[Line]:
    """Each once, however often the pages have it; of those in running text that cannot be typed as
    they stand the ones that no line with the same options stands for."""
    seen: set[tuple[str, ...]] = set()
    typed_lines = [line for line in LINES if not line.in_prose]
    for line in LINES:
        typed = (*words_typed(line), *(["as root"] if line.text.startswith("sudo ") else []))
        is_shape = line.in_prose and words_typed(line) != [*line.words]
        stands_for_it = (
            other.command == line.command and options(line) <= options(other)
            for other in typed_lines
        )
        if is_whole(line) and typed not in seen and not (is_shape and any(stands_for_it)):
            seen.add(typed)
            yield line


CALLS = list(calls())
SENSOR = [line for line in CALLS if line.command == "sensor"]
OTHERS = [line for line in CALLS if line.command != "sensor"]


@pytest.fixture(scope="module")
def supplies(
    tmp_path_factory: pytest.TempPathFactory,
    made_session: Session,
    write_session: Callable[..., Path],
    tiny_gguf: Callable[..., Path],
) -> Path:
    """What every page's folder begins with."""
    place = tmp_path_factory.mktemp("docs") / "supplies"
    place.mkdir()
    for name in ("session", "run", "before", "after"):
        write_session(place / f"{name}.sqlite", made_session)
    tiny_gguf(place / "target.gguf", layers=1)
    (place / "tiny.toml").write_text(RECIPE)
    lines = map(json.loads, (ROOT / "tests/data/tegrastats_lines.jsonl").read_text().splitlines())
    line = next(line["line"] for line in lines if line["id"] == "orin-nano-r35")
    log = "".join(line.replace(" 09:18:57 ", f" 09:18:{50 + n} ") + "\n" for n in range(5))
    (place / "board.log").write_text(log)
    build(place / "board", "orin-nano-super")
    (place / "data" / "probes").mkdir(parents=True)
    (place / "data" / "probes" / "probe.toml").write_text(as_toml(made_profile()))
    for name in ("device_profiles", "plots"):
        (place / name).symlink_to(ROOT / name)
    program(place / "bin" / "llama-cli", "sleep 0.5")
    program(place / "bin" / "tegrastats", f"while cat {place}/board.log; do sleep 0.5; done")
    program(place / "bin" / "browser", f'printf %s "$1" > "{place.parent}/shown"')
    return place


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture(scope="module")
def outcomes(supplies: Path) -> Mapping[Line, Done]:
    """What came of every call; the pages are gone through side by side."""
    pages = {page: [line for line in OTHERS if line.page == page] for page in TEXT}
    with ThreadPoolExecutor(4) as pool:
        by_time = sorted(pages, key=lambda page: -sum(map(weight, pages[page])))
        jobs: list[Future[dict[Line, Done]]] = [
            pool.submit(go_through, pages[page], supplies, supplies.parent / page)
            for page in by_time
            if pages[page]
        ]
        done = [job.result() for job in jobs]
    return {line: process for one in done for line, process in one.items()}


def weight(line: Line) -> int:
    """The pages whose lines take longest are begun first."""
    return 5 if line.command in ("contend", "run", "probe", "doctor") else 1


def go_through(lines: Sequence[Line], supplies: Path, folder: Path) -> dict[Line, Done]:
    """One page."""
    shutil.copytree(supplies, folder, symlinks=True)
    return {line: run(line, folder) for line in lines}


def run(line: Line, folder: Path) -> Done:
    words = words_typed(line)
    if "-o" in words:  # the line is to make it
        made = folder / words[words.index("-o") + 1]
        shutil.rmtree(made, ignore_errors=True) if made.is_dir() else made.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "COLUMNS": "100",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "BROWSER": "browser",
        "EDGEPROF_CACHE": str(folder / "cache"),
        "EDGEPROF_DATA": str(folder / "data"),
    }
    process = subprocess.Popen(
        [*EDGEPROF, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if is_endless(line) else subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
    )
    watchdog = Timer(LONGEST_S, process.kill)
    watchdog.start()
    try:
        said = interrupt(process, UNTIL[line.command]) if is_endless(line) else ""
        out, err = process.communicate()
    finally:
        watchdog.cancel()
        process.kill()
    return subprocess.CompletedProcess(words, process.returncode, said + out, err)


def is_endless(line: Line) -> bool:
    """Whether it goes on until Ctrl-C, or for a minute."""
    ends = line.command == "watch" and {"--", "--for"} & {*words_typed(line)}
    return line.command in UNTIL and not ends


def interrupt(process: "subprocess.Popen[str]", word: str) -> str:
    """Ctrl-C, which a terminal gives to all its processes, once it has said so; what it said until
    then."""
    assert process.stdout is not None
    said = ""
    while word not in said and (more := process.stdout.read(1)):
        said += more
    os.killpg(process.pid, signal.SIGINT)
    return said


@pytest.mark.parametrize("line", OTHERS, ids=str)
def test_the_line_does_what_it_should(line: Line, outcomes: Mapping[Line, Done]) -> None:
    done = outcomes[line]
    told = f"{done.args}: {done.stdout}\n{done.stderr}"
    assert done.returncode == (130 if is_endless(line) else 0), told
    assert "Traceback" not in told and "no browser" not in told
    assert done.stdout or "--" in words_typed(line), told  # there stdout is the other command's


def test_what_is_opened_is_shown(outcomes: Mapping[Line, Done], supplies: Path) -> None:
    assert any("--open" in line.words for line in outcomes)
    assert (supplies.parent / "shown").read_text().startswith("file://")


@pytest.fixture(scope="module")
def sensor_board() -> Iterator[EmulatedBoard]:
    if namespace.unshare_options() is None:
        pytest.skip("no private mount namespace, in which the machine would be a board")
    with EmulatedBoard("orin-nano") as board:
        yield board


@pytest.mark.parametrize("line", SENSOR, ids=str)
def test_the_sensor_serves_by_sudo_and_else_prints_the_line_to_type(
    line: Line, sensor_board: EmulatedBoard
) -> None:
    command = [*EDGEPROF, *words_typed(line)]
    if not line.text.startswith("sudo "):
        if sensor_board.one_user:
            pytest.skip("nobody but root is there")
        done = sensor_board.run(command, unprivileged=True)
        assert done.returncode == 3 and f"sudo {sys.executable} -I -S -B " in done.stderr
        return
    if sensor_board.one_user:
        pytest.skip("nobody is there to be served")
    user = str(sensor_board.user_id)
    with sensor_board.popen(
        command,
        environment={"SUDO_UID": user},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        said = interrupt(process, f"/run/edgeprof-{user}/sensor.sock")
    assert f"/run/edgeprof-{user}/sensor.sock" in said


def test_all_that_other_programs_are_to_do_is_looked_after() -> None:
    for page, line in OTHER_LINES:
        assert line.startswith(tuple(ELSEWHERE)), f"{page}: {line}"
    for start in ELSEWHERE:
        assert any(line.startswith(start) for _, line in OTHER_LINES), f"no page has {start}"


def test_no_page_is_left_out() -> None:
    """Of what stands in a block of code, all is run."""
    run_of = {(*words_typed(line),) for line in CALLS}
    for line in LINES:
        assert line.in_prose or (*words_typed(line),) in run_of, line
    assert {line.command for line in CALLS if line.command} == {*COMMANDS}
