"""How much of a file is in memory: asked of this system."""

import mmap
import os
from pathlib import Path

import pytest

from edgeprof.profiling.page_cache import cached_share

PAGES = 256


@pytest.fixture
def cold(tmp_path: Path) -> Path:
    """A file of 256 pages of which none is in memory."""
    path = tmp_path / "weights"
    path.write_bytes(os.urandom(PAGES * mmap.PAGESIZE))
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return path


def read(path: Path, pages: int) -> None:
    with path.open("rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # nothing is read ahead
        file.read(pages * mmap.PAGESIZE)


def test_what_was_read_is_warm(cold: Path) -> None:
    before = cached_share([cold])
    read(cold, PAGES // 4)
    quarter = cached_share([cold])
    read(cold, PAGES)
    assert cached_share([cold]) == 1.0
    if before == 0.0:  # a file system in memory drops nothing
        assert quarter == 0.25


def test_several_files_count_by_their_pages(cold: Path, tmp_path: Path) -> None:
    warm = tmp_path / "graph"
    warm.write_bytes(bytes(PAGES * mmap.PAGESIZE))
    share = cached_share([cold])
    assert share is not None
    assert cached_share([cold, warm]) == (share + 1.0) / 2


def test_nothing_is_said_of_what_is_not_there_or_empty(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert cached_share([tmp_path / "none"]) is None
    assert cached_share([tmp_path]) is None
    assert cached_share([tmp_path / "empty"]) is None
    assert cached_share([]) is None


def test_nothing_is_said_of_a_file_of_others(cold: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux would claim that all of it is in memory."""
    monkeypatch.setattr(os, "geteuid", lambda: cold.stat().st_uid + 1)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cached_share([cold]) is None
