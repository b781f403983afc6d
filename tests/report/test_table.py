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


def test_names_that_are_too_long_are_folded_first() -> None:
    # 30 + 2 + 8 = 40 columns, ten more than there are
    rows = [("sampling of the logits by top-p", "17.0"), ("verify", "85.1")]
    assert table(HEADERS, rows, width=30) == (
        "pass                  tokens/s\n"
        "--------------------  --------\n"
        "sampling of the           17.0\n"
        "logits by top-p\n"
        "verify                    85.1"
    )


def test_a_name_without_a_blank_is_broken() -> None:
    text = table(HEADERS, [("n" * 64, "17.0")], width=42)
    assert text.split("\n")[2:] == ["n" * 32 + "      17.0", "n" * 32]


def test_figures_are_folded_between_words() -> None:
    # 4 + 2 + 16 = 22 columns; a figure is not broken: "3199 MHz" has 8
    text = table(("name", "range"), [("EMC", "3199 to 3199 MHz")], width=15)
    assert text.split("\n")[2:] == ["EMC     3199 to", "       3199 MHz"]
    assert table(("name", "range"), [("EMC", "3199 to 3199 MHz")], width=13) == (
        "name: EMC\nrange: 3199 to 3199 MHz"
    )


def test_empty_values_are_left_out() -> None:
    assert key_values(("a", "b"), ("1", "")) == "a: 1"


def test_long_lines_are_folded_between_words() -> None:
    assert fold("short\none two three", 8) == "short\none two\n    three"
    assert fold("x" * 20, 8) == "x" * 20


def test_width_is_that_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert terminal_width() == 40
