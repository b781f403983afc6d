"""Tables for terminals of any width."""

import pytest

from edgeprof.report.table import fold, key_values, table, terminal_width

HEADERS = ("pass", "tokens/s")
ROWS = [("decode", "17.0"), ("verify", "85.1")]


def test_words_to_the_left_numbers_to_the_right() -> None:
    assert table(HEADERS, ROWS, width=80) == (
        "pass    tokens/s\n------  --------\ndecode      17.0\nverify      85.1"
    )


def test_a_terminal_narrower_than_the_table_gets_key_value_lines() -> None:
    # 6 + 2 + 8 = 16 columns
    assert table(HEADERS, ROWS, width=16).startswith("pass  ")
    assert table(HEADERS, ROWS, width=15) == (
        "pass: decode\ntokens/s: 17.0\n\npass: verify\ntokens/s: 85.1"
    )


def test_empty_values_are_left_out() -> None:
    assert key_values(("a", "b"), ("1", "")) == "a: 1"


def test_long_lines_are_folded_between_words() -> None:
    assert fold("short\none two three", 8) == "short\none two\n    three"
    assert fold("x" * 20, 8) == "x" * 20


def test_width_is_that_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert terminal_width() == 40
