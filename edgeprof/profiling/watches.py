"""What the recorder keeps an eye on while it listens: swapping, Ctrl-C."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from edgeprof.profiling.children import Child
from edgeprof.session.records import Event, Sample, Signal

_PATIENCE_NS = 30_000_000_000
_SWAPPING_BYTES = 16 << 20


class SwapWatch:
    """Follows ``swap_used_bytes``: a run that swaps measures the disk."""

    def __init__(self) -> None:
        self._signal_ids: set[int] = set()
        self._first: float | None = None
        self._most = 0.0

    def signal(self, signal: Signal) -> None:
        if signal.name == "swap_used_bytes":
            self._signal_ids.add(signal.id)

    def sample(self, sample: Sample) -> None:
        if sample.signal_id in self._signal_ids and sample.value is not None:
            self._first = sample.value if self._first is None else self._first
            self._most = max(self._most, sample.value)

    def verdict(self, now_ns: int) -> Event | None:
        """An event where swap grew by more than 16 MiB since the first sample."""
        growth = self._most - (self._first or 0.0)
        if self._first is None or growth <= _SWAPPING_BYTES:
            return None
        detail = {"growth_bytes": int(growth)}
        return Event(leg_id=None, t_ns=now_ns, kind="swap", severity="warning", detail=detail)


class StopWatch:
    """Passes the wish to stop on to the decoder; a second wish, or lost patience, kills it."""

    def __init__(self, decoder: Child, wishes: Callable[[], int]) -> None:
        self._decoder = decoder
        self._wishes = wishes
        self._asked_ns: int | None = None

    @property
    def asked(self) -> bool:
        return self._asked_ns is not None

    def look(self, now_ns: int) -> None:
        if self._wishes() and self._asked_ns is None:
            self._asked_ns = now_ns
            self._decoder.stop()
        if self._asked_ns is not None:
            out_of_patience = now_ns - self._asked_ns > _PATIENCE_NS
            if self._wishes() > 1 or out_of_patience:
                self._decoder.kill()


@contextmanager
def stop_wishes() -> Iterator[Callable[[], int]]:
    """Counts Ctrl-C, SIGTERM and the terminal's hang-up inside the block instead of letting them
    break in anywhere. A hang-up that was ignored stays so: `nohup` asks for it."""
    wishes: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        wishes.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0  # only the main thread may set handlers
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield lambda: len(wishes)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
