"""The Markdown report and its folder, from the session made by hand."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_session import board_signals

from edgeprof.analysis.summary import Summary, summarise
from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.report.folder import check_folder
from edgeprof.report.markdown import PLOTS, markdown, report_names, write_report
from edgeprof.session.columns import Samples
from edgeprof.session.records import Session


@pytest.fixture(scope="module")
def summary(made_session: Session) -> Summary:
    return summarise(made_session)


@pytest.fixture(scope="module")
def document(summary: Summary) -> str:
    drawn = ("tokens-per-second", "time-share", "acceptance", "verify-cost", "roofline", "timeline")
    return markdown(summary, [f"{stem}.svg" for stem in drawn])


@pytest.fixture
def board_like(made_session: Session) -> Session:
    """The session made by hand, with samples of an emulated board."""
    signals, samples = board_signals(made_session)
    return msgspec.structs.replace(made_session, signals=signals, samples=Samples.of(samples))


def section(document: str, title: str) -> str:
    return document.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def cells(text: str, name: str) -> list[str]:
    """The cells of the table row that begins with ``name``."""
    line = next(line for line in text.splitlines() if re.match(rf"\| {re.escape(name)} +\|", line))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_opens_with_the_answer_and_the_contrast(document: str) -> None:
    opening = document.split("## ", 1)[0]
    assert opening.startswith("# tiny on Paper board\n\n*Does it pay?*\n")
    assert "**fp32: speculation pays: 1.54x [1.54, 1.54] with ngram k=3" in opening
    assert "**int4: speculation does not pay: at best 0.77x" in opening
    assert "costs 1.00 of one token with fp32 and 1.80 with int4" in opening


def test_sections_in_order(document: str) -> None:
    titles = re.findall(r"^## (.*)$", document, flags=re.MULTILINE)
    assert titles == [
        "Speed", "As llama-bench lists it", "Output", "Where the time goes", "Acceptance",
        "Cost of verification", "Passes under the roof", "Timeline",
        "What alternating costs", "Signals", "Memory (GiB)", "Limits", "Warnings", "Environment",
        "Not measured", "How it was measured",
    ]  # fmt: skip


def test_speed_tables(document: str) -> None:
    speed = section(document, "Speed")
    assert cells(speed, "fp32+draft k=2")[1:4] == ["60.0 ± 9.4", "2", "1.33x [1.33, 1.33]"]
    repeats = speed[speed.index("repeat 1") :]
    assert cells(repeats, "fp32+draft k=2") == ["fp32+draft k=2", "66.7", "53.3"]
    latency = speed[speed.index("TTFT") :]
    # TTFT (50 + 62.5) / 2, TPOT (15 + 18.75) / 2
    assert cells(latency, "fp32+draft k=2")[1:3] == ["56.2", "16.9"]


def test_a_table_as_llama_bench_lists_it(document: str) -> None:
    table = section(document, "As llama-bench lists it")
    assert "| model " in table and "| backend |" in table and "t/s" in table
    (row,) = (line for line in table.splitlines() if "+spec ngram k=3" in line)
    assert [cell.strip() for cell in row.strip("|").split("|")][3] == "cpu"


def test_output_and_acceptance(document: str) -> None:
    output = section(document, "Output")
    assert "The reference is plain one-token decoding" in output
    assert cells(output, "int4+draft k=2")[1:] == ["2 of 4", "36", "position 5", "0.004"]
    acceptance = cells(section(document, "Acceptance"), "fp32+draft k=2")
    # 4 of 8 drafted, 4 of 7 evaluated, 8 tokens in 4 rounds
    assert acceptance[1:4] == ["0.50", "0.57", "2.00"]
    assert acceptance[4:] == ["0.75 0.25", "0.75 0.33", "4 8 4"]


def test_round_balance(document: str) -> None:
    balance = section(document, "Where the time goes").split("A round in units", 1)[1]
    assert cells(balance, "int4+draft k=2")[1:6] == ["2.00", "0.60", "1.80", "0.20", "2.60"]


def test_limits_carry_numbers_and_advice(document: str) -> None:
    limits = section(document, "Limits")
    assert "  - compute-bound verification: the target takes 1.80" in limits
    # 2.6 plain tokens of 11.25 ms a round, of which held verification (18 - 10) / 11.25 = 0.71 may
    # take 0.1: 2 / 1.99
    advice = "a kernel or provider with more arithmetic: at 1.10 predicted 1.01x"
    assert f"*Try:* {advice}" in limits


def test_what_alternating_costs_says_beside_what_it_may_differ(document: str) -> None:
    alternating = section(document, "What alternating costs")
    assert "Medians of single passes. The term in situ and the limits count means" in alternating


def test_p11_environment_block(document: str) -> None:
    environment = section(document, "Environment")
    for expected in (
        "Paper board", "Paper CPU", "1.23.0", "3.11.7", "2 (chat 1, code 1), digest ",
        "0123456789ab", "int4 MatMulNBits", "31 MiB", "package 41 to 52 °C, at most 55",
    ):  # fmt: skip
        assert expected in environment, expected
    assert [cells(environment, name)[1] for name in ("cores", "new tokens", "seed")] == [
        "2", "9", "7",
    ]  # fmt: skip


def test_p11_nothing_tells_whose_machine_it_was(document: str) -> None:
    for private in ("1421200012345", "secret-host", "/home/somebody"):
        assert private not in document


def test_p11_board_names_its_release_and_power_mode(made_session: Session) -> None:
    device = {"name": "Orin Nano", "kind": "jetson", "l4t": "36.4.3", "power_mode": "15W"}
    info = msgspec.structs.replace(made_session.info, device=device)
    board = markdown(summarise(msgspec.structs.replace(made_session, info=info)))
    environment = section(board, "Environment")
    assert cells(environment, "L4T")[1] == "36.4.3"
    assert cells(environment, "power mode")[1] == "15W"
    lacking = cells(environment, "clocks, numpy, sampling")
    assert lacking[1] == "not recorded: this session does not hold it"


def test_p11_what_the_environment_lacks_has_a_reason(document: str, maker: Any) -> None:
    made = section(document, "Environment")
    assert cells(made, "host")[1] == "Paper board"
    assert cells(made, "L4T, power mode, clocks")[1] == "none: no Jetson board"
    assert cells(made, "numpy, sampling")[1] == "not recorded: this session does not hold it"
    device = {"kind": "board", "l4t": None, "power_mode": None, "clocks": None}
    environment = {"cpu": None, "cores": 6, "last_level_cache_bytes": None}
    info = {"device": device, "environment": environment}
    maker.info = msgspec.structs.replace(maker.info, kind="watch", **info)
    lacking = section(markdown(summarise(maker.session())), "Environment")
    for name, why in {
        "L4T": "the board has no release file of L4T",
        "power mode": "nothing on the board told it",
        "clocks": "no range of the memory clock could be read",
        "CPU": "the kernel names no processor",
        "last-level cache": "the kernel lists no caches",
        "temperatures": "no sensor was read",
        "board, memory, platform": "this session does not hold it",
    }.items():
        assert cells(lacking, name)[1] == f"not recorded: {why}"
    maker.info = msgspec.structs.replace(maker.info, kind="import", environment={}, device={})
    imported = section(markdown(summarise(maker.session())), "Environment")
    assert "not recorded, " not in imported
    everything = "board, L4T, power mode, clocks, CPU, cores, memory, last-level cache, platform"
    told = f"{everything}: a log of tegrastats does not tell it"
    assert cells(imported, "not recorded")[1] == told


def test_what_an_emulated_board_ran_on_is_called_the_hosts(board_like: Session) -> None:
    environment = section(markdown(summarise(board_like)), "Environment")
    for name in ("cores", "memory", "platform"):
        assert cells(environment, f"{name}, of the host that emulated")
    assert cells(environment, "CPU")[1] == "Paper CPU"  # from the board's own files


def test_not_measured_gives_reasons(document: str) -> None:
    missing = section(document, "Not measured")
    assert "power and energy: no power sensor was read" in missing
    assert "bandwidth is modelled" in missing
    assert "temperatures" not in missing  # one zone was read


def test_incomplete_session_says_so_at_the_top(made_session: Session) -> None:
    info = msgspec.structs.replace(made_session.info, complete=False, ended_reason="killed")
    text = markdown(summarise(msgspec.structs.replace(made_session, info=info)))
    assert text.splitlines()[2].startswith("**Incomplete session: killed. The figures")


def test_tables_are_well_formed(document: str) -> None:
    for block in re.findall(r"(?:^\|.*\|$\n?)+", document, flags=re.MULTILINE):
        lines = block.strip().splitlines()
        assert len({line.count("|") for line in lines}) == 1
        assert len({len(line) for line in lines}) == 1, "columns line up as plain text"
        assert set(lines[1]) <= set("|-: ")


def test_text_from_outside_stays_text(made_session: Session) -> None:
    recipe = {"name": "a|b <script> [x](http://y)", "question": "two\nlines\x1b[2J"}
    info = msgspec.structs.replace(made_session.info, recipe=recipe)
    text = markdown(summarise(msgspec.structs.replace(made_session, info=info)))
    assert text.startswith(r"# a\|b \<script> [x]\(http://y) on Paper board")
    assert "*two lines\ufffd[2J*" in text


def test_p12_figures_do_not_follow_the_locale(
    summary: Summary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert "60.0 ± 9.4" in markdown(summary)


def test_p14_single_repeat_has_no_spread_and_no_series(maker: Any) -> None:
    maker.decode_leg("fp32")
    speed = section(markdown(summarise(maker.session())), "Speed")
    assert "±" not in speed and "repeat 1" not in speed


def test_empty_session_is_a_document(maker: Any) -> None:
    text = markdown(summarise(maker.session()))
    assert "No variant with a drafter was compared" in text
    assert "## Speed" not in text


def test_report_links_exactly_the_plots_beside_it(
    made_session: Session, summary: Summary, tmp_path: Path
) -> None:
    report = write_report(made_session, summary, tmp_path)
    links = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", report.read_text(encoding="utf-8"))
    beside = {path.name for path in report.parent.iterdir()} - {"report.md"}
    assert set(links) == beside and beside <= {f"{stem}.svg" for stem in PLOTS}
    assert {"timeline.svg", "roofline.svg"} <= beside


def test_p09_report_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    with pytest.raises(UsageFault, match=r"report\.md: exists already.*--force"):
        check_folder(tmp_path, report_names(), force=False)
    check_folder(tmp_path, report_names(), force=True)
    assert (tmp_path / "report.md").read_text() == "mine"


def test_p09_plot_that_is_there_is_kept_too(tmp_path: Path) -> None:
    (tmp_path / "roofline.svg").write_text("mine")
    with pytest.raises(UsageFault, match=r"roofline\.svg: exists already"):
        check_folder(tmp_path, report_names(), force=False)


def test_p08_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UsageFault, match="is a file"):
        check_folder(tmp_path / "file", report_names(), force=False)
    with pytest.raises(EnvironmentFault, match="cannot be written to"):
        check_folder(tmp_path / "file" / "below", report_names(), force=False)
