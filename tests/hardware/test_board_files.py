"""Files below a root: order of names, one path for one thing, nothing outside the root."""

import os
from pathlib import Path

import pytest
from handmade_tree import link, put

from edgeprof.hardware.board_files import LARGEST_FILE_BYTES, BoardFiles


def test_names_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["zone10", "zone2", "name", "zone1", "9-0040", "10-0041"]
    put(tmp_path, {f"/sys/{name}": "" for name in names})
    files = BoardFiles(tmp_path)
    assert files.names("/sys") == ["9-0040", "10-0041", "name", "zone1", "zone2", "zone10"]
    assert files.names("/none") == []
    assert files.names("/sys/name") == []


def test_one_folder_has_one_path_however_it_is_reached(tmp_path: Path) -> None:
    put(tmp_path, {"/sys/devices/i2c/1-0040/hwmon/hwmon3/name": "ina3221"})
    link(tmp_path, "/sys/class/hwmon/hwmon3", "/sys/devices/i2c/1-0040/hwmon/hwmon3")
    link(tmp_path, "/sys/bus/i2c/devices/1-0040", "/sys/devices/i2c/1-0040")
    files = BoardFiles(tmp_path)
    real = "/sys/devices/i2c/1-0040/hwmon/hwmon3"
    assert files.where("/sys/class/hwmon/hwmon3") == real
    assert files.where("/sys/bus/i2c/devices/1-0040/hwmon/hwmon3") == real
    (tmp_path / "circle").symlink_to("circle")
    assert files.where("/circle") is None


def test_a_descriptor_is_of_a_regular_file_below_the_root(tmp_path: Path) -> None:
    put(tmp_path / "root", {"/sys/node": "5"})
    put(tmp_path, {"/secret": "7"})
    (tmp_path / "root/out").symlink_to(tmp_path / "secret")
    files = BoardFiles(tmp_path / "root")
    descriptor = files.open("/sys/node")
    assert os.pread(descriptor, 10, 0) == b"5\n"
    os.close(descriptor)
    with pytest.raises(FileNotFoundError):
        files.open("/out")
    os.mkfifo(tmp_path / "root/pipe")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ValueError, match="not a regular file"):
        files.open("/pipe")
    with pytest.raises(IsADirectoryError):
        files.open("/sys")
    assert os.listdir("/proc/self/fd") == before


def test_a_large_file_is_not_read_to_its_end(tmp_path: Path) -> None:
    put(tmp_path, {"/large": "x" * LARGEST_FILE_BYTES, "/fits": "x" * (LARGEST_FILE_BYTES - 1)})
    files = BoardFiles(tmp_path)
    assert files.read("/large") is None
    assert files.unread == {"/large": "larger than 256 KiB"}
    assert files.read("/fits") == "x" * (LARGEST_FILE_BYTES - 1) + "\n"
