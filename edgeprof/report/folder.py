"""The folder of a report: looked at before any work, not left behind where nothing came of it."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgeprof.errors import EnvironmentFault, UsageFault


def check_folder(folder: Path, names: Iterable[str], *, force: bool) -> None:
    """Say before any work what would keep files of these names from being written. Changes nothing.

    Raises UsageFault where one is there already and ``force`` is not given, or is itself a folder,
    EnvironmentFault where the folder cannot be made or written to.
    """
    if folder.is_symlink() and not folder.exists():
        raise UsageFault(f"{folder}: is a link that leads nowhere; choose another -o")
    if folder.exists() and not folder.is_dir():
        raise UsageFault(f"{folder}: is a file; -o takes the folder of a report")
    there = [folder / name for name in names if os.path.lexists(folder / name)]
    if there and not force:
        raise UsageFault(f"{there[0]}: exists already; choose another -o, or replace it by --force")
    if in_the_way := [path for path in there if path.is_dir()]:
        raise UsageFault(f"{in_the_way[0]}: is a folder, which --force does not replace")
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
