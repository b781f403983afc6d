"""What the parts of the sysfs source share: readers of plain numbers, and names kept apart."""

from collections.abc import Callable, Collection, Mapping
from itertools import chain, count

from edgeprof.session.records import WindowBasis, WindowKind
from edgeprof.telemetry.nodes import Node
from edgeprof.telemetry.source import Absence, Channel, Reader, Reading


def poll(
    name: str,
    nodes: Mapping[str, Node],
    rate_hz: float,
    window_kind: WindowKind,
    window_basis: WindowBasis | None,
    convert: Callable[[int], float | None],
) -> Reader:
    """A reader of one number a signal, in the unit that ``convert`` makes of it; it makes None of a
    number that stands for a part that is switched off."""

    def reading(node: Node) -> Reading:
        number = node.number()
        if number is None:
            return Reading(None, reason=node.reason)
        value = convert(number)
        return Reading(value, str(number), reason="switched off" if value is None else None)

    def read() -> Mapping[str, Reading]:
        return {signal: reading(node) for signal, node in nodes.items()}

    return Reader(
        source="sysfs",
        name=name,
        channels=[
            Channel(name=signal, node=node.path, window_kind=window_kind, window_basis=window_basis)
            for signal, node in nodes.items()
        ],
        rate_hz=rate_hz,
        read=read,
    )


def absent(signal: str, reason: str, fix: str | None = None) -> Absence:
    return Absence(signal=signal, source="sysfs", reason=reason, fix=fix)


def untaken(name: str, taken: Collection[str]) -> str:
    """``name``, or with a number behind it where it is taken."""
    names = chain([name], (f"{name}_{number}" for number in count(2)))
    return next(candidate for candidate in names if candidate not in taken)
