"""The recorder's link to its sampler: starts it, hears it, and replaces it when it hangs or dies.

Nothing here waits for a sampler. What it says goes on under ids that outlive it; what was missed is
told as an event. Knows no source of readings and no session file.
"""

import select
import selectors
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from edgeprof.profiling.children import Child
from edgeprof.profiling.delivery import Delivery
from edgeprof.profiling.messages import Alive, Failed, Message, SampleJob, Stuck
from edgeprof.session.records import Event, Sample, Severity, Signal

_MODULE = "edgeprof.profiling.sampling"
_SILENCE_NS = 2_000_000_000
_SILENCE_AT_START_NS = 15_000_000_000  # a new process has yet to import what it needs
_PAUSES_S = (0, 1, 2, 4, 8, 16, 30)
_WELL_AFTER_NS = 60_000_000_000  # then the next failure counts as the first again
_LAST_SAMPLES_NS = 1_000_000_000
_DEATH_WAIT_S = 0.5


class SamplerLink:
    """One sampler after another, as one.

    ``put`` is given the signals, samples and events as they come, and at the end every signal again
    with how it was delivered. Events have no leg.
    """

    def __init__(self, job: SampleJob, put: Callable[[Signal | Sample | Event], None]) -> None:
        self._job = job
        self._put = put
        self._delivery = Delivery()
        self._selector: selectors.BaseSelector | None = None
        self._child: Child | None = None
        self._ended: list[Child] = []  # killed, but perhaps not gone yet
        self._absences: set[tuple[str, str, str]] = set()
        self._started_ns = self._heard_ns = 0
        self._silence_ns = _SILENCE_AT_START_NS
        self._stuck: str | None = None
        self._failures = 0
        self._restart_ns: int | None = None
        self._gap: tuple[int, str] | None = None  # since when and why nothing comes
        self._given_up = self._closed = self._settled = False

    def __enter__(self) -> "SamplerLink":
        self._start(time.monotonic_ns())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._end_all()

    @property
    def pid(self) -> int | None:
        """The process that samples now, if one does."""
        return None if self._child is None else self._child.pid

    @property
    def settled(self) -> bool:
        """Whether it has been told what there is to sample."""
        return self._settled

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Have ``selector`` tell when something came: its key's ``data`` is this link."""
        self._selector = selector
        self._register()

    def detach(self) -> None:
        """Have no selector tell any more; what comes meanwhile waits in the pipe."""
        if self._selector is not None and self._child is not None:
            with suppress(KeyError):
                self._selector.unregister(self._child.descriptor)
        self._selector = None

    def receive(self, wait_s: float = 0.0) -> None:
        """Pass on what came; call when the key fires, or wait for so long for something to come."""
        child = self._child
        if child is None:
            time.sleep(wait_s)
            return
        if wait_s and not _readable(child.descriptor, wait_s):
            return
        for message in child.receive():
            self._take(message)
        if not child.open:
            self._note_end(child, time.monotonic_ns())

    def look(self, now_ns: int) -> None:
        """Notice a sampler that hangs, and start the next one when it is time; call often."""
        self._ended = [child for child in self._ended if not child.gone()]
        if self._child is not None:
            silent = now_ns - self._heard_ns > self._silence_ns
            if silent and not _readable(self._child.descriptor):
                self._note_hang(self._child, now_ns)
        elif self._restart_ns is not None and now_ns >= self._restart_ns:
            self._start(now_ns)

    def close(self) -> None:
        """Let it finish, take the last samples, and tell how every signal was delivered."""
        if self._closed:
            return
        self._closed = True
        until_ns = time.monotonic_ns() + _LAST_SAMPLES_NS
        if self._child is not None:
            self._child.stop()
        while self._child is not None and (left_ns := until_ns - time.monotonic_ns()) > 0:
            if _readable(self._child.descriptor, left_ns / 1e9):
                self.receive()
        if self._gap is not None:
            self._tell_gap(time.monotonic_ns())
        for signal in self._delivery.signals():
            self._put(signal)
        self._end_all()

    def _start(self, now_ns: int) -> None:
        self._restart_ns = None
        self._stuck = None
        self._started_ns = self._heard_ns = now_ns
        self._silence_ns = _SILENCE_AT_START_NS
        try:
            self._child = Child("sampler", _MODULE, self._job)
        except OSError as error:
            self._note_death(f"cannot be started: {error.strerror}")
            self._await_next(now_ns, "cannot be started")
            return
        self._register()

    def _take(self, message: Message) -> None:
        if isinstance(message, Stuck):
            self._stuck = message.what
            return
        self._heard_ns = time.monotonic_ns()
        self._silence_ns = _SILENCE_NS
        self._stuck = None
        if isinstance(message, Alive):
            self._settled |= message.settled
        elif isinstance(message, Signal):
            self._settled = True
            self._put(self._delivery.announce(message))
        elif isinstance(message, Sample):
            if self._gap is not None:
                self._tell_gap(message.t0_ns)
            self._put(self._delivery.count(message))
        elif isinstance(message, Event):
            self._take_event(message)
        elif isinstance(message, Failed):
            self._given_up = self._settled = True
            self._note("failure", "warning", {"process": "sampler", "cause": message.message})

    def _take_event(self, event: Event) -> None:
        if event.kind == "gap" and "signal" not in event.detail:  # of a whole source
            self._delivery.interrupt(event.detail.get("source"))
        if event.kind == "absent":  # every sampler finds the same ones
            absence = (event.detail["signal"], event.detail["source"], event.detail["reason"])
            if absence in self._absences:
                return
            self._absences.add(absence)
        self._put(event)

    def _note_end(self, child: Child, now_ns: int) -> None:
        if self._closed or self._given_up:
            self._drop(child)
            return
        cause = child.cause_of_end(_DEATH_WAIT_S)
        self._drop(child)
        self._note_death(cause)
        self._await_next(now_ns, cause)

    def _note_hang(self, child: Child, now_ns: int) -> None:
        if self._stuck is None:
            cause = f"silent for more than {self._silence_ns / 1e9:.0f} s"
        else:
            cause = f"{self._stuck} did not return"
            self._job = replace(self._job, left_out=(*self._job.left_out, self._stuck))
        self._drop(child)
        self._await_next(now_ns, cause)

    def _await_next(self, now_ns: int, cause: str) -> None:
        """At once the first time, then after pauses that grow."""
        if now_ns - self._started_ns > _WELL_AFTER_NS:
            self._failures = 0
        pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        self._restart_ns = now_ns + pause_s * 1_000_000_000
        self._delivery.restart()
        if self._gap is None:
            self._gap = (self._heard_ns, cause)

    def _tell_gap(self, until_ns: int) -> None:
        assert self._gap is not None
        since_ns, cause = self._gap
        self._gap = None
        detail = {"process": "sampler", "since_ns": since_ns, "until_ns": until_ns, "cause": cause}
        self._note("gap", "warning", detail)

    def _note_death(self, cause: str) -> None:
        self._note("death", "warning", {"process": "sampler", "cause": cause})

    def _note(self, kind: str, severity: Severity, detail: dict[str, Any]) -> None:
        now_ns = time.monotonic_ns()
        self._put(Event(leg_id=None, t_ns=now_ns, kind=kind, severity=severity, detail=detail))

    def _register(self) -> None:
        if self._selector is not None and self._child is not None:
            self._selector.register(self._child.descriptor, selectors.EVENT_READ, self)

    def _drop(self, child: Child) -> None:
        if self._selector is not None:
            with suppress(KeyError):
                self._selector.unregister(child.descriptor)
        child.end()
        self._ended.append(child)
        self._child = None

    def _end_all(self) -> None:
        """One that cannot be killed, for it hangs in the kernel, is left behind."""
        self._closed = True
        if self._child is not None:
            self._drop(self._child)
        for child in self._ended:
            child.gone(_DEATH_WAIT_S)
        self._ended.clear()


def _readable(descriptor: int, wait_s: float = 0.0) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(wait_s * 1000))
