"""What a neighbour costs a decoding model, and which part of that is the memory bus.

A target decodes beside an antagonist that works at a part of its own rate. With b the bytes/s that
the antagonist really moved, a pass takes t(b) = max(t_alone, bytes / (B_c - b)): nothing happens up
to the knee, then both share the effective ceiling B_c. A spinner that computes on the same cores
and moves no bytes shows what sharing cores alone costs; that is taken off first. These are the
figures; ``contention_curve`` works them out.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from edgeprof.quantity import Quantity

AntagonistKind = Literal["read", "copy", "spin", "model"]
Resource = Literal["bus", "cores", "gpu"]


class JointLeg(Struct, frozen=True, kw_only=True):
    """A leg boiled down to the time in which both ran; ``antagonist`` None is the target alone.

    ``pass_s`` and its percentiles are None where the antagonist ran alone. ``core_share`` is the
    antagonist's processor time over the overlap, in cores.
    """

    repeat: int
    antagonist: str | None
    dose: float
    overlap_s: float
    pass_s: float | None = None
    pass_p50_s: float | None = None
    pass_p99_s: float | None = None
    antagonist_passes_per_s: float | None = None
    antagonist_bytes_per_s: float | None = None
    core_share: float | None = None
    power_w: float | None = None
    dram_bytes_per_s: float | None = None
    differs: str | None = None
    disturbed: bool = False


class Antagonist(Struct, frozen=True, kw_only=True):
    """One neighbour: what it does, what target and it both need, the bytes of one of its passes."""

    kind: AntagonistKind
    competes_for: list[Resource]
    pass_bytes: Quantity | None = None


class Setting(Struct, frozen=True, kw_only=True):
    """What the arithmetic takes as given; ``pass_bytes`` are those of one target pass."""

    target: str
    pass_bytes: Quantity | None
    antagonists: Mapping[str, Antagonist]
    seed: int | None = None
    peak_bytes_per_s: float | None = None
    sustained_bytes_per_s: float | None = None


class Inflation(Struct, frozen=True, kw_only=True):
    """Time of a pass together over alone, by percentile."""

    p50: Quantity | None
    p99: Quantity | None


class TwoSpeeds(Struct, frozen=True, kw_only=True):
    """Legs of one regime that fall into two groups with nothing between them; mean pass of each."""

    fast_s: float
    fast_legs: int
    slow_s: float
    slow_legs: int


class Regime(Struct, frozen=True, kw_only=True):
    """One antagonist at one dose, its repeats together.

    ``retained`` figures are rates together over alone; a dose is compared with as much of the
    antagonist's own rate. ``core_s`` is what the spinner costs a pass with as many cores taken,
    ``bus_s`` what is left of the slowdown. ``disturbed`` counts legs in which other programs took
    processor time: they are left out, or where there are no others are all that there is.
    ``not_compared`` says why comparisons are None. Where the legs have ``two_speeds``, all figures
    are a mixture of both.
    """

    antagonist: str
    dose: float
    legs: int
    disturbed: int
    overlap_s: float
    pass_s: Quantity | None
    target_tokens_per_s: Quantity | None
    antagonist_passes_per_s: Quantity | None
    antagonist_bandwidth_bytes_per_s: Quantity | None
    core_share: Quantity | None
    target_retained: Quantity | None
    antagonist_retained: Quantity | None
    concurrency_efficiency: Quantity | None
    latency_inflation: Inflation | None
    core_s: Quantity | None
    bus_s: Quantity | None
    kappa: Quantity | None
    total_bandwidth_bytes_per_s: Quantity | None
    peak_share: Quantity | None
    sustained_share: Quantity | None
    power_w: Quantity | None
    not_compared: str | None
    two_speeds: TwoSpeeds | None = None


class Curve(Struct, frozen=True, kw_only=True):
    """An antagonist's doses as one curve t(b) = max(t_alone, bytes / (B_c - b)).

    ``ceiling_reached`` False: no dose slowed the target through the bus, so the ceiling is only
    known to be no lower than that, and there is no knee. ``kappa`` is over all doses, with the
    ceiling of the antagonist that ``ceiling_from`` names; ``competes_for`` is what both need.
    """

    antagonist: str
    kind: AntagonistKind
    competes_for: list[Resource]
    pass_bytes: Quantity | None
    alone_passes_per_s: Quantity | None
    alone_bandwidth_bytes_per_s: Quantity | None
    ceiling_bytes_per_s: Quantity | None
    ceiling_reached: bool | None
    knee_bytes_per_s: Quantity | None
    kappa: Quantity | None
    ceiling_from: str | None
    reason: str | None


class Contended(Struct, frozen=True, kw_only=True):
    """The figures of one target: alone, beside each antagonist at each dose, and the curves.

    ``seed`` fixed the random order of the legs.
    """

    target: str
    seed: int | None
    alone_s: Quantity | None
    alone_tokens_per_s: Quantity | None
    pass_bytes: Quantity | None
    regimes: list[Regime]
    curves: list[Curve]


def has_room(kappa: Quantity) -> bool | None:
    """True: the bus has room for both, as far as one can tell; False: sharing it costs; None: too
    uncertain to tell either, or nobody knows how certain."""
    low, high = kappa.low, kappa.high
    if low is None or high is None or low <= 0 <= 1 <= high:
        return None
    return low <= 0
