"""The recorder: runs a recipe through its two children and writes what they say into a session.

It owns the session file and decides how a run ends: complete, interrupted, or by a child's death.
"""

import selectors
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from edgeprof import __version__
from edgeprof import errors as faults
from edgeprof.analysis.attribution import BANDWIDTH
from edgeprof.analysis.disturbance import neighbours
from edgeprof.analysis.held_bytes import held_seconds
from edgeprof.errors import EdgeprofError, EnvironmentFault, UsageFault
from edgeprof.hardware.memory_state import read_memory_state
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.process_end import speaks_of_memory
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.checks import plan_job
from edgeprof.profiling.children import Child
from edgeprof.profiling.contention_plan import plan_contention
from edgeprof.profiling.environment import describe_device, describe_environment
from edgeprof.profiling.messages import (
    ContendJob,
    DecodeJob,
    Ended,
    Failed,
    Message,
    ModelReady,
    Plan,
    SampleJob,
)
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.profiling.watches import StopWatch, SwapWatch, stop_wishes
from edgeprof.recipe import Recipe
from edgeprof.session.records import (
    SCHEMA_VERSION,
    Event,
    Leg,
    LegStatus,
    Pass,
    Record,
    Sample,
    Session,
    SessionInfo,
    Severity,
    Signal,
    Token,
)
from edgeprof.session.store import SessionWriter, check_output, read_session, remove_session

INTERRUPTED = "interrupted"
_COMMIT_EVERY_NS = 100_000_000
_SETTLING_NS = 5_000_000_000
_DECODER = "edgeprof.profiling.decoder"
_CONTENDER = "edgeprof.profiling.contender"  # holds the target as a decoder does


class Progress(Protocol):
    """What a run tells while it goes on."""

    def plan(self, legs: int) -> None:
        """So many legs there will be, those of the ceilings apart."""
        ...

    def leg(self, leg: Leg) -> None:
        """A leg has started or, with another status than running, ended."""
        ...


def record(
    recipe: Recipe,
    folders: Mapping[str, DecoderFolder],
    output: Path,
    *,
    progress: Progress,
    sources: list[str] | None = None,
    force: bool = False,
    on_token: Callable[[Token], None] | None = None,
) -> Session:
    """Measure ``recipe`` and return the session that is then in ``output``.

    ``sources`` are those of the board's readings that are to give all they can; None takes per
    signal the first that works. ``on_token`` is told every token of an answer soon after it came.

    A run that ended early but measured something returns too: its session says that it is not
    complete and why. Where nothing was measured no file is left, and the cause is raised;
    KeyboardInterrupt where that was Ctrl-C.
    """
    check_output(output, force=force)
    if not recipe.prompts and not recipe.tests:
        raise UsageFault(
            f"recipe {recipe.name} has neither prompts nor tests to run; edgeprof contend does "
            "what its contention says"
        )
    job = plan_job(recipe, folders)
    return _record(job, output, progress, sources, force=force, on_token=on_token)


def record_contention(
    recipe: Recipe,
    folders: Mapping[str, DecoderFolder],
    output: Path,
    *,
    progress: Progress,
    sources: list[str] | None = None,
    force: bool = False,
) -> Session:
    """Measure what a recipe's target and its antagonists do to each other; like ``record``.

    ``recipe`` is one of ``contention_recipe``.
    """
    check_output(output, force=force)
    return _record(plan_contention(recipe, folders), output, progress, sources, force=force)


def _record(
    job: DecodeJob | ContendJob,
    output: Path,
    progress: Progress,
    sources: list[str] | None,
    *,
    force: bool,
    on_token: Callable[[Token], None] | None = None,
) -> Session:
    samples = SampleJob(board=board_figures(Path("/")), sources=sources)
    info = SessionInfo(
        id=uuid.uuid4().hex,
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        edgeprof_version=__version__,
        schema_version=SCHEMA_VERSION,
        kind="run" if isinstance(job, DecodeJob) else "contend",
        recipe=msgspec.to_builtins(job.recipe),
        device=describe_device(),
        environment=describe_environment(),
        models={},
    )
    with stop_wishes() as wishes:
        run = _Run(SessionWriter(output, info, force=force), progress, on_token)
        try:
            run.measure(job, samples, wishes)
        finally:
            run.close()
            if not run.passes:
                remove_session(output)
    if not run.passes:
        raise KeyboardInterrupt if run.failure is None else run.failure
    return read_session(output)


class _Run:
    """One run: what came in so far, and how it ended."""

    def __init__(
        self,
        writer: SessionWriter,
        progress: Progress,
        on_token: Callable[[Token], None] | None,
    ) -> None:
        self.passes = 0
        self.failure: EdgeprofError | None = None
        self._writer = writer
        self._progress = progress
        self._on_token = on_token
        self._ended: Ended | None = None
        self._open_leg: Leg | None = None
        self._swap = SwapWatch()
        self._bandwidth: Signal | None = None
        self._committed_ns = time.monotonic_ns()

    def close(self) -> None:
        self._writer.close()

    def measure(
        self, job: DecodeJob | ContendJob, samples: SampleJob, wishes: Callable[[], int]
    ) -> None:
        """Start the children, write down what they say, and note how it ended."""
        with (
            SamplerLink(samples, self._take_sample) as sampler,
            self._decoder(job, samples, sampler) as decoder,
            selectors.DefaultSelector() as selector,
        ):
            selector.register(decoder.descriptor, selectors.EVENT_READ, decoder)
            sampler.attach(selector)
            stop = StopWatch(decoder, wishes)
            while decoder.open:
                self._listen(selector, decoder, sampler)
                stop.look(time.monotonic_ns())
            sampler.close()
            self._conclude(decoder, interrupted=stop.asked)

    def _decoder(
        self, job: DecodeJob | ContendJob, samples: SampleJob, sampler: SamplerLink
    ) -> Child:
        if isinstance(job, ContendJob):
            return Child("decoder", _CONTENDER, job)
        return Child("decoder", _DECODER, self._with_held_legs(job, samples, sampler))

    def _with_held_legs(
        self, job: DecodeJob, samples: SampleJob, sampler: SamplerLink
    ) -> DecodeJob:
        """Phases are held for their bytes where the board's bandwidth is read; whether it is, the
        sampler tells soon after its start."""
        if not job.recipe.held_legs or samples.board.bytes_per_emc_clock is None:
            return job
        until_ns = time.monotonic_ns() + _SETTLING_NS
        while not sampler.settled and time.monotonic_ns() < until_ns:
            sampler.receive(_COMMIT_EVERY_NS / 1e9)
        if self._bandwidth is None:
            return job
        return replace(job, held_leg_s=job.recipe.held_leg_s or held_seconds(self._bandwidth))

    def _listen(
        self, selector: selectors.BaseSelector, decoder: Child, sampler: SamplerLink
    ) -> None:
        """Wait a little for messages and write them down; commit when it is time."""
        for key, _ in selector.select(_COMMIT_EVERY_NS / 4e9):
            if key.data is sampler:
                sampler.receive()
            else:
                for message in decoder.receive():
                    self._take(message)
        now_ns = time.monotonic_ns()
        sampler.look(now_ns)
        if now_ns - self._committed_ns >= _COMMIT_EVERY_NS:
            self._writer.commit()
            self._committed_ns = now_ns

    def _take(self, message: Message) -> None:
        """Write down, or act on, what the decoder says."""
        if isinstance(message, ModelReady):
            models = {**self._writer.info.models, message.key: message.model}
            self._writer.update_info(models=models)
        elif isinstance(message, Plan):
            self._progress.plan(message.legs)
        elif isinstance(message, Failed):
            self.failure = getattr(faults, message.kind)(message.message)
        elif isinstance(message, Ended):
            self._ended = message
        elif isinstance(message, Record):
            self._writer.add(message)
            if isinstance(message, Token) and self._on_token is not None:
                self._on_token(message)
            elif isinstance(message, Pass):
                self.passes += 1
            elif isinstance(message, Leg):
                self._open_leg = message if message.status == "running" else None
                self._note_neighbours(message)
                self._progress.leg(message)

    def _take_sample(self, record: Signal | Sample | Event) -> None:
        """Write down what the sampler says; an event belongs to the leg that is open."""
        if isinstance(record, Signal):
            self._swap.signal(record)
            if record.name == BANDWIDTH:
                self._bandwidth = record
        elif isinstance(record, Sample):
            self._swap.sample(record)
        elif record.leg_id is None and self._open_leg is not None:
            record = replace(record, leg_id=self._open_leg.id)
        self._writer.add(record)

    def _conclude(self, decoder: Child, *, interrupted: bool) -> None:
        """How the run ended goes into the session."""
        if swapping := self._swap.verdict(time.monotonic_ns()):
            self._writer.add(swapping)
        if self._ended is not None and not self._ended.interrupted:
            self._writer.update_info(complete=True)
        elif interrupted or self._ended is not None:
            self._end_open_leg("interrupted")
            self._writer.update_info(ended_reason=INTERRUPTED)
        elif self.failure is not None:
            self._end_open_leg("failed")
            self._note("failure", "error", {"process": "decoder", "cause": str(self.failure)})
            self._writer.update_info(ended_reason=str(self.failure))
        else:
            self._write_death(decoder)

    def _write_death(self, decoder: Child) -> None:
        cause = decoder.cause_of_end()
        detail = {"process": "decoder", "cause": cause, "stderr": decoder.last_words()}
        self._note("death", "error", detail)
        self._end_open_leg("died")
        self.failure = _fault_of_death(cause, decoder.last_words())
        self._writer.update_info(ended_reason=str(self.failure))

    def _note_neighbours(self, leg: Leg) -> None:
        """A leg that has ended says what others took of the processor."""
        for reason in neighbours(leg):
            self._writer.add(
                Event(
                    leg_id=leg.id,
                    t_ns=leg.t1_ns or leg.t0_ns,
                    kind="neighbours",
                    severity="warning",
                    detail={"reason": reason},
                )
            )

    def _end_open_leg(self, status: LegStatus) -> None:
        if self._open_leg is not None:
            ended = replace(self._open_leg, status=status, t1_ns=time.monotonic_ns())
            self._writer.add(ended)

    def _note(self, kind: str, severity: Severity, detail: dict[str, Any]) -> None:
        leg_id = self._open_leg.id if self._open_leg is not None else None
        now_ns = time.monotonic_ns()
        self._writer.add(
            Event(leg_id=leg_id, t_ns=now_ns, kind=kind, severity=severity, detail=detail)
        )


def _fault_of_death(cause: str, last_words: str) -> EdgeprofError:
    """A death for want of memory is the machine's fault, and what it had left belongs to it."""
    if not speaks_of_memory(last_words):
        return EdgeprofError(f"the decoder {cause}")
    return EnvironmentFault(
        f"the decoder {cause}; {read_memory_state()}; lower context_tokens or take a smaller "
        "model; where the same ran before, a reboot frees fragmented memory"
    )
