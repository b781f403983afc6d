"""The phases that a watched program announced: how often, how long, and what the memory did.

A phase has a bandwidth only where it was held for six averaging windows of the counter: a shorter
one is blurred with its neighbours, and says nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.statistics import mean_of
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, Session

SETTLING_WINDOWS = 5
LEAST_WINDOWS = 6
EXTERNAL = "external"


class CommandFigures(Struct, frozen=True, kw_only=True):
    """The program that was watched; its exit code is None where nobody saw it end."""

    name: str
    exit_code: int | None
    duration_s: float | None


class PhaseFigures(Struct, frozen=True, kw_only=True):
    """All phases of one name, and of one model where they are passes of one.

    ``interrupted`` counts those that no mark ended. The one that the program's own end did is among
    the others too; where nobody knows the end, it is in no other figure.
    """

    name: str
    model: str | None
    count: int
    interrupted: int
    total_s: float
    duration_s: Quantity | None
    bandwidth_bytes_per_s: Quantity | None


class _Stretch(Struct, frozen=True):
    t0_ns: int
    t1_ns: int | None
    interrupted: bool = False

    @property
    def seconds(self) -> float:
        return ((self.t1_ns or self.t0_ns) - self.t0_ns) / 1e9


def command_of(session: Session) -> CommandFigures | None:
    """None where no command was watched."""
    leg = _command(session)
    if leg is None:
        return None
    code = leg.attrs.get("exit_code")
    return CommandFigures(
        name=leg.name,
        exit_code=code if isinstance(code, int) else None,
        duration_s=None if leg.t1_ns is None else (leg.t1_ns - leg.t0_ns) / 1e9,
    )


def phases_of(session: Session, bandwidth: Channel | None) -> list[PhaseFigures]:
    """In the order in which the names first came; ``bandwidth`` is the channel to believe."""
    found: dict[tuple[str, str | None], list[_Stretch]] = defaultdict(list)
    command = _command(session)
    end_ns = None if command is None else command.t1_ns
    for leg in session.legs:
        if leg.kind == "mark":
            interrupted = leg.status != "complete"
            ended_ns = leg.t1_ns if not interrupted or leg.t1_ns == end_ns else None
            found[leg.name, None].append(_Stretch(leg.t0_ns, ended_ns, interrupted))
    for pass_ in session.passes:
        if pass_.provider == EXTERNAL:
            found[pass_.phase, pass_.model].append(_Stretch(pass_.t0_ns, pass_.t1_ns))
    figures = [_phase(*key, stretches, bandwidth) for key, stretches in found.items()]
    return sorted(figures, key=lambda phase: found[phase.name, phase.model][0].t0_ns)


def _command(session: Session) -> Leg | None:
    return next((leg for leg in session.legs if leg.kind == "command"), None)


def _phase(
    name: str, model: str | None, stretches: Sequence[_Stretch], bandwidth: Channel | None
) -> PhaseFigures:
    ended = [stretch for stretch in stretches if stretch.t1_ns is not None]
    return PhaseFigures(
        name=name,
        model=model,
        count=len(ended),
        interrupted=sum(stretch.interrupted for stretch in stretches),
        total_s=sum(stretch.seconds for stretch in ended),
        duration_s=mean_of(
            [stretch.seconds for stretch in ended],
            source="from the phase's mark to the next, or the end; mean, 95 % t interval",
        ),
        bandwidth_bytes_per_s=_settled(ended, bandwidth),
    )


def _settled(stretches: Iterable[_Stretch], channel: Channel | None) -> Quantity | None:
    """The mean after the first five windows of each stretch that lasts for six."""
    window_s = None if channel is None else _window_s(channel)
    if channel is None or window_s is None:
        return None
    values: list[float] = []
    n = 0
    for stretch in stretches:
        if stretch.t1_ns is not None and stretch.seconds >= LEAST_WINDOWS * window_s:
            settled_ns = stretch.t0_ns + round(SETTLING_WINDOWS * window_s * 1e9)
            read = channel.between(settled_ns, stretch.t1_ns)
            values += read
            n += bool(read)
    if not values:
        return None
    return Quantity(
        value=sum(values) / len(values),
        n=n,
        kind="measured",
        source=f"{channel.signal.source}; phases of {LEAST_WINDOWS} windows and more, "
        f"the first {SETTLING_WINDOWS} left out",
        window_s=channel.signal.window_s,
    )


def _window_s(channel: Channel) -> float | None:
    """None where nobody knows it: then nothing can be said of a phase."""
    signal = channel.signal
    return 0.0 if signal.window_kind == "instantaneous" else signal.window_s
