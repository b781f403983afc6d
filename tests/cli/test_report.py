"""``edgeprof report`` over session files."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from made_session import SessionMaker
from msgspec.structs import replace

from edgeprof.cli.commands import cli
from edgeprof.session.records import Session
from edgeprof.session.store import read_session


@pytest.fixture(scope="module")
def incomplete_file(
    tmp_path_factory: pytest.TempPathFactory,
    made_session: Session,
    write_session: Callable[..., Path],
) -> Path:
    path = tmp_path_factory.mktemp("session") / "cut.sqlite"
    return write_session(path, made_session, complete=False, ended_reason="killed by signal 9")


def report(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["report", *map(str, arguments)])


def test_text_is_the_default(session_file: Path) -> None:
    result = report(session_file)
    assert result.exit_code == 0
    assert "fp32: speculation pays: 1.54x" in result.stdout
    assert result.stderr == ""


def test_json_is_one_document(session_file: Path) -> None:
    result = report(session_file, "--json")
    assert result.exit_code == 0 and result.stderr == ""
    document = json.loads(result.stdout, parse_constant=pytest.fail)
    assert document["schema"] == "edgeprof.summary/1"
    # 160 ms of plain decoding against 120 with the draft
    speedup = document["comparisons"][0]["decode_speedup"]
    assert speedup["value"] == pytest.approx(4 / 3)
    assert report(session_file, "--format", "json").stdout == result.stdout


def test_file_and_memory_give_the_same_report(session_file: Path, made_session: Session) -> None:
    import msgspec

    from edgeprof.analysis.summary import summarise

    document = json.loads(report(session_file, "--json").stdout)
    assert document.pop("probe") is None  # nobody probed this machine
    assert document == json.loads(msgspec.json.encode(summarise(made_session)))


def test_disturbed_repetitions_count_where_asked_for(
    made_session: Session, write_session: Callable[..., Path], tmp_path: Path
) -> None:
    """The second repeat, 1.25 times as slow, ran beside a program that took a core."""
    slow = [
        replace(leg, attrs={**leg.attrs, "processor": {"others_s": 10.0}})
        if leg.kind == "decode" and leg.repeat == 1
        else leg
        for leg in made_session.legs
    ]
    path = write_session(tmp_path / "s.sqlite", replace(made_session, legs=slow))
    left_out = json.loads(report(path, "--json").stdout)
    assert left_out["legs"][0]["tokens_per_s_by_repeat"] == [50.0]
    assert len(left_out["disturbed"]) == 5 and left_out["disturbed_left_out"] is True
    whole = json.loads(report(path, "--json", "--with-disturbed").stdout)
    assert whole["legs"][0]["tokens_per_s_by_repeat"] == [50.0, 40.0]
    assert whole["disturbed_left_out"] is False
    assert "1 leg was disturbed (other programs took" in report(path).stdout


def contending(sha256: str = "0123456789abcdef" * 4) -> Session:
    """Beside the draft, whose passes of 20.5 MB take 3 ms, one of fp32 takes 25 ms instead of 20; a
    cache of 4 MB holds neither."""
    maker = SessionMaker()
    attrs = {"antagonist": "draft", "antagonist_kind": "model", "dose": 1.0,
             "competes_for": ["bus"]}  # fmt: skip
    for repeat in (1, 2, 3):
        for target_ms, more in ((20, {}), (None, attrs), (25, attrs)):
            leg_id, start = maker.leg("contend", "fp32", repeat=repeat, attrs=more), maker.now
            for _ in range(12 if target_ms else 0):
                maker.run_pass(leg_id, "decode", "fp32", target_ms or 0)
            end, maker.now = maker.now, start
            for _ in range(100 if more else 0):
                maker.run_pass(leg_id, "draft", "draft", 3, stream=1)
            maker.now = max(end, maker.now)
            maker.end_leg()
    models = {**maker.info.models}
    models["fp32"] = replace(models["fp32"], sha256=sha256)
    environment = {**maker.info.environment, "last_level_cache_bytes": 4 << 20}
    maker.info = replace(maker.info, id="lender", environment=environment, models=models)
    return maker.session()


def test_contention_is_lent_by_another_session(
    session_file: Path, write_session: Callable[..., Path], tmp_path: Path
) -> None:
    lender = write_session(tmp_path / "lender.sqlite", contending())
    document = json.loads(report(session_file, "--contention", lender, "--json").stdout)
    assert document["contention"]["lent_by"] == "lender"
    (curve,) = document["contention"]["targets"][0]["curves"]
    # Weights and ten tokens of 50 kB. Of the 25 ms of a pass, 5 are the draft's doing; its bytes
    # and the target's together are the ceiling.
    moved, own = 20.5e6 / 0.003, 500.5e6 / 0.025
    kappa = 0.005 * (moved + own) / (moved * 0.025)
    assert curve["kappa"]["value"] == pytest.approx(kappa)
    text = report(session_file, "--contention", lender).stdout
    assert "fp32: speculation pays: 1.54x" in text  # the run's own answer comes first all the same
    assert "Measured in another session, lender." in text


def test_contention_of_another_model_is_refused(
    session_file: Path, write_session: Callable[..., Path], tmp_path: Path
) -> None:
    lender = write_session(tmp_path / "lender.sqlite", contending("9" * 64))
    result = report(session_file, "--contention", lender)
    assert result.exit_code == 2 and "sha256 of fp32" in result.stderr and result.stdout == ""
    assert "no target ran beside" in report(session_file, "--contention", session_file).stderr


def test_markdown_into_a_folder(session_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    result = report(session_file, "-o", folder)
    assert result.exit_code == 0
    assert result.stdout == f"{folder / 'report.md'}\n"
    assert "fp32: speculation" in result.stderr
    assert (folder / "report.md").is_file() and (folder / "roofline.svg").is_file()


def test_markdown_on_stdout(session_file: Path) -> None:
    result = report(session_file, "--format", "md")
    assert result.stdout.startswith("# tiny on Paper board\n")
    assert "![" not in result.stdout  # no plot lies beside a stream


@pytest.mark.parametrize(
    ("form", "name", "start"),
    [("html", "report.html", b"<!doctype html>"), ("trace", "trace.pftrace", b"\n")],
)
def test_forms_of_one_file(
    session_file: Path, tmp_path: Path, form: str, name: str, start: bytes
) -> None:
    result = report(session_file, "--format", form, "-o", tmp_path / "r")
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path / 'r' / name}\n"
    assert [one.name for one in (tmp_path / "r").iterdir()] == [name]
    assert (tmp_path / "r" / name).read_bytes().startswith(start)
    again = report(session_file, "--format", form, "-o", tmp_path / "r")
    assert again.exit_code == 2 and "--force" in again.stderr


@pytest.mark.parametrize(
    ("form", "library"),
    [
        ("html", "plotly"),
        ("html", "markdown_it"),
        ("trace", "perfetto.protos.perfetto.trace.perfetto_trace_pb2"),
    ],
)
def test_a_library_that_is_missing_is_named_with_the_way_out(
    session_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    result = report(session_file, "--format", form, "-o", tmp_path / "r")
    assert result.exit_code == 3
    assert f"pip install 'edgeprof[{form}]'" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_p09_second_report_needs_force(session_file: Path, tmp_path: Path) -> None:
    assert report(session_file, "-o", tmp_path / "r").exit_code == 0
    again = report(session_file, "-o", tmp_path / "r")
    assert again.exit_code == 2 and "--force" in again.stderr
    assert report(session_file, "-o", tmp_path / "r", "--force").exit_code == 0


def test_json_into_a_file_is_not_overwritten(session_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "summary.json"
    assert report(session_file, "--json", "-o", path).stdout == ""
    assert json.loads(path.read_text())["schema"] == "edgeprof.summary/1"
    again = report(session_file, "--json", "-o", path)
    assert again.exit_code == 2 and "exists already" in again.stderr


@pytest.mark.parametrize(
    ("form", "name"),
    [
        *product(["text", "json", "md"], ["read.sqlite", "link", "other.sqlite"]),
        *product(["text", "json"], ["read.sqlite-wal"]),  # what SQLite keeps beside it
    ],
)
def test_force_never_replaces_a_session(
    session_file: Path, tmp_path: Path, form: str, name: str
) -> None:
    session = tmp_path / "read.sqlite"
    for copy in (session, tmp_path / "other.sqlite"):
        shutil.copyfile(session_file, copy)
    (tmp_path / "link").symlink_to(session)
    result = report(session, "--format", form, "-o", tmp_path / name, "--force")
    assert result.exit_code == 2, result.stderr
    assert session.read_bytes() == session_file.read_bytes()
    assert (tmp_path / "other.sqlite").read_bytes() == session_file.read_bytes()


def test_an_empty_path_is_no_wish_for_the_current_folder(
    session_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what `-o "$OUT"` says while OUT is not set
    for arguments in ([session_file, "-o", ""], [session_file, "--json", "-o", ""], [""]):
        result = report(*arguments)
        assert result.exit_code == 2 and "the path is empty" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["report.md", "roofline.svg"])
def test_a_folder_in_the_way_is_told_before_anything_is_written(
    session_file: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "r" / name).mkdir(parents=True)
    result = report(session_file, "-o", tmp_path / "r", "--force")
    assert result.exit_code == 2 and f"{name}: is a folder" in result.stderr
    assert [path.name for path in (tmp_path / "r").iterdir()] == [name]


def test_links_that_lead_nowhere_are_not_replaced(session_file: Path, tmp_path: Path) -> None:
    (tmp_path / "r").symlink_to(tmp_path / "none")
    assert "leads nowhere" in report(session_file, "-o", tmp_path / "r").stderr
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "report.md").symlink_to(tmp_path / "none")
    again = report(session_file, "-o", tmp_path / "s")
    assert again.exit_code == 2 and "report.md: exists already" in again.stderr


def test_a_folder_is_no_session(tmp_path: Path) -> None:
    result = report(tmp_path)
    assert result.exit_code == 2 and "is a folder, not a session file" in result.stderr


def test_a_report_that_fails_leaves_no_folder(tmp_path: Path) -> None:
    assert report(tmp_path / "none.sqlite", "-o", tmp_path / "r").exit_code == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["text", "json", "md"])
def test_incomplete_session_is_whole_output_and_exit_code_4(
    incomplete_file: Path, form: str
) -> None:
    result = report(incomplete_file, "--format", form)
    assert result.exit_code == 4
    assert "killed by signal 9" in result.stdout
    assert "1.33" in result.stdout
    assert "incomplete" in result.stderr
    if form == "json":
        assert json.loads(result.stdout)["session"]["complete"] is False


@pytest.fixture
def empty_file(tmp_path: Path, made_session: Session, write_session: Callable[..., Path]) -> Path:
    """Complete, and without a leg or a sample."""
    nothing: dict[str, Any] = {
        name: []
        for name in (
            "legs", "requests", "rounds", "passes", "tokens", "signals", "samples", "events",
        )
    }  # fmt: skip
    return write_session(tmp_path / "empty.sqlite", replace(made_session, **nothing))


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_a_session_in_which_nothing_was_measured_says_so(empty_file: Path, form: str) -> None:
    result = report(empty_file, "--format", form)
    assert result.exit_code == 1
    assert "nothing was measured: the session has no legs" in result.stderr
    if form == "json":
        document = json.loads(result.stdout)
        assert document["session"]["nothing_measured"] == "the session has no legs"
        assert "nothing was measured: the session has no legs" in document["warnings"]
    else:
        opening = result.stdout.split("\n\n")[:2]
        assert any("Nothing was measured: the session has no legs." in one for one in opening)


@pytest.mark.parametrize("form", ["md", "html", "csv", "trace"])
def test_files_of_it_are_written_and_it_is_said(
    empty_file: Path, tmp_path: Path, form: str
) -> None:
    result = report(empty_file, "--format", form, "-o", tmp_path / "r")
    assert result.exit_code == 1
    assert "nothing was measured: the session has no legs" in result.stderr
    assert list((tmp_path / "r").iterdir())
    if form == "html":
        page = (tmp_path / "r" / "report.html").read_text()
        assert "(nothing measured)</title>" in page
        assert '<p class="stamp"><strong>Nothing was measured' in page


def test_a_watched_session_without_a_reading_says_so(
    tmp_path: Path, write_session: Callable[..., Path], empty_file: Path
) -> None:
    path = write_session(tmp_path / "watch.sqlite", read_session(empty_file), kind="watch")
    result = report(path)
    assert result.exit_code == 1
    assert "nothing was measured: no source gave a reading" in result.stderr


def test_missing_file(tmp_path: Path) -> None:
    result = report(tmp_path / "none.sqlite")
    assert result.exit_code == 2 and "no such session file" in result.stderr


def test_file_that_is_no_session(tmp_path: Path) -> None:
    path = tmp_path / "page.sqlite"
    path.write_text("<html>not found</html>")
    result = report(path)
    assert result.exit_code == 1
    assert str(path) in result.stderr and "Traceback" not in result.stderr


@pytest.mark.parametrize("part", [0.25, 0.9])
def test_a_file_that_was_cut_names_the_way_out(
    session_file: Path, tmp_path: Path, part: float
) -> None:
    path = tmp_path / "cut short.sqlite"
    shutil.copyfile(session_file, path)
    with path.open("r+b") as file:
        file.truncate(int(part * path.stat().st_size))
    result = report(path)
    assert result.exit_code == 1 and result.stdout == ""
    assert f"edgeprof sessions --repair '{path}' saves what can be read" in result.stderr


def test_a_row_that_is_no_record_names_the_way_out(session_file: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.sqlite"
    shutil.copyfile(session_file, path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE round SET drafted = 'many' WHERE id = 3")
    result = report(path)
    assert result.exit_code == 1
    assert "table round, row 3" in result.stderr and "--repair" in result.stderr
    assert CliRunner().invoke(cli, ["sessions", "--repair", str(path)]).exit_code == 4


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    path = tmp_path / "none.sqlite"
    path.touch()
    result = report(path)
    assert result.exit_code == 1
    assert "none.sqlite: is empty (0 bytes)" in result.stderr
    assert "SQLite" not in result.stderr and "--repair" not in result.stderr


def test_contradiction(session_file: Path) -> None:
    result = report(session_file, "--json", "--format", "md")
    assert result.exit_code == 2 and "contradict" in result.stderr


def test_p08_output_is_checked_before_the_session_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = report(tmp_path / "none.sqlite", "-o", tmp_path / "file" / "below")
    assert result.exit_code == 3 and "cannot be written to" in result.stderr


def test_p01_p02_no_display_and_no_home(session_file: Path, tmp_path: Path) -> None:
    kept = {key: os.environ[key] for key in ("PATH",) if key in os.environ}
    done = subprocess.run(
        [sys.executable, "-m", "edgeprof", "report", session_file, "-o", tmp_path / "r"],
        capture_output=True,
        text=True,
        env={**kept, "HOME": "/nonexistent", "MPLBACKEND": "TkAgg", "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "acceptance.svg").is_file()
    assert done.stderr.lower().count("matplotlib created a temporary") <= 1
    assert "Traceback" not in done.stderr


def test_text_report_loads_no_plotting(session_file: Path) -> None:
    code = (
        "import sys\n"
        "from edgeprof.cli.commands import cli\n"
        f"cli(['report', {str(session_file)!r}], standalone_mode=False)\n"
        "print(sorted({'matplotlib', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_tables_go_into_a_folder_of_the_sessions_name(
    session_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = report(session_file, "--format", "csv")
    assert result.exit_code == 0 and result.stdout == "made-report\n"
    names = {path.name for path in (tmp_path / "made-report").iterdir()}
    assert names == {"legs.csv", "rounds.csv", "passes.csv", "samples.csv"}
    again = report(session_file, "--format", "csv")
    assert again.exit_code == 2 and "legs.csv: exists already" in again.stderr  # P09
    comma = report(session_file, "--format", "csv", "--csv-dialect", "decimal-comma", "--force")
    assert comma.exit_code == 0
    assert ";" in (tmp_path / "made-report" / "legs.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_figures_of_another_form(
    session_file: Path, tmp_path: Path, form: str, start: bytes
) -> None:
    assert report(session_file, "-o", tmp_path / "r", "--figures", form).exit_code == 0
    assert (tmp_path / "r" / f"roofline.{form}").read_bytes().startswith(start)
    assert f"](roofline.{form})" in (tmp_path / "r" / "report.md").read_text()
    assert not list((tmp_path / "r").glob("*.svg"))


def test_no_figure_of_a_replaced_report_is_left_beside_the_new_one(
    session_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    assert report(session_file, "-o", folder).exit_code == 0
    drawn = {path.stem for path in folder.glob("*.svg")}
    mine = {"energy.svg": "never shown by that report", "notes.svg": "of another name"}
    for name, text in mine.items():
        (folder / name).write_text(text)
    result = report(session_file, "-o", folder, "--figures", "png", "--force")
    assert result.exit_code == 0
    assert {path.name: path.read_text() for path in folder.glob("*.svg")} == mine
    assert {path.stem for path in folder.glob("*.png")} == drawn
    assert "removed from" in result.stderr and "roofline.svg" in result.stderr


def test_a_figure_that_the_new_session_lacks_goes_too(
    session_file: Path, empty_file: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "r"
    assert report(session_file, "-o", folder).exit_code == 0
    assert report(empty_file, "-o", folder, "--force").exit_code == 1
    assert [path.name for path in folder.iterdir()] == ["report.md"]


def test_figures_without_a_report_are_nobodys_to_remove(session_file: Path, tmp_path: Path) -> None:
    (tmp_path / "roofline.svg").write_text("mine")
    assert report(session_file, "-o", tmp_path, "--figures", "png").exit_code == 0
    assert (tmp_path / "roofline.svg").read_text() == "mine"


def test_open_shows_what_was_written(
    session_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    def no_browser(url: str) -> bool:
        shown.append(url)
        return False

    monkeypatch.setattr("webbrowser.open", no_browser)
    result = report(session_file, "-o", tmp_path / "r", "--open")
    assert result.exit_code == 0
    assert shown == [(tmp_path / "r" / "report.md").as_uri()]
    assert "no browser was found" in result.stderr  # as over ssh
    assert report(session_file, "--json", "--open").exit_code == 2
