"""Reads the list of tokens that a cut output head keeps: an .npy file with ascending token ids."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from edgeprof.errors import FileFault, UsageFault

MAX_FILE_BYTES = 1 << 24

HeadRows: TypeAlias = NDArray[np.unsignedinteger[Any]]


def read_head_rows(path: Path, vocab_size: int | None = None) -> HeadRows:
    """The token ids in the file, checked: ascending, no duplicates, all below ``vocab_size``.

    Raises UsageFault where there is no such file, FileFault where it holds anything else.
    """
    if not path.is_file():
        raise UsageFault(f"{path}: no such file")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise FileFault(f"{path}: larger than 16 MiB, which no list of tokens is")
    try:
        # Mapped, so that a header that lies about the length is found out before memory is taken.
        mapped = np.lib.format.open_memmap(path, mode="r")
    except (OSError, ValueError) as error:
        raise FileFault(f"{path}: no .npy file with token ids: {error}") from error
    if mapped.dtype not in (np.uint16, np.uint32):
        raise FileFault(f"{path}: expected an .npy file with uint16 or uint32 token ids")
    rows: HeadRows = np.array(mapped)
    if rows.ndim != 1 or not rows.size:
        raise FileFault(f"{path}: expected one list of token ids, got the shape {rows.shape}")
    if np.any(rows[1:] <= rows[:-1]):
        raise FileFault(f"{path}: the token ids do not ascend")
    if vocab_size is not None and rows[-1] >= vocab_size:
        raise FileFault(f"{path}: token {rows[-1]} is none of the model's {vocab_size}")
    return rows
