"""Habits of the command line: each case of the failure catalogue by its id."""

import ast
import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOFLINE = ["roofline", "--device", "orin-nano", "--model", "7b-q4"]
INSTALL = (ROOT / "docs" / "install.md").read_text()


def edgeprof(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgeprof", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | (environment or {}),
    )


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def test_what_a_message_quotes_does_not_steer_the_terminal() -> None:
    done = edgeprof("roofline", "--device", "orin-nano", "--model", "./\x1b[31mred.gguf")
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "[31mred.gguf" in done.stderr


@pytest.mark.parametrize(
    "arguments", [["devices"], ["devices", "--json"], ROOFLINE, ["--help"], ["--version"]]
)
def test_K01_closed_pipe_is_quiet(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "edgeprof", *arguments],
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.close(writer)
    assert done.stderr == ""
    assert done.returncode in (0, 141)


@pytest.mark.parametrize("arguments", [["--help"], ["devices"], ROOFLINE, [*ROOFLINE, "--json"]])
def test_a_closed_stdout_or_a_full_disk_gives_no_traceback(arguments: list[str]) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'edgeprof', *arguments])} "
    closed = subprocess.run(["sh", "-c", command + ">&-"], stderr=subprocess.PIPE, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")
    full = subprocess.run(["sh", "-c", command + ">/dev/full"], stderr=subprocess.PIPE, text=True)
    line = f"Error: output: {os.strerror(errno.ENOSPC)}\n"
    assert (full.returncode, full.stderr) == (3, line)


def test_a_closed_stream_does_not_give_its_number_to_a_file() -> None:
    code = (
        "import sys, types, click\n"
        "from edgeprof.cli import commands, main\n"
        "@click.command()\n"
        "def command():\n"
        "    with open(__import__('os').devnull) as file:\n"
        "        print(file.fileno() > 2, file=sys.stderr)\n"
        "module = types.ModuleType('opens'); module.command = command\n"
        "sys.modules['opens'] = module\n"
        "commands.COMMANDS['opens'] = ('opens', 'opens a file')\n"
        "sys.argv = ['edgeprof', 'opens']\n"
        "main()\n"
    )
    command = f"{shlex.join([sys.executable, '-c', code])} <&- >&-"
    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "True\n")


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"FORCE_COLOR": "1"}])
def test_K03_no_escape_codes_in_pipes(environment: dict[str, str]) -> None:
    for arguments in (["--help"], ["devices"], ROOFLINE, ["devices", "orinano"]):
        done = edgeprof(*arguments, environment=environment)
        assert "\x1b" not in done.stdout + done.stderr


def test_K04_stdout_is_one_json_document() -> None:
    done = edgeprof(*ROOFLINE, "--json")
    assert json.loads(done.stdout)["schema"] == "edgeprof.roofline/1"
    assert done.stderr == ""


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["roofline", "--help"], ROOFLINE, ["devices"]],
)
def test_K05_works_where_heavy_libraries_are_broken(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "for name in ('numpy', 'matplotlib', 'onnxruntime', 'onnx', 'gguf', 'psutil', 'jtop'):\n"
        "    sys.modules[name] = None  # importing it raises ImportError\n"
        f"sys.argv = ['edgeprof', *{arguments!r}]\n"
        "from edgeprof.cli import main\n"
        "main()\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_K05_a_broken_library_is_one_line_where_it_is_needed(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('\\n\\nnumpy is broken\\nmore of it')")
    figure = str(tmp_path / "roofline.svg")
    done = edgeprof(*ROOFLINE, "--plot", figure, environment={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout) == (3, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: a library cannot be imported: numpy is broken; install it again")


@pytest.mark.parametrize("spelling", ["orin_nano", "Orin-Nano", "ORIN NANO"])
def test_K06_spelling_of_a_device_does_not_matter(spelling: str) -> None:
    assert edgeprof("devices", spelling).stdout.startswith("device: orin-nano-8gb\n")


def test_K06_misspelt_device_is_answered_with_the_nearest() -> None:
    done = edgeprof("roofline", "--device", "orinano", "--model", "7b-q4")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].startswith(
        "Error: no device profile named 'orinano'; did you mean 'orin-nano'"
    )
    assert "Traceback" not in done.stderr


def test_K08_python_dash_m_works() -> None:
    done = edgeprof("--version")
    assert done.returncode == 0
    assert done.stdout.startswith("edgeprof, version ")
    assert "python -m edgeprof" in INSTALL


def test_K09_sudo_is_never_needed_and_what_to_do_if_used() -> None:
    assert "never needs `sudo`" in INSTALL
    assert 'sudo chown "$USER": ' in INSTALL
    assert 'sudo -E env PATH="$PATH"' in INSTALL


def test_K10_never_prompts_and_never_changes_the_board() -> None:
    assert edgeprof(*ROOFLINE).returncode == 0  # with /dev/null as its input
    calls = [
        node
        for file in (ROOT / "edgeprof").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("input", "click.prompt", "click.confirm")
    ]
    assert calls == []


@pytest.mark.parametrize("environment", [{"COLUMNS": "40"}, {"COLUMNS": "40", "TERM": "dumb"}])
def test_K14_narrow_terminal_gets_key_value_lines(environment: dict[str, str]) -> None:
    for arguments in (ROOFLINE, ["devices"]):
        lines = edgeprof(*arguments, environment=environment).stdout.splitlines()
        assert max(map(len, lines)) <= 40
    assert "tokens/s: 17.0" in edgeprof(*ROOFLINE, environment=environment).stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (ROOFLINE, 0),
        (["roofline", "--device", "orin-nano", "--model", "llama2-7b:f16"], 1),
        (["roofline", "--device", "orin-nano", "--model", "none"], 2),
        (["roofline", "--no-such-option"], 2),
        ([*ROOFLINE, "--plot", f"{__file__}/figure.svg"], 3),  # no folder: a file
        (["report", "a" * 300], 3),  # a name that no file system takes
        (["--help"], 0),
    ],
)
def test_K15_exit_codes(arguments: list[str], code: int) -> None:
    done = edgeprof(*arguments)
    assert done.returncode == code
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_K15_interrupted_is_130(name: str) -> None:
    code = (
        "import os, signal, sys, time, types, click\n"
        "from edgeprof.cli import commands, main\n"
        "@click.command()\n"
        "def command():\n"
        f"    os.kill(os.getpid(), signal.{name})\n"
        "    time.sleep(5)\n"
        "module = types.ModuleType('slow'); module.command = command\n"
        "sys.modules['slow'] = module\n"
        "commands.COMMANDS['slow'] = ('slow', 'waits')\n"
        "sys.argv = ['edgeprof', 'slow']\n"
        "main()\n"
    )
    done = python(code)
    assert done.returncode == 128 + signal.SIGINT
    assert "interrupted" in done.stderr
    assert "Traceback" not in done.stderr


def test_I08_jetson_stats_is_imported_nowhere_at_module_level() -> None:
    for file in (ROOT / "edgeprof").rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Import):
                assert "jtop" not in {alias.name.partition(".")[0] for alias in node.names}, file
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").partition(".")[0] != "jtop", file


def test_I13_board_wheels_come_from_their_own_index_pinned() -> None:
    (line,) = [row for row in INSTALL.splitlines() if row.startswith("pip install onnxruntime-gpu")]
    assert "onnxruntime-gpu==1.23.0" in line
    assert " --index-url " in line
    assert "--extra-index-url" not in INSTALL


def test_I14_pyproject_is_there_and_the_minimum_pip_is_documented() -> None:
    assert "setuptools.build_meta" in (ROOT / "pyproject.toml").read_text()
    assert "pip 21.3 or newer" in INSTALL  # the first with editable installs by pyproject.toml


def test_I16_a_board_without_internet_installs_from_a_wheelhouse() -> None:
    assert "pip download -d wheelhouse" in INSTALL
    assert "manylinux_2_17_aarch64" in INSTALL
    assert "pip install --no-index --find-links wheelhouse 'edgeprof[cpu]'" in INSTALL


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_is_documented_and_works(shell: str) -> None:
    assert f"_EDGEPROF_COMPLETE={shell}_source edgeprof" in INSTALL
    done = python(
        f"import os; os.environ['_EDGEPROF_COMPLETE'] = '{shell}_source'\n"
        "from edgeprof.cli import main\nmain()"
    )
    assert "_EDGEPROF_COMPLETE" in done.stdout


def test_the_line_for_bash_completes_commands_options_and_choices(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    (line,) = re.findall(r"^\| bash \| `(.+?)` in", INSTALL, re.MULTILINE)
    script = tmp_path / "edgeprof"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m edgeprof "$@"\n')
    script.chmod(0o755)
    ask = (
        'COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _edgeprof_completion edgeprof; '
        'echo "${COMPREPLY[@]}"'
    )
    for typed, completed in (
        (["do"], "doctor"),
        (["doctor", "--f"], "--for --format"),
        (["doctor", "--for", "w"], "watch"),
    ):
        done = subprocess.run(
            [bash, "--norc", "-c", f"{line}\n{ask}", "bash", "edgeprof", *typed],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        )
        assert (done.stdout.strip(), done.stderr) == (completed, ""), typed


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_K15_interrupted_while_it_imports(tmp_path: Path, name: str) -> None:
    """A library that takes its time to load, and Ctrl-C meanwhile."""
    (tmp_path / "click.py").write_text(
        f"import os, signal, time\nos.kill(os.getpid(), signal.{name})\ntime.sleep(5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "edgeprof", "devices"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
