"""Files that take their name only once they are whole, so that a reader never sees half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgeprof.errors import EnvironmentFault
from edgeprof.session.store import keep_sessions


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path beside ``path``, of the same suffix, whose file takes its place after the block.

    Raises EnvironmentFault for an OSError of the block too; nothing half done is left. Raises
    UsageFault before it where ``path`` is a session.
    """
    keep_sessions(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
