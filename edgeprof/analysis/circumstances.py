"""What else the session shows around a variant that may explain its speed: memory, clocks, cores,
providers, vocabularies, the bus. Each is a sentence with the session's numbers, or None.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from edgeprof.analysis.board import Readings
from edgeprof.analysis.disturbance import Disturbance
from edgeprof.analysis.variants import VariantRuns
from edgeprof.session.records import Leg, ModelRecord, Pass, Session
from edgeprof.units import show

_CLOCKS = ("emc_clock_hz", "gpu_clock_hz", "cpu_clock_hz")
_MOVED = 0.02
_SWAPPED_BYTES = 16 << 20
_FAULTS_PER_S = 20  # pages read back from disk: weights that were dropped and are needed again
_OTHERS_CORES = 0.5
_SHORTEST_S = 0.2  # the system counts in hundredths of a second
_LEAST_LEFT = 0.5  # a fair scheduler leaves at least a half to as many threads
_OVERLAP = 0.1  # of the draft's time during which the target ran too
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
    overlap: str | None = None
    cores: str | None = None
    core_gain: float | None = None


def circumstances_of(
    session: Session,
    run: VariantRuns,
    readings: Readings,
    disturbances: Sequence[Disturbance],
) -> Circumstances:
    """Of a variant with a drafter."""
    models = session.info.models
    target, draft = models.get(run.target), models.get(run.drafter or "")
    clocks, gain = _clocks(run.legs, readings)
    cores, core_gain = _cores(run.legs, target, draft, session.info.environment)
    return Circumstances(
        memory=_memory(run.legs),
        throttled=_throttled(run, disturbances),
        clocks=clocks,
        clock_gain=gain,
        provider=_provider(target, readings),
        vocabularies=_vocabularies(session, target, draft, run),
        overlap=_overlap([p for answer in run.decoded for p in answer.passes]),
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


def _throttled(run: VariantRuns, disturbances: Iterable[Disturbance]) -> str | None:
    reasons = [
        reason
        for one in disturbances
        if one.variant in (run.name, run.target)
        for reason in one.reasons
        if reason.startswith("throttled") or " fell to " in reason
    ]
    return f"{reasons[0]} in {len(reasons)} legs" if reasons else None


def _clocks(legs: Sequence[Leg], readings: Readings) -> tuple[str | None, float | None]:
    """The clock that moved most while the variant ran."""
    found: list[tuple[float, str]] = []
    for name in _CLOCKS:
        values = [value for leg in legs for value in readings.values(name, leg)]
        if len(values) < 2 or max(values) <= min(values) * (1 + _MOVED):
            continue
        moved = f"{name} moved between {min(values) / 1e6:.0f} and {max(values) / 1e6:.0f} MHz"
        found.append((max(values) / statistics.fmean(values), moved))
    if not found:
        return None, None
    gain, moved = max(found)
    return moved, gain


def _provider(target: ModelRecord | None, readings: Readings) -> str | None:
    """A target that runs on the processor of a machine whose GPU could be read."""
    if target is None or target.provider != "cpu" or "gpu_busy_frac" not in readings.names():
        return None
    busy = readings.values("gpu_busy_frac")
    return f"the target ran on the CPU, while the GPU was {100 * statistics.fmean(busy):.0f} % busy"


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


def _overlap(passes: Sequence[Pass]) -> str | None:
    """Draft and target that run at the same time share the bus."""
    drafts = sorted((p.t0_ns, p.t1_ns) for p in passes if p.phase == "draft")
    targets = sorted((p.t0_ns, p.t1_ns) for p in passes if p.phase in ("verify", "decode"))
    both = place = 0
    for t0_ns, t1_ns in drafts:
        while place < len(targets) and targets[place][1] <= t0_ns:
            place += 1
        if place < len(targets):
            both += max(min(t1_ns, targets[place][1]) - max(t0_ns, targets[place][0]), 0)
    whole = sum(t1_ns - t0_ns for t0_ns, t1_ns in drafts)
    if not whole or both < _OVERLAP * whole:
        return None
    return f"the target ran during {100 * both / whole:.0f} % of the draft's time"


def _cores(
    legs: Sequence[Leg],
    target: ModelRecord | None,
    draft: ModelRecord | None,
    environment: Mapping[str, Any],
) -> tuple[str | None, float | None]:
    """Other programs on the cores, or more threads at a time than there are cores."""
    told = [(leg, p) for leg in legs if isinstance(p := leg.attrs.get("processor"), dict)]
    seconds = sum(_length_s(leg) for leg, _ in told)
    others = sum(_number(p, "others_s") for _, p in told) / seconds if seconds else 0.0
    cores = environment.get("cores")
    known = cores if isinstance(cores, int) and cores > 0 else None
    if seconds >= _SHORTEST_S and others >= _OTHERS_CORES:
        left = max(1 - others / known, _LEAST_LEFT) if known else None
        gain = 1 / left if left else None
        return f"other programs took {others:.1f} cores while it ran", gain
    on_cpu = [m for m in (target, draft) if m is not None and m.provider == "cpu"]
    most = max((model.threads for model in on_cpu), default=0)
    if known is not None and most > known:
        return f"{most} threads run on {known} cores", None
    return None, None


def _length_s(leg: Leg) -> float:
    return 0.0 if leg.t1_ns is None else (leg.t1_ns - leg.t0_ns) / 1e9


def _number(values: Mapping[str, Any], key: str) -> float:
    """Attributes are free JSON: what is no number is 0 here."""
    value = values.get(key)
    return float(value) if isinstance(value, int | float) else 0.0
