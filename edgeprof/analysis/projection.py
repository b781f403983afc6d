"""What the acceptance that a session measured would give on another board.

Carried over are the tokens (which drafted ones stood, round by round) and what the files that ran
stream and compute. Modelled is the time: at the board's peak, and as expected of a class of engines
and its kernels, a band. Time outside passes, and what alternating costs, is in neither. Pure
arithmetic.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.comparison import decode_speedup, pairs_of
from edgeprof.analysis.drafting_cost import KernelCosts, RoundPasses, kernel_costs
from edgeprof.analysis.forecast import Replay, places_of, replay
from edgeprof.analysis.memory import RUNTIME_BYTES, SYSTEM_BYTES, Fit
from edgeprof.analysis.roofline import PartCost, PassCost, Phase, Roof, pass_time, roof_of
from edgeprof.analysis.variants import VariantRuns, plain_variant
from edgeprof.catalog import Device
from edgeprof.errors import EdgeprofError
from edgeprof.hardware.engines import EngineClass, KernelClass
from edgeprof.quantity import Band
from edgeprof.session.records import ModelRecord, Session


class ProjectedLength(Struct, frozen=True, kw_only=True):
    """One draft length. ``speedup_at_peak`` takes c and v(n) at the board's peak; a band is None
    where nothing is expected."""

    draft_length: int
    expected_tokens_per_round: float
    speedup_at_peak: float
    speedup: Band | None


class ProjectedPair(Struct, frozen=True, kw_only=True):
    """One target and drafter; ``variant`` is the run whose acceptance was carried over, and
    ``measured_here`` its speed-up on the machine of the session."""

    target: str
    drafter: str
    variant: str
    answers: int
    measured_here: float | None
    context_tokens: int
    plain_tokens_per_s_bound: float
    plain_tokens_per_s: Band | None
    draft_cost_bound: float
    draft_cost: Band | None
    by_draft_length: list[ProjectedLength]
    best_draft_length: int
    best_speedup: Band | None
    fit: Fit


class Projection(Struct, frozen=True, kw_only=True):
    """All pairs of a session on one board."""

    device: Device
    engine: EngineClass
    data_type: str
    pairs: list[ProjectedPair]


def project(
    session: Session,
    runs: Sequence[VariantRuns],
    *,
    device: Device,
    engine: EngineClass,
    kernels: Mapping[str, KernelClass],
    data_type: str = "fp16",
) -> Projection:
    """Every pair of the session; of several draft lengths the longest run is taken.

    Raises EdgeprofError where no variant drafted, or where what its models stream is not known.
    """
    longest: dict[tuple[str, str], VariantRuns] = {}
    for run in runs:
        if run.drafter is None or not run.draft_tokens or not run.decoded:
            continue
        known = longest.get((run.target, run.drafter))
        if known is None or (known.draft_tokens or 0) < run.draft_tokens:
            longest[run.target, run.drafter] = run
    if not longest:
        raise EdgeprofError("the session has no answer that was drafted for at a fixed length")
    return Projection(
        device=device,
        engine=engine,
        data_type=data_type,
        pairs=[
            _pair(run, session, _measured(run, runs), device, engine, kernels, data_type)
            for run in longest.values()
        ],
    )


def _pair(
    run: VariantRuns,
    session: Session,
    measured_here: float | None,
    device: Device,
    engine: EngineClass,
    kernels: Mapping[str, KernelClass],
    data_type: str,
) -> ProjectedPair:
    models = session.info.models
    roof = roof_of(device.profile, device.mode, data_type)
    context = _mean_context(run)
    longest = run.draft_tokens or 0
    target = _known(models.get(run.target), run.target)
    draft = _known(models.get(run.drafter or ""), run.drafter) if _is_model(run) else None
    passes = RoundPasses(
        target=tuple(_cost(target, "verify", n, context) for n in range(1, longest + 2)),
        draft=None if draft is None else _cost(draft, "draft", 1, context),
        experts=False,
    )
    found = [kernel_costs(name, kernel, engine, roof, passes) for name, kernel in kernels.items()]
    expected = [one for one in found if one is not None]
    lengths = [_length(run, n, passes, roof, expected) for n in range(1, longest + 1)]
    best = max(lengths, key=_worth)
    plain = pass_time(passes.target[0], roof, engine)
    return ProjectedPair(
        target=run.target,
        drafter=run.drafter or "",
        variant=run.name,
        answers=len(run.decoded),
        measured_here=measured_here,
        context_tokens=context,
        plain_tokens_per_s_bound=plain.tokens_per_s,
        plain_tokens_per_s=plain.expected_tokens_per_s,
        draft_cost_bound=_bound(passes.draft, passes, roof),
        draft_cost=_span([one.draft_cost for one in expected]),
        by_draft_length=lengths,
        best_draft_length=best.draft_length if _worth(best) > 1 else 0,
        best_speedup=best.speedup,
        fit=_fit(session, target, draft, device),
    )


def _measured(run: VariantRuns, runs: Sequence[VariantRuns]) -> float | None:
    plain = plain_variant(runs, run.target)
    found = None if plain is None else decode_speedup(pairs_of(run, plain))
    return None if found is None else found.value


def _is_model(run: VariantRuns) -> bool:
    return run.drafter_kind == "model"


def _known(model: ModelRecord | None, name: str | None) -> ModelRecord:
    if model is None or not model.streamed_weight_bytes or not model.flop_per_token:
        raise EdgeprofError(
            f"the session does not say what a pass of {name} streams and computes; "
            "run it with a decoder that edgeprof converted"
        )
    return model


def _mean_context(run: VariantRuns) -> int:
    """Tokens that were cached before a target pass, on average."""
    depths = [p.context_tokens for a in run.decoded for p in a.passes if p.phase == "verify"]
    return round(sum(depths) / len(depths)) if depths else 0


def _cost(model: ModelRecord, phase: Phase, tokens: int, context_tokens: int) -> PassCost:
    """As the session's own file has it: weights once, keys and values of all tokens before."""
    weights, kv_bytes = model.streamed_weight_bytes or 0, model.kv_bytes_per_token or 0
    flop = (model.flop_per_token or 0) * tokens
    return PassCost(
        phase=phase,
        tokens=tokens,
        context_tokens=context_tokens,
        weight_bytes=weights,
        kv_read_bytes=kv_bytes * context_tokens,
        kv_write_bytes=kv_bytes * tokens,
        flop=flop,
        parts=(
            PartCost(name="weights", bytes=weights, flop=flop),
            PartCost(name="cache", bytes=kv_bytes * (context_tokens + tokens), flop=0),
        ),
    )


def _length(
    run: VariantRuns, length: int, passes: RoundPasses, roof: Roof, expected: Sequence[KernelCosts]
) -> ProjectedLength:
    longest = run.draft_tokens or 0
    replays = [replay(places_of(a.rounds, longest), length) for a in run.decoded if a.rounds]
    corners = [corner for one in expected for corner in one.corners]
    gains = [
        _gain(replays, corner.draft_cost, dict(enumerate(corner.verify_costs, 1)))
        for corner in corners
        if len(corner.verify_costs) > length
    ]
    at_peak = {cost.tokens: _bound(cost, passes, roof) for cost in passes.target}
    return ProjectedLength(
        draft_length=length,
        expected_tokens_per_round=sum(one.tokens for one in replays)
        / sum(one.rounds.total() for one in replays),
        speedup_at_peak=_gain(replays, _bound(passes.draft, passes, roof), at_peak),
        speedup=Band(low=min(gains), high=max(gains)) if gains else None,
    )


def _gain(replays: Sequence[Replay], draft_cost: float, verify_cost: Mapping[int, float]) -> float:
    """Tokens over what the rounds cost, in plain target passes."""
    cost = sum(
        count * (drafted * draft_cost + verify_cost[drafted + 1])
        for one in replays
        for drafted, count in one.rounds.items()
    )
    return sum(one.tokens for one in replays) / cost


def _bound(cost: PassCost | None, passes: RoundPasses, roof: Roof) -> float:
    """At the peak, in one-token passes of the target; looking up n-grams runs no model."""
    if cost is None:
        return 0.0
    return pass_time(cost, roof).time_s / pass_time(passes.target[0], roof).time_s


def _worth(one: ProjectedLength) -> float:
    """The middle of the band, or the bound where nothing is expected."""
    band = one.speedup
    return one.speedup_at_peak if band is None else (band.low * band.high) ** 0.5


def _span(bands: Sequence[Band]) -> Band | None:
    if not bands:
        return None
    return Band(low=min(band.low for band in bands), high=max(band.high for band in bands))


def _fit(session: Session, target: ModelRecord, draft: ModelRecord | None, device: Device) -> Fit:
    """With caches as deep as they were in the session."""

    def weights(model: ModelRecord | None) -> int:
        if model is None:
            return 0
        return model.resident_weight_bytes or model.streamed_weight_bytes or 0

    def cache(model: ModelRecord | None) -> int:
        return 0 if model is None else (model.kv_bytes_per_token or 0) * model.capacity_tokens

    return Fit(
        weights_bytes=weights(target),
        kv_bytes=cache(target),
        draft_weights_bytes=weights(draft),
        draft_kv_bytes=cache(draft),
        runtime_bytes=RUNTIME_BYTES,
        system_bytes=SYSTEM_BYTES,
        dram_bytes=device.profile.visible_dram_bytes,
    )
