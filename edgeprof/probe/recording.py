"""Runs a probe part by part and puts its profile together; the file always holds what is done."""

import time
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from edgeprof import __version__
from edgeprof.analysis.measured_passes import (
    best_lengths,
    best_rate,
    figure,
    layers_that_fit,
    pass_costs,
    rate,
    whole_model,
)
from edgeprof.convert.synthetic import stored_bytes
from edgeprof.errors import EdgeprofError, EnvironmentFault, NotOffered
from edgeprof.hardware.machine import last_level_cache_bytes
from edgeprof.hardware.measured import (
    UNKNOWN_PROCESSOR,
    Machine,
    MeasuredKernel,
    MeasuredModel,
    MeasuredProfile,
    MeasuredStream,
    Missing,
    as_toml,
)
from edgeprof.hardware.memory_state import read_memory_state
from edgeprof.models.spec import ModelSpec
from edgeprof.probe.budget import (
    FEWEST_CACHES,
    LOADING_FACTOR,
    affordable_bytes,
    beyond_cache_bytes,
)
from edgeprof.probe.calibration import board_counts, calibrate_board
from edgeprof.probe.conditions import Watcher, disturbances
from edgeprof.probe.parts import PartRuns, run_part
from edgeprof.probe.worker import CONTEXT_TOKENS
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.environment import describe_device, describe_environment
from edgeprof.profiling.messages import ProbeJob, SampleJob
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.provider_settings import ProviderName
from edgeprof.report.whole_file import whole_file
from edgeprof.runner.product import KERNELS, Kernel

INTERRUPTED = "interrupted"
_ROWS = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64]
_TOKENS = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32]
# Memory that no cache holds: many times the last level, as that of a virtual machine's host may be
# larger than it is told, or what is ample where nothing is told. A pass over memory is soon done, a
# product is not. Of a cache of hundreds of MiB fewer are enough: a probe is to take two minutes.
_CACHES, _LEAST_BYTES, _MOST_BYTES = 8, 64 << 20, 768 << 20
_STREAM_CACHES, _STREAM_LEAST_BYTES, _STREAM_MOST_BYTES = 16, 256 << 20, 3 << 29
_STREAM_BUDGET_S, _PRODUCT_BUDGET_S, _MODEL_BUDGET_S = 1.5, 6.0, 20.0
_SAMPLE_EVERY_S = 0.5
_BEFORE_S = 1.0


class ModelAsked(Struct, frozen=True, kw_only=True):
    """A model whose layers are to be stacked, and the name that it was asked for by."""

    name: str
    spec: ModelSpec


class Request(Struct, frozen=True, kw_only=True):
    """What to probe. The last four shrink a probe: the rows of products, the tokens of passes, the
    time for warming up and the size of what is streamed."""

    provider: ProviderName
    threads: int
    models: tuple[ModelAsked, ...] = ()
    rows: tuple[int, ...] = tuple(_ROWS)
    tokens: tuple[int, ...] = tuple(_TOKENS)
    warm_s: float = 1.2
    size_bytes: int | None = None


class Progress(Protocol):
    """What a probe tells while it goes on."""

    def begin(self, part: str, number: int, of: int) -> None: ...

    def end(self, part: str, cause: str | None) -> None: ...


def check_model(spec: ModelSpec) -> None:
    """UsageFault for a model of which no stack can be built."""
    stored_bytes(spec, 1)


def record_probe(
    request: Request,
    output: Path,
    *,
    progress: Progress,
    wishes: Callable[[], int],
    root: Path = Path("/"),
) -> MeasuredProfile:
    """Probe, and write the profile to ``output`` after every part, not complete until the end.

    Raises EnvironmentFault where nothing at all could be measured, KeyboardInterrupt where somebody
    stopped it before; then nothing was written.
    """
    probe = _Probe(request, output, progress, wishes, root)
    samples = SampleJob(board=board_figures(root), interval_s=_SAMPLE_EVERY_S)
    with SamplerLink(samples, probe.watcher.take) as sampler:
        probe.run(sampler)
    return probe.conclude()


class _Probe:
    """A probe under way: the profile as far as it is known."""

    def __init__(
        self,
        request: Request,
        output: Path,
        progress: Progress,
        wishes: Callable[[], int],
        root: Path,
    ) -> None:
        self.watcher = Watcher(root)
        self._request = request
        self._output = output
        self._progress = progress
        self._wishes = wishes
        self._root = root
        self._start_s = time.monotonic()
        self._causes: list[str] = []
        self._cache_bytes = last_level_cache_bytes(root)
        self._profile = _empty_profile(request, root)

    def run(self, sampler: SamplerLink) -> None:
        """All parts, or as many as there is no wish to stop before."""
        self.watcher.look_before(_BEFORE_S)
        parts = [*self._parts()]
        for number, (name, measure) in enumerate(parts, 1):
            if self._wishes():
                return
            self._progress.begin(name, number, len(parts))
            try:
                runs = measure(sampler)
            except EdgeprofError as error:
                not_offered = isinstance(error, NotOffered)
                runs = PartRuns(cause=str(error), not_offered=not_offered)
            if self._wishes() and runs.cause is not None:
                runs.cause = INTERRUPTED  # however the child took it
            if runs.cause is not None:
                self._note_missing(name, runs)
            self._progress.end(name, runs.cause)
            self._save(complete=False)

    def conclude(self) -> MeasuredProfile:
        """The whole profile, written for the last time."""
        if not self._has_measured:
            if self._wishes():
                raise KeyboardInterrupt
            raise EnvironmentFault(
                f"nothing could be measured: {self._causes[0] if self._causes else 'no part ran'}"
            )
        self._save(complete=not self._wishes())
        return self._profile

    def _parts(self) -> Iterator[tuple[str, Callable[[SamplerLink], PartRuns]]]:
        for kind in ("read", "copy"):
            yield f"memory {kind}", partial(self._stream, kind)
        for kernel in KERNELS[self._request.provider]:
            yield kernel.label, partial(self._kernel, kernel)
        for asked in self._request.models:
            yield asked.name, partial(self._model, asked)
        if board_counts(self._root):
            yield "EMC counters", self._emc

    def _stream(self, kind: Literal["read", "copy"], sampler: SamplerLink) -> PartRuns:
        size_bytes = self._stream_bytes()
        job = self._job(part=kind, size_bytes=size_bytes, budget_s=_STREAM_BUDGET_S)
        runs = run_part(replace(job, rounds=(7, 200)), sampler, self.watcher, self._wishes)
        seconds = runs.seconds[kind].get(1)
        if seconds:
            moved_bytes = runs.facts["moved_bytes"]
            stream = MeasuredStream(
                kind=kind, size_bytes=size_bytes, bandwidth_bytes_per_s=rate(moved_bytes, seconds)
            )
            self._profile = replace(self._profile, streams=[*self._profile.streams, stream])
        return runs

    def _kernel(self, kernel: Kernel, sampler: SamplerLink) -> PartRuns:
        job = self._job(
            part="product",
            size_bytes=self._room_for(_CACHES, _LEAST_BYTES, _MOST_BYTES),
            sizes=list(self._request.rows),
            weights=kernel.weights,
            accuracy_level=kernel.accuracy_level,
            budget_s=_PRODUCT_BUDGET_S,
        )
        runs = run_part(job, sampler, self.watcher, self._wishes)
        measured = _measured_kernel(kernel, runs)
        if measured is not None:
            self._profile = replace(self._profile, kernels=[*self._profile.kernels, measured])
        return runs

    def _model(self, asked: ModelAsked, sampler: SamplerLink) -> PartRuns:
        layers = self._layers_that_fit(asked.spec)
        job = self._job(
            part="model",
            size_bytes=0,
            sizes=list(self._request.tokens),
            model=asked.spec,
            layers=layers,
            budget_s=_MODEL_BUDGET_S,
            rounds=(3, 25),
        )
        runs = run_part(job, sampler, self.watcher, self._wishes)
        measured = _measured_model(asked, runs)
        if measured is not None:
            self._profile = replace(self._profile, models=[*self._profile.models, measured])
        return runs

    def _emc(self, sampler: SamplerLink) -> PartRuns:
        job = self._job(part="load", size_bytes=self._stream_bytes())
        found, cause = calibrate_board(job, self._root, self._wishes)
        self._profile = replace(self._profile, emc=found)
        return PartRuns(cause=cause)

    def _job(self, **what: Any) -> ProbeJob:
        request = self._request
        return ProbeJob(
            provider=request.provider, threads=request.threads, warm_s=request.warm_s, **what
        )

    def _stream_bytes(self) -> int:
        return self._room_for(_STREAM_CACHES, _STREAM_LEAST_BYTES, _STREAM_MOST_BYTES)

    def _room_for(self, caches: int, least_bytes: int, most_bytes: int) -> int:
        """What is streamed: so many times the last level of cache, within the two sizes, as far as
        there is room. Raises EnvironmentFault where a cache would be measured."""
        cache_bytes = self._cache_bytes or 0
        wanted = self._request.size_bytes
        if wanted is None:
            wanted = beyond_cache_bytes(cache_bytes, caches, least_bytes, most_bytes)
        room = affordable_bytes(self._root)
        least = min(FEWEST_CACHES * cache_bytes, wanted)
        if room is not None and room < max(least, 1 << 20):
            raise EnvironmentFault(
                f"there is room for {room >> 20} MiB of weights, and {least >> 20} MiB are needed"
                f" that no cache holds; {read_memory_state(self._root)}: stop other programs or"
                " raise the limit"
            )
        return wanted if room is None else min(wanted, room)

    def _layers_that_fit(self, spec: ModelSpec) -> int:
        """Raises UsageFault for a model without such a stack, EnvironmentFault where not even one
        layer fits."""
        head = stored_bytes(spec, 0)
        layer = (stored_bytes(spec, spec.layers) - head) / spec.layers
        room = affordable_bytes(self._root)
        if room is None:
            return spec.layers
        layers = layers_that_fit(spec, layer, head, room)
        if layers == 0:
            raise EnvironmentFault(
                f"{spec.name}: one layer and the output head take {_loading_gib(head + layer)}"
                f" while they are loaded, and {_loading_gib(room)} may be taken;"
                f" {read_memory_state(self._root)}"
            )
        return layers

    def _note_missing(self, part: str, runs: PartRuns) -> None:
        cause = _short(runs.cause or "")
        self._causes.append(cause)
        missing = Missing(part=part, cause=cause, lost=not runs.not_offered)
        self._profile = replace(self._profile, missing=[*self._profile.missing, missing])

    @property
    def _has_measured(self) -> bool:
        profile = self._profile
        return bool(profile.streams or profile.kernels or profile.models or profile.emc)

    def _save(self, *, complete: bool) -> None:
        """In one piece: a reader never sees half of it. Nothing takes the place of what is there
        before there is something to keep."""
        if not self._has_measured:
            return
        found = self.watcher.conditions()
        self._profile = replace(
            self._profile,
            complete=complete,
            ended_reason=None if complete else INTERRUPTED,
            duration_s=time.monotonic() - self._start_s,
            conditions=found,
            disturbed=[*disturbances(found, self._request.provider)],
        )
        with whole_file(self._output) as unfinished:
            unfinished.write_text(as_toml(self._profile), encoding="utf-8")


def _empty_profile(request: Request, root: Path) -> MeasuredProfile:
    environment = describe_environment(root)
    device = describe_device(root)
    known = {name: value for name, value in device.items() if name in Machine.__struct_fields__}
    names = ("python", "platform", "numpy", "onnx", "onnxruntime", "onnxruntime_package")
    return MeasuredProfile(
        schema="edgeprof.probe/1",
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        edgeprof_version=__version__,
        complete=False,
        duration_s=0.0,
        provider=request.provider,
        threads=request.threads,
        machine=msgspec.convert(
            {
                **known,
                "name": known.get("name") or UNKNOWN_PROCESSOR,
                "cores": environment["cores"],
                "memory_bytes": environment["memory_bytes"],
                "last_level_cache_bytes": environment["last_level_cache_bytes"],
            },
            Machine,
        ),
        versions={name: environment[name] for name in names if environment.get(name)},
    )


def _measured_kernel(kernel: Kernel, runs: PartRuns) -> MeasuredKernel | None:
    """None without a single run of one row: then there is nothing to relate others to."""
    seconds, facts = runs.seconds["rows"], runs.facts
    if not seconds.get(1):
        return None
    weight_bytes, flop_per_row = facts["weight_bytes"], facts["flop_per_row"]
    rates = [rate(flop_per_row * rows, values) for rows, values in seconds.items()]
    if "gemm_flop_per_row" in facts:
        rates += [
            rate(facts["gemm_flop_per_row"] * rows, values)
            for rows, values in runs.seconds["gemm"].items()
        ]
    return MeasuredKernel(
        weights=kernel.weights,
        accuracy_level=kernel.accuracy_level,
        operator=kernel.operator,
        weight_bytes=weight_bytes,
        flop_per_row=flop_per_row,
        bandwidth_bytes_per_s=rate(weight_bytes, seconds[1]),
        flop_per_s=best_rate(rates),
        passes=pass_costs(seconds),
    )


def _measured_model(asked: ModelAsked, runs: PartRuns) -> MeasuredModel | None:
    facts, spec = runs.facts, asked.spec
    if not runs.seconds["whole"].get(1):
        return None
    share = facts["layer_bytes"] / facts["all_layer_bytes"]
    seconds = whole_model(runs.seconds["whole"], runs.seconds["headless"], share)
    if not seconds.get(1):
        return None
    passes = pass_costs(seconds)
    costs = {one.tokens: one.cost.value for one in passes}
    scale = spec.layers / facts["layers"]
    layer_bytes, all_layer_bytes = facts["layer_bytes"], facts["all_layer_bytes"]
    head_flop = 2 * sum(g.parameters for g in spec.groups if g.role == "lm_head")
    return MeasuredModel(
        name=asked.name,
        title=spec.full_title,
        kind="measured" if facts["layers"] == spec.layers else "modelled",
        layers=spec.layers,
        layers_measured=facts["layers"],
        context_tokens=CONTEXT_TOKENS,
        weight_bytes=facts["stack_bytes"] + all_layer_bytes - layer_bytes,
        flop_per_token=round((facts["flop_per_token"] - head_flop) * scale) + head_flop,
        kv_bytes_per_token=round(facts["kv_bytes_per_token"] * scale),
        decode_tokens_per_s=figure([1 / value for value in seconds[1]]),
        passes=passes,
        best=best_lengths(costs) if len(costs) > 1 else [],
    )


def _loading_gib(weight_bytes: float) -> str:
    return f"{weight_bytes * LOADING_FACTOR / 2**30:.2f} GiB"


def _short(cause: str) -> str:
    return " ".join(cause.split())[:400] or "no cause was told"
