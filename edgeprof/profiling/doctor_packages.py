"""Which packages this Python has, and whether they can be imported, which is tried in a child.

Imports none of them itself: one that is broken would take this process down too.
"""

import importlib.metadata
import json
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from shutil import which

from edgeprof import __version__
from edgeprof.diagnosis import Package, Python
from edgeprof.hardware.board_files import printable
from edgeprof.hardware.jetpack import crash_fix
from edgeprof.process_end import describe_end
from edgeprof.profiling.children import child_environment

_PROBE = Path(__file__).with_name("import_probe.py")
_WAIT_S = 60.0
_TAIL_CHARACTERS = 4000
_SCRIPT = "edgeprof"
# Package -> the module that is imported to try it; None where its presence is enough. Importing
# matplotlib makes a folder, and what looks at a machine must not change it.
_CORE: Mapping[str, str | None] = {
    "click": None, "msgspec": None, "numpy": "numpy", "psutil": "psutil", "platformdirs": None,
    "matplotlib": None,
}  # fmt: skip
_RUN: Mapping[str, str | None] = {
    "onnx": "onnx", "tokenizers": "tokenizers", "gguf": None, "huggingface-hub": None,
    "jinja2": None,
}  # fmt: skip
_ON_NUMPY = ("onnx",)
_NUMPY_1 = ("_ARRAY_API not found", "compiled using NumPy 1")


def describe_python() -> Python:
    """This interpreter, and where its scripts go."""
    script = next(
        (place for place in _script_places() if os.access(place, os.X_OK)), which(_SCRIPT)
    )
    found = which(_SCRIPT)
    on_path = script is not None and found is not None and os.path.samefile(found, script)
    as_root = os.geteuid() == 0
    return Python(
        version=platform.python_version(),
        executable=sys.executable,
        machine=platform.machine(),
        virtual_environment=sys.prefix != sys.base_prefix,
        edgeprof_version=__version__,
        script=script,
        script_on_path=on_path,
        runs_as="sudo" if as_root and "SUDO_UID" in os.environ else "root" if as_root else "user",
    )


def pip() -> str:
    """The pip of this environment, as a shell takes it."""
    return f"{shlex.quote(sys.executable)} -m pip"


def called_by(python: Python) -> str:
    """How a shell starts edgeprof here: by its script, else through this interpreter."""
    return _SCRIPT if python.script_on_path else f"{shlex.quote(python.executable)} -m edgeprof"


def read_packages() -> list[Package]:
    """Those of the core and of the runner, each imported where that says more than its presence."""
    wanted = [(name, module, "core") for name, module in _CORE.items()]
    wanted += [(name, module, "run") for name, module in _RUN.items()]
    found = {name: _distribution(name) for name, _, _ in wanted}
    modules = [module for name, module, _ in wanted if module and found[name]]
    faults = import_faults(modules)
    if "numpy" in faults:  # what imports it fails with it, and is not to blame
        faults = {name: fault for name, fault in faults.items() if name not in _ON_NUMPY}
    return [
        _package(name, needed_for, found[name], faults.get(module or ""))
        for name, module, needed_for in wanted
    ]


def import_faults(modules: Sequence[str]) -> dict[str, str]:
    """What keeps each of the modules from being imported; those that can be are left out."""
    faults: dict[str, str] = {}
    left = list(modules)
    while left:
        reached, told, end = _import(left)
        faults |= told
        if end is None:
            break
        # The last one that was begun took the child down; those behind it are still to be tried.
        culprit = reached if reached in left else left[0]
        faults[culprit] = end
        left = left[left.index(culprit) + 1 :]
    return faults


def _import(modules: Sequence[str]) -> tuple[str | None, dict[str, str], str | None]:
    """How far a child came, what could not be imported, and how it died, if it did."""
    try:
        done = subprocess.run(
            [sys.executable, "-B", str(_PROBE), *modules],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_WAIT_S,
            stdin=subprocess.DEVNULL,
            env={**child_environment(), "PYTHONDONTWRITEBYTECODE": "1"},
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        told = error.stdout or b""  # bytes also where text was asked for
        out = told.decode(errors="replace") if isinstance(told, bytes) else told
        return *_progress(out), f"the import has not come back after {_WAIT_S:.0f} s"
    except OSError as error:
        return None, {}, f"{sys.executable} cannot be started: {error.strerror}"
    reached, faults = _progress(done.stdout)
    if done.returncode:
        return reached, faults, f"the import {_end(done.returncode, done.stderr)}"
    if reached is not None and any(words in done.stderr for words in _NUMPY_1):
        faults.setdefault(reached, "it was compiled against NumPy 1, and NumPy 2 is installed")
    return reached, faults, None


def _progress(stdout: str) -> tuple[str | None, dict[str, str]]:
    reached, faults = None, {}
    for line in stdout.splitlines():
        try:
            said = json.loads(line)
            reached = str(said["module"])
        except (ValueError, TypeError, KeyError):  # a library that prints
            continue
        if "reason" in said:
            faults[reached] = printable(str(said["reason"]))
    return reached, faults


def _end(code: int, stderr: str) -> str:
    return printable(describe_end(code, stderr[-_TAIL_CHARACTERS:].strip()))


def _package(
    name: str, needed_for: str, found: tuple[str, str] | None, fault: str | None
) -> Package:
    if found is None:
        return Package(
            name=name,
            needed_for=needed_for,
            state="missing",
            reason="not installed",
            # Not edgeprof[cpu], which would lay its onnxruntime over one for a GPU.
            fix=f"{pip()} install {name}",
        )
    again = f"{pip()} install --force-reinstall --no-deps {name}"
    mended = fault and crash_fix(name, platform.machine(), fault)
    return Package(
        name=name,
        needed_for=needed_for,
        state="ok" if fault is None else "broken",
        version=found[0],
        location=found[1],
        reason=fault,
        fix=None if fault is None else mended or again,
    )


def _distribution(name: str) -> tuple[str, str] | None:
    """Version and folder; None where it is not installed, or its metadata is damaged."""
    try:
        found = importlib.metadata.distribution(name)
        return found.version, str(found.locate_file(""))
    except Exception:  # damaged metadata raises what it likes
        return None


def _script_places() -> Iterator[str]:
    """Where pip puts scripts: into the environment, or into the user's own."""
    yield f"{sysconfig.get_path('scripts')}/{_SCRIPT}"
    user = sysconfig.get_preferred_scheme("user")
    yield f"{sysconfig.get_path('scripts', user)}/{_SCRIPT}"
