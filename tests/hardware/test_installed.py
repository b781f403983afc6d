"""CUDA, cuDNN and TensorRT, by what packages and libraries are called."""

from pathlib import Path

from handmade_tree import link, put

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.hardware.installed import read_installed

DPKG = """Package: nvidia-l4t-core
Status: install ok installed
Version: 36.4.3-20250107174145

Package: libcudnn9-cuda-12
Status: install ok installed
Architecture: arm64
Version: 9.3.0.75-1

Package: libnvinfer8
Status: deinstall ok config-files
Version: 8.6.2.3-1+cuda12.2

Package: libnvinfer10
Status: install ok installed
Version: 10.3.0.30-1+cuda12.5

Package: cuda-cudart-12-6
Status: install ok installed
Version: 12.6.68-1
"""


def versions(root: Path) -> dict[str, str]:
    return {one.name: one.version for one in read_installed(BoardFiles(root))}


def test_the_systems_packages_tell_and_removed_ones_do_not(tmp_path: Path) -> None:
    put(tmp_path, {"/var/lib/dpkg/status": DPKG})
    assert versions(tmp_path) == {
        "CUDA": "12.6.68-1",
        "cuDNN": "9.3.0.75-1",
        "TensorRT": "10.3.0.30-1+cuda12.5",
        "L4T": "36.4.3-20250107174145",
    }


def test_without_packages_the_names_of_libraries_do(tmp_path: Path) -> None:
    put(
        tmp_path,
        {
            "/usr/local/cuda-12.6/lib64/libcudart.so.12.6.68": "",
            "/usr/lib/aarch64-linux-gnu/libcudnn.so.9.3.0": "",
            "/usr/lib/aarch64-linux-gnu/libcudnn.so.9": "",
            "/usr/lib/aarch64-linux-gnu/libnvinfer.so.10.3.0": "",
        },
    )
    link(tmp_path, "/usr/local/cuda", "/usr/local/cuda-12.6")
    assert versions(tmp_path) == {"CUDA": "12.6", "cuDNN": "9.3.0", "TensorRT": "10.3.0"}


def test_nothing_is_nothing(tmp_path: Path) -> None:
    put(tmp_path, {"/var/lib/dpkg/status": "Version: 1\n\nPackage\n\x00\xff: \n"})
    assert versions(tmp_path) == {}
