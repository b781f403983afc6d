"""Which CUDA, cuDNN and TensorRT are installed below a root: by the packages of the system, and by
the names of the libraries where no package tells. Loads none of them."""

import os
import re
from collections.abc import Iterator

from msgspec import Struct

from edgeprof.hardware.board_files import BoardFiles, printable

_DPKG = "/var/lib/dpkg/status"
_LARGEST_DPKG_BYTES = 64 << 20
_CUDA_JSON = "/usr/local/cuda/version.json"
_CUDA_FOLDER = re.compile(r"cuda-(\d{1,3}(?:\.\d{1,3})*)")
_LIBRARY_FOLDERS = (
    "/usr/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/x86_64-linux-gnu",
    "/usr/local/cuda/lib64",
)  # fmt: skip
# By what is looked for: a package of the system, and a library whose name ends in its version.
_PACKAGES = {
    "CUDA": re.compile(r"cuda-(?:cudart|runtime)-\d+-\d+"),
    "cuDNN": re.compile(r"libcudnn\d+(?:-cuda-\d+)?"),
    "TensorRT": re.compile(r"libnvinfer\d+"),
    "JetPack": re.compile(r"nvidia-jetpack"),
    "L4T": re.compile(r"nvidia-l4t-core"),
}
_LIBRARIES = {
    "CUDA": re.compile(r"libcudart\.so\.(\d+\.\d+(?:\.\d+)*)"),
    "cuDNN": re.compile(r"libcudnn\.so\.(\d+\.\d+(?:\.\d+)*)"),
    "TensorRT": re.compile(r"libnvinfer\.so\.(\d+\.\d+(?:\.\d+)*)"),
}


class Installed(Struct, frozen=True, kw_only=True):
    """Something that is installed; ``file`` is what tells so."""

    name: str
    version: str
    file: str


def read_installed(files: BoardFiles) -> list[Installed]:
    """CUDA, cuDNN, TensorRT and what JetPack's packages say of it, as far as they are there."""
    found = {one.name: one for one in (*_libraries(files), *_cuda_folder(files))}
    found |= {one.name: one for one in _packages(files)}
    return [found[name] for name in _PACKAGES if name in found]


def _packages(files: BoardFiles) -> Iterator[Installed]:
    fields: dict[str, str] = {}
    for line in _dpkg_lines(files):
        key, colon, value = line.partition(": ")
        if colon and key in ("Package", "Status", "Version"):
            fields[key] = value.strip()
        elif not line.strip():
            yield from _package(fields)
            fields = {}
    yield from _package(fields)


def _package(fields: dict[str, str]) -> Iterator[Installed]:
    name, version = fields.get("Package", ""), fields.get("Version")
    if version and fields.get("Status", "").endswith(" installed"):
        for what, pattern in _PACKAGES.items():
            if pattern.fullmatch(name):
                yield Installed(name=what, version=printable(version), file=_DPKG)


def _dpkg_lines(files: BoardFiles) -> Iterator[str]:
    """Of a file that is larger than what a board's files usually are."""
    try:
        descriptor = files.open(_DPKG)
    except (OSError, ValueError):
        return
    with os.fdopen(descriptor, encoding="utf-8", errors="replace") as file:
        if os.fstat(descriptor).st_size <= _LARGEST_DPKG_BYTES:
            yield from file


def _libraries(files: BoardFiles) -> Iterator[Installed]:
    for folder in _LIBRARY_FOLDERS:
        for name in files.names(folder):
            for what, pattern in _LIBRARIES.items():
                if match := pattern.fullmatch(name):
                    yield Installed(name=what, version=match[1], file=f"{folder}/{name}")


def _cuda_folder(files: BoardFiles) -> Iterator[Installed]:
    target = files.link_name("/usr/local/cuda") or ""
    if match := _CUDA_FOLDER.fullmatch(target):
        yield Installed(name="CUDA", version=match[1], file="/usr/local/cuda")
    text = files.read(_CUDA_JSON) or ""
    if match := re.search(r'"CUDA SDK",?\s*"version"\s*:\s*"([\d.]{1,20})"', text):
        yield Installed(name="CUDA", version=match[1], file=_CUDA_JSON)
