"""The sampler: the child process that owns every read of the board."""

import select
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from edgeprof.errors import UsageFault
from edgeprof.naming import unknown_name
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.messages import Alive, Order, SampleJob, Stuck
from edgeprof.telemetry.chain import WHOLE_SOURCE, Chain, Opener
from edgeprof.telemetry.plausibility import Scene
from edgeprof.telemetry.progress import Progress, Step
from edgeprof.telemetry.sampler import Sampler
from edgeprof.telemetry.source import SOURCE_ORDER, Absence, Offer, SourceName, Stream
from edgeprof.telemetry.sources.jtop_readings import Truth

_HOLD_S = 0.2  # nobody waits for a sample, and each sending wakes two processes
_BEAT_S = 0.25
_TEGRASTATS_INTERVAL_S = 0.2
_JTOP_INTERVAL_S = 1.0  # below, the service of some boards stalls
_TRUE_EMC_SOURCES: Sequence[SourceName] = ("sysfs", "tegrastats")  # the finer one first
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Sample the job's board until the recorder asks to stop."""
    assert isinstance(job, SampleJob)
    progress, scene = Progress(), Scene()
    threading.Thread(target=_beat, args=(progress, outbox), daemon=True).start()
    chain = Chain(
        _openers(job, scene),
        progress,
        side_by_side=job.sources is not None or job.replay is not None,
        left_out=job.left_out,
    )
    Sampler(
        chain,
        outbox.put,
        board=job.board,
        scene=scene,
        progress=progress,
        clock=time.monotonic_ns,
        boot_clock=partial(time.clock_gettime_ns, _BOOT_CLOCK),
        wait=partial(_wait, control, progress),
        interval_s=job.interval_s,
    ).run()


def _wait(
    control: Control, progress: Progress, streams: Sequence[Stream], seconds: float
) -> Sequence[Stream] | None:
    progress.settled = True
    sources: list[Control | Stream] = [control, *streams]
    readable = select.select(sources, [], [], seconds)[0]
    return None if control in readable else [one for one in streams if one in readable]


def _beat(progress: Progress, outbox: Outbox) -> None:
    """Tell the recorder that things go on; and of a step that does not return, which one it is."""
    steps = -1
    told: Step | None = None
    while True:
        step = progress.step
        late_ns = 0 if step is None else time.monotonic_ns() - step.since_ns - step.patience_ns
        if progress.steps != steps or (step is not None and late_ns <= 0):
            steps = progress.steps
            outbox.put(Alive(settled=progress.settled))
        elif step is not None and step != told:
            told = step
            outbox.put(Stuck(what=step.what))
        outbox.flush()
        time.sleep(_BEAT_S)


def _openers(job: SampleJob, scene: Scene) -> Mapping[SourceName, Opener]:
    """The sources of the job in the order of their rank, each with how it is opened."""
    openers: dict[SourceName, Opener] = {
        "sysfs": partial(_open_sysfs, job),
        "tegrastats": partial(_open_tegrastats, job),
        "jtop": partial(_open_jtop, job, scene),
        "host": partial(_open_host, job),
        "replay": partial(_open_replay, job),
    }
    wanted = _default_sources(job) if job.sources is None else job.sources
    for name in wanted:
        if name not in openers:
            raise UsageFault(unknown_name("source", name, SOURCE_ORDER))
    return {
        source: partial(_if_importable, source, opener)
        for source, opener in openers.items()
        if source in wanted
    }


def _default_sources(job: SampleJob) -> Sequence[str]:
    """Files below another root than the machine's own are no reason to look at the machine."""
    if job.replay is not None:
        return ["replay"]
    return ["sysfs"] if job.board.simulated else ["sysfs", "tegrastats", "jtop", "host"]


def _if_importable(source: SourceName, opener: Opener) -> Offer | Stream:
    try:
        return opener()
    except ImportError as error:
        reason = f"cannot be loaded: {error}"
        return Offer(absences=[Absence(signal=WHOLE_SOURCE, source=source, reason=reason)])


def _open_sysfs(job: SampleJob) -> Offer:
    from edgeprof.telemetry.sensor_client import borrow_nodes
    from edgeprof.telemetry.sources.sysfs import open_sysfs

    # What is lent are files of this machine, not of what lies below another root.
    return open_sysfs(job.board) if job.board.simulated else open_sysfs(job.board, borrow_nodes)


def _open_tegrastats(job: SampleJob) -> Stream:
    from edgeprof.telemetry.sources.tegrastats import TegrastatsStream

    return TegrastatsStream(job.board, job.interval_s or _TEGRASTATS_INTERVAL_S)


def _open_jtop(job: SampleJob, scene: Scene) -> Stream:
    from edgeprof.telemetry.sources.jtop import JtopStream

    truth = partial(_true_emc_share, scene)
    return JtopStream(job.board, job.interval_s or _JTOP_INTERVAL_S, truth=truth)


def _true_emc_share(scene: Scene) -> Truth | None:
    for source in _TRUE_EMC_SOURCES:
        busy_frac = scene.present("emc_busy_frac", source, time.monotonic_ns())
        if busy_frac is not None:
            return Truth(source, busy_frac)
    return None


def _open_host(job: SampleJob) -> Offer:
    from edgeprof.telemetry.sources.host import open_host

    if job.board.simulated:
        reason = f"it reads this machine, not what lies below {job.board.root}"
        return Offer(absences=[Absence(signal=WHOLE_SOURCE, source="host", reason=reason)])
    return open_host()


def _open_replay(job: SampleJob) -> Stream:
    from edgeprof.telemetry.sources.replay import ReplayStream

    if job.replay is None:
        raise UsageFault("source replay: no recording is named")
    return ReplayStream(Path(job.replay), job.board, line_interval_s=job.interval_s)


if __name__ == "__main__":
    serve(work, hold_s=_HOLD_S)
