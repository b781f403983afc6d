"""How often the signals of a session were really read: what came, never what was asked for.

A reading without a value is not one that came. Knows nothing of processes. Ids stay the same
however often a sampler announces its signals anew.
"""

import math
from collections.abc import Iterator

from msgspec.structs import replace

from edgeprof.session.records import Sample, Signal
from edgeprof.telemetry.losses import is_loss
from edgeprof.telemetry.source import POLLED


class Delivery:
    """The signals of one session by name and source, and the figures of their readings."""

    def __init__(self) -> None:
        self._channels: dict[tuple[str, str], _Channel] = {}
        self._by_child_id: dict[int, _Channel] = {}

    def restart(self) -> None:
        """Another sampler follows, with ids of its own."""
        self._by_child_id.clear()
        self.interrupt()

    def announce(self, signal: Signal) -> Signal:
        """The signal under the id that it has in the session."""
        key = (signal.name, signal.source)
        known = self._channels.get(key)
        own_id = len(self._channels) + 1 if known is None else known.signal.id
        own = replace(signal, id=own_id)
        if known is None:
            known = self._channels[key] = _Channel(own)
        known.signal = own
        self._by_child_id[signal.id] = known
        return own

    def count(self, sample: Sample) -> Sample:
        """The sample under the session's id, counted."""
        channel = self._by_child_id[sample.signal_id]
        channel.count(sample)
        if channel.signal.id == sample.signal_id:
            return sample
        return replace(sample, signal_id=channel.signal.id)

    def interrupt(self, source: str | None = None) -> None:
        """The time until the next reading of that source, or of all, was a gap and is not
        counted."""
        for channel in self._channels.values():
            if source is None or channel.signal.source == source:
                channel.last_ns = None

    def signals(self) -> Iterator[Signal]:
        """Every signal with how it was delivered so far."""
        for channel in self._channels.values():
            yield channel.described()


class _Channel:
    """A signal and the running figures of the times between its readings."""

    def __init__(self, signal: Signal) -> None:
        self.signal = signal
        self.last_ns: int | None = None
        self._unknown = 0  # in a row
        self._readings = 0
        self._reading_ns = 0
        self._intervals = 0
        self._mean_s = 0.0
        self._squares_s2 = 0.0  # of the distances from the mean (Welford)

    def count(self, sample: Sample) -> None:
        if sample.value is None:
            self._unknown += 1
            if self.last_ns is not None and is_loss(self._unknown, sample.t1_ns - self.last_ns):
                self.last_ns = None
            return
        self._unknown = 0
        self._readings += 1
        self._reading_ns += sample.t1_ns - sample.t0_ns
        if self.last_ns is not None:
            interval_s = (sample.t0_ns - self.last_ns) / 1e9
            self._intervals += 1
            distance_s = interval_s - self._mean_s
            self._mean_s += distance_s / self._intervals
            self._squares_s2 += distance_s * (interval_s - self._mean_s)
        self.last_ns = sample.t0_ns

    def described(self) -> Signal:
        several = self._intervals > 1
        return replace(
            self.signal,
            delivered_hz=1 / self._mean_s if self._intervals and self._mean_s > 0 else None,
            jitter_s=math.sqrt(self._squares_s2 / (self._intervals - 1)) if several else None,
            read_latency_s=self._latency_s(),
        )

    def _latency_s(self) -> float | None:
        """How long a reading took, where its stamps tell that."""
        if self._readings == 0 or self.signal.source not in POLLED:
            return None
        return self._reading_ns / self._readings / 1e9
