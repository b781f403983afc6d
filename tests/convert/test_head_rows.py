"""Files that list the tokens of a cut head, good and bad."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeprof.convert.head_rows import MAX_FILE_BYTES, read_head_rows
from edgeprof.errors import FileFault, UsageFault


def saved(path: Path, content: Any) -> Path:
    np.save(path, content, allow_pickle=True)
    return path


@pytest.mark.parametrize("kind", [np.uint16, np.uint32])
def test_ascending_token_ids_are_read(kind: Any, tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.npy", np.array([0, 7, 299], dtype=kind))
    rows = read_head_rows(path, vocab_size=300)
    assert rows.tolist() == [0, 7, 299]
    assert rows.dtype == kind


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (np.array([0, 7, 300], dtype=np.uint16), "token 300 is none of the model's 300"),
        (np.array([7, 7], dtype=np.uint16), "do not ascend"),
        (np.array([7, 3], dtype=np.uint32), "do not ascend"),
        (np.array([], dtype=np.uint16), "got the shape"),
        (np.array([[1, 2]], dtype=np.uint16), "got the shape"),
        (np.array([1, 2], dtype=np.int64), "uint16 or uint32"),
        (np.array([1.0]), "uint16 or uint32"),
        (np.array([{"a": 1}], dtype=object), "no .npy file"),
    ],
)
def test_other_contents_are_refused(content: Any, fault: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.npy", content)
    with pytest.raises(FileFault, match=fault):
        read_head_rows(path, vocab_size=300)


def test_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with pytest.raises(UsageFault, match="no such file"):
        read_head_rows(path)
    path.write_bytes(b"")
    with pytest.raises(FileFault, match=r"no \.npy file"):
        read_head_rows(path)
    np.savez(tmp_path / "rows.npz", a=np.arange(3))
    with pytest.raises(FileFault, match=r"no \.npy file"):
        read_head_rows(tmp_path / "rows.npz")


def test_a_header_that_promises_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "rows.npy", np.arange(10, dtype=np.uint16))
    path.write_bytes(path.read_bytes().replace(b"(10,)", b"(1e9,)").replace(b"1e9", b"999"))
    with pytest.raises(FileFault, match=r"no \.npy file"):
        read_head_rows(path)


def test_a_huge_file_is_not_even_opened(tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    with path.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(FileFault, match="larger than 16 MiB"):
        read_head_rows(path)
