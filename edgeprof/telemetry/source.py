"""What every source of readings offers: readers, which are polled, and streams, which speak by
themselves. Knows no board, no file and no process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from edgeprof.session.records import Event, Quality, WindowBasis, WindowKind

SourceName = Literal["sysfs", "tegrastats", "jtop", "host", "replay"]
# Per signal the first of these that works is taken.
SOURCE_ORDER: tuple[SourceName, ...] = ("sysfs", "tegrastats", "jtop", "host", "replay")
# Those whose stamps stand right around a read. The others tell when something came.
POLLED: frozenset[SourceName] = frozenset(("sysfs", "host"))


class Calibration(Struct, frozen=True, kw_only=True):
    """What was found out about a counter of memory traffic on this very board, by a known load."""

    node: str
    window_kind: WindowKind
    window_s: float | None
    bytes_per_s_per_unit: float
    emc_clock_hz: float | None


class BoardFigures(Struct, frozen=True, kw_only=True):
    """What turns the readings of a board into figures; None where the board is not known.

    ``bytes_per_emc_clock`` is 2 x bus width / 8; ``module_rails`` are disjoint rails whose sum a
    profile declares for a board without a total rail. Without ``emc_counter_established`` no share
    of the memory's time is taken from anybody: all of them divide the same counter. A counter with
    a calibration among ``emc_calibrations`` is believed all the same.
    """

    root: str = "/"
    profile: str | None = None
    bytes_per_emc_clock: float | None = None
    emc_max_hz: float | None = None
    emc_counter_established: bool = True
    emc_calibrations: tuple[Calibration, ...] = ()
    module_rails: tuple[str, ...] = ()

    @property
    def simulated(self) -> bool:
        """Files below another root than the machine's own are not its board."""
        return self.root != "/"


class Reading(NamedTuple):
    """A value in the unit of its signal, None where unknown, and what stood there; ``reason`` is
    why it is unknown."""

    value: float | None
    raw: str | None = None
    quality: Quality = "ok"
    reason: str | None = None


class Channel(Struct, frozen=True, kw_only=True):
    """One signal of a source, what is read for it, and the averaging window it is declared to have.

    A boxcar window without seconds is the time between two readings. ``calibrated`` says that its
    scale was found by a known load, not taken from documents.
    """

    name: str
    node: str | None = None
    window_s: float | None = None
    window_kind: WindowKind = "unknown"
    window_basis: WindowBasis | None = None
    note: str | None = None
    calibrated: bool = False


class Reader(Struct, frozen=True, kw_only=True):
    """Signals that come from one read, ``rate_hz`` times a second if that is cheap enough.

    ``read`` gives readings by signal name; no entry is unknown. It may take long, but raises
    nothing. ``name`` is what a message about it says: ``EMC activity``.
    """

    source: SourceName
    name: str
    channels: Sequence[Channel]
    rate_hz: float
    read: Callable[[], Mapping[str, Reading]]


class Setting(Struct, frozen=True, kw_only=True):
    """What a board is set to, in a few words: not sampled, but told when it changes, by an event of
    that kind. ``read`` gives None where it is not known, and raises nothing."""

    source: SourceName
    kind: str
    read: Callable[[], str | None]


class Absence(Struct, frozen=True, kw_only=True):
    """A signal, or a family such as ``power_w``, that a source cannot give: why, and the one
    command or step that mends it."""

    signal: str
    source: SourceName
    reason: str
    fix: str | None = None


class Offer(Struct, frozen=True, kw_only=True):
    """What a source that is polled gives, and what it cannot."""

    readers: Sequence[Reader] = ()
    settings: Sequence[Setting] = ()
    absences: Sequence[Absence] = ()


class Batch(Struct, frozen=True, kw_only=True):
    """What a stream told at one time; stamped at receipt, or around the read where it says so."""

    t0_ns: int
    t1_ns: int
    readings: Mapping[str, Reading]


class Stream(Protocol):
    """A source in a child of its own that speaks by itself. Nothing here waits for the child."""

    source: SourceName
    interval_s: float

    def start(self) -> Sequence[Absence]:
        """Start the child; where it cannot be started, say why."""
        ...

    @property
    def open(self) -> bool:
        """Whether more may come."""
        ...

    def fileno(self) -> int:
        """The descriptor that turns readable when something came."""
        ...

    def receive(self, now_ns: int) -> Iterator[Batch | Absence | Event]:
        """What came since the last call. An absence says that the source, or one signal of it, is
        lost from now on, and why."""
        ...

    def channel(self, name: str) -> Channel:
        """How the signal of that name is to be announced."""
        ...

    def close(self) -> None:
        """End the child, without waiting for one that does not end."""
        ...
