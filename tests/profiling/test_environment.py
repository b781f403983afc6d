"""The machine as its files tell, and nothing that names it or its owner."""

import platform
from pathlib import Path

from edgeprof.profiling.environment import (
    describe_device,
    describe_environment,
    last_level_cache_bytes,
)


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def test_the_last_level_is_the_highest_not_the_largest(tmp_path: Path) -> None:
    caches = tmp_path / "sys/devices/system/cpu/cpu0/cache"
    for index, level, size in ((0, 1, "64K"), (1, 1, "64K"), (2, 2, "256K"), (3, 3, "2M")):
        write(caches / f"index{index}/level", f"{level}\n")
        write(caches / f"index{index}/size", f"{size}\n")
    assert last_level_cache_bytes(tmp_path) == 2 * 2**20


def test_no_cache_files_is_unknown(tmp_path: Path) -> None:
    assert last_level_cache_bytes(tmp_path) is None


def test_a_board_is_named_by_its_device_tree(tmp_path: Path) -> None:
    write(tmp_path / "proc/device-tree/model", "NVIDIA Jetson Orin Nano Developer Kit\0")
    device = describe_device(tmp_path)
    assert (device["name"], device["kind"]) == ("NVIDIA Jetson Orin Nano Developer Kit", "board")


def test_without_proc_the_sys_tree_names_it(tmp_path: Path) -> None:
    write(tmp_path / "sys/firmware/devicetree/base/model", "NVIDIA Jetson AGX Orin\0")
    assert describe_device(tmp_path)["name"] == "NVIDIA Jetson AGX Orin"


def test_another_machine_is_named_by_its_processor(tmp_path: Path) -> None:
    write(tmp_path / "proc/cpuinfo", "processor\t: 0\nmodel name\t: Paper CPU 9\nflags\t: x\n")
    device = describe_device(tmp_path)
    assert (device["name"], device["kind"]) == ("Paper CPU 9", "host")


def test_the_environment_has_versions_and_no_name_of_the_machine() -> None:
    import onnxruntime

    environment = describe_environment()
    assert environment["onnxruntime"] == onnxruntime.__version__
    assert environment["python"] == platform.python_version()
    assert environment["memory_bytes"] > environment["available_memory_bytes"] > 0
    node = platform.node()
    assert not node or node not in map(str, environment.values())
