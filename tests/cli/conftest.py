"""The session made by hand, as a file, and a model small enough to load in no time."""

from collections.abc import Callable
from pathlib import Path

import pytest

from edgeprof.models.decoder_folder import DecoderFolder
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


@pytest.fixture(scope="session")
def tiny_folders(
    tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Callable[..., Path]
) -> dict[str, DecoderFolder]:
    """A random little target, ``t``, converted."""
    from edgeprof.convert.folder import convert

    work = tmp_path_factory.mktemp("tiny")
    return {"t": convert(tiny_gguf(work / "t.gguf", layers=1), work / "t", weights="fp32")}
