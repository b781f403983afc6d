"""How a child's end is put into words."""

import pytest

from edgeprof.process_end import describe_end


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
