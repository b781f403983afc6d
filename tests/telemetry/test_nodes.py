"""Kept descriptors: what is read, what is not believed, and what becomes of a file that goes."""

import errno
import os
from pathlib import Path

import pytest
from handmade_tree import link, put

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.telemetry.nodes import Node, Nodes

NODE = "/sys/node"


class Clock:
    """Monotonic nanoseconds that pass when told to."""

    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def pass_s(self, seconds: float) -> None:
        self.now_ns += round(seconds * 1e9)


def node_of(root: Path, clock: Clock | None = None, path: str = NODE) -> Node:
    return Node(BoardFiles(root), path, clock=clock or Clock())


def rewrite(root: Path, text: str) -> None:
    """In place, as a driver does: the file stays the same one."""
    descriptor = os.open(root / NODE[1:], os.O_WRONLY | os.O_TRUNC)
    os.write(descriptor, text.encode())
    os.close(descriptor)


@pytest.mark.parametrize(
    "text, number",
    [
        ("0", 0),
        ("1706400", 1_706_400),
        ("-256000", -256_000),
        ("  42             \n", 42),
        ("18446744073709551615", 2**64 - 1),
        ("99999999999999999999", 10**20 - 1),
    ],
)
def test_a_whole_number_is_read(tmp_path: Path, text: str, number: int) -> None:
    node = node_of(put(tmp_path, {NODE: text}))
    assert node.number() == number
    assert node.reason is None


@pytest.mark.parametrize(
    "text", ["1" * 21, "0x1f", "1e3", "1.5", "+5", "1_000", "12 kB", "nan", "٣", "--1", "7\n8"]
)
def test_nothing_else_is_a_number(tmp_path: Path, text: str) -> None:
    node = node_of(put(tmp_path, {NODE: text}))
    assert node.number() is None
    assert node.reason is not None and node.reason.startswith("not a number")


def test_a_reason_is_fit_for_a_terminal(tmp_path: Path) -> None:
    node = node_of(put(tmp_path, {NODE: "\x1b[31m" + "x" * 5000}))
    assert node.number() is None
    assert node.reason is not None and node.reason.isprintable() and len(node.reason) < 200


def test_only_the_size_asked_for_is_read(tmp_path: Path) -> None:
    root = put(tmp_path, {NODE: "x" * 5000})
    assert node_of(root).read() == b"x" * 256
    assert Node(BoardFiles(root), NODE, size=1000).read() == b"x" * 1000


def test_an_empty_file_is_unknown_until_it_is_filled(tmp_path: Path) -> None:
    node = node_of(put(tmp_path, {NODE: "3"}))
    assert node.number() == 3
    rewrite(tmp_path, "")
    assert node.number() is None
    assert node.reason == "empty"
    rewrite(tmp_path, "4\n")
    assert node.number() == 4
    assert node.reason is None


def test_a_removed_file_does_not_repeat_its_last_value(tmp_path: Path) -> None:
    clock = Clock()
    node = node_of(put(tmp_path, {NODE: "3"}), clock)
    assert node.number() == 3
    clock.pass_s(1)
    (tmp_path / NODE[1:]).unlink()
    assert node.number() is None
    assert node.reason == "no such file or directory"


def test_a_replaced_file_is_found_at_once(tmp_path: Path) -> None:
    clock = Clock()
    node = node_of(put(tmp_path, {NODE: "3", "/sys/new": "8"}), clock)
    assert node.number() == 3
    clock.pass_s(1)
    os.rename(tmp_path / "sys/new", tmp_path / NODE[1:])
    assert node.number() == 8


def test_a_missing_file_is_looked_for_once_a_second(tmp_path: Path) -> None:
    clock = Clock()
    node = node_of(tmp_path, clock)
    assert node.number() is None
    put(tmp_path, {NODE: "3"})
    clock.pass_s(0.999)
    assert node.number() is None
    assert node.reason == "no such file or directory"
    clock.pass_s(0.001)
    assert node.number() == 3


def test_what_is_no_regular_file_is_neither_read_nor_waited_for(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    os.mkfifo(tmp_path / "sys/pipe")
    for path, reason in (("/sys", "is a directory"), ("/sys/pipe", "not a regular file")):
        node = node_of(tmp_path, path=path)
        assert node.number() is None
        assert node.reason == reason


def test_links_do_not_lead_out_of_the_root(tmp_path: Path) -> None:
    outside = put(tmp_path / "outside", {"/secret": "7"}) / "secret"
    root = tmp_path / "root"
    root.mkdir()
    (root / "absolute").symlink_to(outside)
    (root / "relative").symlink_to("../outside/secret")
    (root / "circle").symlink_to("circle")
    assert node_of(root, path="/absolute").number() is None
    assert node_of(root, path="/relative").number() is None
    node = node_of(root, path="/circle")
    assert node.number() is None
    assert node.reason == "too many links"
    put(root, {"/real": "7"})
    link(root, "/sys/class/x", "/real")
    assert node_of(root, path="/sys/class/x").number() == 7


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EREMOTEIO, errno.ENODATA, errno.EINVAL])
def test_a_passing_error_keeps_the_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    node = node_of(put(tmp_path, {NODE: "3"}))
    assert node.number() == 3
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", failing(number))
        assert node.number() is None
        assert node.reason == os.strerror(number).lower()
    assert node.number() == 3  # at once, for nothing had to be opened anew


@pytest.mark.parametrize("number", [errno.ENODEV, errno.EIO])
def test_a_device_that_went_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    clock = Clock()
    node = node_of(put(tmp_path, {NODE: "3"}), clock)
    assert node.number() == 3
    before = open_descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", failing(number))
        assert node.number() is None
    assert open_descriptors() == before - 1
    assert node.number() is None
    clock.pass_s(1)
    assert node.number() == 3
    assert open_descriptors() == before


def failing(number: int) -> object:
    def pread(*arguments: object) -> bytes:
        raise OSError(number, os.strerror(number))

    return pread


def test_descriptors_go_with_their_nodes(tmp_path: Path) -> None:
    put(tmp_path, {NODE: "3"})
    before = open_descriptors()
    kept = [node_of(tmp_path) for _ in range(20)]
    assert [node.number() for node in kept] == [3] * 20
    assert open_descriptors() == before + 20
    kept.clear()
    assert open_descriptors() == before


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class LockedFiles(BoardFiles):
    """A board whose debugfs is root's alone, for whoever runs the tests."""

    def open(self, path: str) -> int:
        if path.startswith("/sys/kernel/debug/"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().open(path)


class Lender:
    """Lends the nodes that it is made with, and counts how often it is asked."""

    def __init__(self, root: Path, *paths: str) -> None:
        self.asked = 0
        self.lent = {path: os.open(root / path[1:], os.O_RDONLY) for path in paths}

    def __call__(self) -> dict[str, int]:
        self.asked += 1
        return self.lent


SECRET, OTHER, OPEN = "/sys/kernel/debug/a", "/sys/kernel/debug/b", "/sys/open"


def test_the_first_file_that_opens_is_taken_and_nobody_asked(tmp_path: Path) -> None:
    put(tmp_path, {OPEN: "1", SECRET: "2"})
    lender = Lender(tmp_path)
    node = Nodes(LockedFiles(tmp_path), lender).first(["/sys/none", SECRET, OPEN])
    assert node is not None and node.path == OPEN
    assert Nodes(BoardFiles(tmp_path), lender).first(["/sys/none"]) is None
    assert lender.asked == 0


def test_what_is_refused_is_borrowed_and_the_rest_closed(tmp_path: Path) -> None:
    put(tmp_path, {SECRET: "2", OTHER: "3"})
    before = open_descriptors()
    lender = Lender(tmp_path, SECRET, OTHER)
    nodes = Nodes(LockedFiles(tmp_path), lender)
    borrowed = nodes.first(["/sys/none", "/sys/kernel/debug/none", OTHER, SECRET])
    assert borrowed is not None and borrowed.path == OTHER
    assert borrowed.number() == 3
    assert nodes.every([OTHER, OPEN]) == []  # lent once, and not there
    assert lender.asked == 1
    assert nodes.refused == {SECRET, OTHER, "/sys/kernel/debug/none"}
    assert nodes.lender_gave
    nodes.close_unused()
    assert open_descriptors() == before + 1
    assert borrowed.number() == 3


def test_without_a_lender_what_is_refused_is_not_there(tmp_path: Path) -> None:
    put(tmp_path, {SECRET: "2"})
    nodes = Nodes(LockedFiles(tmp_path), dict)
    assert nodes.first([SECRET]) is None
    assert nodes.refused == {SECRET}
    assert not nodes.lender_gave
