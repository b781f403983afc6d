"""When a channel that gave values gives none any more: since when, why, and until when.

Pure: knows no source, no file and no clock. A reading that fails now and then is no loss.
"""

from collections.abc import Iterator
from typing import Any

from edgeprof.session.records import Event, Severity

_LEAST_READINGS = 3
_LEAST_NS = 1_000_000_000
_MOST_TOLD = 4  # a GPU that is switched off and on for hours is not told of every time


def is_loss(unknown_readings: int, ns: int) -> bool:
    """Whether so many readings in a row without a value, over so long a time, are a loss."""
    return unknown_readings >= _LEAST_READINGS and ns >= _LEAST_NS


class Presence:
    """Whether one channel has a value.

    A loss is told when it is noticed (``absent``) and when it has ended (``gap``). Only the first
    few are, the others in one gap at the end, which says how many they were.
    """

    def __init__(self, signal: str, source: str) -> None:
        self.lost = False
        self._name = {"signal": signal, "source": source}
        self._reason = ""
        self._known_ns: int | None = None  # the end of the last reading with a value
        self._unknown = 0
        self._losses = 0
        self._untold = _Untold()

    def unknown(self, t1_ns: int, reason: str | None) -> Iterator[Event]:
        """There is no value; what was never there is not lost."""
        if self._known_ns is None or self.lost:
            return
        self._unknown += 1
        if not is_loss(self._unknown, t1_ns - self._known_ns):
            return
        self.lost = True
        self._losses += 1
        self._reason = reason or "no reason is known"
        if self._losses <= _MOST_TOLD:
            detail = {"reason": self._reason, "fix": None, "since_ns": self._known_ns}
            yield self._event("absent", "info", detail, t1_ns)

    def known(self, t0_ns: int, t1_ns: int) -> Iterator[Event]:
        """There is a value."""
        yield from self._return(t0_ns)
        self._known_ns = t1_ns
        self._unknown = 0

    def close(self, now_ns: int) -> Iterator[Event]:
        """A loss that lasts, and those that were not told."""
        yield from self._return(now_ns)
        if self._untold.losses:
            detail = {**self._untold.described(), "reason": self._reason}
            yield self._event("gap", "warning", detail, now_ns)
            self._untold = _Untold()

    def _return(self, now_ns: int) -> Iterator[Event]:
        if not self.lost or self._known_ns is None:
            return
        self.lost = False
        if self._losses > _MOST_TOLD:
            self._untold.add(self._known_ns, now_ns)
            return
        detail = {"since_ns": self._known_ns, "until_ns": now_ns, "reason": self._reason}
        yield self._event("gap", "warning", detail, now_ns)

    def _event(self, kind: str, severity: Severity, detail: dict[str, Any], now_ns: int) -> Event:
        detail = {**self._name, **detail}
        return Event(leg_id=None, t_ns=now_ns, kind=kind, severity=severity, detail=detail)


class _Untold:
    """Losses that are told as one."""

    def __init__(self) -> None:
        self.losses = 0
        self._lost_ns = self._since_ns = self._until_ns = 0

    def add(self, since_ns: int, until_ns: int) -> None:
        if self.losses == 0:
            self._since_ns = since_ns
        self.losses += 1
        self._lost_ns += until_ns - since_ns
        self._until_ns = until_ns

    def described(self) -> dict[str, Any]:
        return {
            "since_ns": self._since_ns,
            "until_ns": self._until_ns,
            "losses": self.losses,
            "lost_s": self._lost_ns / 1e9,
        }
