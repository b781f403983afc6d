"""A session as tidy tables: what each row says, and what a spreadsheet makes of it."""

import csv
from pathlib import Path
from typing import Any

import pytest

from edgeprof.report.session_csv import TABLES, session_csv_names, write_session_csv
from edgeprof.session.records import Sample, Session, Signal

DOCS = Path(__file__).parents[2] / "docs" / "reports.md"


def table(folder: Path, name: str, delimiter: str = ",") -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


@pytest.fixture
def folder(made_session: Session, tmp_path: Path) -> Path:
    return write_session_csv(made_session, tmp_path)


def test_one_row_a_record(made_session: Session, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == sorted(session_csv_names())
    for name in ("legs", "rounds", "passes", "samples"):
        assert len(table(folder, name)) == len(getattr(made_session, name))


def test_a_pass_in_seconds_and_by_name(made_session: Session, folder: Path) -> None:
    first = next(row for row in table(folder, "passes") if row["phase"] == "draft")
    (pass_,) = (one for one in made_session.passes if one.id == int(first["pass_id"]))
    assert first["model"] == "draft" and first["variant"].endswith("+draft k=2")
    assert float(first["duration_s"]) == 0.003
    start_ns = min(leg.t0_ns for leg in made_session.legs)
    assert float(first["start_s"]) == pytest.approx((pass_.t0_ns - start_ns) / 1e9)


def test_rounds_add_up_to_the_answers(folder: Path) -> None:
    rows = [row for row in table(folder, "rounds") if row["variant"] == "int4+draft k=2"]
    # 8 tokens an answer, 2 prompts, 2 repeats; 4 of 8 drafted tokens accepted in each
    assert sum(int(row["emitted_tokens"]) for row in rows) == 32
    assert sum(int(row["accepted_tokens"]) for row in rows) == 16


@pytest.mark.parametrize(("name", "rows_a_leg"), [("rounds", 16), ("passes", 18)])
def test_rows_of_the_warm_up_are_marked(folder: Path, name: str, rows_a_leg: int) -> None:
    """The first leg: two answers of a prefill and eight rounds of one pass."""
    rows = table(folder, name)
    assert [row["leg_id"] for row in rows if row["warmup"] == "true"] == ["1"] * rows_a_leg
    assert {row["warmup"] for row in rows} == {"true", "false"}


def test_unknown_is_an_empty_cell(maker: Any, tmp_path: Path) -> None:
    maker.signals.append(Signal(id=1, name="emc_busy_frac", unit="1", source="sysfs"))
    maker.samples += [
        Sample(signal_id=1, t0_ns=2_000_000_000, t1_ns=2_001_000_000, value=None),
        Sample(signal_id=1, t0_ns=3_000_000_000, t1_ns=3_001_000_000, value=0.25),
    ]
    rows = table(write_session_csv(maker.session(), tmp_path), "samples")
    assert [row["value"] for row in rows] == ["", "0.25"]
    assert [float(row["start_s"]) for row in rows] == [0.0, 1.0]
    assert {row["read_s"] for row in rows} == {"0.001"}


def test_p12_a_point_and_commas_whatever_the_language(folder: Path) -> None:
    """RFC 4180 with a point, which every program that is not a localised spreadsheet reads."""
    lines = (folder / "passes.csv").read_text(encoding="utf-8").splitlines()
    drafts = [line for line in lines if ",draft," in line]
    assert {len(line.split(",")) for line in lines} == {len(TABLES["passes"].columns)}
    assert drafts and all(line.split(",")[-2].startswith("0.003") for line in drafts[:4])


def test_p12_a_dialect_for_spreadsheets_with_a_decimal_comma(
    made_session: Session, tmp_path: Path
) -> None:
    write_session_csv(made_session, tmp_path, "decimal-comma")
    row = next(row for row in table(tmp_path, "passes", delimiter=";") if row["phase"] == "draft")
    assert row["duration_s"] == "0,003"
    assert row["pass_id"].isdigit()


def test_no_cell_is_a_formula(maker: Any, tmp_path: Path) -> None:
    leg_id = maker.leg("mark", '=HYPERLINK("x")')
    maker.end_leg()
    (row,) = table(write_session_csv(maker.session(), tmp_path), "legs")
    assert row["leg_id"] == str(leg_id) and row["variant"] == '\'=HYPERLINK("x")'


def test_every_column_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    for name, content in TABLES.items():
        section = text.split(f"`{name}.csv`", 1)[1].split("\n\n", 1)[0]
        for column in content.columns:
            assert f"`{column}`" in section or f"`{column}`" in text, (name, column)
