"""Which packages can be imported, tried on real ones and on some that misbehave."""

import os
import platform
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edgeprof.profiling import doctor_packages
from edgeprof.profiling.doctor_packages import (
    called_by,
    describe_python,
    import_faults,
    read_packages,
)
from edgeprof.profiling.import_probe import multiplies


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules the child finds first."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def dies(name: str) -> str:
    return f"import os, signal; os.kill(os.getpid(), signal.{name})\n"


def test_i10_an_import_that_kills_its_process_is_an_answer_and_the_rest_is_tried(
    modules: Path,
) -> None:
    (modules / "bad_one.py").write_text(dies("SIGILL"))
    (modules / "bad_two.py").write_text("raise ImportError('libx.so.1: no such\\x1b[2J file')\n")
    (modules / "bad_three.py").write_text("import os; os.abort()\n")
    faults = import_faults(["json", "bad_one", "bad_two", "csv", "bad_three", "string"])
    assert faults == {
        "bad_one": "the import was killed by SIGILL",
        "bad_two": "ImportError: libx.so.1: no such [2J file",
        "bad_three": "the import was killed by SIGABRT",
    }
    assert import_faults(["json", "csv"]) == {} == import_faults([])


def test_i10_numpy_that_dies_is_broken_and_mended_on_its_machine(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (modules / "numpy.py").write_text(dies("SIGILL"))
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    found = {package.name: package for package in read_packages()}
    numpy = found["numpy"]
    assert (numpy.state, numpy.fix) == ("broken", "export OPENBLAS_CORETYPE=ARMV8")
    assert numpy.reason == "the import was killed by SIGILL"
    assert found["onnx"].state == "ok"  # which imports numpy, and is not to blame
    assert found["psutil"].state == "ok"


class Wrong(np.ndarray):
    """Floats whose product is off by one in a place."""

    def __matmul__(self, other: Any) -> Any:
        product = super().__matmul__(other)
        if product.dtype.kind == "f":
            product[-1, -1] += 1
        return product


def test_i10_numpy_has_to_multiply_right_too() -> None:
    assert multiplies(np)
    wrong = SimpleNamespace(arange=lambda count: np.arange(count).view(Wrong))
    assert not multiplies(wrong)


def test_i03_a_module_that_was_compiled_against_numpy_1_says_so(modules: Path) -> None:
    (modules / "old.py").write_text("import sys; print('_ARRAY_API not found', file=sys.stderr)\n")
    assert import_faults(["old"]) == {
        "old": "it was compiled against NumPy 1, and NumPy 2 is installed"
    }


def test_an_import_that_hangs_is_given_up_and_the_rest_is_tried(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_packages, "_WAIT_S", 1.0)
    (modules / "stuck.py").write_text("import time; time.sleep(60)\n")
    faults = import_faults(["json", "stuck", "csv"])
    assert faults == {"stuck": "the import has not come back after 1 s"}


def test_looking_leaves_nothing_behind(modules: Path) -> None:
    (modules / "fine.py").write_text("value = 1\n")
    assert import_faults(["fine"]) == {}
    assert [path.name for path in modules.iterdir()] == ["fine.py"]


def test_a_package_that_is_not_there_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_packages, "_CORE", {"no-such-package": None})
    monkeypatch.setattr(doctor_packages, "_RUN", {"nor-this-one": None})
    core, run = read_packages()
    assert core.state == run.state == "missing"
    assert (core.fix or "").endswith(" -m pip install no-such-package")
    assert (run.fix or "").endswith(" -m pip install nor-this-one")


def test_k08_where_the_script_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "bin" / "edgeprof"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setattr("sysconfig.get_path", lambda name, scheme=None: str(script.parent))
    monkeypatch.setenv("PATH", "/nowhere")
    python = describe_python()
    assert (python.script, python.script_on_path) == (str(script), False)
    assert called_by(python) == f"{sys.executable} -m edgeprof"
    monkeypatch.setenv("PATH", str(script.parent))
    assert describe_python().script_on_path and called_by(describe_python()) == "edgeprof"
    script.unlink()
    assert describe_python().script is None


def test_k09_who_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "1000")
    assert describe_python().runs_as == "sudo"
    monkeypatch.delenv("SUDO_UID")
    assert describe_python().runs_as == "root"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert describe_python().runs_as == "user"
    assert describe_python().executable == sys.executable
