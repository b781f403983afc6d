"""From a session's records to the arithmetic of contention: which passes ran while both did.

Stream 0 is the target, the others are the antagonist's workers. A leg counts from the moment at
which both had begun to that at which the first of them ended; of an antagonist's pass that an end
cuts, its part within counts.
"""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from edgeprof.analysis.alternation import Alternation, alternations
from edgeprof.analysis.attribution import BANDWIDTH
from edgeprof.analysis.board import Readings, clock_change
from edgeprof.analysis.contention import (
    Antagonist,
    AntagonistKind,
    Contended,
    JointLeg,
    Resource,
    Setting,
)
from edgeprof.analysis.contention_curve import contended
from edgeprof.analysis.disturbance import is_disturbed
from edgeprof.analysis.energy import Idle, Rail
from edgeprof.analysis.integral import mean_over
from edgeprof.analysis.latency import seconds
from edgeprof.analysis.pass_cost import may_be_cached, pass_bytes
from edgeprof.analysis.statistics import mean_of, percentile
from edgeprof.analysis.sustained import Sustained, sustained_of
from edgeprof.analysis.variants import VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, ModelRecord, Pass, Session

_KINDS: Mapping[str, AntagonistKind] = {
    "read": "read", "copy": "copy", "spin": "spin", "model": "model",
}  # fmt: skip
_RESOURCES: Mapping[str, Resource] = {"bus": "bus", "cores": "cores", "gpu": "gpu"}


class Contention(Struct, frozen=True, kw_only=True):
    """What models did to each other; lists are empty where a session has none of it. ``lent_by`` is
    the other session that ``targets`` were measured in; None: this one."""

    targets: list[Contended] = field(default_factory=list)
    alternation: list[Alternation] = field(default_factory=list)
    sustained: list[Sustained] = field(default_factory=list)
    lent_by: str | None = None


class _Stretch(NamedTuple):
    """A leg's passes and the time in which they count."""

    leg: Leg
    target: list[Pass]
    antagonist: list[Pass]
    t0_ns: int
    t1_ns: int

    @property
    def seconds(self) -> float:
        return max(self.t1_ns - self.t0_ns, 0) / 1e9


def contention_of(
    session: Session,
    runs: Sequence[VariantRuns],
    readings: Readings,
    rail: Rail,
    idle: Idle | None,
) -> Contention:
    """Everything that a session tells of contention."""
    return Contention(
        targets=_targets(session, readings, rail, idle),
        alternation=alternations(session, runs, readings),
        sustained=sustained_of(session, readings, rail),
    )


def _targets(
    session: Session, readings: Readings, rail: Rail, idle: Idle | None
) -> list[Contended]:
    passes: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in session.passes:
        passes[pass_.leg_id].append(pass_)
    by_target: dict[str, list[_Stretch]] = defaultdict(list)
    for leg in session.legs:
        if leg.kind == "contend" and leg.status == "complete" and not leg.warmup:
            by_target[leg.variant].append(_stretch(leg, passes[leg.id]))
    return [
        _Reduction(target, stretches, session, readings, rail, idle).figures()
        for target, stretches in by_target.items()
    ]


def _stretch(leg: Leg, passes: Iterable[Pass]) -> _Stretch:
    """The time in which all that ran in the leg had begun and none had ended."""
    streams: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in passes:
        streams[pass_.stream].append(pass_)
    t0_ns = max((min(p.t0_ns for p in own) for own in streams.values()), default=leg.t0_ns)
    t1_ns = min((max(p.t1_ns for p in own) for own in streams.values()), default=leg.t0_ns)
    target = [p for p in streams.get(0, []) if t0_ns <= p.t0_ns and p.t1_ns <= t1_ns]
    antagonist = [p for stream, own in streams.items() if stream for p in own]
    return _Stretch(leg, target, antagonist, t0_ns, t1_ns)


class _Reduction:
    """The stretches of one target, and what is known of the bytes of its and others' passes."""

    def __init__(
        self,
        target: str,
        stretches: Sequence[_Stretch],
        session: Session,
        readings: Readings,
        rail: Rail,
        idle: Idle | None,
    ) -> None:
        self._target = target
        self._stretches = stretches
        self._readings = readings
        self._rail = rail
        self._counter = readings.channel(BANDWIDTH)
        idle_rate = None if idle is None else idle.bandwidth_bytes_per_s
        self._idle_bytes_per_s = None if idle_rate is None else idle_rate.value
        self._environment = session.info.environment
        self._model = session.info.models.get(target)
        self._models = session.info.models
        self._device = session.info.device
        self._alone = [s for s in stretches if s.leg.attrs.get("antagonist") is None]
        names = (_text(leg, "antagonist") for leg in session.legs if leg.kind == "contend")
        self._named = list(dict.fromkeys(name for name in names if name is not None))
        self._antagonists = self._known_antagonists()

    def figures(self) -> Contended:
        seeds = [s.leg.attrs.get("seed") for s in self._stretches]
        return contended(
            [leg for s in self._stretches if (leg := self._joint_leg(s)) is not None],
            Setting(
                target=self._target,
                pass_bytes=self._target_bytes(),
                antagonists=self._antagonists,
                seed=seeds[0] if isinstance(seeds[0], int) else None,
                **self._peak(),
            ),
        )

    def _known_antagonists(self) -> dict[str, Antagonist]:
        """In the order of the warm-up, which is that of the recipe."""
        found: dict[str, Antagonist] = {}
        for stretch in sorted(self._stretches, key=lambda one: self._place(one.leg)):
            name, kind = _text(stretch.leg, "antagonist"), _text(stretch.leg, "antagonist_kind")
            if name is None or kind is None or name in found or kind not in _KINDS:
                continue
            told = stretch.leg.attrs.get("competes_for")
            listed = told if isinstance(told, list) else []
            found[name] = Antagonist(
                kind=_KINDS[kind],
                competes_for=[
                    _RESOURCES[one] for one in listed if isinstance(one, str) and one in _RESOURCES
                ],
                pass_bytes=self._antagonist_bytes(name, kind),
            )
        return found

    def _place(self, leg: Leg) -> int:
        name = _text(leg, "antagonist")
        return self._named.index(name) if name is not None else -1

    def _joint_leg(self, stretch: _Stretch) -> JointLeg | None:
        """None for a leg of an antagonist that nothing is known of, or without any overlap."""
        leg, name = stretch.leg, _text(stretch.leg, "antagonist")
        if stretch.seconds <= 0:
            return None
        if leg.attrs.get("antagonist") is not None and name not in self._antagonists:
            return None
        times = [seconds(pass_) for pass_ in stretch.target]
        rate = _passes_within(stretch) / stretch.seconds if name is not None else None
        pass_size = None if name is None else self._antagonists[name].pass_bytes
        bytes_per_s = (
            rate * pass_size.value
            if rate is not None and pass_size is not None and pass_size.value is not None
            else None
        )
        power = self._rail.channel
        counter = self._counter
        return JointLeg(
            repeat=leg.repeat,
            antagonist=name,
            dose=_dose(leg) if name is not None else 0.0,
            overlap_s=stretch.seconds,
            pass_s=statistics.fmean(times) if times else None,
            pass_p50_s=percentile(times, 0.5) if times else None,
            pass_p99_s=percentile(times, 0.99) if times else None,
            antagonist_passes_per_s=rate,
            antagonist_bytes_per_s=bytes_per_s,
            core_share=_number(leg.attrs, "core_share"),
            power_w=None if power is None else mean_over(power, stretch.t0_ns, stretch.t1_ns),
            dram_bytes_per_s=None
            if counter is None
            else mean_over(counter, stretch.t0_ns, stretch.t1_ns),
            disturbed=is_disturbed(leg.attrs),
            differs=clock_change([leg], [s.leg for s in self._alone], self._readings)
            if name is not None
            else None,
        )

    def _target_bytes(self) -> Quantity | None:
        """Measured in the legs alone where there is a counter, else from the model's size."""
        measured = self._measured_bytes(self._alone, "target")
        if measured is not None:
            return _if_seen(measured)
        if self._model is None:
            return None
        passes = [p for s in self._alone for p in s.target]
        return self._modelled_bytes(self._model, passes)

    def _antagonist_bytes(self, name: str, kind: str) -> Quantity | None:
        if kind == "spin":
            return None
        solo = [s for s in self._stretches if _text(s.leg, "antagonist") == name and not s.target]
        measured = self._measured_bytes(solo, "antagonist")
        if measured is not None:
            return _if_seen(measured)
        own = [s for s in self._stretches if _text(s.leg, "antagonist") == name]
        if kind == "model":
            model = self._models.get(name)
            passes = [p for s in own for p in s.antagonist]
            return None if model is None else self._modelled_bytes(model, passes)
        told = _number(own[0].leg.attrs, "pass_bytes")
        if told is None:
            return None
        return Quantity(
            value=told, n=1, kind="modelled", source=f"bytes that a pass of the {kind} asks for"
        )

    def _measured_bytes(self, stretches: Sequence[_Stretch], whose: str) -> Quantity | None:
        """(mean traffic - idle) x period of a pass, over legs in which nothing else ran."""
        if self._counter is None or self._idle_bytes_per_s is None:
            return None
        found = []
        for stretch in stretches:
            mean = mean_over(self._counter, stretch.t0_ns, stretch.t1_ns)
            passes = len(stretch.target) if whose == "target" else _passes_within(stretch)
            if mean is not None and passes:
                found.append((mean - self._idle_bytes_per_s) * stretch.seconds / passes)
        return mean_of(
            found, source="mean traffic less idle x period of a pass, alone; mean of legs"
        )

    def _modelled_bytes(self, model: ModelRecord, passes: Sequence[Pass]) -> Quantity | None:
        """None for a model that the last-level cache may hold."""
        sizes = [pass_bytes(model, p.tokens, p.context_tokens) for p in passes]
        known = [size for size in sizes if size is not None]
        if not known or may_be_cached(model, self._environment):
            return None
        source = "streamed weight bytes + keys and values of a pass"
        return Quantity(value=statistics.fmean(known), n=len(known), kind="modelled", source=source)

    def _peak(self) -> dict[str, float | None]:
        """At the memory clock that ran while both did."""
        clock = self._readings.channel("emc_clock_hz")
        bytes_per_clock = _number(self._device, "bytes_per_emc_clock")
        share = _number(self._device, "sustained_share")
        if clock is None or bytes_per_clock is None:
            return {}
        means = [
            mean
            for s in self._stretches
            if (mean := mean_over(clock, s.t0_ns, s.t1_ns)) is not None
        ]
        if not means:
            return {}
        peak = bytes_per_clock * statistics.fmean(means)
        sustained = None if share is None else share * peak
        return {"peak_bytes_per_s": peak, "sustained_bytes_per_s": sustained}


def _if_seen(measured: Quantity) -> Quantity | None:
    """None where the traffic is not told from that of idleness: the caches may serve the passes, or
    the counter follows nothing."""
    least = measured.value if measured.low is None else measured.low
    return measured if least is not None and least > 0 else None


def _passes_within(stretch: _Stretch) -> float:
    """The antagonist's passes in the overlap, those that an end cuts by their part."""
    whole = 0.0
    for pass_ in stretch.antagonist:
        within_ns = min(pass_.t1_ns, stretch.t1_ns) - max(pass_.t0_ns, stretch.t0_ns)
        if within_ns > 0:
            whole += within_ns / (pass_.t1_ns - pass_.t0_ns)
    return whole


def _dose(leg: Leg) -> float:
    return _number(leg.attrs, "dose") or 0.0


def _text(leg: Leg, key: str) -> str | None:
    """Attributes are free JSON: what is not text there is not known here."""
    value = leg.attrs.get(key)
    return value if isinstance(value, str) else None


def _number(values: Mapping[str, Any], key: str) -> float | None:
    value = values.get(key)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
