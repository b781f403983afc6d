"""Opens and maps model files: regular ones only, and none that a failed download left."""

import mmap
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault

_PAGE_STARTS = (b"<!doctype", b"<html", b"<head", b"<?xml", b"<!--")
_POINTER_START = b"version https://git-lfs"


@contextmanager
def opened_model(path: Path) -> Iterator[BinaryIO]:
    """The file at its first byte. UsageFault where there is none, EnvironmentFault where it cannot
    be read, FileFault where it holds what a failed download left."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for its writer
            raise UsageFault(f"{path} is not a file that holds a model")
        with path.open("rb") as file:
            _refuse_failed_download(path, file.read(512))
            file.seek(0)
            yield file
    except FileNotFoundError:
        raise UsageFault(f"{path}: no such file") from None
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error


@contextmanager
def mapped_model(path: Path) -> Iterator[mmap.mmap]:
    """The file's bytes, to read; FileFault where there are none."""
    with opened_model(path) as file:
        if not os.fstat(file.fileno()).st_size:
            raise FileFault(f"{path}: the file is empty")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _refuse_failed_download(path: Path, start: bytes) -> None:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if text.startswith(_PAGE_STARTS):
        raise FileFault(
            f"{path}: this is an HTML page, not a model: the download failed; check the link"
        )
    if text.startswith(_POINTER_START):
        raise FileFault(
            f"{path}: this is a Git LFS pointer, not the model itself: run git lfs pull"
        )
