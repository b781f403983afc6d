"""Published rates against bounds and bands, and the fit of the bands."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgeprof.catalog import HARDWARE_FOLDER
from edgeprof.tomlfile import read_toml

Run = Callable[..., str]

COLUMNS = (
    "row_id,board,power_mode,memory_bw_gbps,engine,model_id,quant,context,phase,tokens_per_s,"
    "draft_len,acceptance,streamed_bytes_per_token,kv_bytes_read_per_token,flag"
)


@pytest.fixture(scope="session")
def rows(run: Run) -> dict[str, dict[str, Any]]:
    return {row["row_id"]: row for row in json.loads(run("published.py", "--json"))["rows"]}


def test_every_shipped_row_is_there(rows: dict[str, dict[str, Any]]) -> None:
    assert len(rows) == 109
    assert set(rows["R001"]) == {
        "row_id", "phase", "flag", "tokens_per_s", "bound_tokens_per_s", "expected_low",
        "expected_high",
    }  # fmt: skip


def test_no_row_without_flag_beats_its_bound(rows: dict[str, dict[str, Any]]) -> None:
    """F07: those that do are flagged, for their bytes or their mode are wrong."""
    for row in rows.values():
        if row["flag"] == "" and row["bound_tokens_per_s"] and row["tokens_per_s"]:
            assert row["tokens_per_s"] <= 1.02 * row["bound_tokens_per_s"], row
    above = {
        row["row_id"]
        for row in rows.values()
        if row["bound_tokens_per_s"] and (row["tokens_per_s"] or 0) > row["bound_tokens_per_s"]
    }
    assert above == {"R134", "R157"}
    assert all("ABOVE_1" in rows[row_id]["flag"] for row_id in above)


def test_expected_never_beats_the_bound(rows: dict[str, dict[str, Any]]) -> None:
    held = [row for row in rows.values() if row["expected_low"] is not None]
    assert len(held) > 80
    for row in held:
        assert 0 < row["expected_low"] < row["expected_high"]
        if row["phase"] == "decode":
            assert row["expected_high"] <= row["bound_tokens_per_s"] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("row_id", "bound"),
    [
        ("R005", 17.16),  # 3.977 GB at 68.26 GB/s
        ("R006", 25.74),  # the same at 102.37
        ("R001", 16.17),  # 4.222 GB at 68.26
    ],
)
def test_bounds_by_hand(rows: dict[str, dict[str, Any]], row_id: str, bound: float) -> None:
    assert rows[row_id]["bound_tokens_per_s"] == pytest.approx(bound, abs=0.01)


def ask(run: Run, folder: Path, *lines: str) -> list[dict[str, Any]]:
    path = folder / "rows.csv"
    path.write_text("\n".join([COLUMNS, *lines]) + "\n")
    found: list[dict[str, Any]] = json.loads(run("published.py", str(path), "--json"))["rows"]
    return found


def test_modes_in_the_words_of_a_page(run: Run, tmp_path: Path) -> None:
    """4 GB a token, of a model that is not known: 17.1 tokens/s at 68.26 GB/s, 25.6 at 102.4."""
    modes = [
        ("orin-nano-8gb", "15W (original)", 17.06),
        ("orin-nano-8gb-super", "MAXN_SUPER (assumed; page says only Super)", 25.59),
        ("orin-nano-8gb-super", "15W + jetson_clocks", 17.06),
        ("orin-nano-8gb-super", "unstated", 25.59),  # by the bandwidth of the row
        ("nano", "MAXN/10W (assumed)", 6.4),
        ("a board of my own", "-", 25.59),  # by the bandwidth of the row
    ]
    lines = [
        f"X{at},{board},{mode},102.37,llama.cpp,,Q4_K_M,,decode,5,,,4000000000,,"
        for at, (board, mode, _) in enumerate(modes)
    ]
    for row, (_, _, bound) in zip(ask(run, tmp_path, *lines), modes, strict=True):
        assert row["bound_tokens_per_s"] == pytest.approx(bound, abs=0.01)


def test_a_mode_that_the_board_lacks_gives_way_to_one_named_beside_it(
    run: Run, tmp_path: Path
) -> None:
    """A GPU at 408 MHz is slower than one at 765, the bandwidth being equal."""
    named = '"""25W"" + jetson_clocks (this SKU has 20W, not 25W)"'
    capped, full = ask(
        run,
        tmp_path,
        f"A,orin-nx-8gb,{named},102.37,Ollama,,Q4_K_M,,decode,6,,,4000000000,,",
        "B,orin-nx-8gb,MAXN,102.37,Ollama,,Q4_K_M,,decode,6,,,4000000000,,",
    )
    assert capped["bound_tokens_per_s"] == full["bound_tokens_per_s"]
    assert capped["expected_low"] < 0.7 * full["expected_low"]


def test_rows_that_tell_too_little_have_no_bound(run: Run, tmp_path: Path) -> None:
    rows = ask(
        run,
        tmp_path,
        "A,orin-nano-8gb,15W,68.26,llama.cpp,,Q4_K_M,,decode,5,,,,,",  # no bytes
        "B,a board of my own,,,llama.cpp,,Q4_K_M,,decode,5,,,4000000000,,",  # no bandwidth
        "C,orin-nano-8gb,15W,68.26,llama.cpp,,Q4_K_M,pp512,prefill,5,,,4000000000,,",  # no FLOP
        "D,orin-nano-8gb",  # cut off
    )
    assert [row["row_id"] for row in rows] == ["A", "B", "C", "D"]
    assert all(row["bound_tokens_per_s"] is row["expected_low"] is None for row in rows)


def test_speculation_is_bound_by_the_tokens_of_a_pass(run: Run, tmp_path: Path) -> None:
    """4 GB a pass at 102.37 GB/s: 25.6 passes a second of 6, 3.86 or 200/68 tokens."""
    start = "orin-nano-8gb-super,25W,102.37,vLLM,,NVFP4,,spec,30"
    six, stated, counted, unknown = ask(
        run,
        tmp_path,
        f"A,{start},5,,4000000000,,",
        f"B,{start},6,AL 3.86 tokens/step,4000000000,,",
        f'C,{start},3,"0.6667 (132/198, 68 steps/200 tok)",4000000000,,',
        f"D,{start},3,,,,",
    )
    rate = 102.368e9 / 4e9
    assert six["bound_tokens_per_s"] == pytest.approx(6 * rate)
    assert stated["bound_tokens_per_s"] == pytest.approx(3.86 * rate)
    assert counted["bound_tokens_per_s"] == pytest.approx(200 / 68 * rate)
    assert unknown["bound_tokens_per_s"] is None
    assert all(row["expected_low"] is None for row in (six, stated, counted, unknown))


def test_the_table_names_boards_classes_and_what_is_above_its_bound(run: Run) -> None:
    shown = run("published.py")
    for word in ("agx-orin-64gb", "general", "tuned", "serving", "all"):
        assert word in shown
    assert shown.splitlines()[-1].endswith("board, mode or bytes are wrong: R157")


def test_the_fit_holds_on_boards_that_it_has_not_seen(run: Run, tmp_path: Path) -> None:
    """And what is shipped is what the script makes of the shipped rows."""
    path = tmp_path / "expected.toml"
    path.write_text(run("fit_expected.py"))
    made, shipped = read_toml(path), read_toml(HARDWARE_FOLDER / "expected.toml")
    classes, one = made["fit"]["leave_one_board_out"], made["fit"]["one_band_for_all"]
    assert 0.80 <= classes["coverage"] <= 0.95
    assert classes["median_high_over_low"] <= 2.0
    assert classes["interval_score"] < one["interval_score"]
    assert len(made["fit"]["parameters"]) <= 6
    del made["fit"]["date"], shipped["fit"]["date"]
    assert made == shipped
