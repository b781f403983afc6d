"""The jtop source, over the real client program and a stand-in for what it imports."""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from emulated.jtop_standin import StandIn

from edgeprof.session.records import Event
from edgeprof.telemetry.signals import unit_of
from edgeprof.telemetry.source import Absence, Batch, BoardFigures, Reading
from edgeprof.telemetry.sources import jtop_client, jtop_faults
from edgeprof.telemetry.sources.jtop import JtopStream
from edgeprof.telemetry.sources.jtop_faults import ClientError, remedy
from edgeprof.telemetry.sources.jtop_readings import Truth

CLIENT = Path(jtop_client.__file__)
BOARD = BoardFigures(bytes_per_emc_clock=32.0)
PATIENCE_S = 30.0
Told = Batch | Absence | Event
Kind = TypeVar("Kind", Batch, Absence, Event)


class Heard(list[Told]):
    def of(self, kind: type[Kind]) -> list[Kind]:
        return [told for told in self if isinstance(told, kind)]

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [event.detail for event in self.of(Event) if event.kind == kind]


def stream(stand_in: StandIn, interval_s: float = 0.2, **options: Any) -> JtopStream:
    return JtopStream(BOARD, interval_s, stand_in.command(CLIENT), **options)


def says(tmp_path: Path, *lines: object, then: str = "sys.stdin.read()") -> JtopStream:
    """A stream whose client prints these lines: text as it is, the rest as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    code = f"import sys; [print(line, flush=True) for line in {texts!r}]; {then}"
    return JtopStream(BOARD, 1.0, [sys.executable, "-I", "-c", code])


def hear(jtop: JtopStream, enough: Callable[[Heard], bool] = lambda heard: False) -> Heard:
    """Until there is enough, or nothing more can come."""
    heard = Heard(jtop.start())
    until = time.monotonic() + PATIENCE_S
    while jtop.open and not enough(heard):
        assert time.monotonic() < until, heard
        select.select([jtop], [], [], 0.2)
        heard += jtop.receive(time.monotonic_ns())
    jtop.close()
    return heard


def batches(count: int) -> Callable[[Heard], bool]:
    return lambda heard: len(heard.of(Batch)) >= count


HELLO = {"kind": "hello", "interval_s": 1.0, "python": "python", "client_version": "7.2.2"}


def update(**sections: Any) -> dict[str, Any]:
    stamps = {"heard_ns": time.monotonic_ns(), "boottime_offset_ns": 0, "uptime_s": None}
    return {"kind": "update", **stamps, **sections}


def clock_of(batch: Batch) -> float | None:
    return batch.readings["emc_clock_hz"].value


def test_updates_become_readings_stamped_where_they_were_read(tmp_path: Path) -> None:
    before_ns = time.monotonic_ns()
    jtop = stream(StandIn(tmp_path / "v", updates=[{}] * 2))
    heard = hear(jtop, batches(2))
    first, second = heard.of(Batch)
    assert before_ns < first.t0_ns <= first.t1_ns < second.t1_ns <= time.monotonic_ns()
    assert first.t0_ns < second.t0_ns  # the service's stamps, not those of the receipt
    assert first.readings == {
        "cpu_online": Reading(2),
        "emc_clock_hz": Reading(2_133_000_000, "2133000"),
        "gpu_busy_frac": Reading(0.555, "55.5"),
        "gpu_clock_hz": Reading(612_000_000, "612000"),
        "power_w.VDD_CPU_GPU_CV": Reading(1.473, "1473"),
        "power_w.VDD_SOC": Reading(1.375, "1375"),
        "power_w.total": Reading(5.894, "5894"),
        "ram_total_bytes": Reading(7_987_200_000, "7800000"),
        "ram_used_bytes": Reading(3_153_920_000, "3080000"),
        "swap_used_bytes": Reading(1_024_000, "1000"),
        "temp_c.cpu": Reading(48.5, "48.5"),
    }
    assert heard.events("power_mode") == [
        {"source": "jtop", "power_mode": "15W", "jetson_clocks": None, "before": None}
    ]


def test_every_signal_can_be_announced_with_what_is_known_of_its_window(tmp_path: Path) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[{}]))
    (batch,) = hear(jtop, batches(1)).of(Batch)
    for name in (*batch.readings, "emc_busy_frac", "dram_bandwidth_bytes_per_s"):
        unit_of(name)
        channel = jtop.channel(name)
        assert (channel.name, channel.window_s) == (name, None)
        assert channel.note is not None and "0.1 s" in channel.note  # the age of a reading
        instantaneous = name.startswith(("emc_clock", "gpu_clock", "cpu_", "ram_", "swap_"))
        assert (channel.window_kind, channel.window_basis) == (
            ("instantaneous", "assumed") if instantaneous else ("unknown", None)
        )


def test_stamps_that_cannot_be_give_way_to_the_receipt(tmp_path: Path) -> None:
    emc = {"EMC": {"cur": 2133000}}
    now_ns = time.monotonic_ns()
    offset_ns = 5_000_000_000_000  # asleep for an hour and a half
    good = {"heard_ns": now_ns, "boottime_offset_ns": offset_ns}
    jtop = says(
        tmp_path,
        HELLO,
        update(memory=emc, **good, uptime_s=(now_ns + offset_ns) / 1e9 - 0.03),
        update(memory=emc, **good, uptime_s=17.5),
        update(memory=emc, boottime_offset_ns=0, heard_ns=2**62, uptime_s=1e300),
    )
    asleep, foreign, mad = hear(jtop, batches(3)).of(Batch)
    assert asleep.t0_ns == pytest.approx(now_ns - 30_000_000, abs=1_000_000)
    assert asleep.t1_ns == now_ns
    assert (foreign.t0_ns, foreign.t1_ns) == (now_ns, now_ns)
    assert mad.t0_ns == mad.t1_ns <= time.monotonic_ns()


def test_a_repeated_stamp_is_suspect_and_equal_values_are_not(tmp_path: Path) -> None:
    equal = hear(stream(StandIn(tmp_path / "a", updates=[{}] * 3)), batches(3))
    assert {
        reading.quality for batch in equal.of(Batch) for reading in batch.readings.values()
    } == {"ok"}
    assert equal.events("suspect") == []
    stuck = hear(stream(StandIn(tmp_path / "b", updates=[{}] * 3, runs=False)), batches(3))
    qualities = [{r.quality for r in batch.readings.values()} for batch in stuck.of(Batch)]
    assert qualities == [{"ok"}, {"suspect"}, {"suspect"}]
    (event,) = stuck.events("suspect")
    assert event["reason"] == "the service repeated its last update"


def test_s21_s22_a_signal_that_vanishes_is_unknown_from_then_on(tmp_path: Path) -> None:
    bare = {"gpu": {"gpu": {"status": {"load": 41.0}}}, "memory": {"EMC": {}}, "power": {}}
    heard = hear(stream(StandIn(tmp_path / "v", updates=[{}, bare])), batches(2))
    _, second = heard.of(Batch)
    assert second.readings["gpu_busy_frac"].value == 0.41
    gone = ("gpu_clock_hz", "emc_clock_hz", "power_w.total", "ram_used_bytes")
    assert [second.readings[name].value for name in gone] == [None] * 4


def test_s23_an_empty_gpu_is_told_with_the_release_and_what_newer_ones_read(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path / "v", updates=[{"gpu": {}}] * 2, version="4.3.2")
    absences = {
        absence.signal: absence for absence in hear(stream(stand_in), batches(2)).of(Absence)
    }
    assert absences.keys() >= {"gpu_busy_frac", "gpu_clock_hz"}
    absence = absences["gpu_busy_frac"]
    assert "4.3.2" in absence.reason
    assert absence.fix is not None and "Thor" in absence.fix and "NVML" in absence.fix
    newest = StandIn(tmp_path / "w", updates=[{"gpu": {}}], version="7.2.2")
    (fix, _) = [a.fix for a in hear(stream(newest), batches(1)).of(Absence) if "gpu" in a.signal]
    assert fix is not None and "restart jtop.service" in fix


def test_s27_a_service_lost_in_use_is_told_and_may_come_again(tmp_path: Path) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[{}] * 4, end="lost"))
    heard = hear(jtop)
    assert len(heard.of(Batch)) == 4
    last = heard[-1]
    assert isinstance(last, Absence) and last.signal == "*"
    assert last.reason.startswith("the service went away")
    assert (jtop.open, jtop.restart_after_s) == (False, 10.0)
    assert [*jtop.receive(time.monotonic_ns())] == []
    assert hear(jtop, batches(1)).of(Batch)  # started again


@pytest.mark.parametrize(
    ("start", "reason", "fix", "again_s"),
    [
        pytest.param(
            "stale", "no service answers", "systemctl restart jtop.service", None, id="stale"
        ),
        pytest.param("eof", "went away", "systemctl restart jtop.service", 10.0, id="eof"),
        pytest.param("denied", "group", "usermod -aG", None, id="s30"),
        pytest.param("pickle", "another Python", "-m jtop --install-service", None, id="s43"),
        pytest.param("key", "refused the key", "remove one", None, id="key"),
        pytest.param("data", "no reading in time", "longer interval", 2.0, id="no-data"),
        pytest.param("bug", "failed (KeyError: 'a key')", "restart", None, id="bug"),
    ],
)
def test_a_service_that_cannot_be_had_is_told_with_the_way_out(
    tmp_path: Path, start: str, reason: str, fix: str, again_s: float | None
) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[], start=start))
    (absence,) = hear(jtop)
    assert isinstance(absence, Absence)
    assert (absence.source, absence.signal) == ("jtop", "*")
    assert reason in absence.reason
    assert absence.fix is not None and fix in absence.fix
    assert jtop.restart_after_s == again_s  # only if something answered


@pytest.mark.parametrize(
    ("service", "client", "fix"),
    [
        (
            "4.3.2",
            "7.2.2",
            'upgrade the service: sudo pip3 install -U "jetson-stats~=7.2.0", then '
            "sudo systemctl restart jtop.service",
        ),
        ("4.2.2", "4.2.1", 'upgrade the client: py -m pip install "jetson-stats~=4.2.0"'),
        ("10.0.1", "9.9", 'upgrade the client: py -m pip install "jetson-stats~=10.0.0"'),
    ],
)
def test_s29_both_versions_and_the_side_to_upgrade_are_named(
    service: str, client: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jtop_faults, "_SYSTEM_LIBRARIES", tmp_path)
    told = remedy(
        ClientError(
            error="version", message="", python="py", service_version=service, client_version=client
        )
    )
    assert service in told.reason and client in told.reason
    assert told.fix == fix
    assert told.restart_after_s is None


def test_s29_the_clients_words_are_understood(tmp_path: Path) -> None:
    (absence,) = hear(stream(StandIn(tmp_path / "v", updates=[], start="version")))
    assert isinstance(absence, Absence)
    assert "service is jetson-stats 4.3.2" in absence.reason and "7.2.2" in absence.reason


@pytest.mark.parametrize("asked_s", [0.05, 0.0, -1.0, float("nan")])
def test_s32_a_shorter_interval_than_the_service_sustains_is_not_asked_for(
    tmp_path: Path, asked_s: float
) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[{}]), asked_s)
    (event,) = hear(jtop, batches(1)).events("interval")
    assert jtop.interval_s == event["given_s"] == 0.1
    assert str(event["asked_s"]) == str(asked_s)


def test_s33_the_interval_of_another_client_is_the_one_that_counts(tmp_path: Path) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[{}], interval=1.0), 0.5)
    heard = hear(jtop, batches(1))
    assert jtop.interval_s == 1.0
    assert heard.events("interval") == [
        {
            "source": "jtop",
            "asked_s": 0.5,
            "given_s": 1.0,
            "reason": "another client of the service came first",
        }
    ]


def test_a_client_that_hangs_while_it_connects_is_overdue_and_is_not_waited_for(
    tmp_path: Path,
) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[], start="hang"))
    t0_ns = time.monotonic_ns()
    assert list(jtop.start()) == []
    assert [*jtop.receive(time.monotonic_ns())] == []
    assert not jtop.overdue(t0_ns + 7_900_000_000)
    assert jtop.overdue(time.monotonic_ns() + 8_100_000_000)
    absence = jtop.give_up()
    assert absence == Absence(
        signal="*",
        source="jtop",
        reason="the jtop service does not answer (its worker hangs)",
        fix="sudo systemctl restart jtop.service",
    )
    assert time.monotonic_ns() - t0_ns < 5e9
    assert not jtop.open and not jtop.overdue(time.monotonic_ns() + 10**12)
    assert jtop.restart_after_s is not None  # it may answer at the next try
    jtop.start()
    assert list(jtop.at_end(time.monotonic_ns())) == []  # all was said
    jtop.close()


def test_a_client_that_falls_silent_once_it_greeted_is_given_up_without_a_word(
    tmp_path: Path,
) -> None:
    """It may be the client that was stopped; the gap will tell."""
    jtop = says(tmp_path, HELLO)
    jtop.start()
    while not jtop.client_version:
        select.select([jtop], [], [], 0.2)
        list(jtop.receive(time.monotonic_ns()))
    assert jtop.give_up() is None
    assert not jtop.open


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ((), "the jtop service had not answered yet when the recording ended"),
        ((HELLO,), "the jtop service had told nothing yet when the recording ended"),
    ],
)
def test_a_recording_that_ends_before_the_first_update_says_so(
    tmp_path: Path, lines: Sequence[object], reason: str
) -> None:
    jtop = says(tmp_path, *lines)
    jtop.start()
    until = time.monotonic() + (PATIENCE_S if lines else 0)
    while not jtop.client_version and time.monotonic() < until:
        select.select([jtop], [], [], 0.2)
        list(jtop.receive(time.monotonic_ns()))
    (absence,) = jtop.at_end(time.monotonic_ns())
    jtop.close()
    assert absence == Absence(signal="*", source="jtop", reason=reason)


def test_a_recording_that_ends_before_the_check_of_the_emc_says_so(tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path / "v", updates=[{}] * 4)
    jtop = stream(stand_in, truth=lambda: Truth("tegrastats", 0.8))
    jtop.start()
    heard = Heard()
    until = time.monotonic() + PATIENCE_S
    while len(heard.of(Batch)) < 4 and time.monotonic() < until:
        select.select([jtop], [], [], 0.2)
        heard += jtop.receive(time.monotonic_ns())
    assert heard.of(Absence) == [] and heard.events("emc_check") == []
    last = Heard(jtop.at_end(7))
    jtop.close()
    reason = "the recording ended after 4 of 10 updates"
    assert last.events("emc_check") == [
        {
            "source": "jtop",
            "agreed": False,
            "against": "tegrastats",
            "pairs": [[0.0, 0.8]] * 3,
            "reason": reason,
        }
    ]
    told = f"the EMC percentage of jetson-stats is not used: {reason}"
    fix = "edgeprof sensor (it prints the sudo command)"
    assert last.of(Absence) == [
        Absence(signal=signal, source="jtop", reason=told, fix=fix)
        for signal in ("emc_busy_frac", "dram_bandwidth_bytes_per_s")
    ]


def test_s22_a_gpu_that_is_switched_off_is_not_taken_for_one_that_is_not_shown(
    tmp_path: Path,
) -> None:
    gated = {"gpu": {"gpu": {"status": {}, "freq": {"cur": 0, "GPC": [0, 0]}}}}
    heard = hear(stream(StandIn(tmp_path / "v", updates=[gated, {}])), batches(2))
    first, second = heard.of(Batch)
    assert "gpu_clock_hz" not in first.readings
    assert second.readings["gpu_clock_hz"].value == 612_000_000
    absences = {absence.signal: absence for absence in heard.of(Absence)}
    for signal in ("gpu_busy_frac", "gpu_clock_hz"):
        assert "switched off" in absences[signal].reason and absences[signal].fix is None


@pytest.mark.parametrize(("interval_s", "silence_s"), [(0.2, 5.0), (4.0, 12.0)])
def test_a_client_that_falls_silent_in_use_is_overdue_after_three_intervals(
    tmp_path: Path, interval_s: float, silence_s: float
) -> None:
    jtop = stream(StandIn(tmp_path / "v", updates=[{}], interval=interval_s))
    jtop.start()
    heard = Heard()
    while not heard.of(Batch):
        select.select([jtop], [], [], 0.2)
        heard += jtop.receive(now_ns := time.monotonic_ns())
        assert not jtop.overdue(now_ns)
    assert not jtop.overdue(now_ns + round((silence_s - 0.1) * 1e9))
    assert jtop.overdue(now_ns + round((silence_s + 0.1) * 1e9))
    jtop.close()


def test_emc_is_taken_once_it_agreed_with_the_truth_and_the_outcome_is_stored(
    tmp_path: Path,
) -> None:
    def with_val(val: int) -> dict[str, Any]:
        return {"memory": {"EMC": {"cur": 2133000, "val": val}}}

    right = StandIn(tmp_path / "r", updates=[with_val(80)] * 10 + [with_val(40)])
    heard = hear(stream(right, truth=lambda: Truth("sysfs", 0.8)), batches(11))
    *checked, last = heard.of(Batch)
    assert not any("emc_busy_frac" in batch.readings for batch in checked[:9])
    assert last.readings["emc_busy_frac"] == Reading(0.4, "40")
    # 0.4 x 2133 MHz x 32 B
    assert last.readings["dram_bandwidth_bytes_per_s"].value == pytest.approx(27.3024e9)
    (outcome,) = heard.events("emc_check")
    assert (outcome["source"], outcome["agreed"], len(outcome["pairs"])) == ("jtop", True, 9)
    assert outcome["against"] == "sysfs"

    wrong = StandIn(tmp_path / "w", updates=[with_val(0)] * 12)
    heard = hear(stream(wrong, truth=lambda: Truth("sysfs", 0.8)), batches(12))
    assert not any("emc_busy_frac" in batch.readings for batch in heard.of(Batch))
    assert [outcome["agreed"] for outcome in heard.events("emc_check")] == [False]
    absent = {absence.signal: absence.fix for absence in heard.of(Absence)}
    # Nothing is to be mended: the counter is read.
    assert absent == {"emc_busy_frac": None, "dram_bandwidth_bytes_per_s": None}


@pytest.mark.parametrize(
    ("established", "fix"), [(True, "edgeprof sensor (it prints the sudo command)"), (False, None)]
)
def test_without_a_truth_the_sensor_is_named_where_it_helps(
    tmp_path: Path, established: bool, fix: str | None
) -> None:
    board = BoardFigures(bytes_per_emc_clock=32.0, emc_counter_established=established)
    stand_in = StandIn(tmp_path / "v", updates=[{}] * 10)
    jtop = JtopStream(board, 0.2, stand_in.command(CLIENT))
    absences = hear(jtop, batches(10)).of(Absence)
    assert [absence.signal for absence in absences] == [
        "emc_busy_frac",
        "dram_bandwidth_bytes_per_s",
    ]
    assert {absence.fix for absence in absences} == {fix}
    assert "neither the node nor tegrastats tells it" in absences[0].reason


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"cur": 1, "val": 845000, "online": True}, id="s09"),
        pytest.param(1745160, id="s39"),
    ],
)
def test_s09_s39_what_is_no_percentage_is_told_once_and_never_taken(
    tmp_path: Path, entry: Any
) -> None:
    stand_in = StandIn(tmp_path / "v", updates=[{"memory": {"EMC": entry}}] * 3)
    heard = hear(stream(stand_in), batches(3))
    for batch in heard.of(Batch):
        assert not {"emc_busy_frac", "emc_clock_hz"} & batch.readings.keys()
    (event,) = heard.events("suspect")
    assert event["signal"] == "emc_busy_frac"
    assert float(event["raw"]) == (845000 if isinstance(entry, dict) else entry)
    assert "emc_clock_hz" in {absence.signal for absence in heard.of(Absence)}


def test_a_change_of_the_power_mode_is_an_event(tmp_path: Path) -> None:
    modes = [{"mode": mode} for mode in ("15W", "15W", "MAXN_SUPER")]
    events = [
        (event.severity, event.detail["power_mode"])
        for event in hear(stream(StandIn(tmp_path / "v", updates=modes)), batches(3)).of(Event)
        if event.kind == "power_mode"
    ]
    assert events == [("info", "15W"), ("warning", "MAXN_SUPER")]


def test_lines_that_are_none_of_the_clients_are_told_once_and_skipped(tmp_path: Path) -> None:
    jtop = says(
        tmp_path,
        HELLO,
        "Traceback \x1b[31m",
        "[" * 5000,
        {"kind": "update", "heard_ns": "now"},
        {"kind": "unheard of"},
        update(memory={"EMC": {"cur": 2133000}}),
    )
    heard = hear(jtop, batches(1))
    assert [clock_of(batch) for batch in heard.of(Batch)] == [2_133_000_000]
    (event,) = heard.events("suspect")
    assert event["reason"] == "not a line of the client"
    assert "\x1b" not in event["raw"]


def test_a_client_that_dies_leaves_its_cause(tmp_path: Path) -> None:
    jtop = says(tmp_path, HELLO, update(gpu={}), then="sys.exit('no \x1b[31mluck')")
    heard = hear(jtop)
    last = heard[-1]
    assert isinstance(last, Absence)
    assert last.reason == "the client ended with exit code 1: no [31mluck"
    assert jtop.restart_after_s == 10.0


def test_a_client_that_cannot_be_started_is_an_absence(tmp_path: Path) -> None:
    jtop = JtopStream(BOARD, command=[str(tmp_path / "nowhere")])
    (absence,) = jtop.start()
    assert "cannot be started: No such file or directory" in absence.reason
    assert not jtop.open and jtop.restart_after_s is None


@pytest.fixture
def service_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the socket is looked for; no service, no container, no unit of systemd."""
    monkeypatch.setattr(jtop_faults, "SOCKET", tmp_path / "jtop.sock")
    monkeypatch.setattr(jtop_faults, "UNIT", tmp_path / "jtop.service")
    monkeypatch.setattr(jtop_faults, "CONTAINER_MARKS", (tmp_path / ".dockerenv",))
    return tmp_path


def reason_and_fix(absences: Sequence[Absence]) -> tuple[str, str | None]:
    (absence,) = absences
    assert (absence.source, absence.signal) == ("jtop", "*")
    return absence.reason, absence.fix


def test_without_a_socket_the_step_that_is_missing_is_named(service_at: Path) -> None:
    reason, fix = reason_and_fix(JtopStream(BOARD).start())
    assert reason == f"the jtop service does not run: there is no {service_at}/jtop.sock"
    assert fix is not None and fix.endswith("sudo jtop --install-service")
    (service_at / "jtop.service").touch()
    assert reason_and_fix(JtopStream(BOARD).start())[1] == "sudo systemctl restart jtop.service"
    (service_at / ".dockerenv").touch()
    _, fix = reason_and_fix(JtopStream(BOARD).start())
    assert fix is not None and "-v" in fix and "jtop.sock" in fix


def test_s30_no_permission_names_group_and_socket(
    service_at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = service_at / "jtop.sock"
    where.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as for a user without rights
    if os.geteuid() == 0:
        os.chown(where, -1, 65534)
    group_id = where.stat().st_gid
    reason, fix = reason_and_fix(JtopStream(BOARD).start())
    assert str(where) in reason and "group" in reason
    assert fix is not None
    for step in ("usermod -aG", "newgrp", "log in again", f"--group-add {group_id}"):
        assert step in fix


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to root's group")
def test_nobody_is_told_to_join_the_group_of_root(
    service_at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (service_at / "jtop.sock").touch()
    os.chown(service_at / "jtop.sock", 0, 0)
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    reason, fix = reason_and_fix(JtopStream(BOARD).start())
    assert "root only" in reason
    assert fix is not None and "groupadd -f jtop" in fix and "usermod" not in fix


def test_the_interpreters_that_have_jetson_stats_run_the_client(
    service_at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (service_at / "jtop.sock").touch()
    without, fitting = "/usr/bin/false", StandIn(service_at / "v", updates=[{}])
    monkeypatch.setattr(sys, "executable", without)
    monkeypatch.setattr(jtop_faults, "_SYSTEM_PYTHON", str(service_at / "nowhere"))
    reason, fix = reason_and_fix(JtopStream(BOARD).start())
    assert without in reason and fix == 'pip install "edgeprof[jetson]"'
    probed = service_at / "probed"
    probed.write_text(f'#!/bin/sh\n[ "$2" = -c ] || exec {fitting.python} "$@"\n')
    probed.chmod(0o755)
    monkeypatch.setattr(jtop_faults, "_SYSTEM_PYTHON", str(probed))
    assert len(hear(JtopStream(BOARD, 0.2), batches(1)).of(Batch)) == 1


def test_a_probe_that_hangs_is_given_up(service_at: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (service_at / "jtop.sock").touch()
    slow = service_at / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    monkeypatch.setattr(jtop_faults, "_SYSTEM_PYTHON", str(slow))
    monkeypatch.setattr(jtop_faults, "_PROBE_TIMEOUT_S", 0.2)
    t0 = time.monotonic()
    assert "installed neither" in reason_and_fix(JtopStream(BOARD).start())[0]
    assert time.monotonic() - t0 < 10


def test_a_stale_socket_is_found_by_the_client(service_at: Path) -> None:
    """The file stays when the service is killed; only connecting tells."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(service_at / "jtop.sock"))
    assert jtop_faults.unreachable() is None


def test_jtop_tells_nothing_of_files_below_another_root(service_at: Path) -> None:
    (service_at / "jtop.sock").touch()
    reason, _ = reason_and_fix(JtopStream(BoardFigures(root="/tmp/tree")).start())
    assert reason == "jtop reads this machine's own board, not files below /tmp/tree"


def test_the_package_is_imported_in_the_child_only() -> None:
    """Its licence and its libraries stay out of edgeprof's process."""
    code = "import edgeprof.telemetry.sources.jtop, sys; sys.exit('jtop' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
