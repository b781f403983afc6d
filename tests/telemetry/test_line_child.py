"""Children that print lines, whole and torn."""

import select
import sys
import time

import pytest

from edgeprof.telemetry.line_child import LineChild


def child(code: str) -> LineChild:
    return LineChild([sys.executable, "-c", code])


def hear(line_child: LineChild, for_s: float = 20.0) -> list[str]:
    """Everything until it ends."""
    heard: list[str] = []
    until = time.monotonic() + for_s
    while line_child.open and time.monotonic() < until:
        select.select([line_child], [], [], 0.2)
        heard += line_child.lines()
    return heard


def test_a_line_in_two_pieces_is_one_and_an_unfinished_one_is_counted() -> None:
    talker = child(
        "import sys, time\n"
        "for piece in ('one\\ntw', 'o\\n', 'thr'):\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.05)"
    )
    assert hear(talker) == ["one", "two"]
    assert talker.dropped == 1
    assert talker.cause_of_end() == "ended with exit code 0"
    talker.close()


def test_an_endless_line_is_dropped_and_the_next_one_heard() -> None:
    talker = child("print('x' * 300_000); print('next')")
    assert hear(talker) == ["next"]
    assert talker.dropped == 1
    talker.close()


def test_the_cause_of_the_end_quotes_its_last_words() -> None:
    talker = child("import sys; sys.exit('no such board')")
    assert hear(talker) == []
    assert talker.cause_of_end() == "ended with exit code 1: no such board"
    talker.close()


def test_nothing_is_waited_for_and_closing_ends_it() -> None:
    talker = child("import time; time.sleep(60)")
    t0 = time.monotonic()
    assert list(talker.lines()) == []
    assert time.monotonic() - t0 < 0.5
    talker.close()
    assert not talker.open
    with pytest.raises(ValueError, match="closed"):
        talker.last_words()


def test_numbers_come_in_the_c_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """S42: a decimal comma from a child."""
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    talker = child("import os; print(os.environ['LC_ALL'])")
    assert hear(talker) == ["C"]
    talker.close()
