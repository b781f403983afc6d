"""What a session holds of the machine that it was measured on, in words: a value, or why there is
none. Knows no tables."""

from collections.abc import Mapping
from typing import Any

NO_BOARD = "none: no Jetson board"
_OF_A_BOARD = ("l4t", "power_mode", "clocks")

# What edgeprof looked for while recording and did not find.
_NOT_FOUND = {
    "l4t": "the board has no release file of L4T",
    "power_mode": "nothing on the board told it",
    "clocks": "no range of the memory clock could be read",
    "cpu": "the kernel names no processor",
    "last_level_cache_bytes": "the kernel lists no caches",
    "onnxruntime": "the package is not installed",
    "numpy": "the package is not installed",
}
_NOT_HELD = {"import": "a log of tegrastats does not tell it"}


def missing(values: Mapping[str, Any], key: str, kind: str) -> str | None:
    """Why a session of that kind has no value of ``key`` among ``values``; None where it has one.

    A key that is there without a value was looked for; one that is not there never was.
    """
    if values.get(key) is not None:
        return None
    if key in _OF_A_BOARD and values.get("kind") == "host":
        return NO_BOARD
    if key in values:
        return f"not recorded: {_NOT_FOUND.get(key, 'it was not found')}"
    return f"not recorded: {_NOT_HELD.get(kind, 'this session does not hold it')}"


def recorded(values: Mapping[str, Any], key: str, kind: str) -> str:
    """The value as text, or why there is none."""
    return missing(values, key, kind) or str(values[key])
