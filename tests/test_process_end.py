"""How a child's end is put into words."""

import subprocess
import tempfile
from pathlib import Path

import pytest

from edgeprof.process_end import describe_end, speaks_of_memory, words_file


@pytest.mark.parametrize(
    ("code", "last_words", "says"),
    [
        (-9, "", "was killed by SIGKILL: usually the out-of-memory killer, `dmesg` tells"),
        (-11, "", "was killed by SIGSEGV"),
        (-6, "terminate called\nbad thing", "was killed by SIGABRT: bad thing"),
        (1, "Traceback\nValueError: x", "ended with exit code 1: ValueError: x"),
        (0, "", "ended with exit code 0"),
        (
            1,
            "NvMapMemAllocInternalTagged: 1075072515 error 12\nRuntimeError: cuda failed",
            "ran out of memory: RuntimeError: cuda failed",
        ),
        (-6, "what(): std::bad_alloc", "ran out of memory: what(): std::bad_alloc"),
    ],
)
def test_r07_the_cause_of_an_end_is_translated(code: int, last_words: str, says: str) -> None:
    assert describe_end(code, last_words) == says


@pytest.mark.parametrize(
    "words",
    [
        "NvMapMemHandleAlloc: error 0",
        "NvRmMemInitNvmap failed with Permission denied",
        "CUDA failure 2: out of memory ; GPU=0",
        "Cuda Runtime (Out of memory)",
        "[E] Error Code 2: OutOfMemory (Requested size was 1074790400 bytes.)",
        "Requested amount of GPU memory (1074790400 bytes) could not be allocated.",
        "CUBLAS_STATUS_ALLOC_FAILED",
        "cudaErrorMemoryAllocation",
        "OSError: [Errno 12] Cannot allocate memory",
        "Available memory of 123 is smaller than requested bytes of 456",
        "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 4.00 GiB for an array",
    ],
)
def test_r06_what_drivers_and_runtimes_say_of_memory_is_known(words: str) -> None:
    assert describe_end(-6, f"first\n{words}") == f"ran out of memory: {words}"


@pytest.mark.parametrize(
    "words",
    ["CUDA failure 700: an illegal memory access was encountered", "no kernel image is available"],
)
def test_what_has_another_cause_is_not_taken_for_it(words: str) -> None:
    assert not speaks_of_memory(words)


def test_last_words_are_heard_where_no_disk_takes_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with words_file() as words:
        subprocess.run(["sh", "-c", "echo no space >&2"], stderr=words, check=True)
        words.seek(0)
        assert words.read() == b"no space\n"
