"""What the built wheel and sdist hold, and that the sdist installs: on the files in the folder that
EDGEPROF_DIST names, as `python -m build` leaves them there."""

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

import pytest

import edgeprof

ROOT = Path(__file__).parents[2]
DIST = os.environ.get("EDGEPROF_DIST")
pytestmark = pytest.mark.skipif(
    DIST is None, reason="EDGEPROF_DIST names no folder with a built wheel and sdist"
)
# Folders of the project that are packages of the wheel.
PLACES = {"device_profiles/": "edgeprof/device_profiles/", "recipes/": "edgeprof/recipes/"}
NOT_SHIPPED = (".ci/", ".gitignore")


@pytest.fixture(scope="module")
def tracked() -> set[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a clone, so that nobody tells which files belong to the project")
    return {*done.stdout.split()}


def built(pattern: str) -> Path:
    assert DIST is not None
    (found,) = (ROOT / DIST).glob(pattern)
    return found


@pytest.fixture(scope="module")
def wheel() -> Iterator[zipfile.ZipFile]:
    with zipfile.ZipFile(built("*.whl")) as file:
        yield file


@pytest.fixture(scope="module")
def sdist() -> Iterator[tarfile.TarFile]:
    with tarfile.open(built("*.tar.gz")) as file:
        yield file


def installed(tracked: set[str]) -> set[str]:
    """Where the wheel puts each file of the packages."""
    names = {name for name in tracked if name.startswith("edgeprof/")}
    for place, package in PLACES.items():
        names |= {package + name.removeprefix(place) for name in tracked if name.startswith(place)}
    return names


def test_the_wheel_holds_every_file_of_its_packages_and_nothing_else(
    wheel: zipfile.ZipFile, tracked: set[str]
) -> None:
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == installed(tracked)
    for name in ("edgeprof/py.typed", "edgeprof/hardware/jetpack.toml",
                 "edgeprof/device_profiles/orin-nano-8gb.toml",
                 "edgeprof/recipes/smollm2-135m.toml"):  # fmt: skip
        assert name in names


def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return HeaderParser().parsestr(wheel.read(name).decode())


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    told = metadata(wheel)
    assert (told["Name"], told["Version"]) == ("edgeprof", edgeprof.__version__)
    assert (told["License-Expression"], told["Requires-Python"]) == ("Apache-2.0", ">=3.10")
    info = f"edgeprof-{edgeprof.__version__}.dist-info"
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert b"edgeprof = edgeprof.cli:main" in wheel.read(f"{info}/entry_points.txt")
    assert b"Root-Is-Purelib: true" in wheel.read(f"{info}/WHEEL")


def test_no_runtime_and_no_jetson_stats_is_a_requirement_of_the_core(
    wheel: zipfile.ZipFile,
) -> None:
    wanted = metadata(wheel).get_all("Requires-Dist") or []
    core = [name for name in wanted if "extra ==" not in name]
    assert core and not any(name.startswith(("onnx", "jetson", "torch")) for name in core)
    extras = {*(metadata(wheel).get_all("Provides-Extra") or [])}
    assert {"cpu", "gpu", "jetson"} <= extras


def test_the_sdist_holds_the_whole_project(sdist: tarfile.TarFile, tracked: set[str]) -> None:
    names = {name.partition("/")[2] for name in sdist.getnames()}
    assert not {name for name in tracked if not name.startswith(NOT_SHIPPED)} - names
    assert not {name for name in names if "__pycache__" in name or name.endswith(".pyc")}


def test_the_sdist_installs_as_the_wheel_does(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--no-deps", "--no-compile", "--target", tmp_path, built("*.tar.gz")],
        check=True,
    )  # fmt: skip
    here = {str(path.relative_to(tmp_path)) for path in (tmp_path / "edgeprof").rglob("*")
            if path.is_file()}  # fmt: skip
    assert here == {name for name in wheel.namelist() if name.startswith("edgeprof/")}
    done = subprocess.run(
        [sys.executable, "-m", "edgeprof", "--version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == f"edgeprof, version {edgeprof.__version__}"
