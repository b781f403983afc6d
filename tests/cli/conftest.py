"""The session made by hand that the tests of the analysis use, as a file."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from edgeprof.session.store import SessionWriter

MADE_BY_HAND = Path(__file__).parents[1] / "analysis" / "conftest.py"


@pytest.fixture(scope="session")
def held_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Held passes of fp32 (20 ms for 1 and 3 tokens, 24 for 5) and int4 (10 for 1, 18 for 3)."""
    spec = importlib.util.spec_from_file_location("made_by_hand_for_plans", MADE_BY_HAND)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    session = module.make_session()
    path = tmp_path_factory.mktemp("held") / "held.sqlite"
    writer = SessionWriter(path, session.info)
    for record in (*session.legs, *session.passes):
        writer.add(record)
    writer.close()
    return path
