"""The folder of a report: looked at before any work, not left behind where nothing came of it."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgeprof.errors import EnvironmentFault, UsageFault


def check_folder(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Say before any work what would keep files of these names from being written. Changes nothing.

    Raises UsageFault where one is there already and ``force`` is not given, EnvironmentFault where
    the folder cannot be made or written to.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageFault(f"{folder}: is a file; -o takes the folder of a report")
    there = [folder / name for name in names if (folder / name).exists()]
    if there and not force:
        raise UsageFault(f"{there[0]}: exists already; choose another -o, or replace it by --force")
    absolute = folder.absolute()
    place = next(one for one in (absolute, *absolute.parents) if one.exists())
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        raise EnvironmentFault(f"{folder}: cannot be written to: {error.strerror}") from error


@contextmanager
def report_folder(folder: Path) -> Iterator[None]:
    """Made for the block where it is new, and removed again where the block fails with nothing in
    it."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise
