"""What the parts of the sysfs source share: readers of plain numbers, and names kept apart."""

from collections.abc import Callable, Collection, Mapping
from itertools import chain, count

from edgeprof.session.records import WindowKind
from edgeprof.telemetry.nodes import Node
from edgeprof.telemetry.source import Absence, Channel, Reader, Reading


def poll(
    name: str,
    nodes: Mapping[str, Node],
    rate_hz: float,
    window_kind: WindowKind,
    convert: Callable[[int], float | None],
) -> Reader:
    """A reader of one number a signal, in the unit that ``convert`` makes of it."""

    def reading(node: Node) -> Reading:
        number = node.number()
        return Reading(None) if number is None else Reading(convert(number), str(number))

    def read() -> Mapping[str, Reading]:
        return {signal: reading(node) for signal, node in nodes.items()}

    return Reader(
        source="sysfs",
        name=name,
        channels=[
            Channel(name=signal, node=node.path, window_kind=window_kind)
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
