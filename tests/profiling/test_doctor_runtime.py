"""Which ONNX Runtime is in charge, and what it holds for a GPU: on packages that are made here."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from made_elf import MACHINE_CODE, elf_with_gpu_code

from edgeprof.diagnosis import Runtime
from edgeprof.profiling import doctor_runtime
from edgeprof.profiling.doctor_runtime import read_runtime
from edgeprof.profiling.provider_check import ProviderState

ORIN = 87
Made = Callable[..., Path]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which packages are looked for; no provider is really asked."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.setattr(
        doctor_runtime,
        "probe_provider",
        lambda provider: ProviderState(provider=provider, usable=True),
    )
    return tmp_path


def metadata(site: Path, name: str, version: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def module(site: Path, package: str | None = None, gpu: bytes | None = None) -> None:
    capi = site / "onnxruntime" / "capi"
    capi.mkdir(parents=True)
    (site / "onnxruntime" / "__init__.py").write_text("raise SystemExit('not to be imported')\n")
    if package is not None:
        (capi / "build_and_package_info.py").write_text(
            f"package_name = '{package}'\n__version__ = '1.31.1'\ncuda_version = '13.0'\n"
        )
    if gpu is not None:
        (capi / "libonnxruntime_providers_cuda.so").write_bytes(gpu)


def read(machine: str = "aarch64", architecture: int | None = ORIN, **options: object) -> Runtime:
    chosen = {"numpy_version": "2.2.6", "probe_gpu": False} | options
    return read_runtime(machine, architecture, **chosen)  # type: ignore[arg-type]


def test_none_is_none(site: Path) -> None:
    found = read()
    assert (found.copies, found.package, found.providers, found.gpu) == ([], None, [], None)


def test_i04_both_packages_and_the_one_whose_files_are_there(site: Path) -> None:
    metadata(site, "onnxruntime", "1.23.2")
    metadata(site, "onnxruntime-gpu", "1.31.1")
    module(site, "onnxruntime")
    found = read()
    assert {copy.package: copy.in_charge for copy in found.copies} == {
        "onnxruntime": True, "onnxruntime-gpu": False,
    }  # fmt: skip
    (warning,) = found.warnings
    assert warning == (
        "onnxruntime 1.23.2, onnxruntime-gpu 1.31.1 are all installed and are one module: it is "
        "that of onnxruntime; keep one"
    )


def test_i04_metadata_alone_names_both_and_puts_nobody_in_charge(site: Path) -> None:
    metadata(site, "onnxruntime", "1.23.2")
    metadata(site, "onnxruntime_gpu", "1.23.0")
    metadata(site, "onnxruntime-genai", "0.18.0")  # another library
    found = read()
    assert [copy.package for copy in found.copies] == ["onnxruntime", "onnxruntime-gpu"]
    assert not any(copy.in_charge for copy in found.copies) and found.providers == []
    assert "which of them cannot be told" in found.warnings[0]


def test_i02_a_wheel_without_code_for_this_gpu_is_known_before_it_is_run(site: Path) -> None:
    metadata(site, "onnxruntime-gpu", "1.31.1")
    pieces = [(MACHINE_CODE, number) for number in (89, 90, 120, 121)]
    module(site, "onnxruntime-gpu", elf_with_gpu_code(pieces))
    found = read()
    assert found.gpu is not None and found.gpu.architectures == (89, 90, 120, 121)
    assert found.gpu.runs_here is False
    assert found.gpu.reason == (
        "it holds GPU code for sm_89, sm_90, sm_120, sm_121 and none for this board's sm_87"
    )
    assert (found.version, found.built_for_cuda) == ("1.31.1", "13.0")
    assert read(architecture=None).gpu.runs_here is None  # type: ignore[union-attr]


def test_i02_the_version_alone_tells_where_there_is_no_library_to_read(site: Path) -> None:
    metadata(site, "onnxruntime-gpu", "1.31.1")
    found = read()
    assert found.copies[0].lacks_gpu and not read(machine="x86_64").copies[0].lacks_gpu
    assert "nothing for Orin (sm_87) or Thor (sm_110)" in found.warnings[0]


def test_a_wheel_that_holds_code_for_the_board_is_no_fault(site: Path) -> None:
    metadata(site, "onnxruntime-gpu", "1.24.4")
    module(site, "onnxruntime-gpu", elf_with_gpu_code([(MACHINE_CODE, ORIN)]))
    found = read(probe_gpu=True)
    assert found.gpu is not None and found.gpu.runs_here and found.gpu.reason is None
    assert [one.name for one in found.providers] == ["cpu", "cuda"]
    assert found.warnings == []


def test_i03_what_was_built_against_numpy_1_needs_it(site: Path) -> None:
    metadata(site, "onnxruntime-gpu", "1.23.0")
    module(site, None)
    assert read(numpy_version="2.0.0").needs_numpy == "<2"
    assert read(numpy_version="1.26.4").needs_numpy is None
    assert read(numpy_version=None).needs_numpy is None


def test_damaged_metadata_is_passed_over(site: Path) -> None:
    (site / "onnxruntime-1.0.dist-info").mkdir()
    (site / "onnxruntime_gpu-1.0.dist-info").mkdir()
    (site / "onnxruntime_gpu-1.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00")
    assert read().copies == []


def test_the_graph_of_the_probe_is_the_product_that_onnx_would_write() -> None:
    onnx = pytest.importorskip("onnx")
    from edgeprof.runner.provider_probe import _PRODUCT

    model = onnx.load_model_from_string(_PRODUCT)
    onnx.checker.check_model(model)
    (node,) = model.graph.node
    assert (node.op_type, *node.input, *node.output) == ("MatMul", "left", "right", "product")
    shapes = [
        [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    ]
    assert shapes == [[4, 64], [64, 32], [4, 32]]
    assert model.SerializeToString() == _PRODUCT


def test_the_probe_needs_no_package_that_writes_graphs() -> None:
    code = (
        "import sys; sys.modules['onnx'] = None; sys.argv = ['probe', 'cpu']\n"
        "from edgeprof.runner.provider_probe import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert '"usable": true' in done.stdout, done.stderr
