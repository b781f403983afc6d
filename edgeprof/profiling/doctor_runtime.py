"""ONNX Runtime as this Python finds it: which packages bring it, which one of them is in charge,
what its wheel holds for this GPU, and what comes of one real operator. Imported in a child alone.
"""

import importlib.metadata
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from edgeprof.diagnosis import GpuLibrary, Provider, Runtime, RuntimeCopy
from edgeprof.hardware.gpu_code import read_gpu_code
from edgeprof.hardware.jetpack import Wheel, wheel_limits
from edgeprof.profiling.provider_check import probe_provider

_MODULE = "onnxruntime"
_PREFIX = re.compile(r"onnxruntime(?:[-_]\w+)*", re.IGNORECASE)
_NOT_THE_RUNTIME = ("onnxruntime-genai", "onnxruntime-extensions", "onnxruntime-tools")
_PLAIN = ("onnxruntime", "onnxruntime-gpu")
_BUILD_INFO = "capi/build_and_package_info.py"
_LARGEST_INFO_BYTES = 1 << 16
_INFO = re.compile(r"^(package_name|__version__|cuda_version)\s*=\s*'([^'\n]{1,80})'", re.MULTILINE)
_CUDA_LIBRARY = "capi/libonnxruntime_providers_cuda.so"
_ONE_PIECE = "capi/onnxruntime_pybind11_state*.so"


def read_runtime(
    machine: str, architecture: int | None, *, numpy_version: str | None, probe_gpu: bool
) -> Runtime:
    """``architecture`` is the board's GPU as in 87 for sm_87. With ``probe_gpu`` an operator is run
    on CUDA too, where the package in charge is one for it."""
    folder = _folder()
    info = {} if folder is None else _build_info(folder)
    found = sorted({(name, version, place) for name, version, place in _distributions()})
    charge = _in_charge(info.get("package_name"), [name for name, _, _ in found])
    version = info.get("__version__") or next((v for name, v, _ in found if name == charge), None)
    gpu = None if folder is None else _gpu_library(folder, architecture)
    limits = wheel_limits(charge, version, machine) if charge and version else []
    providers = [] if folder is None else [_probed("cpu")]
    if folder is not None and probe_gpu and charge not in (None, "onnxruntime"):
        providers.append(_probed("cuda"))
    return Runtime(
        copies=[
            RuntimeCopy(
                package=name,
                version=number,
                location=place,
                in_charge=name == charge and (folder is None or Path(place) == folder.parent),
                lacks_gpu=_lacks_gpu(wheel_limits(name, number, machine), architecture),
            )
            for name, number, place in found
        ],
        package=charge,
        version=version,
        built_for_cuda=info.get("cuda_version"),
        providers=providers,
        gpu=gpu,
        needs_numpy=_needs_numpy(limits, numpy_version),
        warnings=list(_warnings(found, charge, limits, gpu)),
    )


def _folder() -> Path | None:
    """Where the module is, without importing it, whatever this process imported before."""
    try:
        spec = PathFinder.find_spec(_MODULE)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def _build_info(folder: Path) -> dict[str, str]:
    """What the package that wrote the module last says of itself."""
    try:
        with (folder / _BUILD_INFO).open("rb") as file:
            text = file.read(_LARGEST_INFO_BYTES).decode(errors="replace")
    except OSError:
        return {}
    return dict(_INFO.findall(text))


def _distributions() -> Iterator[tuple[str, str, str]]:
    """Name, version and folder of each installed package that brings the module."""
    for distribution in importlib.metadata.distributions():
        try:
            name = distribution.metadata["Name"].lower().replace("_", "-")
            if not _PREFIX.fullmatch(name) or name.startswith(_NOT_THE_RUNTIME):
                continue
            files = {str(file) for file in distribution.files or ()}
            if name in _PLAIN or f"{_MODULE}/__init__.py" in files:
                yield name, distribution.version, str(distribution.locate_file(""))
        except Exception:  # damaged metadata raises what it likes
            continue


def _in_charge(told: str | None, names: Sequence[str]) -> str | None:
    """Whose files they are. Where the module does not tell, one of several packages cannot be
    named."""
    if told is not None:
        return told.lower().replace("_", "-")
    return names[0] if len(names) == 1 else None


def _gpu_library(folder: Path, architecture: int | None) -> GpuLibrary | None:
    for library in (folder / _CUDA_LIBRARY, *sorted(folder.glob(_ONE_PIECE))):
        code = read_gpu_code(library)
        if code is None:
            continue
        runs = None if architecture is None else code.runs_on(architecture)
        reason = None
        if runs is False:
            reason = f"it holds GPU code for {code} and none for this board's sm_{architecture}"
        return GpuLibrary(
            library=str(library),
            architectures=code.architectures,
            ptx_architectures=code.ptx,
            runs_here=runs,
            reason=reason,
        )
    return None


def _probed(provider: str) -> Provider:
    state = probe_provider(provider)
    return Provider(name=provider, usable=state.usable, reason=state.reason)


def _warnings(
    found: Sequence[tuple[str, str, str]],
    charge: str | None,
    limits: Sequence[Wheel],
    gpu: GpuLibrary | None,
) -> Iterator[str]:
    if len(found) > 1:
        names = ", ".join(f"{name} {number}" for name, number, _ in found)
        who = "which of them cannot be told" if charge is None else f"it is that of {charge}"
        yield f"{names} are all installed and are one module: {who}; keep one"
    for wheel in limits:
        if wheel.gpu_architectures is not None and gpu is None:
            yield f"{wheel.limit} ({wheel.source}; {wheel.checked})"


def _lacks_gpu(limits: Sequence[Wheel], architecture: int | None) -> bool:
    known = (wheel.gpu_architectures for wheel in limits if wheel.gpu_architectures is not None)
    return architecture is not None and any(architecture not in numbers for numbers in known)


def _needs_numpy(limits: Sequence[Wheel], numpy_version: str | None) -> str | None:
    """What numpy the wheel was built against, where another is installed."""
    major = (numpy_version or "").partition(".")[0]
    for wheel in limits:
        if wheel.numpy == "<2" and major.isdecimal() and int(major) >= 2:
            return wheel.numpy
    return None
