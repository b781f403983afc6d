"""``edgeprof compare`` over session files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from edgeprof.cli.commands import cli
from edgeprof.session.records import Session

Write = Callable[..., Path]


def compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["compare", *map(str, arguments)])


@pytest.fixture(scope="module")
def fast(
    tmp_path_factory: pytest.TempPathFactory, made_session: Session, write_session: Write
) -> Path:
    """Decodes every answer in half the time, on a newer library."""
    requests = [
        msgspec.structs.replace(
            one,
            t1_ns=(one.first_token_ns or 0) + ((one.t1_ns or 0) - (one.first_token_ns or 0)) // 2,
        )
        for one in made_session.requests
    ]
    info = made_session.info
    session = msgspec.structs.replace(
        made_session,
        requests=requests,
        info=msgspec.structs.replace(
            info, id="fast", environment={**info.environment, "numpy": "9.9"}
        ),
    )
    return write_session(tmp_path_factory.mktemp("fast") / "fast.sqlite", session)


@pytest.fixture(scope="module")
def board(
    tmp_path_factory: pytest.TempPathFactory, made_session: Session, write_session: Write
) -> Path:
    """The same on another board."""
    device: dict[str, Any] = {**made_session.info.device, "name": "Other board"}
    path = tmp_path_factory.mktemp("board") / "board.sqlite"
    info = msgspec.structs.replace(made_session.info, id="board", device=device)
    return write_session(path, msgspec.structs.replace(made_session, info=info))


def test_the_answer_comes_first(session_file: Path, fast: Path) -> None:
    result = compare(session_file, fast)
    assert result.exit_code == 0 and result.stderr == ""
    assert result.stdout.startswith("fast against made: fp32 tokens/s higher, 2.00x [1.32, 3.04].")
    # five variants, each with a rate and a time to the first token; only the rates doubled
    assert "fast against made: no difference beyond noise in the 5 other figures." in result.stdout
    assert "environment.numpy" in result.stdout and "9.9" in result.stdout


def test_no_difference_is_said(session_file: Path) -> None:
    result = compare(session_file, session_file)
    assert result.exit_code == 0
    assert "no difference beyond noise in any of 10 figures." in result.stdout
    assert "What differs" not in result.stdout


def test_names_are_as_short_as_tells_the_files_apart(session_file: Path, tmp_path: Path) -> None:
    paths = [tmp_path / "runs" / day / "run.sqlite" for day in ("monday", "tuesday")]
    for path in paths:
        path.parent.mkdir(parents=True)
        shutil.copyfile(session_file, path)
    assert "tuesday/run against monday/run: " in compare(*paths).stdout
    assert "made (2) against made (1): " in compare(session_file, session_file).stdout


def test_one_recording_twice_is_called_so(session_file: Path, fast: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    shutil.copyfile(session_file, copy)
    result = compare(session_file, copy)
    assert result.stdout.startswith("copy is the same session as made: one recording")
    document = json.loads(compare(session_file, fast, copy, "--json").stdout)
    assert document["warnings"] == ["session 3 is the same recording as session 1"]
    assert "same session" not in compare(session_file, fast).stdout


def test_the_power_mode_is_told_or_why_there_is_none(
    session_file: Path, tmp_path: Path, made_session: Session, write_session: Write
) -> None:
    assert "none: no Jetson board" in compare(session_file, session_file).stdout
    device = {**made_session.info.device, "kind": "board", "power_mode": "15W"}
    in_15w = write_session(tmp_path / "a.sqlite", made_session, device=device)
    unknown = write_session(
        tmp_path / "b.sqlite", made_session, device={**device, "power_mode": None}
    )
    refused = compare(in_15w, unknown)
    assert refused.exit_code == 2
    assert "b.sqlite: not recorded: nothing on the board told it" in refused.stderr
    assert "15W" in compare(in_15w, in_15w).stdout


def test_json_is_one_document(session_file: Path, fast: Path) -> None:
    result = compare(session_file, fast, "--json")
    document = json.loads(result.stdout, parse_constant=pytest.fail)  # P05: no NaN
    assert document["schema"] == "edgeprof.compare/1"
    assert set(document) == {
        "schema", "sessions", "conflicts", "differences", "ratios", "legs", "signals", "warnings",
    }  # fmt: skip
    first = document["ratios"][0]
    assert (first["name"], first["metric"], first["session"]) == ("fp32", "tokens_per_s", 1)
    assert first["ratio"]["value"] == pytest.approx(2.0)


def test_boards_are_not_mixed_unless_asked_for(session_file: Path, board: Path) -> None:
    refused = compare(session_file, board)
    assert refused.exit_code == 2 and refused.stdout == ""
    assert "Other board" in refused.stderr and "--force" in refused.stderr
    forced = compare(session_file, board, "--force")
    assert forced.exit_code == 0
    assert "shown because --force asks for it" in forced.stdout


def test_several_are_one_table(session_file: Path, fast: Path, board: Path) -> None:
    result = compare(session_file, fast, board, "--force", "--format", "md")
    assert result.exit_code == 0
    (header,) = (line for line in result.stdout.splitlines() if line.startswith("| figure"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == [
        "figure", "unit", "made", "fast", "ratio", "finding", "board", "ratio", "finding",
    ]  # fmt: skip


def test_an_incomplete_session_is_exit_code_4(
    session_file: Path, tmp_path: Path, made_session: Session, write_session: Write
) -> None:
    cut = write_session(
        tmp_path / "cut.sqlite", made_session, complete=False, ended_reason="killed"
    )
    result = compare(session_file, cut)
    assert result.exit_code == 4
    assert "session 2 is incomplete (killed)" in result.stdout


@pytest.mark.parametrize("arguments", [[], ["one"]])
def test_it_takes_two(arguments: list[str], session_file: Path) -> None:
    assert compare(*[session_file for _ in arguments]).exit_code == 2


def test_a_file_that_is_none(session_file: Path, tmp_path: Path) -> None:
    result = compare(session_file, tmp_path / "none.sqlite")
    assert result.exit_code == 2 and "none.sqlite" in result.stderr
