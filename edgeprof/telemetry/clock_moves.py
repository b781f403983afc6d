"""When a clock moves while it is sampled: the first time, and at the end how often and how far.

Pure: knows no source and no time of its own.
"""

from collections.abc import Iterator
from typing import Any

from edgeprof.session.records import Event

# Governors step in larger ones; what is less is how the clock was measured.
_TOLERANCE = 0.02
# A GPU's clock follows its load all the time: its moves are counted only.
_TELLS_THE_FIRST = {"emc_clock_hz": True, "gpu_clock_hz": False}


class ClockMoves:
    """The moves of one clock, by what one source reads."""

    def __init__(self, signal: str, source: str, *, tells_the_first: bool) -> None:
        self._name = {"signal": signal, "source": source}
        self._tells_the_first = tells_the_first
        self._hz: float | None = None  # since the last move
        self._lowest_hz = self._highest_hz = 0.0
        self._moves = 0

    def note(self, hz: float, now_ns: int) -> Iterator[Event]:
        before_hz = self._hz
        if before_hz is None:
            self._hz = self._lowest_hz = self._highest_hz = hz
            return
        self._lowest_hz, self._highest_hz = min(self._lowest_hz, hz), max(self._highest_hz, hz)
        if abs(hz - before_hz) <= _TOLERANCE * before_hz:
            return
        self._hz = hz
        self._moves += 1
        if self._moves == 1 and self._tells_the_first:
            yield self._event({"from": before_hz, "to": hz}, now_ns)

    def close(self, now_ns: int) -> Iterator[Event]:
        """How often it moved, where that was not told yet."""
        if self._moves > int(self._tells_the_first):
            ends = {"lowest_hz": self._lowest_hz, "highest_hz": self._highest_hz}
            yield self._event({"changes": self._moves, **ends}, now_ns)

    def _event(self, detail: dict[str, Any], now_ns: int) -> Event:
        detail = {**self._name, **detail}
        return Event(leg_id=None, t_ns=now_ns, kind="clock_change", severity="info", detail=detail)


def moves_of(signal: str, source: str) -> ClockMoves | None:
    """None for what is not a clock."""
    tells_the_first = _TELLS_THE_FIRST.get(signal)
    if tells_the_first is None:
        return None
    return ClockMoves(signal, source, tells_the_first=tells_the_first)
