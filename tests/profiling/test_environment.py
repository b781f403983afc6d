"""The machine as its files tell, and nothing that names it or its owner."""

import platform
from pathlib import Path

from edgeprof.hardware.machine import last_level_cache_bytes
from edgeprof.profiling.environment import describe_device, describe_environment


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


def test_of_a_board_it_says_how_it_is_set(tmp_path: Path) -> None:
    write(tmp_path / "proc/device-tree/model", "NVIDIA Jetson Orin Nano Developer Kit\0")
    write(
        tmp_path / "proc/device-tree/compatible",
        "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
    )
    write(tmp_path / "proc/device-tree/serial-number", "1420000000000\0")
    write(tmp_path / "etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: x\n")
    write(
        tmp_path / "etc/nvpmodel.conf",
        "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=7W >\n< PM_CONFIG DEFAULT=0 >\n",
    )
    write(tmp_path / "var/lib/nvpmodel/status", "pmode:0001\n")
    clock = tmp_path / "sys/kernel/debug/bpmp/debug/clk/emc"
    for name, hertz in (("min_rate", 204_000_000), ("max_rate", 2_133_000_000)):
        write(clock / name, f"{hertz}\n")
    device = describe_device(tmp_path)
    assert device == {
        "name": "NVIDIA Jetson Orin Nano Developer Kit",
        "kind": "board",
        "architecture": platform.machine(),
        "profile": "orin-nano-8gb",
        "profile_confidence": "high",
        "l4t": "36.4.3",
        "jetpack": "6.2",
        "power_mode": "7W",
        "clocks": "EMC free, 204 to 2133 MHz",
        "bytes_per_emc_clock": 32.0,  # 128 bit, twice a clock
        "sustained_share": 0.85,  # as the profile has it
    }
    write(clock / "min_rate", "2133000000\n")
    assert describe_device(tmp_path)["clocks"] == "EMC pinned at 2133 MHz"


def test_a_board_may_be_named_by_whatever_text(tmp_path: Path) -> None:
    write(tmp_path / "proc/device-tree/model", "\x1b[31mred\x07 board\0")
    device = describe_device(tmp_path)
    assert device["name"].isprintable()
    assert (device["profile"], device["clocks"]) == (None, None)
