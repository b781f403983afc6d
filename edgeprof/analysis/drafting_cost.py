"""What a round of drafting and verifying costs, in plain target passes: c, and v(n) for each n.

On paper the two hang together: an engine that is slow at one is slow at the other. So what a kernel
may cost is a handful of corners, each one engine with a c and a v(n) of its own, and a band is what
the corners span. Measured figures take the place of either. Pure arithmetic.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from edgeprof.analysis.roofline import PassCost, Roof, expected_time, pass_time
from edgeprof.hardware.engines import BATCH_POSITIONS, EngineClass, KernelClass, verify_cost
from edgeprof.quantity import Band

End = Literal["low", "high"]
_ENDS: tuple[End, End] = ("low", "high")


class DraftingCost(Struct, frozen=True, kw_only=True):
    """c of one engine, and its v(1), v(2), ... as far as they are known."""

    draft_cost: float
    verify_costs: tuple[float, ...]

    def verify_cost(self, tokens: int) -> float:
        """v(``tokens``)."""
        return self.verify_costs[tokens - 1]

    @property
    def longest_draft(self) -> int:
        """The draft length whose K + 1 positions are the last with a known cost."""
        return len(self.verify_costs) - 1


class KernelCosts(Struct, frozen=True, kw_only=True):
    """The corners of one kind of kernel in one class of engines."""

    name: str
    title: str
    corners: tuple[DraftingCost, ...]

    @property
    def draft_cost(self) -> Band:
        return _span([corner.draft_cost for corner in self.corners])

    @property
    def most_tokens(self) -> int:
        """The largest pass that anything is expected of."""
        return min(len(corner.verify_costs) for corner in self.corners)

    def verify_cost(self, tokens: int) -> Band:
        """What the corners make of v(``tokens``)."""
        return _span([corner.verify_cost(tokens) for corner in self.corners])


class RoundPasses(Struct, frozen=True, kw_only=True):
    """The passes of a round: the target's over 1, 2, ... positions, and one of the draft.

    Without a draft its cost is 0. ``experts`` says that the target is a mixture of them.
    """

    target: tuple[PassCost, ...]
    draft: PassCost | None
    experts: bool


def kernel_costs(
    name: str, kernel: KernelClass, engine: EngineClass, roof: Roof, passes: RoundPasses
) -> KernelCosts | None:
    """What a kernel makes of a round in a class of engines; None where the board's sustained
    bandwidth or clock is not known."""
    corners = []
    for corner, corner_roof, end in _corners(engine, roof):
        one_s = _time(passes.target[0], corner_roof, corner)
        if one_s is None:
            return None
        draft_s = None if passes.draft is None else _time(passes.draft, corner_roof, corner)
        corners.append(
            DraftingCost(
                draft_cost=(draft_s or 0.0) / one_s,
                verify_costs=tuple(_verify_costs(kernel, end, passes, corner_roof, corner, one_s)),
            )
        )
    if not corners:
        return None
    return KernelCosts(name=name, title=kernel.title, corners=tuple(corners))


def measured_curve(measured: Mapping[int, float], longest: int) -> tuple[float, ...]:
    """v(1), v(2), ... from the sizes that were measured; between two of them on a straight line,
    beyond the largest nothing."""
    known = {1: 1.0, **measured}
    sizes = sorted(known)
    curve = []
    for tokens in range(1, min(longest + 1, sizes[-1]) + 1):
        above = next(size for size in sizes if size >= tokens)
        below = max(size for size in sizes if size <= tokens)
        share = 0.0 if above == below else (tokens - below) / (above - below)
        curve.append(known[below] + share * (known[above] - known[below]))
    return tuple(curve)


def middle(corners: Sequence[DraftingCost]) -> DraftingCost:
    """Between the cheapest and the dearest corner: the geometric mean, as costs are ratios."""
    length = min(len(corner.verify_costs) for corner in corners)
    return DraftingCost(
        draft_cost=_geometric_mean(_span([corner.draft_cost for corner in corners])),
        verify_costs=tuple(
            _geometric_mean(_span([corner.verify_cost(tokens) for corner in corners]))
            for tokens in range(1, length + 1)
        ),
    )


def _verify_costs(
    kernel: KernelClass,
    end: End,
    passes: RoundPasses,
    roof: Roof,
    engine: EngineClass,
    one_s: float,
) -> Iterator[float]:
    """The kernel's measured growth, unless arithmetic takes longer; at the dear end not below the
    roofline's growth either, which for experts is that of their union."""
    for cost in passes.target:
        if roof.flop_per_s is None and cost.tokens > BATCH_POSITIONS:
            return
        growth = [_end(verify_cost(cost.tokens, kernel, experts=passes.experts), end)]
        if roof.flop_per_s is not None and cost.tokens > 1:
            growth.append(cost.flop / (roof.flop_per_s * engine.compute_share.low) / one_s)
        if end == "high":
            growth.append(pass_time(cost, roof).time_s / pass_time(passes.target[0], roof).time_s)
        yield max(growth)


def _corners(engine: EngineClass, roof: Roof) -> Iterator[tuple[EngineClass, Roof, End]]:
    """Each end of the bandwidth, of the work a byte and of the work a token with one another, and
    each end of the kernel, whose dear end goes with slow arithmetic."""
    sustained = roof.sustained_bytes_per_s
    if sustained is None:
        return
    for bandwidth, unpacking, overhead, kernel in product(_ENDS, repeat=4):
        arithmetic: End = "high" if kernel == "low" else "low"
        corner = replace(
            engine,
            bandwidth_share=_only(engine.bandwidth_share, bandwidth),
            unpack_clocks_per_byte=_only(engine.unpack_clocks_per_byte, unpacking),
            overhead_clocks=_only(engine.overhead_clocks, overhead),
            compute_share=_only(engine.compute_share, arithmetic),
        )
        yield corner, replace(roof, sustained_bytes_per_s=_only(sustained, bandwidth)), kernel


def _end(band: Band, end: End) -> float:
    return band.low if end == "low" else band.high


def _only(band: Band, end: End) -> Band:
    value = _end(band, end)
    return Band(low=value, high=value)


def _time(cost: PassCost, roof: Roof, engine: EngineClass) -> float | None:
    """Both ends of a corner's band are one."""
    band = expected_time(cost, roof, engine)
    return None if band is None else band.low


def _span(values: Sequence[float]) -> Band:
    return Band(low=min(values), high=max(values))


def _geometric_mean(band: Band) -> float:
    return math.sqrt(band.low * band.high)
