"""Files that appear whole or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.report.whole_file import whole_file
from edgeprof.session.records import Session


def test_the_name_is_taken_once_the_block_is_done(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")
    with whole_file(path) as unfinished:
        unfinished.write_text("new")
        assert unfinished.suffix == ".md"
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_session_is_not_replaced(
    tmp_path: Path, made_session: Session, write_session: Callable[..., Path]
) -> None:
    path = write_session(tmp_path / "plot.svg", made_session)
    content = path.read_bytes()
    with pytest.raises(UsageFault, match="is a session"), whole_file(path):
        raise AssertionError
    assert path.read_bytes() == content


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left")])
def test_what_is_half_done_is_cleared_away(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "report.md"
    path.write_text("old")
    with pytest.raises((KeyboardInterrupt, EnvironmentFault)), whole_file(path) as unfinished:
        unfinished.write_text("ne")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_line_with_the_path(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    with (
        pytest.raises(EnvironmentFault, match=r"report\.md: cannot be written: No space left"),
        whole_file(path),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
