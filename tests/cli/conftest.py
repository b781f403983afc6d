"""The session made by hand, as a file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeprof.session.records import Session


@pytest.fixture(scope="session")
def session_file(
    tmp_path_factory: pytest.TempPathFactory,
    made_session: Session,
    write_session: Callable[..., Path],
) -> Path:
    """Among all else, held passes of fp32 (20 ms for 1 and 3 tokens, 24 for 5) and int4 (10 for 1,
    18 for 3)."""
    return write_session(tmp_path_factory.mktemp("session") / "made.sqlite", made_session)
