"""How a child process ended, in words, and the file that takes its last ones."""

import os
import signal
import tempfile
from typing import IO

# What drivers and runtimes say when memory runs out, in small letters.
_OUT_OF_MEMORY = (
    "nvmapmem",
    "nvrmmem",
    "bad_alloc",
    "out of memory",
    "outofmemory",  # TensorRT
    "could not be allocated",  # TensorRT's too
    "alloc_failed",
    "memoryallocation",  # cudaErrorMemoryAllocation
    "memoryerror",
    "failed to allocate memory",
    "cannot allocate memory",  # ENOMEM
    "unable to allocate",  # numpy
    "is smaller than requested bytes",  # onnxruntime's arena at its limit
)


def words_file() -> IO[bytes]:
    """A file without a name for what a child writes on stderr; in memory where no disk takes one,
    since that may be the very thing that somebody wants to find out."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return os.fdopen(os.memfd_create("words"), "w+b")


def describe_end(code: int, last_words: str) -> str:
    """A process's return code and last words as a cause: ``was killed by SIGKILL: ...``."""
    last_line = last_words.splitlines()[-1] if last_words else ""
    if code == -signal.SIGKILL:
        return "was killed by SIGKILL: usually the out-of-memory killer, `dmesg` tells"
    if speaks_of_memory(last_words):
        return f"ran out of memory: {last_line}"
    said = f": {last_line}" if last_line else ""
    if code < 0:
        return f"was killed by {_signal_name(-code)}{said}"
    return f"ended with exit code {code}{said}"


def speaks_of_memory(text: str) -> bool:
    """Whether the words of a driver or runtime say that memory ran out."""
    small = text.lower()
    return any(word in small for word in _OUT_OF_MEMORY)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
