"""Which draft length is best, by measurement, and whether the advice from one run would have found
it. Knows comparisons, no sessions.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from msgspec import Struct

from edgeprof.analysis.forecast import Forecast
from edgeprof.quantity import Quantity

_ADVISED_FROM = 8  # the run whose acceptance the advice is taken from, or the longest below
_AS_GOOD = 0.95  # of the best measured


class Compared(Protocol):
    """What a sweep needs of a comparison."""

    @property
    def target(self) -> str: ...
    @property
    def drafter(self) -> str: ...
    @property
    def draft_tokens(self) -> int | None: ...
    @property
    def decode_speedup(self) -> Quantity | None: ...
    @property
    def predicted_by_draft_tokens(self) -> list[Forecast]: ...


class SweptLength(Struct, frozen=True, kw_only=True):
    """One length: measured, and predicted from the run of ``advised_from`` tokens."""

    draft_tokens: int
    decode_speedup: Quantity
    predicted_speedup: float | None


class LengthSweep(Struct, frozen=True, kw_only=True):
    """All lengths of one target and drafter. ``agrees`` says that the advised length measured at
    least 95 % of the best one; None without advice."""

    target: str
    drafter: str
    lengths: list[SweptLength]
    best_draft_tokens: int
    advised_draft_tokens: int | None
    advised_from: int
    agrees: bool | None


def length_sweeps(comparisons: Iterable[Compared]) -> list[LengthSweep]:
    """One a target and drafter that ran with two lengths or more."""
    pairs: dict[tuple[str, str], list[Compared]] = defaultdict(list)
    for one in comparisons:
        speedup = one.decode_speedup
        if one.draft_tokens is not None and speedup is not None and speedup.value is not None:
            pairs[one.target, one.drafter].append(one)
    return [_sweep(*pair, same) for pair, same in pairs.items() if len(same) > 1]


def _sweep(target: str, drafter: str, compared: Sequence[Compared]) -> LengthSweep:
    by_length = {one.draft_tokens or 0: one for one in compared}
    short = [length for length in by_length if length <= _ADVISED_FROM]
    source = max(short, default=min(by_length))
    predicted = {
        one.draft_tokens: one.predicted_speedup
        for one in by_length[source].predicted_by_draft_tokens
        if one.draft_tokens in by_length
    }
    measured = {length: _value(one) for length, one in by_length.items()}
    best = max(sorted(measured), key=lambda length: measured[length])
    advised = max(sorted(predicted), key=lambda length: predicted[length], default=None)
    return LengthSweep(
        target=target,
        drafter=drafter,
        lengths=[
            SweptLength(
                draft_tokens=length,
                decode_speedup=_speedup(by_length[length]),
                predicted_speedup=predicted.get(length),
            )
            for length in sorted(by_length)
        ],
        best_draft_tokens=best,
        advised_draft_tokens=advised,
        advised_from=source,
        agrees=None if advised is None else measured[advised] >= _AS_GOOD * measured[best],
    )


def _speedup(one: Compared) -> Quantity:
    assert one.decode_speedup is not None  # others are not swept
    return one.decode_speedup


def _value(one: Compared) -> float:
    return _speedup(one).value or 0.0
