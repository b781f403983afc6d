"""What else the session shows around a variant that may explain its speed: memory, clocks, cores,
providers, vocabularies, the bus. Each is a sentence with the session's numbers, or None.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from edgeprof.analysis.board import Readings
from edgeprof.analysis.bus import Bus
from edgeprof.analysis.disturbance import Disturbance
from edgeprof.analysis.variants import VariantRuns
from edgeprof.session.records import Leg, ModelRecord, Session
from edgeprof.units import show

_EMC_CLOCK, _GPU_CLOCK, _CPU_CLOCK = "emc_clock_hz", "gpu_clock_hz", "cpu_clock_hz"
_MOVED = 0.02
_THROTTLED_LEGS = 0.1  # of all
_GPU_IDLE = 0.3  # a GPU that is busy for less of the time has room for a model
_SWAPPED_BYTES = 16 << 20
_FAULTS_PER_S = 20  # pages read back from disk: weights that were dropped and are needed again
_OTHERS_CORES = 0.5
_SHORTEST_S = 0.2  # the system counts in hundredths of a second
_LEAST_LEFT = 0.5  # a fair scheduler leaves at least a half to as many threads
_VOCABULARY = 0.01  # padding of one tokenizer's tables differs by less


class Circumstances(Struct, frozen=True, kw_only=True):
    """``clock_gain`` is what the highest clock seen would make of the mean one, ``core_gain`` what
    all cores would make of those that others left."""

    memory: str | None = None
    throttled: str | None = None
    clocks: str | None = None
    clock_gain: float | None = None
    provider: str | None = None
    vocabularies: str | None = None
    bus: Bus = Bus()
    cores: str | None = None
    core_gain: float | None = None


def circumstances_of(
    session: Session,
    run: VariantRuns,
    readings: Readings,
    disturbances: Sequence[Disturbance],
    bus: Bus,
) -> Circumstances:
    """Of a variant with a drafter."""
    models = session.info.models
    target, draft = models.get(run.target), models.get(run.drafter or "")
    known = [model for model in (target, draft) if model is not None]
    clocks, gain = _clocks(run.legs, known, readings)
    threads = _threads(known, at_once=bus.together is not None)
    cores, core_gain = _cores(run.legs, threads, session.info.environment)
    return Circumstances(
        memory=_memory(run.legs),
        throttled=_throttled(session, run, disturbances),
        clocks=clocks,
        clock_gain=gain,
        provider=_provider(run.legs, target, readings),
        vocabularies=_vocabularies(session, target, draft, run),
        bus=bus,
        cores=cores,
        core_gain=core_gain,
    )


def byte_ratio(models: Mapping[str, ModelRecord], run: VariantRuns) -> float | None:
    """What the draft streams a pass over what the target does."""
    target, draft = models.get(run.target), models.get(run.drafter or "")
    if target is None or draft is None or not target.streamed_weight_bytes:
        return None
    ours = draft.streamed_weight_bytes
    return None if ours is None else ours / target.streamed_weight_bytes


def _memory(legs: Sequence[Leg]) -> str | None:
    """Swap that grew, or pages that had to be read back from disk all along."""
    told = [memory for leg in legs if isinstance(memory := leg.attrs.get("memory"), dict)]
    grown = max((_number(one, "swap_growth_bytes") for one in told), default=0.0)
    if grown >= _SWAPPED_BYTES:
        return f"swap grew by {show(grown, 'B')} in a leg"
    faults, seconds = sum(_number(one, "major_faults") for one in told), sum(map(_length_s, legs))
    if seconds > 0 and faults / seconds >= _FAULTS_PER_S:
        return f"{faults / seconds:.0f} pages a second were read back from disk"
    return None


def _throttled(
    session: Session, run: VariantRuns, disturbances: Iterable[Disturbance]
) -> str | None:
    """Of the variant or its baseline; a leg among many is left out, and then limits nothing."""
    names = (run.name, run.target)
    legs = sum(
        leg.kind == "decode" and not leg.warmup and leg.variant in names for leg in session.legs
    )
    told = [
        reason
        for one in disturbances
        if one.variant in names and (reason := _slowed(one)) is not None
    ]
    if not told or len(told) < _THROTTLED_LEGS * legs:
        return None
    return f"{told[0]} in {len(told)} of {legs} legs"


def _slowed(one: Disturbance) -> str | None:
    """The first reason that is the board's own."""
    own = (r for r in one.reasons if r.startswith("throttled") or " fell to " in r)
    return next(own, None)


def _clocks(
    legs: Sequence[Leg], models: Sequence[ModelRecord], readings: Readings
) -> tuple[str | None, float | None]:
    """The clock that moved most while the variant ran, of those that its models run by: a governor
    that slows idle cores down while the GPU decodes is in nobody's way."""
    on_cpu = {model.provider == "cpu" for model in models}
    by_provider = {True: _CPU_CLOCK, False: _GPU_CLOCK}
    found: list[tuple[float, str]] = []
    for name in (_EMC_CLOCK, *(by_provider[one] for one in sorted(on_cpu))):
        values = [value for leg in legs for value in readings.values(name, leg)]
        if len(values) < 2 or max(values) <= min(values) * (1 + _MOVED):
            continue
        moved = f"{name} moved between {min(values) / 1e6:.0f} and {max(values) / 1e6:.0f} MHz"
        found.append((max(values) / statistics.fmean(values), moved))
    if not found:
        return None, None
    gain, moved = max(found)
    return moved, gain


def _provider(legs: Sequence[Leg], target: ModelRecord | None, readings: Readings) -> str | None:
    """A target that runs on the processor of a machine whose GPU had little to do."""
    if target is None or target.provider != "cpu":
        return None
    values = [value for leg in legs for value in readings.values("gpu_busy_frac", leg)]
    busy = statistics.fmean(values) if values else None
    if busy is None or busy >= _GPU_IDLE:
        return None
    return f"the target ran on the CPU, while the GPU was {100 * busy:.0f} % busy"


def _vocabularies(
    session: Session, target: ModelRecord | None, draft: ModelRecord | None, run: VariantRuns
) -> str | None:
    """Tables of different length, or tokens that mean something else to the draft."""
    if target is None or draft is None:
        return None
    ours, theirs = target.vocab_size, draft.vocab_size
    if abs(ours - theirs) > _VOCABULARY * max(ours, theirs):
        return f"the target knows {ours} tokens and the draft {theirs}"
    different = [
        str(event.detail.get("field"))
        for event in session.events
        if event.kind == "special_tokens"
        and (event.detail.get("target"), event.detail.get("draft")) == (run.target, run.drafter)
    ]
    return f"draft and target differ in {', '.join(different)}" if different else None


def _threads(models: Sequence[ModelRecord], *, at_once: bool) -> int:
    """That run at a time: of the models on the processor the most, or all where draft and target
    run at once; a model on the GPU takes the one that feeds it."""
    threads = [model.threads if model.provider == "cpu" else 1 for model in models]
    return sum(threads) if at_once else max(threads, default=1)


def _cores(
    legs: Sequence[Leg], threads: int, environment: Mapping[str, Any]
) -> tuple[str | None, float | None]:
    """Other programs on cores that threads of the variant wanted, or more of these than there are
    cores. What others take of cores that nobody here wants is in nobody's way."""
    told = [(leg, p) for leg in legs if isinstance(p := leg.attrs.get("processor"), dict)]
    seconds = sum(_length_s(leg) for leg, _ in told)
    others = sum(_number(p, "others_s") for _, p in told) / seconds if seconds else 0.0
    cores = environment.get("cores")
    if not isinstance(cores, int) or cores <= 0:
        return None, None
    wanted = min(threads, cores)
    left = max(cores - others, wanted * _LEAST_LEFT)
    if seconds >= _SHORTEST_S and others >= _OTHERS_CORES and left < wanted:
        found = f"other programs took {others:.1f} cores while it ran, and {cores} are there for "
        return f"{found}{_counted(threads)}", wanted / left
    return (f"{_counted(threads)} run on {cores} cores", None) if threads > cores else (None, None)


def _counted(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def _length_s(leg: Leg) -> float:
    return 0.0 if leg.t1_ns is None else (leg.t1_ns - leg.t0_ns) / 1e9


def _number(values: Mapping[str, Any], key: str) -> float:
    """Attributes are free JSON: what is no number is 0 here."""
    value = values.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
