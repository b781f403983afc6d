"""The link to a real sampler: what comes through, and what happens when it hangs or dies."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest

from edgeprof.profiling import sampler_link
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.session.records import Event, Sample, Signal
from edgeprof.telemetry.source import BoardFigures

SAMPLERS = Path(__file__).parent / "samplers"
PATIENCE_S = 20.0  # of a test on a machine that has other things to do


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A board of one file: memory, read five times a second."""
    meminfo = tmp_path / "root/proc/meminfo"
    meminfo.parent.mkdir(parents=True)
    meminfo.write_text(
        "MemTotal: 8000000 kB\nMemAvailable: 6000000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
    )
    return tmp_path / "root"


class Heard:
    """A link, heard as the recorder does, and what it put."""

    def __init__(self, job: SampleJob) -> None:
        self.put: list[Signal | Sample | Event] = []
        self.link = SamplerLink(job, self.put.append)
        self.longest_turn_s = 0.0
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> "Heard":
        self.link.__enter__()
        self.link.attach(self._selector)
        return self

    def __exit__(self, *error: Any) -> None:
        self.link.__exit__(*error)
        self._selector.close()

    def turn(self) -> None:
        ready = self._selector.select(0.05)
        start_s = time.monotonic()
        for key, _ in ready:
            assert key.data is self.link
            self.link.receive()
        self.link.look(time.monotonic_ns())
        self.longest_turn_s = max(self.longest_turn_s, time.monotonic() - start_s)

    def until(self, done: Callable[[], object]) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end_s, f"after {PATIENCE_S} s: {self.events()}"
            self.turn()

    def until_samples(self, count: int, after_ns: int = 0) -> None:
        self.until(lambda: sum(one.t0_ns > after_ns for one in self.samples()) >= count)

    def samples(self) -> list[Sample]:
        return [one for one in self.put if isinstance(one, Sample)]

    def signals(self) -> list[Signal]:
        return [one for one in self.put if isinstance(one, Signal)]

    def events(self, *kinds: str) -> list[Event]:
        events = [one for one in self.put if isinstance(one, Event)]
        return [event for event in events if not kinds or event.kind in kinds]


@pytest.fixture
def heard(root: Path) -> Iterator[Heard]:
    with Heard(SampleJob(board=BoardFigures(root=str(root)))) as one:
        yield one


@pytest.fixture
def other_sampler(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a module of ``samplers`` run in place of the real one."""

    def use(module: str) -> None:
        monkeypatch.setenv("PYTHONPATH", str(SAMPLERS))
        monkeypatch.setattr(sampler_link, "_MODULE", module)

    return use


def test_signals_come_first_then_samples_and_at_the_end_how_they_were_delivered(
    heard: Heard,
) -> None:
    heard.until_samples(15)
    heard.link.close()
    announced = [one for one in heard.signals() if one.delivered_hz is None]
    assert [(one.id, one.name, one.source) for one in announced] == [
        (1, "ram_used_bytes", "sysfs"),
        (2, "ram_total_bytes", "sysfs"),
        (3, "swap_used_bytes", "sysfs"),
    ]
    assert isinstance(heard.put[0], Event | Signal)
    used = [one for one in heard.samples() if one.signal_id == 1]
    assert {(one.value, one.quality) for one in used} == {(2_000_000 * 1024, "simulated")}
    told = [one for one in heard.signals() if one.delivered_hz is not None]
    assert [one.id for one in told] == [1, 2, 3]
    for one in told:
        assert one.asked_hz == 2
        assert one.delivered_hz == pytest.approx(2, abs=0.6)
        assert one.jitter_s is not None and 0 <= one.jitter_s < 0.2
        assert one.read_latency_s is not None and 0 < one.read_latency_s < 0.1
    first, last = used[0].t0_ns, used[-1].t0_ns
    assert told[0].delivered_hz == pytest.approx((len(used) - 1) / (last - first) * 1e9)


def test_s34_steps_of_the_wall_clock_do_not_matter(
    root: Path, other_sampler: Callable[[str], None]
) -> None:
    other_sampler("stepping_sampler")
    start_ns = time.monotonic_ns()
    with Heard(SampleJob(board=BoardFigures(root=str(root)))) as heard:
        heard.until_samples(30)
    times = [one.t0_ns for one in heard.samples() if one.signal_id == 1]
    assert start_ns < times[0] and times == sorted(times) and times[-1] < time.monotonic_ns()
    assert heard.events("gap", "death", "suspend") == []


def test_a_sampler_that_hangs_is_replaced_and_the_gap_told(heard: Heard) -> None:
    heard.until_samples(6)
    first_pid = heard.link.pid
    assert first_pid is not None
    os.kill(first_pid, signal.SIGSTOP)
    stopped_ns = time.monotonic_ns()
    heard.until_samples(6, after_ns=stopped_ns + 500_000_000)
    assert heard.link.pid != first_pid
    assert not psutil.pid_exists(first_pid)
    (gap,) = heard.events("gap", "death")
    assert (gap.kind, gap.severity, gap.leg_id) == ("gap", "warning", None)
    assert gap.detail["process"] == "sampler" and gap.detail["cause"] == "silent for more than 2 s"
    since_s = (gap.detail["since_ns"] - stopped_ns) / 1e9
    length_s = (gap.detail["until_ns"] - gap.detail["since_ns"]) / 1e9
    assert -1.0 < since_s < 0.5 and 2.0 < length_s < PATIENCE_S
    assert heard.longest_turn_s < 0.5  # nothing waited for it
    heard.link.close()
    # The gap is not counted as a time between two readings.
    assert all(one.jitter_s is None or one.jitter_s < 1.0 for one in heard.signals())


def test_ids_stay_the_same_over_a_restart(heard: Heard) -> None:
    heard.until_samples(6)
    assert heard.link.pid is not None
    os.kill(heard.link.pid, signal.SIGKILL)
    heard.until_samples(12, after_ns=time.monotonic_ns())
    ids = {
        (one.name, one.source): {two.id for two in heard.signals() if two.name == one.name}
        for one in heard.signals()
    }
    assert [len(group) for group in ids.values()] == [1, 1, 1]
    used = [one.value for one in heard.samples() if one.signal_id == 1]
    assert set(used) == {2_000_000 * 1024}


def test_s27_a_sampler_that_is_killed_is_told_and_replaced_at_once(heard: Heard) -> None:
    heard.until_samples(6)
    assert heard.link.pid is not None
    os.kill(heard.link.pid, signal.SIGKILL)
    killed_ns = time.monotonic_ns()
    heard.until_samples(6, after_ns=killed_ns)
    death, gap = heard.events("death", "gap")
    assert death.kind == "death" and gap.kind == "gap"
    assert death.detail["process"] == "sampler" and "SIGKILL" in death.detail["cause"]
    assert gap.detail["until_ns"] - gap.detail["since_ns"] < 15e9
    absences = [
        tuple(e.detail[key] for key in ("signal", "source", "reason"))
        for e in heard.events("absent")
    ]
    assert len(absences) == len(set(absences))  # each told once, although both samplers found them


def test_what_does_not_return_is_named_and_left_out(
    root: Path, other_sampler: Callable[[str], None]
) -> None:
    other_sampler("hanging_sampler")
    with Heard(SampleJob(board=BoardFigures(root=str(root)))) as heard:
        heard.until(lambda: heard.events("gap"))
        heard.until_samples(5, after_ns=time.monotonic_ns())
    (gap,) = heard.events("gap")
    assert gap.detail["cause"] == "sysfs: EMC activity did not return"
    absent = [e.detail for e in heard.events("absent") if e.detail["signal"] == "emc_busy_frac"]
    assert len(absent) == 1 and "EMC activity" in absent[0]["reason"]
    names = {one.id: one.name for one in heard.signals()}
    later = [one for one in heard.samples() if one.t0_ns > gap.detail["until_ns"]]
    assert {names[one.signal_id] for one in later} == {"ram_used_bytes"}


def test_one_that_cannot_be_killed_is_left_behind(
    heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that hangs in the kernel: the signal changes nothing until the read returns."""
    heard.until_samples(3)
    hanging = psutil.Process(heard.link.pid)
    children = heard.link._child
    assert children is not None
    monkeypatch.setattr(children, "kill", lambda: None)
    hanging.suspend()
    heard.until_samples(6, after_ns=time.monotonic_ns() + 500_000_000)
    assert heard.link.pid != hanging.pid and hanging.status() == psutil.STATUS_STOPPED
    assert heard.longest_turn_s < 0.5
    hanging.kill()
    heard.until(lambda: not psutil.pid_exists(hanging.pid))  # and it is no zombie either


def test_a_sampler_that_always_dies_is_tried_again_after_growing_pauses(
    root: Path, other_sampler: Callable[[str], None]
) -> None:
    other_sampler("dying_sampler")
    with Heard(SampleJob(board=BoardFigures(root=str(root)))) as heard:
        heard.until(lambda: len(heard.events("death")) == 4)
    deaths = heard.events("death")
    assert deaths[0].detail["cause"] == "ended with exit code 1: no board to be had"
    pauses_s = [(two.t_ns - one.t_ns) / 1e9 for one, two in pairwise(deaths)]
    assert pauses_s[1] >= 1.0 and pauses_s[2] >= 2.0
    (gap,) = heard.events("gap")
    assert gap.detail["until_ns"] > deaths[-1].t_ns  # until the end


def test_a_source_that_does_not_exist_is_told_once_and_not_tried_again(root: Path) -> None:
    with Heard(SampleJob(board=BoardFigures(root=str(root)), sources=["sysfss"])) as heard:
        heard.until(lambda: heard.link.pid is None)
        for _ in range(5):
            heard.turn()
    (failure,) = heard.events()
    assert failure.kind == "failure" and failure.detail["process"] == "sampler"
    assert "did you mean 'sysfs'?" in failure.detail["cause"]


def test_a_recording_is_played_in_place_of_the_board(tmp_path: Path) -> None:
    log = tmp_path / "board.log"
    line = "03-02-2026 18:41:0{} RAM 100/7607MB (lfb 1x4MB) CPU [1%@729] GR3D_FREQ {}%"
    log.write_text("".join(line.format(second, 10 * second) + "\n" for second in range(3)))
    with Heard(SampleJob(replay=str(log))) as heard:
        heard.until(lambda: "played to its end" in str(heard.events("absent")))
    (gpu,) = {one.id for one in heard.signals() if one.name == "gpu_busy_frac"}
    values = [(one.value, one.quality) for one in heard.samples() if one.signal_id == gpu]
    assert values == [(0.0, "replayed"), (0.1, "replayed"), (0.2, "replayed")]
    assert {one.source for one in heard.signals()} == {"replay"}
    assert heard.events("gap") == []


def test_s37_closing_at_once_divides_by_nothing(root: Path) -> None:
    with Heard(SampleJob(board=BoardFigures(root=str(root)))) as heard:
        heard.until(heard.signals)
    assert all(one.delivered_hz is None or one.delivered_hz > 0 for one in heard.signals())
    with Heard(SampleJob(board=BoardFigures(root=str(root)))):
        pass


def test_after_an_error_nothing_more_is_put(root: Path) -> None:
    with pytest.raises(RuntimeError), Heard(SampleJob(board=BoardFigures(root=str(root)))) as heard:
        heard.until_samples(3)
        before, pid = len(heard.put), heard.link.pid
        raise RuntimeError
    assert len(heard.put) == before
    assert pid is not None and not psutil.pid_exists(pid)


PARENT = """
import selectors, sys, time
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.sampler_link import SamplerLink
with SamplerLink(SampleJob(sources=["sysfs", "tegrastats"]), lambda record: None) as link:
    with selectors.DefaultSelector() as selector:
        link.attach(selector)
        print(link.pid, flush=True)
        while True:
            for key, _ in selector.select(0.1):
                link.receive()
            link.look(time.monotonic_ns())
"""
TEGRASTATS = """#!/bin/sh
while :; do echo "RAM 100/7607MB (lfb 1x4MB) CPU [1%@729] GR3D_FREQ 3%"; sleep 0.2; done
"""


def test_with_the_parent_all_children_end(tmp_path: Path) -> None:
    fake = tmp_path / "tegrastats"
    fake.write_text(TEGRASTATS)
    fake.chmod(0o755)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        text=True,
    )
    assert parent.stdout is not None
    sampler = psutil.Process(int(parent.stdout.readline()))
    end_s = time.monotonic() + PATIENCE_S
    while not any("tegrastats" in " ".join(one.cmdline()) for one in sampler.children()):
        assert time.monotonic() < end_s
        time.sleep(0.05)
    family = [sampler, *sampler.children(recursive=True)]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(family, timeout=PATIENCE_S)
    assert alive == []
