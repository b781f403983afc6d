"""Sources that do exactly what a test says, at times that it sets; equals of the real ones."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from edgeprof.session.records import Event
from edgeprof.telemetry.source import Absence, Batch, Channel, Reader, Reading, SourceName

MS = 1_000_000
S = 1_000_000_000


def reader(
    read: Callable[[], Mapping[str, Reading]],
    *names: str,
    rate_hz: float = 10,
    source: SourceName = "sysfs",
    name: str = "board",
) -> Reader:
    channels = [Channel(name=one, window_kind="boxcar") for one in names]
    return Reader(source=source, name=name, channels=channels, rate_hz=rate_hz, read=read)


class FakeStream:
    """A stream whose child says what ``say`` was given. ``refusal`` keeps it from starting."""

    def __init__(
        self, source: SourceName, interval_s: float = 0.5, *, refusal: str | None = None
    ) -> None:
        self.source = source
        self.interval_s = interval_s
        self.refusal = refusal
        self.starts = self.ends = 0
        self._open = False
        self._said: list[Batch | Absence | Event] = []

    @property
    def open(self) -> bool:
        return self._open

    def start(self) -> Sequence[Absence]:
        self.starts += 1
        self._open = self.refusal is None
        return [] if self.refusal is None else [self.absence(self.refusal)]

    def say(self, now_ns: int, **values: float | None) -> None:
        """Readings by the name of the signal, with ``__`` for the dot."""
        readings = {name.replace("__", "."): Reading(value) for name, value in values.items()}
        self._said.append(Batch(t0_ns=now_ns, t1_ns=now_ns, readings=readings))

    def die(self, why: str | None = None) -> None:
        self._open = False
        if why is not None:
            self._said.append(self.absence(why))

    def absence(self, reason: str) -> Absence:
        return Absence(signal="*", source=self.source, reason=reason, fix="start it")

    def fileno(self) -> int:
        raise AssertionError("the fake wait of a test asks for no descriptor")

    @property
    def has_something(self) -> bool:
        return bool(self._said)

    def receive(self, now_ns: int) -> Iterator[Batch | Absence | Event]:
        said, self._said = self._said, []
        yield from said

    def channel(self, name: str) -> Channel:
        return Channel(name=name, node=self.source, window_kind="unknown")

    def close(self) -> None:
        self.ends += self._open
        self._open = False
