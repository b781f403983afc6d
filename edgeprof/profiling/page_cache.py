"""How much of a file the system holds in memory already: is loading it a cold start or a warm one?

Knows nothing of models.
"""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path


def cached_share(paths: Iterable[Path]) -> float | None:
    """The share of the files' pages in the page cache, of 0 to 1; None where the system does not
    tell.

    Linux tells it of files that this user may write or owns; of others it claims that all is there
    (mincore(2)).
    """
    pages = cached = 0
    for path in paths:
        found = _residency(path)
        if found is None:
            return None
        pages += len(found)
        cached += sum(byte & 1 for byte in found)
    return cached / pages if pages else None


def _residency(path: Path) -> bytes | None:
    """One byte a page, its lowest bit set where the page is in memory."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() and not os.access(path, os.W_OK):
                return None
            if status.st_size == 0:
                return b""
            # A private writable mapping, for ctypes takes the address of no other; nothing is
            # written, and no page is read for it.
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
                return _mincore(mapped)
    except (OSError, ValueError, AttributeError):  # no such file, no mincore here
        return None


def _mincore(mapped: mmap.mmap) -> bytes | None:
    pages = (len(mapped) + mmap.PAGESIZE - 1) // mmap.PAGESIZE
    answer = (ctypes.c_ubyte * pages)()
    first = ctypes.c_char.from_buffer(mapped)
    try:
        library = ctypes.CDLL(None, use_errno=True)
        failed = library.mincore(
            ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(len(mapped)), answer
        )
    finally:
        del first  # the mapping cannot be closed while something points into it
    return None if failed else bytes(answer)
