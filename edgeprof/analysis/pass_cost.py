"""What passes cost: v(n), the draft's c, and where passes stand under the measured ceilings.

v(n) is the time of an n-token pass over that of a one-token pass, from held passes. The ceilings
are what a large product reached through the same runtime: lower bounds of the machine. Where no
counter exists, bandwidth is bytes over time and says so. Nothing is clipped at a ceiling or at 1.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from edgeprof.analysis.latency import seconds
from edgeprof.analysis.statistics import median_of, ratio_of_medians
from edgeprof.analysis.variants import VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, ModelRecord, Pass, Session, SessionInfo

_CACHE_FACTOR = 2


class VerifyCost(Struct, frozen=True, kw_only=True):
    """v(``tokens``) of one target."""

    target: str
    tokens: int
    measured: Quantity


class DraftCost(Struct, frozen=True, kw_only=True):
    """c: one draft pass over one plain target pass."""

    target: str
    drafter: str
    ratio: Quantity


class Ceiling(Struct, frozen=True, kw_only=True):
    """The most that a kernel was seen to stream and to compute."""

    kernel: str
    threads: int | None
    bandwidth_bytes_per_s: Quantity | None
    flop_per_s: Quantity | None


class PassPoint(Struct, frozen=True, kw_only=True):
    """A held pass as a point under the roof; shares are of the ceilings of the model's kernel.

    Of a model that the last-level cache may serve, bytes over time are no bandwidth: None.
    """

    model: str
    role: str
    tokens: int
    context_tokens: int
    time_s: Quantity
    intensity_flop_per_byte: float
    flop_per_s: Quantity
    bandwidth_bytes_per_s: Quantity | None
    bandwidth_share: float | None
    flop_share: float | None


def held_passes(session: Session, held: str) -> dict[str, list[Pass]]:
    """Passes of the held legs of one kind ("verify" or "draft"), by model."""
    legs = {
        leg.id: leg.variant
        for leg in session.legs
        if leg.kind == "held" and not leg.warmup and leg.attrs.get("held") == held
    }
    found: dict[str, list[Pass]] = defaultdict(list)
    for pass_ in session.passes if legs else ():
        if pass_.leg_id in legs:
            found[legs[pass_.leg_id]].append(pass_)
    return found


def held_seconds(session: Session, held: str) -> dict[str, dict[int, float]]:
    """Medians of held passes by model and tokens."""
    return {
        model: {n: statistics.median(times) for n, times in _seconds_by_tokens(passes).items()}
        for model, passes in held_passes(session, held).items()
    }


def verify_costs(session: Session) -> list[VerifyCost]:
    """v(n) for every target and size that was held; none without passes of one token."""
    costs = []
    for target, passes in held_passes(session, "verify").items():
        times = _seconds_by_tokens(passes)
        for tokens, values in times.items():
            source = f"median of held {tokens}-token passes over that of one-token passes"
            ratio = ratio_of_medians(values, times.get(1, []), source=source)
            if ratio is not None:
                if tokens == 1:  # the unit itself, which has no band
                    ratio = msgspec.structs.replace(ratio, low=1.0, high=1.0)
                costs.append(VerifyCost(target=target, tokens=tokens, measured=ratio))
    return costs


def draft_costs(session: Session, runs: Iterable[VariantRuns]) -> list[DraftCost]:
    """c for every pair of target and model drafter that decoded together."""
    targets, drafters = held_passes(session, "verify"), held_passes(session, "draft")
    pairs = {(run.target, run.drafter): None for run in runs if run.drafter_kind == "model"}
    costs = []
    for target, drafter in pairs:
        if drafter is None:
            continue
        draft_times = _seconds_by_tokens(drafters.get(drafter, [])).get(1, [])
        target_times = _seconds_by_tokens(targets.get(target, [])).get(1, [])
        source = "median of held one-token draft passes over that of the target's"
        ratio = ratio_of_medians(draft_times, target_times, source=source)
        if ratio is not None:
            costs.append(DraftCost(target=target, drafter=drafter, ratio=ratio))
    return costs


def ceilings_of(session: Session) -> list[Ceiling]:
    """One entry a kernel and thread count."""
    passes: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in session.passes:
        if pass_.phase == "ceiling":
            passes[pass_.leg_id].append(pass_)
    legs: dict[tuple[str, int | None], list[Leg]] = defaultdict(list)
    for leg in session.legs:
        if leg.kind == "ceiling" and not leg.warmup and passes[leg.id]:
            legs[leg.variant, _count(leg.attrs, "threads")].append(leg)
    return [
        Ceiling(
            kernel=kernel,
            threads=threads,
            bandwidth_bytes_per_s=_best_rate(kernel_legs, passes, _weight_bytes, "weight bytes"),
            flop_per_s=_best_rate(kernel_legs, passes, _flop, "FLOP"),
        )
        for (kernel, threads), kernel_legs in legs.items()
    ]


def _best_rate(
    legs: list[Leg],
    passes: Mapping[int, list[Pass]],
    amount: Callable[[Leg, Pass], int | None],
    what: str,
) -> Quantity | None:
    """The median rate at the number of rows that reaches most; any of them bounds from below."""
    by_rows: dict[int, list[float]] = defaultdict(list)
    for leg in legs:
        for pass_ in passes[leg.id]:
            done = amount(leg, pass_)
            if done and seconds(pass_) > 0:
                by_rows[pass_.tokens].append(done / seconds(pass_))
    if not by_rows:
        return None
    best = max(by_rows, key=lambda rows: statistics.median(by_rows[rows]))
    source = f"{what} over time of {best}-row products, median; a lower bound of the machine"
    return median_of(by_rows[best], source=source)


def _weight_bytes(leg: Leg, pass_: Pass) -> int | None:
    return _count(leg.attrs, "weight_bytes")


def _flop(leg: Leg, pass_: Pass) -> int | None:
    per_row = _count(leg.attrs, "flop_per_row")
    return None if per_row is None else per_row * pass_.tokens


def ceiling_for(model: ModelRecord, ceilings: Sequence[Ceiling]) -> Ceiling | None:
    """The ceiling of the model's kernel, at its thread count."""
    same = (c for c in ceilings if c.kernel == model.kernel and c.threads == model.threads)
    return next(same, None)


def pass_points(session: Session, ceilings: Sequence[Ceiling]) -> list[PassPoint]:
    """The held passes of every model whose bytes and FLOP are known."""
    points = []
    for held, role in (("verify", "target"), ("draft", "draft")):
        for name, passes in held_passes(session, held).items():
            model = session.info.models.get(name)
            if model is None or not model.streamed_weight_bytes or not model.flop_per_token:
                continue
            ceiling = ceiling_for(model, ceilings)
            cached = may_be_cached(model, session.info.environment)
            points += [
                _point(name, role, model, same_size, ceiling, cached=cached)
                for same_size in _by_tokens(passes).values()
            ]
    return points


def _point(
    name: str,
    role: str,
    model: ModelRecord,
    passes: list[Pass],
    ceiling: Ceiling | None,
    *,
    cached: bool,
) -> PassPoint:
    first = passes[0]
    flop = first.tokens * (model.flop_per_token or 0)
    total_bytes = pass_bytes(model, first.tokens, first.context_tokens) or 0
    time_s = median_of([seconds(pass_) for pass_ in passes], source="held passes, median")
    assert time_s is not None and time_s.value is not None  # passes is never empty
    bandwidth, rate = total_bytes / time_s.value, flop / time_s.value
    return PassPoint(
        model=name,
        role=role,
        tokens=first.tokens,
        context_tokens=first.context_tokens,
        time_s=time_s,
        intensity_flop_per_byte=flop / total_bytes,
        flop_per_s=_modelled(rate, len(passes), "FLOP of the matrix products over pass time"),
        bandwidth_bytes_per_s=None
        if cached
        else _modelled(bandwidth, len(passes), _bytes_over_time(model)),
        bandwidth_share=None
        if cached
        else _share(bandwidth, ceiling.bandwidth_bytes_per_s if ceiling else None),
        flop_share=_share(rate, ceiling.flop_per_s if ceiling else None),
    )


def pass_bytes(model: ModelRecord, tokens: int, context_tokens: int) -> int | None:
    """Weights once, and the keys and values of all tokens up to the pass's last."""
    if not model.streamed_weight_bytes:
        return None
    cached = (model.kv_bytes_per_token or 0) * (context_tokens + tokens)
    return model.streamed_weight_bytes + cached


def may_be_cached(model: ModelRecord, environment: Mapping[str, Any]) -> bool:
    """A cache of half a model or more keeps a part of the weights from one pass to the next."""
    cache = environment.get("last_level_cache_bytes")
    weights = model.streamed_weight_bytes
    return isinstance(cache, int) and weights is not None and weights < _CACHE_FACTOR * cache


def target_bandwidth(runs: VariantRuns, info: SessionInfo) -> Quantity | None:
    """Bytes over time of the target's passes while decoding; None also of a model that the
    last-level cache may serve."""
    model = info.models.get(runs.target)
    if model is None or may_be_cached(model, info.environment):
        return None
    passes = [p for a in runs.decoded for p in a.passes if p.phase in ("decode", "verify")]
    time_s = math.fsum(seconds(pass_) for pass_ in passes)
    sizes = [pass_bytes(model, p.tokens, p.context_tokens) for p in passes]
    known = [size for size in sizes if size is not None]
    if not time_s or len(known) < len(sizes):
        return None
    return _modelled(sum(known) / time_s, len(passes), f"{_bytes_over_time(model)}, B/s")


def _bytes_over_time(model: ModelRecord) -> str:
    if model.kv_bytes_per_token is None:
        return "streamed weight bytes / pass time of the target (keys and values not known)"
    return "(streamed weight bytes + keys and values) / pass time of the target"


def _modelled(value: float, n: int, source: str) -> Quantity:
    return Quantity(value=value, n=n, kind="modelled", source=source)


def _share(value: float, ceiling: Quantity | None) -> float | None:
    return value / ceiling.value if ceiling is not None and ceiling.value else None


def _by_tokens(passes: Iterable[Pass]) -> dict[int, list[Pass]]:
    """The passes that took time, by their size, smallest first."""
    found: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in sorted(passes, key=lambda pass_: pass_.tokens):
        if seconds(pass_) > 0:
            found[pass_.tokens].append(pass_)
    return found


def _seconds_by_tokens(passes: Iterable[Pass]) -> dict[int, list[float]]:
    return {tokens: [seconds(p) for p in same] for tokens, same in _by_tokens(passes).items()}


def _count(attrs: Mapping[str, Any], key: str) -> int | None:
    value = attrs.get(key)
    return value if isinstance(value, int) else None
