"""The contender: the child process that runs a target beside antagonists, and minds these.

Antagonists are children of its own and end with it. Everything it measures goes to the recorder.
"""

import select
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import groupby
from operator import itemgetter
from typing import Any

from edgeprof.analysis.disturbance import is_disturbed
from edgeprof.errors import EdgeprofError
from edgeprof.hardware.machine import allowed_cores, pin
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.children import Child
from edgeprof.profiling.contention_plan import STREAMS, Regime, order_of_legs
from edgeprof.profiling.journal import Interrupted, Journal, ModelName
from edgeprof.profiling.loading import open_model, provider_detail
from edgeprof.profiling.messages import (
    AntagonistJob,
    Began,
    ContendJob,
    Ended,
    Failed,
    Go,
    Message,
    ModelReady,
    Order,
    Plan,
    Ran,
    Ready,
    Rest,
)
from edgeprof.profiling.process_load import watch_processor
from edgeprof.profiling.process_memory import watch_memory
from edgeprof.recipe import Contention, Sustained
from edgeprof.runner.held import HeldPass
from edgeprof.runner.token_model import ModelRun
from edgeprof.session.records import Leg, Phase

_clock = time.monotonic_ns
_MODULE = "edgeprof.profiling.antagonist"
_PARKING_S = 0.1  # threads of a model that ran before go on spinning for a while
_START_S = 300.0  # a large model may take long to load
_ANSWER_S = 30.0
_WARMUP_S = 1.0
_LOOK_S = 0.05
_ON_GPU = {"cuda", "tensorrt"}


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Run all legs of the job; ends early, and says so, where the recorder asked to stop."""
    assert isinstance(job, ContendJob)
    legs = sum(1 for _ in order_of_legs(job.recipe))
    outbox.put(Plan(legs=legs + (job.recipe.sustained is not None)))
    journal = Journal(
        outbox.put,
        clock=_clock,
        stop_asked=control.stop_asked,
        watches={"memory": watch_memory},
    )
    try:
        with ExitStack() as antagonists:
            _Contending(job, journal, outbox.put, antagonists).run()
    except Interrupted:
        outbox.put(Ended(interrupted=True))
    else:
        outbox.put(Ended())


class _Antagonist:
    """One neighbour: its processes, and how fast it goes alone."""

    def __init__(self, name: str, jobs: list[AntagonistJob], stack: ExitStack) -> None:
        self.name = name
        self.kind = jobs[0].kind
        self.workers = len(jobs)
        self.period_s: float | None = None
        self._workers = [stack.enter_context(Child(name, _MODULE, job)) for job in jobs]
        ready = [self._expect(worker, Ready, _START_S) for worker in self._workers]
        self.ready: Ready = ready[0]

    def go(self, dose: float) -> None:
        """Start all of it, and wait until each process has done its first pass."""
        pace = None if dose == 1 or self.period_s is None else self.period_s / dose
        for worker in self._workers:
            worker.order(Go(period_s=pace))
        for worker in self._workers:
            self._expect(worker, Began, _ANSWER_S)

    def look(self) -> None:
        """Notice one that has died; nothing else is heard of one that works."""
        for worker in self._workers:
            if _readable(worker, 0.0):
                self._expect(worker, Ran, 0.0)

    def rest(self) -> list[Ran]:
        for worker in self._workers:
            worker.order(Rest())
        return [self._expect(worker, Ran, _ANSWER_S) for worker in self._workers]

    def learn(self, ran: list[Ran]) -> None:
        """The time from pass to pass of a process on its own, by which doses are paced."""
        rates = [len(one.stamps_ns) / one.wall_s for one in ran if one.wall_s > 0]
        if rates and min(rates) > 0:
            self.period_s = len(rates) / sum(rates)

    def _expect(self, worker: Child, kind: type[Any], wait_s: float) -> Any:
        """The next message, which is to be of that kind."""
        until_s = time.monotonic() + wait_s
        while worker.open and _readable(worker, max(until_s - time.monotonic(), 0.0)):
            for message in worker.receive():
                if isinstance(message, kind):
                    return message
                if isinstance(message, Failed):
                    raise EdgeprofError(f"antagonist {self.name}: {message.message}")
        if worker.open:
            raise EdgeprofError(f"antagonist {self.name} does not answer")
        words = worker.last_words().rpartition("\n")[2]
        raise EdgeprofError(
            f"antagonist {self.name} {worker.cause_of_end()}" + (f": {words}" if words else "")
        )


class _Contending:
    """The target, its antagonists and the legs that they run."""

    def __init__(
        self,
        job: ContendJob,
        journal: Journal,
        put: Callable[[Message], None],
        stack: ExitStack,
    ) -> None:
        assert job.recipe.contention is not None and job.recipe.contention.target is not None
        self._job = job
        self._recipe = job.recipe
        self._contention: Contention = job.recipe.contention
        self._target = job.recipe.contention.target
        self._journal = journal
        self._put = put
        self._stack = stack
        self._names = {key: ModelName(key, m.provider) for key, m in job.models.items()}
        self._antagonists: dict[str, _Antagonist] = {}
        self._target_span: tuple[int, int] | None = None  # of the leg in hand

        everywhere = allowed_cores()
        self._target_cores = set(self._contention.target_cores or everywhere)
        self._antagonist_cores = set(self._contention.antagonist_cores or everywhere)

    def run(self) -> None:
        pin(self._target_cores)  # before any thread starts
        self._held = self._load()
        for name in self._contention.antagonists or ():
            self._start(name)
        for repeat, legs in groupby(order_of_legs(self._recipe), key=itemgetter(0)):
            # What another program disturbed is run once more, after the others of its repeat.
            for regime in [one for _, one in legs if self._run_leg(repeat, one)]:
                self._run_leg(repeat, regime)
        if self._recipe.sustained is not None:
            self._sustain(self._recipe.sustained)

    def _load(self) -> HeldPass:
        model, record = open_model(
            self._job.models[self._target], capacity=self._recipe.context_tokens, clock=_clock
        )
        detail = {"model": self._target, "load_s": model.load_s, "cached_share": None}
        self._journal.note(None, "load", detail, "info")
        self._put(ModelReady(key=self._target, model=record))
        if setup := provider_detail(self._target, model):
            self._journal.note(None, "provider", setup, "info")
        return HeldPass(
            model,
            1,
            context_tokens=self._recipe.held_context_tokens,
            rows=1,
            seed=self._recipe.seed,
        )

    def _start(self, name: str) -> None:
        antagonist = _Antagonist(name, self._jobs(name), self._stack)
        self._antagonists[name] = antagonist
        if antagonist.ready.model is not None:
            self._put(ModelReady(key=name, model=antagonist.ready.model))

    def _jobs(self, name: str) -> list[AntagonistJob]:
        """Those of all its processes; a model has one, with threads of its own."""
        cores = sorted(self._antagonist_cores)
        if name not in self._job.models:
            kind = STREAMS[name]
            job = AntagonistJob(kind=kind, cores=cores, buffer_bytes=self._job.buffer_bytes)
            return [job] * self._contention.workers
        return [
            AntagonistJob(
                kind="model",
                cores=cores,
                model=self._job.models[name],
                capacity=self._recipe.context_tokens,
                context_tokens=self._recipe.held_context_tokens,
                seed=self._recipe.seed,
            )
        ]

    def _run_leg(self, repeat: int, regime: Regime) -> bool:
        """Whether another program was in its way."""
        time.sleep(_PARKING_S)
        seconds = self._contention.leg_s if repeat else min(_WARMUP_S, self._contention.leg_s)
        idle = regime.target is None and regime.antagonist is None
        with self._journal.leg(
            regime.name,
            kind="idle" if idle else "contend",
            variant="idle" if idle else self._target,
            repeat=repeat,
            warmup=repeat == 0,
            attrs=self._attributes(regime),
        ) as leg:
            since, t0_ns = watch_processor(), _clock()
            ran = self._measure(leg, regime, seconds)
            leg.attrs["processor"] = {**since(), "wall_s": (_clock() - t0_ns) / 1e9}
            if regime.antagonist is not None:
                self._write(leg, regime.antagonist, ran)
        return repeat > 0 and is_disturbed(leg.attrs)

    def _measure(self, leg: Leg, regime: Regime, seconds: float) -> list[Ran]:
        """What the antagonist did, if there is one."""
        if regime.antagonist is None:
            self._spend(leg, regime, seconds, None)
            return []
        antagonist = self._antagonists[regime.antagonist]
        antagonist.go(regime.dose)
        self._spend(leg, regime, seconds, antagonist)
        ran = antagonist.rest()
        if leg.warmup:
            antagonist.learn(ran)
        return ran

    def _spend(
        self, leg: Leg, regime: Regime, seconds: float, antagonist: _Antagonist | None
    ) -> None:
        """Passes of the target until the time is over, or a rest where it does not run."""
        until_ns = _clock() + round(seconds * 1e9)
        self._target_span = None
        while (now_ns := _clock()) < until_ns:
            if antagonist is not None:
                antagonist.look()
            if regime.target is not None:
                run = self._held.run()
                first_ns = run.t0_ns if self._target_span is None else self._target_span[0]
                self._target_span = first_ns, run.t1_ns
                self._journal.run(leg, "decode", self._names[self._target], run)
            else:
                self._journal.rest(min((until_ns - now_ns) / 1e9, _LOOK_S))

    def _attributes(self, regime: Regime) -> dict[str, Any]:
        if regime.antagonist is None:
            return {"seed": self._recipe.seed}
        antagonist = self._antagonists[regime.antagonist]
        return {
            "antagonist": regime.antagonist,
            "antagonist_kind": antagonist.kind,
            "dose": regime.dose,
            "runs": "antagonist" if regime.target is None else "both",
            "pass_bytes": antagonist.ready.pass_bytes,
            "workers": antagonist.workers,
            "competes_for": self._competes_for(regime.antagonist, antagonist.kind),
            "target_cores": sorted(self._target_cores),
            "antagonist_cores": sorted(self._antagonist_cores),
            "seed": self._recipe.seed,
        }

    def _competes_for(self, name: str, kind: str) -> list[str]:
        """What target and antagonist both need. On one GPU that is its SMs and time slices, and
        what the bus does there cannot be told apart from it."""
        models = self._job.models
        if name in models and {models[name].provider, models[self._target].provider} <= _ON_GPU:
            return ["gpu"]
        shared = self._target_cores & self._antagonist_cores
        return [*(["bus"] if kind != "spin" else []), *(["cores"] if shared else [])]

    def _write(self, leg: Leg, name: str, ran: list[Ran]) -> None:
        """The antagonist's passes, each process in a stream of its own."""
        model = name in self._job.models
        phase: Phase = "draft" if model else "antagonist"
        size = (1, self._recipe.held_context_tokens) if model else (0, 0)
        leg.attrs["antagonist_cpu_s"] = sum(one.cpu_s for one in ran)
        leg.attrs["overlap_s"] = self._overlap_s(ran)
        wall_s = max(one.wall_s for one in ran)
        leg.attrs["core_share"] = sum(one.cpu_s for one in ran) / wall_s if wall_s > 0 else None
        names = self._names.get(name, ModelName(name, "cpu"))
        for stream, one in enumerate(ran, start=1):
            for t0_ns, t1_ns in one.stamps_ns:
                self._journal.run(leg, phase, names, ModelRun(*size, t0_ns, t1_ns), stream=stream)

    def _overlap_s(self, ran: list[Ran]) -> float | None:
        """From the moment at which all that ran had begun to that at which the first ended."""
        spans = [(one.stamps_ns[0][0], one.stamps_ns[-1][1]) for one in ran if one.stamps_ns]
        if self._target_span is not None:
            spans.append(self._target_span)
        if not spans:
            return None
        return max(min(t1 for _, t1 in spans) - max(t0 for t0, _ in spans), 0) / 1e9

    def _sustain(self, sustained: Sustained) -> None:
        time.sleep(_PARKING_S)
        with self._journal.leg(
            f"{self._target} sustained {sustained.duration}",
            kind="sustained",
            variant=self._target,
            attrs={"duration_s": sustained.duration_s},
        ) as leg:
            until_ns = _clock() + sustained.duration_s * 1_000_000_000
            while _clock() < until_ns:
                self._journal.run(leg, "decode", self._names[self._target], self._held.run())


def _readable(child: Child, wait_s: float) -> bool:
    return bool(select.select([child.descriptor], [], [], wait_s)[0])


if __name__ == "__main__":
    serve(work)
