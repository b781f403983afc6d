"""The legs of a session that hold one kind of pass, or duty blocks, for the bytes they move."""

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from edgeprof.analysis.held_bytes import IDLE, PhaseKey
from edgeprof.session.records import Leg, Pass, Session

HELD_BYTES, DUTY = "bytes", "duty"  # what legs of kind "held" hold: the attribute "held"


class HeldLeg(Struct, frozen=True):
    """A leg that held something, and its passes."""

    leg: Leg
    key: PhaseKey
    passes: list[Pass]

    @property
    def is_idle(self) -> bool:
        return self.key.phase == IDLE

    @property
    def period_s(self) -> float | None:
        """From pass to pass; an idle leg has none, and needs none."""
        return 0.0 if self.is_idle else _period_of(self.passes)

    @property
    def round_s(self) -> float | None:
        """Of a duty block: from one verify pass to the next."""
        return _period_of([one for one in self.passes if one.phase == "verify"])


def legs_holding(session: Session, what: str) -> list[HeldLeg]:
    """The complete ones, in their order; ``what`` is ``HELD_BYTES`` or ``DUTY``."""
    legs = {
        leg.id: leg
        for leg in session.legs
        if leg.kind == "held" and leg.attrs.get("held") == what and leg.status == "complete"
    }
    passes: dict[int, list[Pass]] = defaultdict(list)
    for pass_ in session.passes:
        if pass_.leg_id in legs:
            passes[pass_.leg_id].append(pass_)
    return [HeldLeg(leg, _key(leg), passes[leg.id]) for leg in legs.values()]


def _key(leg: Leg) -> PhaseKey:
    """Attributes are free JSON: what is of another kind is taken as unknown."""
    phase = leg.attrs.get("phase")
    return PhaseKey(
        phase if isinstance(phase, str) else IDLE,
        leg.variant,
        attribute(leg, "tokens") or 0,
        attribute(leg, "context_tokens") or 0,
    )


def attribute(leg: Leg, name: str) -> int | None:
    """A whole number among the attributes."""
    value = leg.attrs.get(name)
    return value if isinstance(value, int) else None


def _period_of(passes: Sequence[Pass]) -> float | None:
    """None where fewer than three were run."""
    if len(passes) < 3:
        return None
    starts = sorted(one.t0_ns for one in passes)
    return (starts[-1] - starts[0]) / 1e9 / (len(starts) - 1)
