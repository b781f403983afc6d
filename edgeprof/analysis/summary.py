"""A session boiled down to its figures: the document ``edgeprof.summary/1``.

Text, Markdown, plots and JSON all read this one value. Figures are quantities that know their
origin; what was not measured is None.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from edgeprof.analysis.acceptance import Acceptance, acceptance_of
from edgeprof.analysis.attribution import BANDWIDTH, Attribution, attribution_of
from edgeprof.analysis.board import (
    Memory,
    Readings,
    Temperature,
    clock_change,
    emc_clock_range,
    memory_of,
    temperatures_of,
)
from edgeprof.analysis.bus import bus_of
from edgeprof.analysis.caveats import caveats, nothing_measured
from edgeprof.analysis.channels import (
    AbsentSignal,
    SignalFigures,
    absences,
    channels_of,
    signal_figures,
    span_of,
)
from edgeprof.analysis.circumstances import Circumstances, byte_ratio, circumstances_of
from edgeprof.analysis.comparison import (
    Output,
    Pair,
    RoundCost,
    decode_speedup,
    held_target_cost,
    output_of,
    pairs_of,
    predicted_speedup,
    round_cost,
)
from edgeprof.analysis.disturbance import (
    Disturbance,
    disturbances_of,
    disturbed_words,
    heating,
    left_out_legs,
    like_sides,
)
from edgeprof.analysis.energy import (
    Energy,
    Idle,
    Rail,
    decode_spans,
    energy_of,
    energy_ratio,
    idle_of,
    mean_while_decoding,
    rail_of,
    spans_of_test,
)
from edgeprof.analysis.forecast import Forecast, forecasts, round_times
from edgeprof.analysis.joint_legs import Contention, contention_of
from edgeprof.analysis.latency import (
    InterTokenLatency,
    TimeShare,
    inter_token_latency,
    rates_by_repeat,
    time_per_output_token,
    time_share,
    time_to_first_token,
    tokens_per_s,
)
from edgeprof.analysis.length_sweep import LengthSweep, length_sweeps
from edgeprof.analysis.limits import Evidence
from edgeprof.analysis.loading import Load, loads_of
from edgeprof.analysis.pass_cost import (
    Ceiling,
    DraftCost,
    PassPoint,
    VerifyCost,
    ceilings_of,
    draft_costs,
    held_seconds,
    pass_points,
    target_bandwidth,
    verify_costs,
)
from edgeprof.analysis.phase_shares import (
    HeldPower,
    PhaseShares,
    energy_shares,
    held_power,
    traffic_shares,
)
from edgeprof.analysis.phases import CommandFigures, PhaseFigures, command_of, phases_of
from edgeprof.analysis.provenance import sample_counts
from edgeprof.analysis.round_terms import RoundTerms, round_terms
from edgeprof.analysis.statistics import mean_of
from edgeprof.analysis.synthetic import SyntheticRuns, synthetic_runs
from edgeprof.analysis.variants import VariantRuns, plain_variant, variants_of
from edgeprof.analysis.verdict import Verdict, judge
from edgeprof.quantity import Quantity
from edgeprof.session.records import ModelRecord, Session

_GPU = "load of the GPU"
# What would tell one machine or its owner from another has no place in a report.
_PRIVATE = ("serial", "hostname", "host_name", "uuid", "mac_address", "user", "home", "node_name")


class SessionHead(Struct, frozen=True, kw_only=True):
    """Which session this is; ``samples`` counts them by quality, what is simulated and replayed as
    both; ``duration_s`` is the time that the figures of its signals are about.
    ``nothing_measured`` says of a session without a figure why there is none."""

    id: str
    created_utc: str
    edgeprof_version: str
    kind: str
    complete: bool
    ended_reason: str | None
    nothing_measured: str | None
    duration_s: float
    recipe: dict[str, Any]
    prompts: list[dict[str, Any]]
    samples: dict[str, int]


class VariantFigures(Struct, frozen=True, kw_only=True):
    """One variant (``kind`` is decode) or one synthetic test of a target (``kind`` is test), its
    repeats together and warm-up left out. A test has no shares of phases."""

    name: str
    kind: str
    variant: str
    target: str
    drafter: str | None
    draft_tokens: int | None
    answers: int
    tokens: int
    tokens_per_s: Quantity | None
    tokens_per_s_by_repeat: list[float]
    ttft_s: Quantity | None
    tpot_s: Quantity | None
    itl_s: InterTokenLatency | None
    acceptance: Acceptance | None
    time_share: TimeShare | None
    bandwidth: Quantity | None
    gpu_busy_frac: Quantity | None
    power_w: Quantity | None
    energy_per_token_j: Quantity | None
    energy: Energy | None
    memory: Memory | None
    traffic_share: PhaseShares | None = None
    energy_share: PhaseShares | None = None


class Comparison(Struct, frozen=True, kw_only=True):
    """A variant with a drafter against plain decoding of its target."""

    variant: str
    target: str
    drafter: str
    draft_tokens: int | None
    baseline: str | None
    decode_speedup: Quantity | None
    energy_ratio: Quantity | None
    predicted_speedup: Quantity | None
    predicted_by_draft_tokens: list[Forecast]
    round_cost: RoundCost | None
    round_terms: RoundTerms | None
    output: Output
    verdict: Verdict


class Summary(Struct, frozen=True, kw_only=True):
    """The whole document; ``None`` is written as null.

    ``signals`` tells what every source delivered, ``absent`` what none could give, ``command`` and
    ``phases`` of a program that was watched and what it announced.
    """

    schema: str = "edgeprof.summary/1"
    session: SessionHead
    environment: dict[str, Any]
    device: dict[str, Any]
    models: dict[str, ModelRecord]
    loads: list[Load]
    legs: list[VariantFigures]
    comparisons: list[Comparison]
    draft_lengths: list[LengthSweep] = []
    verify_cost: list[VerifyCost]
    draft_cost: list[DraftCost]
    ceilings: list[Ceiling]
    pass_points: list[PassPoint]
    temperatures: list[Temperature]
    signals: list[SignalFigures]
    absent: list[AbsentSignal]
    command: CommandFigures | None
    phases: list[PhaseFigures]
    idle: Idle | None
    attribution: Attribution | None = None
    contention: Contention = field(default_factory=Contention)
    disturbed: list[Disturbance] = []
    disturbed_left_out: bool = True
    warnings: list[str]


def summarise(
    session: Session, *, with_disturbed: bool = False, beside: Contention | None = None
) -> Summary:
    """All figures of a session, complete or not; disturbed repetitions are left out of them, unless
    they are asked for. ``beside`` is contention that another session lends."""
    info = session.info
    span = span_of(session)
    channels = channels_of(session)
    readings = Readings(channels)
    disturbances = disturbances_of(session, readings)
    runs = variants_of(session, [] if with_disturbed else left_out_legs(disturbances))
    ceilings = ceilings_of(session)
    costs = _PassCosts(session, runs, ceilings)
    temperatures = temperatures_of(readings)
    signals = signal_figures(channels, span)
    absent = absences(session, channels)
    rail = rail_of(readings, absent)
    idle = idle_of(session, readings, rail)
    held, attribution = held_power(session, rail), attribution_of(session, runs, channels, readings)
    no_bandwidth = None if readings.channel(BANDWIDTH) else _unread(BANDWIDTH, absent)

    contention = contention_of(session, runs, readings, rail, idle)
    if beside is not None and not contention.targets:
        contention = replace(contention, targets=beside.targets, lent_by=beside.lent_by)
    closures = [] if attribution is None else attribution.closure

    def traffic(run: VariantRuns) -> PhaseShares:
        return traffic_shares(run, attribution, no_bandwidth)

    def compare(run: VariantRuns, plain: VariantRuns | None) -> Comparison:
        bus = bus_of(run, info.models, contention.targets, closures)
        around = circumstances_of(session, run, readings, disturbances, bus)
        return _compare(run, plain, session, readings, rail, costs, around)

    every = cache(lambda: variants_of(session))
    sides = [
        like_sides(
            run, plain_variant(runs, run.target), [] if with_disturbed else disturbances, every
        )
        for run in runs
        if run.drafter is not None
    ]
    comparisons = [compare(run, plain) for run, plain, _ in sides]
    return Summary(
        session=_head(session, span.seconds),
        environment=without_private(info.environment),
        device=without_private(info.device),
        models=info.models,
        loads=loads_of(session),
        legs=[
            *(_figures(run, session, readings, held, idle, traffic(run)) for run in runs),
            *(_test_figures(run, session, readings, rail, idle) for run in synthetic_runs(session)),
        ],
        comparisons=comparisons,
        draft_lengths=length_sweeps(comparisons),
        verify_cost=costs.verify,
        draft_cost=costs.draft,
        ceilings=ceilings,
        pass_points=costs.points,
        temperatures=temperatures,
        signals=signals,
        absent=absent,
        command=command_of(session),
        phases=phases_of(session, readings.channel(BANDWIDTH)),
        attribution=attribution,
        idle=idle,
        contention=contention,
        disturbed=disturbances,
        disturbed_left_out=not with_disturbed,
        warnings=[
            *disturbed_words(disturbances, with_disturbed=with_disturbed),
            *(
                f"{run.name} is compared with plain decoding over all repetitions, disturbed ones "
                "too: undisturbed ones are not of both"
                for run, _, whole in sides
                if whole
            ),
            *caveats(session, runs, costs.points, temperatures, signals, emc_clock_range(readings)),
            *heating(readings),
        ],
    )


def without_private(values: dict[str, Any]) -> dict[str, Any]:
    """Without serial numbers, host names and the like, at any depth."""
    return {
        key: without_private(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if not any(word in key.lower() for word in _PRIVATE)
    }


class _PassCosts:
    """The held costs of a session and where to find those of one variant."""

    def __init__(
        self, session: Session, runs: Sequence[VariantRuns], ceilings: Sequence[Ceiling]
    ) -> None:
        self.verify = verify_costs(session)
        self.draft = draft_costs(session, runs)
        self.points = pass_points(session, ceilings)
        self._held_s = held_seconds(session, "verify")
        self._held_draft_s = held_seconds(session, "draft")

    def terms(self, run: VariantRuns, pairs: Sequence[Pair], cost: RoundCost) -> RoundTerms:
        draft_s = self._held_draft_s.get(run.drafter or "", {}).get(1)
        return round_terms(pairs, cost, self._held_s.get(run.target, {}), draft_s)

    def forecasts(self, run: VariantRuns, plain: VariantRuns) -> list[Forecast]:
        """At every length that held passes reach; an adaptive length is not one to replay."""
        held_s = self._held_s.get(run.target, {})
        times = None if run.draft_tokens is None else round_times(run, plain, held_s)
        return [] if times is None else forecasts(run, times, range(1, max(held_s)))

    def v(self, target: str, tokens: int) -> Quantity | None:
        found = (c.measured for c in self.verify if (c.target, c.tokens) == (target, tokens))
        return next(found, None)

    def c(self, run: VariantRuns) -> Quantity | None:
        pair = (run.target, run.drafter)
        return next((c.ratio for c in self.draft if (c.target, c.drafter) == pair), None)

    def point(self, model: str, tokens: int) -> PassPoint | None:
        return next((p for p in self.points if (p.model, p.tokens) == (model, tokens)), None)


def _head(session: Session, duration_s: float) -> SessionHead:
    info = session.info
    prompts = {
        request.prompt_sha256: {
            "sha256": request.prompt_sha256,
            "kind": request.prompt_kind,
            "tokens": request.prompt_tokens,
        }
        for request in session.requests
    }
    return SessionHead(
        id=info.id,
        created_utc=info.created_utc,
        edgeprof_version=info.edgeprof_version,
        kind=info.kind,
        complete=info.complete,
        ended_reason=info.ended_reason,
        nothing_measured=nothing_measured(session),
        duration_s=duration_s,
        recipe=info.recipe,
        prompts=list(prompts.values()),
        samples=dict(sample_counts(session)),
    )


def _unread(name: str, absent: Sequence[AbsentSignal]) -> str:
    """Why a signal was not read."""
    found = (one for one in absent if one.signal == name)
    one = next(found, None)
    if one is None:
        return f"{name} was not read"
    return f"not measured: {one.reason}" + (f"; {one.fix}" if one.fix else "")


def _figures(
    run: VariantRuns,
    session: Session,
    readings: Readings,
    held: HeldPower,
    idle: Idle | None,
    traffic: PhaseShares,
) -> VariantFigures:
    spans = decode_spans(run.decoded)
    energy = energy_of(spans, held.rail, idle)
    rounds = [round_ for answer in run.answers for round_ in answer.rounds]
    return VariantFigures(
        name=run.name,
        kind="decode",
        variant=run.name,
        target=run.target,
        drafter=run.drafter,
        draft_tokens=run.draft_tokens,
        answers=len(run.answers),
        tokens=sum(answer.request.new_tokens for answer in run.answers),
        tokens_per_s=tokens_per_s(run),
        tokens_per_s_by_repeat=rates_by_repeat(run),
        ttft_s=time_to_first_token(run),
        tpot_s=time_per_output_token(run),
        itl_s=inter_token_latency(run),
        acceptance=None if run.drafter is None else acceptance_of(rounds),
        time_share=time_share(run),
        bandwidth=target_bandwidth(run, session.info),
        gpu_busy_frac=mean_while_decoding(spans, readings.channel("gpu_busy_frac"), _GPU),
        power_w=energy.power_w,
        energy_per_token_j=energy.per_token_j,
        energy=energy,
        memory=memory_of(run.legs, readings, _memory_bytes(session)),
        traffic_share=traffic,
        energy_share=energy_shares(run, held),
    )


def _test_figures(
    run: SyntheticRuns, session: Session, readings: Readings, rail: Rail, idle: Idle | None
) -> VariantFigures:
    """Nothing was answered, so there is a rate and what it took, and nothing else."""
    spans = spans_of_test(run)
    energy = energy_of(spans, rail, idle)
    source = "tokens over the time from the first measured pass to the last; mean over repeats"
    return VariantFigures(
        name=run.name,
        kind="test",
        variant=run.target,
        target=run.target,
        drafter=None,
        draft_tokens=None,
        answers=0,
        tokens=run.tokens,
        tokens_per_s=mean_of(run.rates, source=f"{source}, 95 % t interval"),
        tokens_per_s_by_repeat=run.rates,
        ttft_s=None,
        tpot_s=None,
        itl_s=None,
        acceptance=None,
        time_share=None,
        bandwidth=None,
        gpu_busy_frac=mean_while_decoding(spans, readings.channel("gpu_busy_frac"), _GPU),
        power_w=energy.power_w,
        energy_per_token_j=energy.per_token_j,
        energy=energy,
        memory=memory_of(run.legs, readings, _memory_bytes(session)),
    )


def _memory_bytes(session: Session) -> int | None:
    total_bytes = session.info.environment.get("memory_bytes")
    return total_bytes if isinstance(total_bytes, int) else None


def _compare(
    run: VariantRuns,
    plain: VariantRuns | None,
    session: Session,
    readings: Readings,
    rail: Rail,
    costs: _PassCosts,
    around: Circumstances,
) -> Comparison:
    pairs = [] if plain is None else pairs_of(run, plain)
    output = output_of(run.name, pairs, session.events, sampled=_is_sampled(session.info.recipe))
    evidence = replace(
        _measured_evidence(run, plain, pairs, costs),
        byte_ratio=byte_ratio(session.info.models, run),
        output=output,
        clock_change=clock_change(run.legs, plain.legs, readings) if plain else None,
        around=around,
    )
    return Comparison(
        variant=run.name,
        target=run.target,
        drafter=run.drafter or "",
        draft_tokens=run.draft_tokens,
        baseline=None if plain is None else plain.name,
        decode_speedup=evidence.speedup,
        energy_ratio=energy_ratio(pairs, rail),
        predicted_speedup=predicted_speedup(run, costs.verify, costs.draft),
        predicted_by_draft_tokens=list(evidence.forecasts),
        round_cost=evidence.cost,
        round_terms=evidence.terms,
        output=output,
        verdict=judge(evidence),
    )


def _measured_evidence(
    run: VariantRuns, plain: VariantRuns | None, pairs: Sequence[Pair], costs: _PassCosts
) -> Evidence:
    """What the passes and rounds of a variant say."""
    cost, verified = round_cost(pairs), (run.draft_tokens or 0) + 1
    return Evidence(
        speedup=decode_speedup(pairs),
        drafter_kind=run.drafter_kind,
        draft_tokens=run.draft_tokens,
        acceptance=acceptance_of([r for answer in run.answers for r in answer.rounds]),
        cost=cost,
        repeats=len({pair.plain.repeat for pair in pairs}),
        terms=None if cost is None else costs.terms(run, pairs, cost),
        held_target_cost=held_target_cost(run, costs.verify),
        draft_ratio=costs.c(run),
        verify_cost=costs.v(run.target, verified),
        one_token=costs.point(run.target, 1),
        verify_pass=costs.point(run.target, verified),
        forecasts=[] if plain is None else costs.forecasts(run, plain),
    )


def _is_sampled(recipe: dict[str, Any]) -> bool:
    """Did chance choose the tokens? A recipe without a word on it is greedy."""
    sampling = recipe.get("sampling")
    temperature = sampling.get("temperature") if isinstance(sampling, dict) else None
    return isinstance(temperature, int | float) and temperature > 0
