"""The table of sources that the sampler works through."""

import sys
import threading
import time
from typing import Any

import pytest

from edgeprof.errors import UsageFault
from edgeprof.profiling.messages import Alive, SampleJob, Stuck
from edgeprof.profiling.sampling import _beat, _openers, _true_emc_share
from edgeprof.telemetry.plausibility import Scene
from edgeprof.telemetry.progress import Progress
from edgeprof.telemetry.source import BoardFigures, Offer


def test_sources_come_in_the_order_of_their_rank() -> None:
    assert [*_openers(SampleJob(), Scene())] == ["sysfs", "tegrastats", "jtop", "host"]
    chosen = SampleJob(sources=["host", "sysfs"])
    assert [*_openers(chosen, Scene())] == ["sysfs", "host"]


def test_files_of_another_board_are_not_mixed_with_this_machine() -> None:
    job = SampleJob(board=BoardFigures(root="/elsewhere"))
    assert [*_openers(job, Scene())] == ["sysfs"]


def test_a_recording_takes_the_place_of_all_sources() -> None:
    assert [*_openers(SampleJob(replay="log"), Scene())] == ["replay"]


def test_a_source_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageFault, match="did you mean 'tegrastats'"):
        _openers(SampleJob(sources=["tegrastat"]), Scene())


def test_a_source_that_cannot_be_loaded_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    opened = _openers(SampleJob(sources=["host"]), Scene())["host"]()
    assert isinstance(opened, Offer) and opened.readers == ()
    (absence,) = opened.absences
    assert (absence.signal, absence.source) == ("*", "host")
    assert "psutil" in absence.reason


def test_the_true_share_of_the_emc_is_the_files_and_else_that_of_tegrastats() -> None:
    scene = Scene()
    assert _true_emc_share(scene) is None
    scene.note("emc_busy_frac", "jtop", 0.1, time.monotonic_ns())
    assert _true_emc_share(scene) is None
    scene.note("emc_busy_frac", "tegrastats", 0.8, time.monotonic_ns())
    assert _true_emc_share(scene) == ("tegrastats", 0.8)
    scene.note("emc_busy_frac", "sysfs", 0.803, time.monotonic_ns())
    assert _true_emc_share(scene) == ("sysfs", 0.803)
    scene.note("emc_busy_frac", "sysfs", 0.803, time.monotonic_ns() - 3600 * 1_000_000_000)
    assert _true_emc_share(scene) == ("tegrastats", 0.8)  # the files have fallen silent


class Outbox:
    """Remembers what it is to send."""

    def __init__(self) -> None:
        self.put_in: list[Any] = []

    def put(self, message: Any) -> None:
        self.put_in.append(message)

    def flush(self) -> None: ...

    def until(self, kind: type) -> None:
        end_s = time.monotonic() + 10
        while not any(isinstance(message, kind) for message in self.put_in):
            assert time.monotonic() < end_s
            time.sleep(0.01)


def beating(progress: Progress) -> Outbox:
    outbox: Any = Outbox()
    threading.Thread(target=_beat, args=(progress, outbox), daemon=True).start()
    known: Outbox = outbox
    return known


def test_a_step_that_does_not_return_is_named_once_and_the_beat_stops() -> None:
    progress = Progress()
    hour_ago_ns = time.monotonic_ns() - 3600 * 1_000_000_000
    progress.begin("sysfs: EMC activity", hour_ago_ns)
    outbox = beating(progress)
    outbox.until(Stuck)
    time.sleep(0.6)  # two beats
    assert outbox.put_in == [Alive(), Stuck(what="sysfs: EMC activity")]
    progress.end()
    time.sleep(0.6)
    assert outbox.put_in.count(Alive()) >= 2


def test_an_opening_may_take_its_time() -> None:
    progress = Progress()
    progress.begin("sysfs: start", time.monotonic_ns(), patience_ns=10_000_000_000)
    outbox = beating(progress)
    time.sleep(0.6)
    assert len(outbox.put_in) >= 2 and set(map(type, outbox.put_in)) == {Alive}
