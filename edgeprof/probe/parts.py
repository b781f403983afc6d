"""Runs one part of a probe in a child, and hands over what was timed until it ended.

Knows nothing of what the times mean.
"""

import selectors
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from edgeprof.errors import NotOffered
from edgeprof.probe.conditions import Watcher
from edgeprof.profiling.children import Child
from edgeprof.profiling.messages import Ended, Failed, ProbeFacts, ProbeJob, ProbeRun
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.profiling.watches import StopWatch

MODULE = "edgeprof.probe.worker"
_TICK_S = 0.25


class PartRuns(Struct, kw_only=True):
    """What came of a part: seconds by kind of run and size, in the order of time, and facts.
    ``cause`` says why it did not come to its end, ``not_offered`` that the provider has no such
    thing, so that nothing is lost."""

    seconds: dict[str, dict[int, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    facts: dict[str, int] = field(default_factory=dict)
    cause: str | None = None
    not_offered: bool = False


def run_part(
    job: ProbeJob, sampler: SamplerLink, watcher: Watcher, wishes: Callable[[], int]
) -> PartRuns:
    """Start the child and listen to it, and to the sampler, until it ends or is killed."""
    found = PartRuns()
    with Child("probe", MODULE, job) as child, selectors.DefaultSelector() as selector:
        selector.register(child.descriptor, selectors.EVENT_READ, child)
        sampler.attach(selector)
        stop = StopWatch(child, wishes)
        ended, timing, ticked_s = False, False, 0.0
        while child.open:
            for key, _ in selector.select(_TICK_S):
                if key.data is sampler:
                    sampler.receive()
                    continue
                for message in child.receive():
                    timing |= isinstance(message, ProbeRun)
                    ended |= isinstance(message, Ended)
                    _take(message, found)
            now_s = time.monotonic()
            sampler.look(time.monotonic_ns())
            stop.look(time.monotonic_ns())
            if now_s - ticked_s >= _TICK_S:
                watcher.tick(timing=timing)
                timing, ticked_s = False, now_s
        sampler.detach()
        if not ended and found.cause is None:
            found.cause = child.cause_of_end()
    return found


def _take(message: Any, found: PartRuns) -> None:
    if isinstance(message, ProbeRun):
        seconds = (message.t1_ns - message.t0_ns) / 1e9
        if seconds > 0:
            found.seconds[message.what][message.size].append(seconds)
    elif isinstance(message, ProbeFacts):
        found.facts.update(message.facts)
    elif isinstance(message, Failed):
        found.cause = message.message
        found.not_offered = message.kind == NotOffered.__name__
