"""What a program sends when it marks its phases, seen at a plain socket."""

import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import edgeprof
from edgeprof.marks import VARIABLE
from edgeprof.profiling.phases import read_mark


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that nobody reads from unless the test does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "marks"))
        bound.setblocking(False)
        monkeypatch.setenv(VARIABLE, str(tmp_path / "marks"))
        yield bound


def words(listener: socket.socket) -> list[str]:
    return listener.recv(4096).decode().split()


def test_name_first_then_what_was_given(listener: socket.socket) -> None:
    before_ns = time.monotonic_ns()
    edgeprof.mark("verify", tokens=5, context=128, model="target", stream=2)
    name, *keys = words(listener)
    assert name == "verify"
    values = dict(key.split("=") for key in keys)
    assert before_ns <= int(values.pop("t_ns")) <= time.monotonic_ns()
    assert values == {"tokens": "5", "context": "128", "model": "target", "stream": "2"}


def test_what_was_not_given_is_not_said(listener: socket.socket) -> None:
    edgeprof.mark("load")
    assert [word.split("=")[0] for word in words(listener)] == ["load", "t_ns"]


def test_block_ends_its_phase(listener: socket.socket) -> None:
    with edgeprof.mark("draft", stream=1):
        assert words(listener)[0] == "draft"
    ended = words(listener)
    assert ended[0] == "end" and "stream=1" in ended


def test_block_that_raises_ends_its_phase_too(listener: socket.socket) -> None:
    with pytest.raises(ValueError, match="mine"), edgeprof.mark("draft"):
        raise ValueError("mine")
    assert [words(listener)[0], words(listener)[0]] == ["draft", "end"]


def test_other_threads_say_which_they_are(listener: socket.socket) -> None:
    numbers = []

    def work() -> None:
        numbers.append(threading.get_native_id())
        edgeprof.mark("draft")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert f"thread={numbers[0]}" in words(listener)


def test_blanks_do_not_tear_a_name(listener: socket.socket) -> None:
    edgeprof.mark("sampling of\nlogits", model="my model")
    sent = words(listener)
    assert sent[0] == "sampling_of_logits" and "model=my_model" in sent


def test_long_names_are_cut(listener: socket.socket) -> None:
    edgeprof.mark("n" * 1000, model="m" * 1000)
    sent = listener.recv(4096)
    assert len(sent) == 512 and sent.startswith(b"n" * 64 + b" ")


def test_full_queue_neither_waits_nor_hides_what_was_lost(listener: socket.socket) -> None:
    for _ in range(2000):  # far more than any system lets wait
        edgeprof.mark("draft")
    waiting = 0
    while True:
        try:
            listener.recv(4096)
            waiting += 1
        except BlockingIOError:
            break
    assert 0 < waiting < 2000
    edgeprof.mark("verify")
    assert f"lost={2000 - waiting}" in words(listener)
    edgeprof.mark("verify")
    assert not any(word.startswith("lost=") for word in words(listener))


@pytest.mark.parametrize("path", ["", "/nonexistent/marks", "x" * 200, "/dev/null", "\udcff"])
def test_nothing_happens_where_nobody_listens(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, path)
    with edgeprof.mark("verify", tokens=1, context=2):
        pass


def test_nothing_that_is_given_raises(listener: socket.socket) -> None:
    class Broken:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    edgeprof.mark(Broken())  # type: ignore[arg-type]
    edgeprof.mark("\ud800 half a character", tokens=2.5)  # type: ignore[arg-type]
    edgeprof.mark("")


@pytest.mark.parametrize("name", ["", " ", "a=b"])
def test_a_name_that_is_none_is_sent_as_no_name(listener: socket.socket, name: str) -> None:
    edgeprof.mark(name)
    assert read_mark(listener.recv(4096)) == "not a name"


def test_listener_that_goes_and_comes_back(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    edgeprof.mark("one")
    listener.close()
    edgeprof.mark("two")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "other"))
        monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
        edgeprof.mark("three")
        assert other.recv(100).startswith(b"three ")


def test_without_a_listener_no_socket_is_even_loaded() -> None:
    code = "import sys, edgeprof; edgeprof.mark('x'); print('socket' in sys.modules)"
    kept = {key: value for key, value in os.environ.items() if key != VARIABLE}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=kept
    )
    assert done.stdout.strip() == "False"


def test_module_documents_every_key_that_it_sends() -> None:
    text = edgeprof.marks.__doc__ or ""
    documented = set(re.findall(r"^    (\w+)=", text, re.MULTILINE))
    assert documented == {"t_ns", "tokens", "context", "model", "stream", "thread", "lost"}
