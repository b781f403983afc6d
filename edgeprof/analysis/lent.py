"""Contention that another session measured, lent to a run that has none of its own.

It holds for the run only where both are of one machine as it was set, the same models on the same
threads, and the same clocks; anything else is refused with what differs. Pure.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from edgeprof.analysis.board import Readings, clock_change
from edgeprof.analysis.channels import channels_of
from edgeprof.analysis.joint_legs import Contention
from edgeprof.errors import UsageFault
from edgeprof.session.records import Session

_MACHINE = ("name", "power_mode")
_MODEL = ("sha256", "weights", "provider", "threads")


def lent(session: Session, lender: Session, contention: Contention) -> Contention:
    """``contention`` is that of the lender.

    Raises UsageFault where it says nothing about the session.
    """
    name = lender.info.id
    if any(leg.kind == "contend" for leg in session.legs):
        raise UsageFault(f"{name}: this session has contention of its own and needs no other's")
    if not contention.targets:
        raise UsageFault(
            f"{name}: no target ran beside antagonists in it; edgeprof contend makes such a session"
        )
    if differences := [*_differences(session, lender)]:
        raise UsageFault(
            f"{name}: its contention does not hold for this session, as they differ in "
            f"{'; '.join(differences)}"
        )
    return replace(contention, lent_by=name, alternation=[], sustained=[])


def _differences(session: Session, lender: Session) -> Iterator[str]:
    ours, theirs = session.info, lender.info
    for field in _MACHINE:
        yield from _unlike(f"the {field.replace('_', ' ')} of the machine", ours.device.get(field),
                           theirs.device.get(field))  # fmt: skip
    shared = [key for key in ours.models if key in theirs.models]
    if not shared:
        yield f"their models ({', '.join(ours.models)}; {', '.join(theirs.models)})"
    for key in shared:
        for field in _MODEL:
            values = (getattr(info.models[key], field) for info in (ours, theirs))
            yield from _unlike(f"{field} of {key}", *values)
    decoding = [leg for leg in session.legs if leg.kind == "decode" and not leg.warmup]
    contending = [leg for leg in lender.legs if leg.kind == "contend" and not leg.warmup]
    change = clock_change(
        decoding, contending, Readings(channels_of(session)), Readings(channels_of(lender))
    )
    if change is not None:
        yield f"their clocks: {change}"


def _unlike(what: str, ours: object, theirs: object) -> Iterator[str]:
    if ours != theirs:
        yield f"{what} ({_shown(ours)}; {_shown(theirs)})"


def _shown(value: object) -> str:
    """Digests by their start."""
    return "not recorded" if value is None else str(value)[:40]
