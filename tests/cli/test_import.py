"""``edgeprof import tegrastats``: a log in, a session out."""

import gzip
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from edgeprof.cli.commands import cli
from edgeprof.session.records import Session
from edgeprof.session.store import read_session

DATA = Path(__file__).parent.parent / "data" / "tegrastats_lines.jsonl"
LINES: dict[str, str] = {
    row["id"]: row["line"] for row in map(json.loads, DATA.read_text().splitlines())
}
LINE = "RAM 2850/7486MB (lfb 33x4MB) EMC_FREQ {}%@2133 GR3D_FREQ {}%@[305] VDD_IN 3582mW/3582mW"


def line(second: int, emc: int = 50, gpu: int = 10, date: str = "09-19-2026") -> str:
    return f"{date} 13:{second // 60:02d}:{second % 60:02d} {LINE.format(emc, gpu)}\n"


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["import", "tegrastats", *map(str, arguments)], input=stdin)


def imported(tmp_path: Path, text: str, *options: str) -> tuple[dict[str, Any], Session]:
    """The JSON document and the session of a log."""
    log, session = tmp_path / "board.log", tmp_path / "s.sqlite"
    log.write_text(text)
    result = run(log, "-o", session, "--json", "--force", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=pytest.fail), read_session(session)


def series(session: Session, name: str) -> list[tuple[float, float | None]]:
    """Times in seconds and values."""
    ids = {signal.id for signal in session.signals if signal.name == name}
    return [(s.t0_ns / 1e9, s.value) for s in session.samples if s.signal_id in ids]


def events(session: Session, kind: str) -> list[dict[str, Any]]:
    return [event.detail for event in session.events if event.kind == kind]


def test_a_log_becomes_a_session(tmp_path: Path) -> None:
    text = line(0, 50) + line(1, 25) + line(2, 0)
    document, session = imported(tmp_path, text, "--device", "orin-nano-super")
    assert document["schema"] == "edgeprof.import/1"
    assert document["lines"] == {"read": 3, "dropped": 0}
    assert document["span_s"] == 2 and document["delivered_hz"] == 1
    assert document["first_stamp"] == "2026-09-19 13:00:00"
    assert document["absent"] == [] and document["warnings"] == []
    assert session.info.kind == "import" and session.info.complete
    assert session.info.environment["first_stamp"] == "2026-09-19 13:00:00"
    assert session.info.device["profile"] == "orin-nano-8gb-super"
    assert series(session, "emc_busy_frac") == [(0, 0.5), (1, 0.25), (2, 0)]
    # 0.5 x 2133 MHz x 2 x 128 bit / 8
    (t, bandwidth), *_ = series(session, "dram_bandwidth_bytes_per_s")
    assert t == 0 and bandwidth == pytest.approx(34.128e9)
    assert series(session, "power_w.total") == [(0, 3.582), (1, 3.582), (2, 3.582)]
    assert {sample.quality for sample in session.samples} == {"replayed"}
    assert {signal.source for signal in session.signals} == {"replay"}
    assert {signal.node for signal in session.signals} == {"tegrastats"}
    emc = next(signal for signal in session.signals if signal.name == "emc_busy_frac")
    assert emc.window_kind == "unknown" and emc.window_s is None
    assert emc.delivered_hz == 1 and emc.jitter_s is None and emc.read_latency_s is None
    assert len(session.samples) == sum(s["samples"] for s in document["signals"])


def test_every_form_is_imported_with_nothing_left_over(tmp_path: Path) -> None:
    text = "".join(f"{text}\n" for text in LINES.values())
    document, session = imported(tmp_path, text, "--interval", "0.5")
    assert document["lines"] == {"read": len(LINES), "dropped": 0}
    assert document["unknown_fields"] == {"count": 0, "by_name": {}}
    clocks = [value for _, value in series(session, "emc_clock_hz")]
    # None where the line has no clock, in the order of the file.
    assert [None if clock is None else clock / 1e6 for clock in clocks] == [
        408, 408, 1600, 40, 204, 665, 1600, 2133, 2133, 2133, None, 3199, 2133, None, 2133, None,
        665, 4266, 2133,
    ]  # fmt: skip


def test_unknown_fields_and_torn_lines_are_counted_and_exit_is_0(tmp_path: Path) -> None:
    text = (
        line(0)[:-1] + " FUTURE_TOKEN value\n" + line(1)[:-1] + " NEW=1\nRAM 4408/62801MB (lfb 17"
    )
    (tmp_path / "log").write_text(text)
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite")
    assert result.exit_code == 0
    assert "lines: 2 read, 1 dropped; unknown fields: 2 (FUTURE_TOKEN, NEW=1)" in result.stdout
    assert f"session: {tmp_path / 's.sqlite'}" in result.stderr
    assert events(read_session(tmp_path / "s.sqlite"), "dropped") == [
        {"source": "replay", "lines": 1}
    ]


def test_s05_bandwidth_is_absent_with_the_reason(tmp_path: Path) -> None:
    text = "RAM 2411/7852MB (lfb 1020x4MB) CPU [7%@345] EMC_FREQ 14% GR3D_FREQ 0%\n" * 2
    document, session = imported(tmp_path, text, "--interval", "1", "--device", "tx2")
    assert series(session, "emc_busy_frac") == [(0, 0.14), (1, 0.14)]
    assert series(session, "emc_clock_hz") == series(session, "dram_bandwidth_bytes_per_s") == []
    reasons = {absent["signal"]: absent["reason"] for absent in document["absent"]}
    assert "EMC clock unknown" in reasons["dram_bandwidth_bytes_per_s"]
    stored = {absent["signal"]: absent["reason"] for absent in events(session, "absent")}
    assert stored == reasons


def test_without_a_board_there_is_load_and_no_bandwidth(tmp_path: Path) -> None:
    document, session = imported(tmp_path, line(0) + line(1))
    (absent,) = document["absent"]
    assert absent["signal"] == "dram_bandwidth_bytes_per_s" and "bus width" in absent["reason"]
    assert "--device" in absent["fix"]
    assert series(session, "emc_busy_frac") == [(0, 0.5), (1, 0.5)]
    assert series(session, "dram_bandwidth_bytes_per_s") == []


def test_a_log_without_root_says_what_it_lacks(tmp_path: Path) -> None:
    text = f"{LINES['orin-nano-super-r36-user']}\n" * 2
    document, _ = imported(tmp_path, text, "--interval", "1", "--device", "orin-nano")
    assert [absent["signal"] for absent in document["absent"]] == [
        "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s",
    ]  # fmt: skip
    assert all("root" in absent["reason"] for absent in document["absent"])


def test_s12_stamped_and_bare_lines_in_one_log(tmp_path: Path) -> None:
    text = (
        "03-02-2026 18:41:07 RAM 100/7607MB (lfb 1x4MB) CPU [1%@729]\n"
        "RAM 101/7607MB (lfb 1x4MB) CPU [1%@729]\n"
    )
    document, session = imported(tmp_path, text)
    assert series(session, "ram_used_bytes") == [(0, 100 * 2**20), (1, 101 * 2**20)]
    assert "1 lines have no time stamp" in document["warnings"][0]


def test_no_times_at_all_is_a_matter_of_usage(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{LINES['nano-r32']}\n" * 3)
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite")
    assert result.exit_code == 2 and "--interval" in result.stderr
    assert not (tmp_path / "s.sqlite").exists()


def test_gaps_are_kept(tmp_path: Path) -> None:
    document, session = imported(tmp_path, line(0) + line(1) + line(61) + line(62))
    assert document["gaps"] == 1
    (gap,) = events(session, "gap")
    assert (gap["since_ns"], gap["until_ns"]) == (1_000_000_000, 61_000_000_000)
    assert [t for t, _ in series(session, "power_w.total")] == [0, 1, 61, 62]
    power = next(signal for signal in session.signals if signal.name == "power_w.total")
    assert power.delivered_hz == 1  # the gap is not counted


def test_s34_a_clock_set_back_is_noted(tmp_path: Path) -> None:
    text = line(0) + line(1) + line(0, date="09-18-2026") + line(1, date="09-18-2026")
    document, session = imported(tmp_path, text)
    assert document["clock_steps"] == 1 and document["gaps"] == 0
    (step,) = events(session, "clock_step")
    assert step["from"] == "2026-09-19 13:00:01" and step["to"] == "2026-09-18 13:00:00"
    assert [t for t, _ in series(session, "power_w.total")] == [0, 1, 2, 3]


def test_an_interval_that_the_stamps_deny_is_told(tmp_path: Path) -> None:
    text = "".join(line(second) for second in range(60))
    document, session = imported(tmp_path, text, "--interval", "0.8")
    (warning,) = document["warnings"]
    assert "one line every 1 s, not every 0.8 s" in warning
    assert series(session, "power_w.total")[-1][0] == pytest.approx(59 * 0.8)


def test_what_cannot_be_is_suspect_once_and_named(tmp_path: Path) -> None:
    text = line(0) + line(1, emc=845000) + line(2, emc=845001) + line(3)
    document, session = imported(tmp_path, text, "--device", "orin-nano-super")
    emc = next(signal.id for signal in session.signals if signal.name == "emc_busy_frac")
    found = [(s.value, s.quality) for s in session.samples if s.signal_id == emc]
    assert found == [(0.5, "replayed"), (8450, "suspect"), (8450.01, "suspect"), (0.5, "replayed")]
    suspects = [detail["signal"] for detail in events(session, "suspect")]
    assert suspects.count("emc_busy_frac") == 1
    assert any("emc_busy_frac is suspect" in warning for warning in document["warnings"])


def test_s07_no_memory_traffic_beside_a_busy_gpu_is_suspect(tmp_path: Path) -> None:
    text = "".join(line(second, emc=0, gpu=97) for second in range(30))
    _, session = imported(tmp_path, text, "--device", "orin-nano-super")
    details = {detail["signal"]: detail["reason"] for detail in events(session, "suspect")}
    assert "20 readings in a row" in details["emc_busy_frac"]


BOARD_WITHOUT_A_TOTAL = """
name = "mine"
title = "My carrier"
default_mode = "default"
part_numbers = []
device_tree_models = []
soc = "tegra234"
cpu = "12x"
source = "this test"
status = "documented"
[power]
module_rails = ["VDD_GPU_SOC", "VDD_CPU_CV"]
scope = "module without memory"
source = "this test"
[dram]
type = "LPDDR5"
size_gib = 64
bus_width_bits = 256
emc_max_mhz = 3200
[[mode]]
name = "default"
emc_mhz = 3200
"""


def test_s18_rails_are_summed_where_the_board_says_which(tmp_path: Path) -> None:
    profile = tmp_path / "mine.toml"
    profile.write_text(BOARD_WITHOUT_A_TOTAL)
    text = f"{LINES['agx-orin-r36']}\n"
    _, session = imported(tmp_path, text, "--interval", "1", "--device", str(profile))
    # 3245 and 4495 mW; VIN_SYS_5V0 is left out, and called no total.
    assert [value for _, value in series(session, "power_w.module_sum")] == pytest.approx([7.74])
    assert series(session, "power_w.total") == []
    # 1 % of 2133 MHz x 64 B
    bandwidths = [value for _, value in series(session, "dram_bandwidth_bytes_per_s")]
    assert bandwidths == pytest.approx([1.36512e9])


def test_a_signal_that_a_line_lacks_is_unknown_there(tmp_path: Path) -> None:
    bare = "09-19-2026 13:00:01 RAM 2850/7486MB (lfb 33x4MB) EMC_FREQ 5%@2133 tj@45C\n"
    document, session = imported(tmp_path, line(0) + bare + line(2))
    assert series(session, "power_w.total") == [(0, 3.582), (1, None), (2, 3.582)]
    power = next(s for s in document["signals"] if s["name"] == "power_w.total")
    assert (power["samples"], power["unknown"]) == (2, 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no line of tegrastats"),
        (b"hello\nworld\n", "no line of tegrastats"),
        (b"\0" * 100_000, "no line of tegrastats"),
        (b"\x7fELF" + bytes(range(256)) * 50, "not a tegrastats log, but a program"),
        (gzip.compress(b"RAM 5/7MB\n"), "not a tegrastats log, but compressed by gzip: unpack"),
        (b"data\0\1\2\nmore\0", "not a tegrastats log, but binary data"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "log").write_bytes(content)
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite", "--interval", "1")
    assert result.exit_code == 1
    assert message in result.stderr and "\n" not in result.stderr.strip()
    assert not (tmp_path / "s.sqlite").exists()


def test_a_database_that_quotes_lines_is_no_log(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "log")) as connection:
        connection.execute("CREATE TABLE sample (raw TEXT)")
        connection.executemany("INSERT INTO sample VALUES (?)", [(f"\n{line(0)}",)] * 9)
        connection.commit()
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite")
    assert result.exit_code == 1 and "not a tegrastats log, but a SQLite database" in result.stderr
    assert not (tmp_path / "s.sqlite").exists()


def test_what_an_impossible_emc_clock_gives_is_suspect_too(tmp_path: Path) -> None:
    text = "".join(line(second).replace("@2133", "@3199") for second in range(30))
    document, session = imported(tmp_path, text, "--device", "orin-nano")  # 2133 MHz at most
    by_clock = ("emc_clock_hz", "emc_busy_frac", "dram_bandwidth_bytes_per_s")
    suspect = {s["name"]: s["suspect"] for s in document["signals"]}
    assert {name for name, samples in suspect.items() if samples} == set(by_clock)
    assert all(suspect[name] == 30 for name in by_clock)
    told = {detail["signal"]: detail["reason"] for detail in events(session, "suspect")}
    assert "EMC clock" in told["dram_bandwidth_bytes_per_s"]
    report = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite")]).stdout
    (summary,) = [text for text in report.splitlines() if text.startswith("On average")]
    assert "GB/s" not in summary and "GPU 10 %" in summary


def test_a_clock_that_is_possible_again_is_believed_again(tmp_path: Path) -> None:
    text = line(0) + line(1).replace("@2133", "@3199") + line(2)
    _, session = imported(tmp_path, text, "--device", "orin-nano")
    (bandwidth,) = [s.id for s in session.signals if s.name == "dram_bandwidth_bytes_per_s"]
    qualities = [sample.quality for sample in session.samples if sample.signal_id == bandwidth]
    assert qualities == ["replayed", "suspect", "replayed"]


def test_a_line_torn_in_the_middle_of_a_log_gives_no_figures(tmp_path: Path) -> None:
    torn = "09-19-2026 13:00:01 RAM 2850/7486MB (lfb 33x4MB) EMC_FREQ 5%@31\n"
    document, session = imported(tmp_path, line(0) + torn + line(2) + line(3))
    assert document["lines"] == {"read": 3, "dropped": 1}
    # The second that has no line stays empty.
    assert series(session, "emc_clock_hz") == [(0, 2133e6), (2, 2133e6), (3, 2133e6)]
    assert [(gap["since_ns"], gap["until_ns"]) for gap in events(session, "gap")] == [
        (0, 2_000_000_000)
    ]


def test_progress_of_what_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log").write_text("".join(line(n % 60, date="09-19-2026") for n in range(2500)))
    arguments = (tmp_path / "log", "-o", tmp_path / "s.sqlite", "--force", "--interval", "1")
    assert "lines read" not in run(*arguments).stderr  # soon done
    monkeypatch.setattr("edgeprof.cli.reading_progress._PATIENCE_S", 0.0)
    monkeypatch.setattr("edgeprof.cli.reading_progress._LINE_EVERY_S", 0.0)
    shown = run(*arguments)
    assert shown.exit_code == 0
    told = [text for text in shown.stderr.splitlines() if "lines read" in text]
    # Before every thousandth line; 1000 of 2500 lines of one length are 40 %.
    assert [text.split()[0] for text in told] == ["0", "1000", "2000"]
    shares = [int(text.partition("(")[2].partition("%")[0]) for text in told]
    assert shares == pytest.approx([0, 40, 80], abs=2)
    assert "lines read" not in run(*arguments, "--quiet").stderr


def test_p09_an_existing_file_is_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line(0) + line(1))
    (tmp_path / "notes.txt").write_text("mine")
    assert run(tmp_path / "log", "-o", tmp_path / "s.sqlite").exit_code == 0
    again = run(tmp_path / "log", "-o", tmp_path / "s.sqlite")
    assert again.exit_code == 2 and "--force" in again.stderr
    other = run(tmp_path / "log", "-o", tmp_path / "notes.txt", "--force")
    assert other.exit_code == 2 and (tmp_path / "notes.txt").read_text() == "mine"


def test_a_log_that_is_refused_half_way_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgeprof.telemetry.tegrastats_log.MOST_LINES", 5)
    (tmp_path / "log").write_text("".join(line(second) for second in range(9)))
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite")
    assert result.exit_code == 1 and "more than 5 lines" in result.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["log"]


@pytest.mark.parametrize("interval", ["0", "-1", "nan", "inf", "1e9"])
def test_intervals_that_are_none(tmp_path: Path, interval: str) -> None:
    (tmp_path / "log").write_text(line(0))
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite", "--interval", interval)
    assert result.exit_code == 2 and "between 0.001 and 3600 seconds" in result.stderr


def test_paths_and_boards_that_are_not_there(tmp_path: Path) -> None:
    missing = run(tmp_path / "none", "-o", tmp_path / "s.sqlite")
    assert missing.exit_code == 2 and "no such file" in missing.stderr
    folder = run(tmp_path, "-o", tmp_path / "s.sqlite")
    assert folder.exit_code == 2 and "is a folder" in folder.stderr
    (tmp_path / "log").write_text(line(0))
    board = run(tmp_path / "log", "-o", tmp_path / "s.sqlite", "--device", "orn-nano")
    assert board.exit_code == 2 and "orin-nano" in board.stderr
    assert run(tmp_path / "log").exit_code == 2  # no -o


def test_stdin_is_a_log_too(tmp_path: Path) -> None:
    result = run("-", "-o", tmp_path / "s.sqlite", stdin=(line(0) + line(1)).encode())
    assert result.exit_code == 0 and "2 read" in result.stdout
    command = [sys.executable, "-m", "edgeprof", "import", "tegrastats", "-", "--force", "-o"]
    real = subprocess.run(
        [*command, tmp_path / "s.sqlite"], input=line(0) * 2, capture_output=True, text=True
    )
    assert real.returncode == 0 and "2 read" in real.stdout
    assert real.stderr == f"session: {tmp_path / 's.sqlite'}\n"


def test_escapes_in_a_log_reach_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(line(0)[:-1] + " \x1b]0;evil\x07 \u202eX\n" + line(1))
    result = run(tmp_path / "log", "-o", tmp_path / "s.sqlite")
    assert result.exit_code == 0 and "unknown fields: 1" in result.stdout
    assert result.stdout.replace("\n", "").isprintable()


def test_the_report_takes_it(tmp_path: Path) -> None:
    imported(tmp_path, "".join(line(second) for second in range(10)), "--device", "orin-nano")
    for options in ([], ["--json"], ["--format", "md"]):
        result = CliRunner().invoke(cli, ["report", str(tmp_path / "s.sqlite"), *options])
        assert result.exit_code == 0, result.output
        assert "replay" in result.stdout.lower()


def test_the_file_is_one_that_sqlite_reads(tmp_path: Path) -> None:
    imported(tmp_path, line(0) + line(1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board.log", "s.sqlite"]
    with closing(sqlite3.connect(tmp_path / "s.sqlite")) as connection:
        rows = connection.execute(
            "SELECT value FROM sample JOIN signal ON signal.id = signal_id"
            " WHERE name = 'gpu_clock_hz'"
        ).fetchall()
    assert rows == [(305e6,), (305e6,)]


def test_help_is_light() -> None:
    code = (
        "import sys\nfrom edgeprof.cli.commands import cli\n"
        "try: cli(['import', 'tegrastats', '--help'], standalone_mode=True)\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'psutil', 'msgspec', 'matplotlib'} & set(sys.modules)))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "500 000 lines" in output.replace("\n  ", " ")
    assert not {"numpy", "psutil", "matplotlib"} & set(output.splitlines()[-1].split("'"))
