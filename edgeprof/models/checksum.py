"""The SHA-256 of a file, by which fetched and converted models are known."""

import hashlib
from pathlib import Path

CHUNK_BYTES = 1 << 20


def sha256_of(path: Path) -> str:
    """In hexadecimal digits; OSError where the file cannot be read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
