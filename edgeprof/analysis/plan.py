"""What drafting would bring on a board, before anything is run: by draft length and acceptance.

The best draft length comes from what verifying is expected to cost, or was measured to, never from
the roofline bound, which is the same for kernels that differ threefold. Pure arithmetic.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.drafting_cost import (
    DraftingCost,
    KernelCosts,
    RoundPasses,
    kernel_costs,
    measured_curve,
    middle,
)
from edgeprof.analysis.memory import Fit, fit
from edgeprof.analysis.roofline import (
    PassCost,
    Phase,
    Roof,
    measured_format,
    pass_cost,
    pass_time,
    roof_of_device,
)
from edgeprof.analysis.speculation import (
    best_draft_length,
    break_even_acceptance,
    expected_tokens,
    speedup,
)
from edgeprof.catalog import AnyDevice, MeasuredDevice
from edgeprof.hardware.engines import EngineClass, KernelClass
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec
from edgeprof.quantity import Band

TYPICAL_ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)  # where nobody has measured one
LONGEST_SHOWN = 16
_MOST_POSITIONS = 1 << 16  # a pass that is still memory-bound there never turns


class VerifyRow(Struct, frozen=True, kw_only=True):
    """v(``tokens``): at the bound, expected over all kernels, and measured."""

    tokens: int
    bound: float
    expected: Band | None
    measured: float | None


class DraftRatio(Struct, frozen=True, kw_only=True):
    """c: at the bound (bytes alone), expected over all kernels, and as given."""

    bound: float | None
    expected: Band | None
    given: float | None


class LengthGain(Struct, frozen=True, kw_only=True):
    """One draft length at one acceptance. Costs that are not known leave the gains None."""

    draft_length: int
    expected_tokens_per_round: float
    speedup: Band | None
    middle_speedup: float | None
    break_even_acceptance: float | None


class AcceptanceGain(Struct, frozen=True, kw_only=True):
    """All draft lengths at one acceptance, and the best of them; length 0 is not to draft."""

    acceptance: float
    lengths: tuple[LengthGain, ...]
    best_draft_length: int | None
    best_speedup: float | None
    break_even_acceptance: float | None


class KernelGain(Struct, frozen=True, kw_only=True):
    """The best draft length with one kind of kernel, and what it brings there."""

    costs: KernelCosts
    best_draft_length: int
    best_speedup: Band


class Plan(Struct, frozen=True, kw_only=True):
    """The answer for one board, target, draft and context. ``headline`` is one of ``gains``."""

    device: AnyDevice
    target: ModelSpec
    draft: ModelSpec | None
    kv: StorageType
    context_tokens: int
    data_type: str
    engine: EngineClass
    roof: Roof
    draft_cost: DraftRatio
    verify_cost: tuple[VerifyRow, ...]
    measured_tokens: int
    corners: tuple[DraftingCost, ...]
    gains: tuple[AcceptanceGain, ...]
    headline: AcceptanceGain
    kernels: tuple[KernelGain, ...]
    compute_bound_from_tokens: int | None
    fit: Fit

    @property
    def middle(self) -> DraftingCost | None:
        """What the best draft length is taken from; None where nothing is known."""
        return middle(self.corners) if self.corners else None


def plan(
    *,
    device: AnyDevice,
    target: ModelSpec,
    draft: ModelSpec | None,
    kv: StorageType,
    engine: EngineClass,
    kernels: Mapping[str, KernelClass],
    context_tokens: int = 0,
    acceptances: Sequence[float] = TYPICAL_ACCEPTANCES,
    draft_cost: float | None = None,
    verify_cost: Mapping[int, float] | None = None,
    longest: int = LONGEST_SHOWN,
    data_type: str = "fp16",
) -> Plan:
    """Draft lengths up to ``longest``, or as far as ``verify_cost`` (v by size) was measured.

    ``draft_cost`` is a measured c; without it and without a draft, drafting costs nothing.
    """
    if isinstance(device, MeasuredDevice):
        data_type = measured_format(device.measured, target, data_type)
    roof = roof_of_device(device, data_type)
    passes = RoundPasses(
        target=tuple(_target_pass(target, kv, n, context_tokens) for n in range(1, longest + 2)),
        draft=None if draft is None else pass_cost(draft, kv, "draft", 1, context_tokens),
        experts=any(group.experts for group in target.groups),
    )
    found = [kernel_costs(name, kernel, engine, roof, passes) for name, kernel in kernels.items()]
    expected = [one for one in found if one is not None]
    corners = _corners(expected, draft_cost, verify_cost, longest)
    gains = tuple(_gain(acceptance, corners, longest) for acceptance in acceptances)
    headline = gains[len(gains) // 2]
    return Plan(
        device=device,
        target=target,
        draft=draft,
        kv=kv,
        context_tokens=context_tokens,
        data_type=data_type,
        engine=engine,
        roof=roof,
        draft_cost=DraftRatio(
            bound=None
            if passes.draft is None
            else _bound_ratio(passes.draft, passes.target[0], roof),
            expected=None if draft is None else _over([one.draft_cost for one in expected]),
            given=draft_cost,
        ),
        verify_cost=_verify_rows(passes.target, roof, expected, verify_cost or {}),
        measured_tokens=max(verify_cost, default=1) if verify_cost else 0,
        corners=corners,
        gains=gains,
        headline=headline,
        kernels=tuple(
            _kernel_gain(one, headline.acceptance, draft_cost, verify_cost, longest)
            for one in expected
        ),
        compute_bound_from_tokens=_compute_bound_from(target, kv, context_tokens, roof),
        fit=fit(
            target=target,
            draft=draft,
            kv=kv,
            tokens=context_tokens + (headline.best_draft_length or 0) + 1,
            dram_bytes=device.profile.visible_dram_bytes,
        ),
    )


def _target_pass(target: ModelSpec, kv: StorageType, tokens: int, context_tokens: int) -> PassCost:
    phase: Phase = "decode" if tokens == 1 else "verify"
    return pass_cost(target, kv, phase, tokens, context_tokens)


def _corners(
    expected: Sequence[KernelCosts],
    draft_cost: float | None,
    verify_cost: Mapping[int, float] | None,
    longest: int,
) -> tuple[DraftingCost, ...]:
    """The corners of all kernels, what was measured in the place of what is expected."""
    curve = measured_curve(verify_cost, longest) if verify_cost else None
    if curve is not None and draft_cost is not None:
        return (DraftingCost(draft_cost=draft_cost, verify_costs=curve),)
    return tuple(
        DraftingCost(
            draft_cost=corner.draft_cost if draft_cost is None else draft_cost,
            verify_costs=curve or corner.verify_costs,
        )
        for one in expected
        for corner in one.corners
    )


def _gain(acceptance: float, corners: Sequence[DraftingCost], longest: int) -> AcceptanceGain:
    if not corners:
        lengths = [_unknown_gain(acceptance, length) for length in range(1, longest + 1)]
        return AcceptanceGain(
            acceptance=acceptance,
            lengths=tuple(lengths),
            best_draft_length=None,
            best_speedup=None,
            break_even_acceptance=None,
        )
    between = middle(corners)
    reach = min(longest, between.longest_draft)
    gains = [_length_gain(acceptance, length, corners, between) for length in range(1, reach + 1)]
    best = best_draft_length(acceptance, between.draft_cost, between.verify_cost, longest=reach)
    thresholds = [one.break_even_acceptance for one in gains]
    known = [threshold for threshold in thresholds if threshold is not None]
    return AcceptanceGain(
        acceptance=acceptance,
        lengths=tuple(gains),
        best_draft_length=best.draft_length,
        best_speedup=best.speedup,
        break_even_acceptance=thresholds[best.draft_length - 1]
        if best.draft_length
        else min(known, default=None),
    )


def _length_gain(
    acceptance: float, length: int, corners: Sequence[DraftingCost], between: DraftingCost
) -> LengthGain:
    return LengthGain(
        draft_length=length,
        expected_tokens_per_round=expected_tokens(acceptance, length),
        speedup=_over_corners(acceptance, length, corners),
        middle_speedup=_speedup(acceptance, length, between),
        break_even_acceptance=break_even_acceptance(
            length, between.draft_cost, between.verify_cost(length + 1)
        ),
    )


def _unknown_gain(acceptance: float, length: int) -> LengthGain:
    return LengthGain(
        draft_length=length,
        expected_tokens_per_round=expected_tokens(acceptance, length),
        speedup=None,
        middle_speedup=None,
        break_even_acceptance=None,
    )


def _kernel_gain(
    costs: KernelCosts,
    acceptance: float,
    draft_cost: float | None,
    verify_cost: Mapping[int, float] | None,
    longest: int,
) -> KernelGain:
    corners = _corners([costs], draft_cost, verify_cost, longest)
    between = middle(corners)
    best = best_draft_length(
        acceptance,
        between.draft_cost,
        between.verify_cost,
        longest=min(longest, between.longest_draft),
    )
    length = best.draft_length
    return KernelGain(
        costs=costs,
        best_draft_length=length,
        best_speedup=_over_corners(acceptance, length, corners),
    )


def _over_corners(acceptance: float, length: int, corners: Sequence[DraftingCost]) -> Band:
    gains = [_speedup(acceptance, length, corner) for corner in corners]
    return Band(low=min(gains), high=max(gains))


def _speedup(acceptance: float, length: int, cost: DraftingCost) -> float:
    tokens = expected_tokens(acceptance, length)
    return speedup(tokens, length, cost.draft_cost, cost.verify_cost(length + 1))


def _verify_rows(
    passes: Sequence[PassCost],
    roof: Roof,
    expected: Sequence[KernelCosts],
    measured: Mapping[int, float],
) -> tuple[VerifyRow, ...]:
    return tuple(
        VerifyRow(
            tokens=cost.tokens,
            bound=_bound_ratio(cost, passes[0], roof),
            expected=_over(
                [one.verify_cost(cost.tokens) for one in expected if cost.tokens <= one.most_tokens]
            ),
            measured=1.0 if measured and cost.tokens == 1 else measured.get(cost.tokens),
        )
        for cost in passes
    )


def _bound_ratio(cost: PassCost, one_token: PassCost, roof: Roof) -> float:
    return pass_time(cost, roof).time_s / pass_time(one_token, roof).time_s


def _over(bands: Sequence[Band]) -> Band | None:
    if not bands:
        return None
    return Band(low=min(band.low for band in bands), high=max(band.high for band in bands))


def _compute_bound_from(
    target: ModelSpec, kv: StorageType, context_tokens: int, roof: Roof
) -> int | None:
    """The fewest positions at which arithmetic is the wall; None where that is never or unknown."""
    if roof.flop_per_s is None:
        return None
    sizes = range(1, _MOST_POSITIONS + 1)
    found = bisect_left(
        sizes,
        True,
        key=lambda n: (
            pass_time(_target_pass(target, kv, n, context_tokens), roof).bound == "compute"
        ),
    )
    return sizes[found] if found < len(sizes) else None
