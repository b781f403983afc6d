"""The live stream, over stand-ins for ``tegrastats`` and ``sudo`` that the tests write."""

import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgeprof.session.records import Event
from edgeprof.telemetry.chain import WHOLE_SOURCE
from edgeprof.telemetry.source import Absence, Batch, BoardFigures, Reading
from edgeprof.telemetry.sources import tegrastats
from edgeprof.telemetry.sources.tegrastats import TegrastatsStream, find_tegrastats

BOARD = BoardFigures(bytes_per_emc_clock=32.0)
ROOT = "RAM 2850/7486MB (lfb 33x4MB) EMC_FREQ 50%@2133 GR3D_FREQ 12%@[305] VDD_IN 3582mW/3582mW"
USER = "RAM 2850/7486MB (lfb 33x4MB) GR3D_FREQ 12% VDD_IN 3582mW/3582mW"
EMC = ["emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"]
Told = Batch | Absence | Event


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a program of that name, with that Python code, first on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def put(name: str, code: str) -> Path:
        program = folder / name
        program.write_text(f"#!{sys.executable}\nimport os, sys, time\n{code}\n")
        program.chmod(0o755)
        return program

    return put


@pytest.fixture
def as_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)


def says(*lines: str, then: str = "time.sleep(60)") -> str:
    return f"print({chr(10).join(lines)!r}, flush=True)\n{then}"


def hear(
    stream: TegrastatsStream, enough: Callable[[Sequence[Told]], bool], for_s: float = 20.0
) -> list[Told]:
    """What it tells until that is enough, or it has ended."""
    told: list[Told] = []
    until = time.monotonic() + for_s
    while stream.open and not enough(told) and time.monotonic() < until:
        select.select([stream], [], [], 0.2)
        told += stream.receive(time.monotonic_ns())
    assert enough(told) or not stream.open, "nothing came"
    return told


def batches(told: Sequence[Told]) -> list[Batch]:
    return [item for item in told if isinstance(item, Batch)]


def absences(told: Sequence[Told]) -> list[Absence]:
    return [item for item in told if isinstance(item, Absence)]


def events(told: Sequence[Told]) -> dict[str, Event]:
    return {item.kind: item for item in told if isinstance(item, Event)}


def test_lines_become_batches_stamped_at_receipt(install: Callable[[str, str], Path]) -> None:
    install(
        "tegrastats",
        f"assert sys.argv[1:] == ['--interval', '50'], sys.argv\n"
        f"while True: print({ROOT!r}, flush=True); time.sleep(0.05)",
    )
    stream = TegrastatsStream(BOARD, 0.05)
    before_ns = time.monotonic_ns()
    assert stream.start() == []
    told = hear(stream, lambda told: len(batches(told)) >= 3)
    stream.close()
    assert not stream.open and absences(told) == []
    first = batches(told)[0]
    assert before_ns <= first.t0_ns == first.t1_ns <= time.monotonic_ns()
    # 0.5 x 2133 MHz x 32 B = 34.128 GB/s
    assert first.readings["dram_bandwidth_bytes_per_s"].value == pytest.approx(34.128e9)
    assert first.readings["emc_busy_frac"] == Reading(0.5, "EMC_FREQ 50%@2133")
    assert first.readings["power_w.total"].value == 3.582
    times = [batch.t1_ns for batch in batches(told)]
    assert times == sorted(times)


def test_without_root_the_reason_for_no_emc_is_told(
    install: Callable[[str, str], Path], as_user: None
) -> None:
    install("tegrastats", says(USER))
    install("sudo", "sys.exit(1)")  # no rule
    stream = TegrastatsStream(BOARD)
    assert stream.start() == []
    told = hear(stream, lambda told: len(absences(told)) == 3)
    stream.close()
    assert [absence.signal for absence in absences(told)] == EMC
    for absence in absences(told):
        assert absence.reason == "tegrastats gives it to root only"
        way_out = "edgeprof sensor (it prints the sudo command), or a sudo rule for tegrastats"
        assert absence.fix == way_out
    (batch,) = batches(told)
    assert batch.readings["gpu_busy_frac"].value == pytest.approx(0.12)
    assert not set(EMC) & set(batch.readings)


def test_s05_a_zero_without_a_clock_is_unknown(
    install: Callable[[str, str], Path], as_user: None
) -> None:
    install("tegrastats", says("RAM 998/15389MB (lfb 3x4MB) EMC_FREQ 0% GR3D_FREQ 0%"))
    install("sudo", "sys.exit(1)")
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: len(absences(told)) == 3)
    stream.close()
    assert batches(told)[0].readings["emc_busy_frac"].value is None
    assert batches(told)[0].readings["gpu_busy_frac"].value == 0


def test_a_sudo_rule_is_used_and_no_password_asked_for(
    install: Callable[[str, str], Path], as_user: None, tmp_path: Path
) -> None:
    program = install(
        "tegrastats",
        f"print({ROOT!r} if 'AS_ROOT' in os.environ else {USER!r}, flush=True)\ntime.sleep(60)",
    )
    calls = tmp_path / "calls"
    install(
        "sudo",
        f"open({str(calls)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "if sys.argv[2] == '-l': sys.exit(0)\n"
        "os.execve(sys.argv[2], sys.argv[2:], {**os.environ, 'AS_ROOT': '1'})",
    )
    stream = TegrastatsStream(BOARD)
    assert stream.start() == []
    told = hear(stream, lambda told: len(batches(told)) == 1)
    stream.close()
    assert batches(told)[0].readings["emc_busy_frac"].value == 0.5
    command = f"{program} --interval 200"
    assert calls.read_text().splitlines() == [f"-n -l {command}", f"-n {command}"]


def test_a_rule_that_wants_a_password_after_all_leaves_the_plain_command(
    install: Callable[[str, str], Path], as_user: None
) -> None:
    install("tegrastats", says(USER))
    install("sudo", "sys.exit(0 if sys.argv[2] == '-l' else 'sudo: a password is required')")
    stream = TegrastatsStream(BOARD)
    assert stream.start() == []
    told = hear(stream, lambda told: len(absences(told)) == 3)
    stream.close()
    assert batches(told)[0].readings["power_w.total"].value == 3.582


def test_a_sudo_that_hangs_is_left_behind(
    install: Callable[[str, str], Path], as_user: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tegrastats, "_SUDO_PATIENCE_S", 0.2)
    install("tegrastats", says(USER))
    install("sudo", "time.sleep(60)")
    stream = TegrastatsStream(BOARD)
    t0 = time.monotonic()
    assert stream.start() == []
    assert time.monotonic() - t0 < 5
    assert hear(stream, lambda told: len(batches(told)) == 1)
    stream.close()


def test_root_needs_no_sudo(
    install: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    install("tegrastats", says(USER))
    install("sudo", "sys.exit('never called')")
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: len(absences(told)) == 3)
    stream.close()
    # Root sees no EMC either: there is none to see.
    assert {absence.reason for absence in absences(told)} == {"no line tells of the EMC"}
    assert all(absence.fix is None for absence in absences(told))


def test_the_cause_of_the_end_is_told_and_it_can_be_started_again(
    install: Callable[[str, str], Path],
) -> None:
    install("tegrastats", says(ROOT, then="sys.exit('cannot open the board')"))
    stream = TegrastatsStream(BOARD)
    for _ in range(2):
        assert stream.start() == []
        told = hear(stream, lambda told: False)
        assert len(batches(told)) == 1
        (absence,) = absences(told)
        assert absence.signal == WHOLE_SOURCE and not stream.open
        assert absence.reason == "tegrastats ended with exit code 1: cannot open the board"
    assert list(stream.receive(time.monotonic_ns())) == []
    stream.close()


def test_a_line_in_two_pieces_is_one_and_a_torn_beginning_is_dropped(
    install: Callable[[str, str], Path],
) -> None:
    install(
        "tegrastats",
        f"pieces = [{USER[-20:]!r} + '\\n', {ROOT[:50]!r}, {ROOT[50:]!r} + '\\n', {ROOT[:30]!r}]\n"
        "for piece in pieces: sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.05)",
    )
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: False)
    assert len(batches(told)) == 1
    assert batches(told)[0].readings["power_w.total"].value == 3.582
    # `IN 3582mW/3582mW` is no rail of any board; the last line was never finished.
    assert stream.dropped == 1
    (first, *_) = [item for item in told if isinstance(item, Event) and item.kind == "dropped"]
    assert first.detail == {"source": "tegrastats", "lines": 1}


def test_only_the_first_line_must_begin_like_one(install: Callable[[str, str], Path]) -> None:
    install("tegrastats", says("torn", "VDD_IN 3582mW/3582mW", "VDD_IN 3600mW/3582mW"))
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: len(batches(told)) == 2)
    stream.close()
    assert [b.readings["power_w.total"].value for b in batches(told)] == [3.582, 3.6]


def test_what_a_line_lacks_is_unknown_there(install: Callable[[str, str], Path]) -> None:
    install("tegrastats", says(ROOT, "RAM 2850/7486MB (lfb 33x4MB)", ROOT))
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: len(batches(told)) == 3)
    stream.close()
    powers = [batch.readings["power_w.total"].value for batch in batches(told)]
    assert powers == [3.582, None, 3.582]


def test_of_lines_that_come_together_only_the_last_is_fresh(
    install: Callable[[str, str], Path],
) -> None:
    install("tegrastats", says(ROOT))
    stream = TegrastatsStream(BOARD)
    stream.start()
    hear(stream, lambda told: len(batches(told)) == 1)
    stream._early = [ROOT, ROOT]  # as when two came since the last look
    before_ns = stream._heard_ns
    older, fresh = batches(list(stream.receive(before_ns + 1_000_000_000)))
    stream.close()
    assert (older.t0_ns, older.t1_ns) == (before_ns, before_ns + 1_000_000_000)
    assert fresh.t0_ns == fresh.t1_ns == before_ns + 1_000_000_000


def test_s32_the_interval_that_counts_is_the_delivered_one(
    install: Callable[[str, str], Path],
) -> None:
    install("tegrastats", f"while True: print({ROOT!r}, flush=True); time.sleep(0.06)")
    stream = TegrastatsStream(BOARD, 0.001)
    assert stream.asked_s == 0.01  # no tegrastats prints faster
    stream.start()
    told = hear(stream, lambda told: "interval" in events(told))
    stream.close()
    detail = events(told)["interval"].detail
    assert detail["asked_s"] == 0.01 and 0.06 <= detail["given_s"] == stream.interval_s


def test_unknown_fields_are_told_once(install: Callable[[str, str], Path]) -> None:
    new = f"{ROOT} FUTURE_TOKEN value"
    install("tegrastats", says(new, new, new))
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: len(batches(told)) == 3)
    stream.close()
    found = [i for i in told if isinstance(i, Event) and i.kind == "unknown_fields"]
    assert [event.detail["fields"] for event in found] == [["FUTURE_TOKEN"]]


def test_garbage_is_counted_and_not_told_line_by_line(
    install: Callable[[str, str], Path],
) -> None:
    install(
        "tegrastats",
        f"print('\\n'.join(['?' * 99] * 1000 + [{ROOT!r}]), flush=True)\ntime.sleep(60)",
    )
    stream = TegrastatsStream(BOARD)
    stream.start()
    told = hear(stream, lambda told: len(batches(told)) == 1)
    stream.close()
    dropped = [i for i in told if isinstance(i, Event) and i.kind == "dropped"]
    assert dropped[-1].detail["lines"] > 500 and len(dropped) < 12
    assert stream.dropped == 1000


def test_silence_is_neither_waited_for_nor_an_end(install: Callable[[str, str], Path]) -> None:
    install("tegrastats", "time.sleep(60)")
    stream = TegrastatsStream(BOARD)
    stream.start()
    t0 = time.monotonic()
    assert list(stream.receive(time.monotonic_ns())) == []
    assert time.monotonic() - t0 < 1 and stream.open
    assert stream.silence_s == 5.0  # after which its user gives up on it
    stream.close()


def test_a_machine_without_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tegrastats, "_PLACES", (str(tmp_path / "tegrastats"),))
    stream = TegrastatsStream(BOARD)
    (absence,) = stream.start()
    assert absence.signal == WHOLE_SOURCE and "not installed" in absence.reason
    assert not stream.open
    stream.close()


def test_older_releases_have_it_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    old = tmp_path / "home" / "tegrastats"
    old.parent.mkdir()
    old.write_text("")
    monkeypatch.setattr(tegrastats, "_PLACES", (str(tmp_path / "none"), str(old)))
    assert find_tegrastats() is None  # not executable
    old.chmod(0o755)
    assert find_tegrastats() == str(old)


def test_one_that_cannot_run_here_says_why(install: Callable[[str, str], Path]) -> None:
    install("tegrastats", "").write_bytes(b"\x7fELF of another machine")
    (absence,) = TegrastatsStream(BOARD).start()
    assert "cannot be started: Exec format error" in absence.reason


def test_beside_the_files_of_another_root_it_is_simulated(
    install: Callable[[str, str], Path],
) -> None:
    install("tegrastats", says(f"{ROOT} tj@999C"))
    stream = TegrastatsStream(BoardFigures(root="/tree", bytes_per_emc_clock=32.0))
    stream.start()
    told = hear(stream, lambda told: len(batches(told)) == 1)
    stream.close()
    readings = batches(told)[0].readings
    assert readings["emc_busy_frac"].quality == "simulated"
    assert readings["temp_c.tj"].quality == "suspect"


def test_an_unknown_bus_costs_the_bandwidth_only(install: Callable[[str, str], Path]) -> None:
    install("tegrastats", says(ROOT))
    stream = TegrastatsStream(BoardFigures())
    stream.start()
    told = hear(stream, lambda told: len(absences(told)) == 1)
    stream.close()
    (absence,) = absences(told)
    assert absence.signal == "dram_bandwidth_bytes_per_s"
    assert "bus width" in absence.reason and absence.fix is not None
    assert batches(told)[0].readings["emc_busy_frac"].value == 0.5


def test_a_share_of_a_counter_without_a_known_scale_is_kept_as_text_only(
    install: Callable[[str, str], Path],
) -> None:
    line = "RAM 1/2MB EMC_FREQ 34%@4266 GR3D_FREQ 87%@[1574] VIN 9000mW/9000mW/9000mW"
    install("tegrastats", says(line))
    thor = BoardFigures(bytes_per_emc_clock=64.0, emc_counter_established=False)
    stream = TegrastatsStream(thor)
    assert stream.start() == []
    told = hear(stream, lambda told: len(absences(told)) == 2)
    stream.close()
    readings = batches(told)[0].readings
    for signal in ("emc_busy_frac", "dram_bandwidth_bytes_per_s"):
        assert readings[signal].value is None and readings[signal].raw == "EMC_FREQ 34%@4266"
    assert readings["emc_clock_hz"].value == 4266e6
    missing = {one.signal: one.reason for one in absences(told)}
    assert missing.keys() == {"emc_busy_frac", "dram_bandwidth_bytes_per_s"}
    assert all("calibrated" in reason for reason in missing.values())


def test_every_channel_says_what_is_known_of_its_window() -> None:
    channel = TegrastatsStream(BOARD).channel
    for name in (*EMC[::2], "gpu_busy_frac"):
        assert channel(name).window_kind == "unknown" and channel(name).window_s is None
    assert channel("cpu_busy_frac").window_kind == "boxcar"
    assert "not total less" in (channel("ram_used_bytes").note or "")
    assert channel("temp_c.tj").window_kind == "instantaneous"
    assert channel("power_w.VDD_SOC").node == "tegrastats"
