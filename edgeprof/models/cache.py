"""The folder in which fetched and converted models are kept, and the tidying of it."""

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import platformdirs

KEY_DIGITS = 16  # of the SHA-256 that a file or folder of the cache is named by
STALE_AFTER_S = 24 * 3600


def cache_dir() -> Path:
    """Where fetched and converted models live; EDGEPROF_CACHE overrides."""
    if chosen := os.environ.get("EDGEPROF_CACHE"):
        return Path(chosen).absolute()
    return platformdirs.user_cache_path("edgeprof")


def remove_left_overs(folder: Path, pattern: str) -> None:
    """What processes that were killed left unfinished; that of one at work is younger."""
    for unfinished in folder.glob(pattern):
        with suppress(FileNotFoundError):  # another process is done with it
            if time.time() - unfinished.stat().st_mtime > STALE_AFTER_S:
                shutil.rmtree(unfinished, ignore_errors=True)
