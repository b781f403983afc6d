"""What is known of the memory bus around a variant: its draft's kappa, the closure's remainder.

A verdict blames the bus by these two where they were measured. Kappa says what a byte of the draft
costs the target while both run; the remainder what was moved beyond the passes themselves, be it by
caches that are filled anew or by somebody else. Pure arithmetic.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from edgeprof.analysis.closure import Closure
from edgeprof.analysis.contention import Contended, has_room
from edgeprof.analysis.variants import VariantRuns
from edgeprof.quantity import Quantity
from edgeprof.session.records import ModelRecord, Pass

_OVERLAP = 0.1  # of the draft's time during which the target ran too
# Traffic that is a twentieth above that of the passes costs at most a twentieth of their time, and
# a neighbour that moves all that the bus can makes a pass at most kappa of its time longer.
_LEAST_REMAINDER, _LEAST_KAPPA = 0.05, 0.1
_ON_GPU = ("cuda", "tensorrt")


class Together(Struct, frozen=True, kw_only=True):
    """Draft and target at one time: the part of the draft's time in which the target ran too, and
    whether both were on one GPU."""

    share: float
    on_gpu: bool = False


class Bus(Struct, frozen=True, kw_only=True):
    """All are None where nobody saw or measured them."""

    together: Together | None = None
    kappa: Quantity | None = None
    remainder: Quantity | None = None

    @property
    def is_shared(self) -> bool | None:
        """True: measured to be in the way; False: measured not to be; None: nothing says so.

        A bus with room for both costs nothing, whatever goes over it. Pure sharing costs time and
        moves no byte more, so that a remainder of nothing does not contradict a kappa above 0.
        """
        costs = _is_noticeable(self.kappa)
        if costs is False or (costs and self.together is not None):
            return costs
        return _is_more(self.remainder)

    @property
    def facts(self) -> list[str]:
        """What was measured, with its interval."""
        found = []
        if self.kappa is not None:
            found.append(f"kappa of the draft is {_band(self.kappa)}")
        if self.remainder is not None:
            found.append(
                f"the counter saw {_band(self.remainder, percent=True)} more bytes than the held "
                "passes move"
            )
        return found


def bus_of(
    run: VariantRuns,
    models: Mapping[str, ModelRecord],
    targets: Sequence[Contended],
    closures: Sequence[Closure],
) -> Bus:
    """Of a variant with a drafter; ``targets`` may be those of another session."""
    curves = (
        curve
        for one in targets
        for curve in one.curves
        if (one.target, curve.antagonist) == (run.target, run.drafter)
    )
    curve = next(curves, None)
    closed = next((one for one in closures if one.variant == run.name), None)
    return Bus(
        together=_together(run, models),
        kappa=None if curve is None else curve.kappa,
        remainder=None if closed is None else closed.interference_frac,
    )


def _together(run: VariantRuns, models: Mapping[str, ModelRecord]) -> Together | None:
    """None where the two took turns."""
    passes = [one for answer in run.decoded for one in answer.passes]
    drafts_ns = sum(one.t1_ns - one.t0_ns for one in passes if one.phase == "draft")
    both_ns = _both_ns(passes)
    if not drafts_ns or both_ns < _OVERLAP * drafts_ns:
        return None
    pair = [models.get(run.target), models.get(run.drafter or "")]
    on_gpu = all(model is not None and model.provider in _ON_GPU for model in pair)
    return Together(share=both_ns / drafts_ns, on_gpu=on_gpu)


def _both_ns(passes: Sequence[Pass]) -> int:
    """The time in which a draft and a target pass ran."""
    drafts = sorted((p.t0_ns, p.t1_ns) for p in passes if p.phase == "draft")
    targets = sorted((p.t0_ns, p.t1_ns) for p in passes if p.phase in ("verify", "decode"))
    both = place = 0
    for t0_ns, t1_ns in drafts:
        while place < len(targets) and targets[place][1] <= t0_ns:
            place += 1
        if place < len(targets):
            both += max(min(t1_ns, targets[place][1]) - max(t0_ns, targets[place][0]), 0)
    return both


def _is_noticeable(kappa: Quantity | None) -> bool | None:
    """False also where it is above 0, and surely too little for anybody to notice."""
    room = None if kappa is None else has_room(kappa)
    if room is None or kappa is None or kappa.high is None:
        return None
    return not room and kappa.high >= _LEAST_KAPPA


def _is_more(remainder: Quantity | None) -> bool | None:
    """None where the interval holds both none and enough to notice."""
    if remainder is None or remainder.low is None or remainder.high is None:
        return None
    if remainder.high < _LEAST_REMAINDER:
        return False
    is_there = remainder.low > 0 and (remainder.value or 0.0) >= _LEAST_REMAINDER
    return True if is_there else None


def _band(quantity: Quantity, *, percent: bool = False) -> str:
    times, form, unit = (100, ".0f", " %") if percent else (1, ".2f", "")
    value, low, high = (
        None if x is None else times * x for x in (quantity.value, quantity.low, quantity.high)
    )
    band = "" if low is None or high is None else f" [{low:{form}}, {high:{form}}]"
    return f"{value or 0.0:{form}}{unit}{band}"
