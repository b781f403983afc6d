"""Works out what an antagonist costs: rates kept, the ceiling of the bus, its knee, and kappa.

Pure arithmetic over legs that are boiled down already; intervals are over repeats, drawn whole.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

from edgeprof.analysis.contention import (
    AntagonistKind,
    Contended,
    Curve,
    Inflation,
    JointLeg,
    Regime,
    Setting,
    TwoSpeeds,
)
from edgeprof.analysis.statistics import block_interval
from edgeprof.quantity import Kind, Quantity

_REAL_SLOWDOWN = 0.02  # of the pass alone: less is not told from none
_LEAST_STEP = 0.2  # between two speeds of one regime; either varies by less than half as much
_LEAST_LEGS = 3

Blocks = Sequence[int]  # repeats, drawn whole: legs of one repeat ran one after the other
_Key = tuple[str | None, float]
_ALONE: _Key = (None, 0.0)


def contended(legs: Iterable[JointLeg], setting: Setting) -> Contended:
    """All figures of a target's legs; intervals are over repeats."""
    experiment = _Experiment(legs, setting)
    source = "one-token passes alone, mean of the legs' means"
    return Contended(
        target=setting.target,
        seed=setting.seed,
        alone_s=experiment.quantity(experiment.alone_s, source),
        alone_tokens_per_s=experiment.quantity(
            lambda blocks: _over(1.0, experiment.alone_s(blocks)), "one over the time of a pass"
        ),
        pass_bytes=setting.pass_bytes,
        regimes=[experiment.regime(key) for key in experiment.joint],
        curves=[experiment.curve(name) for name in experiment.antagonists],
    )


def fit_ceiling(points: Sequence[tuple[float, float]], alone: float) -> float | None:
    """B_c from (antagonist's bytes/s, target's bytes/s); None where no point is below ``alone``.

    Least squares of min(alone, B_c - b) in the target's rate, exact: whichever number of the
    largest doses is on the falling line, B_c is the mean of their sums, and the best number is
    taken.
    """
    ordered = sorted(points, reverse=True)
    best, least = None, sum((rate - alone) ** 2 for _, rate in ordered)
    for count in range(1, len(ordered) + 1):
        ceiling = statistics.fmean(sum(point) for point in ordered[:count])
        error = sum((rate - min(alone, ceiling - moved)) ** 2 for moved, rate in ordered)
        if error < least:
            best, least = ceiling, error
    return best


def two_speeds(passes_s: Sequence[float]) -> TwoSpeeds | None:
    """None where the legs' passes took about the same, or anything in between.

    A board's cores and their way to the memory stand still; those of a virtual machine may be
    moved, and then one and the same regime is two.
    """
    ordered = sorted(passes_s)
    if len(ordered) < _LEAST_LEGS:
        return None
    steps = [after / before for before, after in pairwise(ordered)]
    step, split = max((step, n) for n, step in enumerate(steps, start=1))
    fast, slow = ordered[:split], ordered[split:]
    widest = max(group[-1] / group[0] for group in (fast, slow))
    if step < 1 + _LEAST_STEP or widest - 1 >= (step - 1) / 2:
        return None
    return TwoSpeeds(
        fast_s=statistics.fmean(fast),
        fast_legs=len(fast),
        slow_s=statistics.fmean(slow),
        slow_legs=len(slow),
    )


class _Experiment:
    """The legs of one target by regime. Every figure is a function of the repeats it is taken over,
    so that one and the same line gives the figure and its interval."""

    def __init__(self, legs: Iterable[JointLeg], setting: Setting) -> None:
        self._setting = setting
        self._cells: dict[_Key, dict[int, list[JointLeg]]] = defaultdict(lambda: defaultdict(list))
        self._solo: dict[str, dict[int, list[JointLeg]]] = defaultdict(lambda: defaultdict(list))
        all_legs = list(legs)
        self._disturbed = Counter(
            (leg.antagonist, leg.dose)
            for leg in all_legs
            if leg.disturbed and leg.pass_s is not None
        )
        for leg in _quiet(all_legs):
            if leg.pass_s is not None:
                self._cells[leg.antagonist, leg.dose][leg.repeat].append(leg)
            elif leg.antagonist is not None:
                self._solo[leg.antagonist][leg.repeat].append(leg)
        self.blocks = sorted(self._cells[_ALONE])
        self.joint = sorted(
            ((name, dose) for name, dose in self._cells if name is not None),
            key=lambda key: (list(setting.antagonists).index(key[0]), key[1]),
        )
        self.antagonists = list(dict.fromkeys(name for name, _ in self.joint))
        pass_bytes = setting.pass_bytes
        self._bytes = None if pass_bytes is None else pass_bytes.value
        self._bytes_kind: Kind = "modelled" if pass_bytes is None else pass_bytes.kind

    def quantity(
        self,
        figure: Callable[[Blocks], float | None],
        source: str,
        *,
        kind: Kind = "measured",
    ) -> Quantity | None:
        value = figure(self.blocks) if self.blocks else None
        if value is None:
            return None
        known: dict[tuple[int, ...], float | None] = {}  # few repeats are drawn alike over and over

        def of_drawn(blocks: Blocks) -> float | None:
            drawn = tuple(sorted(blocks))
            if drawn not in known:
                known[drawn] = figure(drawn)
            return known[drawn]

        low, high = block_interval(self.blocks, of_drawn)
        return Quantity(
            value=value, low=low, high=high, n=len(self.blocks), kind=kind, source=source
        )

    def alone_s(self, blocks: Blocks) -> float | None:
        return self._mean(self._cells[_ALONE], "pass_s", blocks)

    def regime(self, key: tuple[str, float]) -> Regime:
        name, dose = key
        legs = self._legs(key)
        differs = self._differs(name, legs)
        measured = self._measured(key)
        return Regime(
            antagonist=name,
            dose=dose,
            legs=len(legs),
            disturbed=self._disturbed[key],
            overlap_s=sum(leg.overlap_s for leg in legs),
            **measured,
            **(self._compared(key) if differs is None else dict.fromkeys(_COMPARED)),
            not_compared=differs,
            two_speeds=two_speeds([leg.pass_s for leg in legs if leg.pass_s is not None]),
        )

    def curve(self, name: str) -> Curve:
        antagonist = self._setting.antagonists[name]
        reason = self._why_no_curve(name)
        reference = self._reference(name)
        reached = None if reason else self._reached[name]
        bytes_kind = self._bytes_kind
        return Curve(
            antagonist=name,
            kind=antagonist.kind,
            competes_for=antagonist.competes_for,
            pass_bytes=antagonist.pass_bytes,
            alone_passes_per_s=self._solo_rate(name, "antagonist_passes_per_s", "measured"),
            alone_bandwidth_bytes_per_s=self._solo_rate(
                name, "antagonist_bytes_per_s", self._kind_of(name)
            ),
            ceiling_bytes_per_s=None if reason else self._ceiling_figure(name),
            ceiling_reached=reached,
            knee_bytes_per_s=self.quantity(
                lambda blocks: self._knee(name, blocks),
                "B_c - bytes / t_alone",
                kind=bytes_kind,
            )
            if reached
            else None,
            kappa=None
            if reason
            else self.quantity(
                lambda blocks: self._kappa(self._doses(name), reference, blocks),
                _KAPPA_SOURCE,
                kind=bytes_kind,
            ),
            ceiling_from=None if reason else reference,
            reason=reason,
        )

    def _ceiling_figure(self, name: str) -> Quantity | None:
        source = (
            "fit of t(b) = max(t_alone, bytes / (B_c - b))"
            if self._reached[name]
            else "most that both moved together; no dose slowed the target through the bus"
        )
        return self.quantity(
            lambda blocks: self._ceiling(name, blocks), source, kind=self._bytes_kind
        )

    def _measured(self, key: tuple[str, float]) -> dict[str, Any]:
        """What is a figure of this regime alone."""
        cells = self._cells[key]

        def mean(field: str, source: str, kind: Kind = "measured") -> Quantity | None:
            return self.quantity(lambda blocks: self._mean(cells, field, blocks), source, kind=kind)

        total = self.quantity(
            lambda blocks: self._total(key, blocks),
            "counter of the memory's traffic while both ran"
            if self._is_counted(key)
            else "bytes of the target's pass over its time + the antagonist's bytes/s",
            kind="measured" if self._is_counted(key) else "modelled",
        )
        return {
            "pass_s": mean("pass_s", "one-token passes while both ran, mean"),
            "target_tokens_per_s": self.quantity(
                lambda blocks: _over(1.0, self._mean(cells, "pass_s", blocks)),
                "one over the time of a pass",
            ),
            "antagonist_passes_per_s": mean(
                "antagonist_passes_per_s", "the antagonist's passes over the time both ran"
            ),
            "antagonist_bandwidth_bytes_per_s": mean(
                "antagonist_bytes_per_s",
                "bytes of the antagonist's passes over the time both ran",
                self._kind_of(key[0]),
            ),
            "core_share": mean("core_share", "processor time of the antagonist, in cores"),
            "total_bandwidth_bytes_per_s": total,
            "peak_share": _share(total, self._setting.peak_bytes_per_s, "peak at the EMC clock"),
            "sustained_share": _share(total, self._setting.sustained_bytes_per_s, "sustained"),
            "power_w": mean("power_w", "total rail while both ran, mean over time"),
        }

    def _compared(self, key: tuple[str, float]) -> dict[str, Any]:
        """What sets this regime against the legs alone."""
        name, _ = key
        reference = self._reference(name)
        return {
            "target_retained": self.quantity(
                lambda blocks: self._target_retained(key, blocks),
                "target's rate together over alone",
            ),
            "antagonist_retained": self.quantity(
                lambda blocks: self._antagonist_retained(key, blocks),
                "antagonist's rate together over the dose of its rate alone",
            ),
            "concurrency_efficiency": self.quantity(
                lambda blocks: _sum(
                    self._target_retained(key, blocks), self._antagonist_retained(key, blocks)
                ),
                "sum of what both retained: 1 is a zero sum, 2 independent",
            ),
            "latency_inflation": Inflation(
                p50=self._inflation(key, "pass_p50_s"), p99=self._inflation(key, "pass_p99_s")
            ),
            "core_s": self.quantity(
                lambda blocks: self._core_s(key, blocks),
                "slowdown beside the spinner, at the same share of cores taken",
            ),
            "bus_s": self.quantity(
                lambda blocks: self._bus_s(key, blocks), "slowdown less that beside the spinner"
            ),
            "kappa": None
            if self._why_no_curve(name)
            else self.quantity(
                lambda blocks: self._kappa([key], reference, blocks),
                _KAPPA_SOURCE,
                kind=self._bytes_kind,
            ),
        }

    def _why_no_curve(self, name: str) -> str | None:
        antagonist = self._setting.antagonists[name]
        if "gpu" in antagonist.competes_for:
            return "two sessions on one GPU compete for its SMs and time slices"
        if antagonist.kind == "spin":
            return "the spinner moves no bytes: it is the control"
        legs = [leg for key in self._doses(name) for leg in self._legs(key)]
        if self._differs(name, legs) is not None:
            return "clocks differed between the legs"
        if self._bytes is None:
            return "the bytes of a target pass are not known"
        if all(
            leg.antagonist_bytes_per_s is None for k in self._doses(name) for leg in self._legs(k)
        ):
            return "the bytes of an antagonist's pass are not known"
        if "cores" in antagonist.competes_for and not self._spin_doses:
            return "both share cores, and no spinner ran at these clocks as control"
        return None

    def _kind(self, name: str) -> AntagonistKind:
        return self._setting.antagonists[name].kind

    def _kind_of(self, name: str) -> Kind:
        """Of figures that rest on the bytes of the antagonist's pass."""
        pass_bytes = self._setting.antagonists[name].pass_bytes
        return "modelled" if pass_bytes is None else pass_bytes.kind

    def _solo_rate(self, name: str, field: str, kind: Kind) -> Quantity | None:
        return self.quantity(
            lambda blocks: self._mean(self._solo[name], field, blocks),
            "the antagonist alone, mean of its legs",
            kind=kind,
        )

    def _legs(self, key: _Key) -> list[JointLeg]:
        return [leg for same in self._cells[key].values() for leg in same]

    def _differs(self, name: str, legs: Sequence[JointLeg]) -> str | None:
        """Which clock ran otherwise than in the target's legs alone, in these legs or in those of
        the antagonist alone, which they are compared with, too."""
        alone = [leg for same in self._solo[name].values() for leg in same]
        return next((leg.differs for leg in [*legs, *alone] if leg.differs is not None), None)

    def _doses(self, name: str) -> list[tuple[str, float]]:
        return [key for key in self.joint if key[0] == name]

    @cached_property
    def _spin_doses(self) -> list[tuple[str, float]]:
        """Those that can be a control: beside another clock a pass takes longer by itself."""
        spins = [key for key in self.joint if self._kind(key[0]) == "spin"]
        return [key for key in spins if all(leg.differs is None for leg in self._legs(key))]

    def _reference(self, name: str) -> str:
        """A streaming read fills the bus most evenly: where it ran, its ceiling holds for all."""
        reads = (n for n in self.antagonists if self._kind(n) == "read")
        return next((read for read in reads if self._why_no_curve(read) is None), name)

    def _mean(
        self, cells: Mapping[int, Sequence[JointLeg]], field: str, blocks: Blocks
    ) -> float | None:
        found = [
            value
            for block in blocks
            for leg in cells.get(block, ())
            if (value := getattr(leg, field)) is not None
        ]
        return statistics.fmean(found) if found else None

    def _at(self, key: _Key, field: str, blocks: Blocks) -> float | None:
        return self._mean(self._cells[key], field, blocks)

    def _target_retained(self, key: _Key, blocks: Blocks) -> float | None:
        return _over(self.alone_s(blocks), self._at(key, "pass_s", blocks))

    def _antagonist_retained(self, key: tuple[str, float], blocks: Blocks) -> float | None:
        name, dose = key
        alone = self._mean(self._solo[name], "antagonist_passes_per_s", blocks)
        asked = None if alone is None else alone * dose
        return _over(self._at(key, "antagonist_passes_per_s", blocks), asked)

    def _inflation(self, key: _Key, field: str) -> Quantity | None:
        return self.quantity(
            lambda blocks: _over(
                self._at(key, field, blocks), self._at((None, 0.0), field, blocks)
            ),
            "time of a pass together over alone, mean of the legs' percentiles",
        )

    def _slowdown(self, key: _Key, blocks: Blocks) -> float | None:
        together, alone = self._at(key, "pass_s", blocks), self.alone_s(blocks)
        return None if together is None or alone is None else together - alone

    def _core_s(self, key: _Key, blocks: Blocks) -> float | None:
        """The spinner's slowdown at this regime's share of cores, on straight lines from none."""
        share = self._at(key, "core_share", blocks)
        known = [(0.0, 0.0)]
        for spin in self._spin_doses:
            taken, cost = self._at(spin, "core_share", blocks), self._slowdown(spin, blocks)
            if taken is not None and cost is not None:
                known.append((taken, cost))
        if share is None or len(known) == 1:
            return None
        return _interpolated(sorted(known), share)

    def _bus_s(self, key: _Key, blocks: Blocks) -> float | None:
        slowdown, core_s = self._slowdown(key, blocks), self._core_s(key, blocks)
        if slowdown is None:
            return None
        if core_s is None:
            name = key[0]
            sharing = () if name is None else self._setting.antagonists[name].competes_for
            return None if "cores" in sharing else slowdown
        return slowdown - core_s

    def _points(self, name: str, blocks: Blocks) -> list[tuple[float, float]]:
        """(antagonist's bytes/s, target's bytes/s less what sharing cores costs), dose by dose."""
        alone, points = self.alone_s(blocks), []
        for key in self._doses(name):
            moved, bus_s = self._at(key, "antagonist_bytes_per_s", blocks), self._bus_s(key, blocks)
            if None not in (moved, bus_s, alone, self._bytes):
                assert moved is not None and bus_s is not None
                assert alone is not None and self._bytes is not None
                points.append((moved, self._bytes / max(alone + bus_s, 1e-12)))
        return points

    def _ceiling(self, name: str, blocks: Blocks) -> float | None:
        """Where nothing slowed down, the most that both moved together."""
        alone, points = self.alone_s(blocks), self._points(name, blocks)
        if alone is None or self._bytes is None or not points:
            return None
        fitted = fit_ceiling(points, self._bytes / alone) if self._reached[name] else None
        return max(sum(point) for point in points) if fitted is None else fitted

    def _knee(self, name: str, blocks: Blocks) -> float | None:
        """From here on the antagonist's bytes are missing to the target; below 0 both are: even
        alone the target takes more than the ceiling under contention."""
        ceiling, alone = self._ceiling(name, blocks), self.alone_s(blocks)
        if ceiling is None or alone is None or self._bytes is None:
            return None
        return max(ceiling - self._bytes / alone, 0.0)

    @cached_property
    def _reached(self) -> dict[str, bool]:
        return {name: self._is_slowed(name) for name in self.antagonists}

    def _is_slowed(self, name: str) -> bool:
        """Did the largest dose slow the target through the bus, beyond doubt?"""
        largest = self._doses(name)[-1]
        left = self.quantity(lambda blocks: self._bus_s(largest, blocks), "")
        alone = self.alone_s(self.blocks)
        if left is None or left.value is None or alone is None:
            return False
        sure = left.value if left.low is None else left.low
        return sure > 0 and left.value > _REAL_SLOWDOWN * alone

    def _kappa(
        self, keys: Sequence[tuple[str, float]], reference: str, blocks: Blocks
    ) -> float | None:
        """Of all these doses together: the sum of what the bus cost over the sum of the bytes that
        went by meanwhile."""
        ceiling = self._ceiling(reference, blocks)
        cost = moved = 0.0
        for key in keys:
            bus_s, pass_s = self._bus_s(key, blocks), self._at(key, "pass_s", blocks)
            rate = self._at(key, "antagonist_bytes_per_s", blocks)
            if bus_s is None or pass_s is None or rate is None:
                continue
            cost += bus_s
            moved += rate * pass_s
        return None if ceiling is None or moved <= 0 else cost * ceiling / moved

    def _is_counted(self, key: _Key) -> bool:
        return all(leg.dram_bytes_per_s is not None for leg in self._legs(key))

    def _total(self, key: _Key, blocks: Blocks) -> float | None:
        if self._is_counted(key):
            return self._at(key, "dram_bytes_per_s", blocks)
        own = _over(self._bytes, self._at(key, "pass_s", blocks))
        return _sum(own, self._at(key, "antagonist_bytes_per_s", blocks))


_COMPARED = (
    "target_retained", "antagonist_retained", "concurrency_efficiency", "latency_inflation",
    "core_s", "bus_s", "kappa",
)  # fmt: skip
_KAPPA_SOURCE = (
    "(t_together - t_alone - dt_spin) x B_c / antagonist's bytes during a pass: 0 slack, 1 the bus "
    "is shared, above 1 it got worse by sharing"
)


def _quiet(legs: Sequence[JointLeg]) -> list[JointLeg]:
    """Without those that were disturbed, but where a regime has no others."""
    clean = {_regime(leg) for leg in legs if not leg.disturbed}
    return [leg for leg in legs if not leg.disturbed or _regime(leg) not in clean]


def _regime(leg: JointLeg) -> tuple[str | None, float, bool]:
    return leg.antagonist, leg.dose, leg.pass_s is None


def _interpolated(points: Sequence[tuple[float, float]], x: float) -> float:
    """On straight lines between points in order; beyond the last its value."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y1
    return points[-1][1]


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def _sum(*values: float | None) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _share(total: Quantity | None, whole: float | None, of: str) -> Quantity | None:
    if total is None or total.value is None or not whole:
        return None
    return Quantity(
        value=total.value / whole,
        low=_over(total.low, whole),
        high=_over(total.high, whole),
        n=total.n,
        kind=total.kind,
        source=f"{total.source}, over {of}",
    )
