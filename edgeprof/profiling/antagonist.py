"""An antagonist: a child process that works beside a model when it is told to, at a set pace.

What it did goes to the contender when it is told to rest, so that no message disturbs a leg.
"""

import time
from collections.abc import Callable
from typing import Any

from edgeprof.hardware.machine import pin
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.loading import open_model
from edgeprof.profiling.messages import AntagonistJob, Began, Go, Order, Ran, Ready
from edgeprof.runner.antagonists import spin, streaming_copy, streaming_read
from edgeprof.runner.held import HeldPass

_clock = time.monotonic_ns
_Stamps = tuple[int, int]


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Get ready, then work and rest as the contender says, until it says stop."""
    assert isinstance(job, AntagonistJob)
    pin(set(job.cores))  # before any thread of a model starts
    run, ready = _prepared(job)
    outbox.put(ready)
    outbox.flush()
    while isinstance(order := control.next_order(), Go):
        outbox.put(_work_until_told(run, order.period_s, outbox, control))
        outbox.flush()
        control.next_order()


def _prepared(job: AntagonistJob) -> tuple[Callable[[], _Stamps], Ready]:
    """A pass that gives its stamps, and what to say of it. The first one has been done."""
    if job.model is not None:
        model, record = open_model(job.model, capacity=job.capacity, clock=_clock)
        held = HeldPass(model, 1, context_tokens=job.context_tokens, rows=1, seed=job.seed)
        held.run()
        return lambda: _stamps(held.run()), Ready(model=record)
    if job.kind == "spin":
        done = spin()
    else:
        stream = streaming_read if job.kind == "read" else streaming_copy
        done = stream(job.buffer_bytes)

    def run() -> _Stamps:
        t0_ns = _clock()
        done.run()
        return t0_ns, _clock()

    run()
    return run, Ready(pass_bytes=done.pass_bytes)


def _stamps(run: Any) -> _Stamps:
    return run.t0_ns, run.t1_ns


def _work_until_told(
    run: Callable[[], _Stamps], period_s: float | None, outbox: Outbox, control: Control
) -> Ran:
    """Passes begin on a grid that does not drift: one that comes late is followed at once by the
    next, so that the pace is kept as long as it can be."""
    stamps: list[_Stamps] = []
    period_ns = 0 if period_s is None else round(period_s * 1e9)
    cpu_ns, t0_ns = time.process_time_ns(), _clock()
    while not control.order_waits():
        wait_ns = t0_ns + len(stamps) * period_ns - _clock()
        if period_ns and wait_ns > 0:
            time.sleep(min(wait_ns / 1e9, 0.01))
            if wait_ns > 10_000_000:
                continue
        stamps.append(run())
        if len(stamps) == 1:
            outbox.put(Began())
            outbox.flush()
    wall_s = (_clock() - t0_ns) / 1e9
    return Ran(stamps_ns=stamps, cpu_s=(time.process_time_ns() - cpu_ns) / 1e9, wall_s=wall_s)


if __name__ == "__main__":
    serve(work)
