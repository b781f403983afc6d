"""The best draft length by measurement, and what one run would have advised."""

from typing import NamedTuple

from edgeprof.analysis.forecast import Forecast
from edgeprof.analysis.length_sweep import length_sweeps
from edgeprof.quantity import Quantity


class Compared(NamedTuple):
    draft_tokens: int | None
    decode_speedup: Quantity | None
    predicted_by_draft_tokens: list[Forecast]
    target: str = "t"
    drafter: str = "d"


def compared(
    draft_tokens: int | None, speedup: float | None, predicted: dict[int, float] | None = None
) -> Compared:
    forecasts = [
        Forecast(draft_tokens=k, predicted_speedup=s, low=None, high=None, tokens_per_round=2.0)
        for k, s in (predicted or {}).items()
    ]
    return Compared(draft_tokens, Quantity(value=speedup, kind="measured", source="x"), forecasts)


def test_the_best_and_the_advised_length() -> None:
    """Advice is taken from the run at 8, not from that at 12; K = 3 is as good as the best."""
    runs = [
        compared(12, 1.1, {1: 9.9}),
        compared(8, 1.2, {1: 1.1, 2: 1.3, 3: 1.45, 4: 1.41, 8: 1.2, 5: 7.0}),
        compared(4, 1.50),
        compared(3, 1.47),
        compared(1, 1.15),
    ]
    (sweep,) = length_sweeps(runs)
    assert (sweep.best_draft_tokens, sweep.advised_draft_tokens, sweep.advised_from) == (4, 3, 8)
    assert sweep.agrees is True
    lengths = [(one.draft_tokens, one.predicted_speedup) for one in sweep.lengths]
    assert lengths == [(1, 1.1), (3, 1.45), (4, 1.41), (8, 1.2), (12, None)]


def test_advice_that_misses_by_more_than_a_twentieth() -> None:
    (sweep,) = length_sweeps([compared(2, 1.50), compared(6, 1.40, {2: 1.2, 6: 1.3})])
    assert (sweep.best_draft_tokens, sweep.advised_draft_tokens) == (2, 6)
    assert sweep.agrees is False  # 1.40 / 1.50 = 0.93


def test_lengths_beyond_eight_advise_from_the_shortest() -> None:
    (sweep,) = length_sweeps([compared(16, 1.0), compared(10, 1.1, {10: 1.1})])
    assert sweep.advised_from == 10


def test_without_held_passes_there_is_no_advice() -> None:
    (sweep,) = length_sweeps([compared(1, 1.1), compared(2, 1.2)])
    assert sweep.advised_draft_tokens is None and sweep.agrees is None


def test_one_length_is_no_sweep() -> None:
    assert length_sweeps([compared(2, 1.1)]) == []
    assert length_sweeps([compared(2, 1.1), compared(3, None), compared(None, 1.2)]) == []
