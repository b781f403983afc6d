"""Sections in the forms that people and programs read."""

from edgeprof.report.sections import Section, as_csv, as_markdown, as_text, lines
from edgeprof.report.table import Table

SECTIONS = [
    Section("Title", lines(["first", "second"])),
    Section("", ["A | sentence."]),
    Section("Figures", [Table(("pass", "rate"), [("decode", "17.0")])]),
]


def test_text() -> None:
    assert as_text(SECTIONS, 80) == (
        "Title\nfirst\nsecond\n\nA | sentence.\n\nFigures\npass    rate\n------  ----\ndecode  17.0"
    )


def test_names_from_outside_do_not_steer_the_terminal() -> None:
    assert "\x1b" not in as_text([Section("model \x1b[2J", ["a \x1b[31m"])], 80)


def test_a_section_without_content_leaves_no_gap() -> None:
    assert as_text([Section("", []), Section("a", []), Section("", lines([]))], 80) == "a"


def test_long_lines_are_folded() -> None:
    assert as_text([Section("", ["one two three"])], 8) == "one two\n    three"


def test_markdown() -> None:
    assert as_markdown(SECTIONS) == (
        "# Title\n\n- first\n- second\n\nA \\| sentence.\n\n"
        "## Figures\n\n| pass   | rate |\n| ------ | ---: |\n| decode | 17.0 |"
    )


def test_csv_has_six_digits_and_empty_cells() -> None:
    rows: list[dict[str, object]] = [
        {"a": 1 / 3, "b": None, "c": True, "d": "x,y"},
        {"a": 2, "b": 1e12, "c": False, "d": ""},
    ]
    assert as_csv(rows) == 'a,b,c,d\n0.333333,,true,"x,y"\n2,1e+12,false,\n'
    assert as_csv([]) == ""


def test_no_sentence_is_no_part() -> None:
    assert lines([]) == []
