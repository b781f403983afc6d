"""From the times of a probe to its figures: rates, v(n), forecasts, best draft lengths. Pure."""

import statistics
from collections.abc import Mapping, Sequence

from edgeprof.analysis.drafting_cost import measured_curve
from edgeprof.analysis.speculation import best_draft_length
from edgeprof.analysis.statistics import percentile
from edgeprof.hardware.measured import BestLength, Figure, PassCost
from edgeprof.models.spec import ModelSpec

# A spread or a drift of the median beyond this is not the machine's rate but a moment's.
UNSTABLE = 0.10
_FEWEST_TO_JUDGE = 4
_ACCEPTANCES = (0.5, 0.6, 0.7, 0.8, 0.9)
_DRAFT_COSTS = (0.0, 0.1)  # a look-up of n-grams, and a draft of about a tenth of the target

Seconds = Mapping[int, Sequence[float]]  # by rows or tokens, in the order they were measured


def figure(values: Sequence[float]) -> Figure:
    """The median with the ends of its middle half, and whether it holds still.

    ``values`` are in the order of time. Unstable: the middle half is wider than a tenth of the
    median, or the median of the second half of the time differs by more than that from the first's.
    """
    middle = statistics.median(values)
    low, high = percentile(values, 0.25), percentile(values, 0.75)
    return Figure(
        value=middle,
        low=min(low, middle),
        high=max(high, middle),
        n=len(values),
        unstable=_is_unstable(values, low, middle, high),
    )


def rate(amount: float, seconds: Sequence[float]) -> Figure:
    """Amount over time, a run each."""
    return figure([amount / value for value in seconds])


def best_rate(rates: Sequence[Figure]) -> Figure:
    """The highest: every one is a lower bound of what the hardware gives."""
    return max(rates, key=lambda one: one.value)


def pass_costs(seconds: Seconds) -> list[PassCost]:
    """Times, and v(n): the median time over the median time of one. The band of v(n) is that of
    its own time: the unit is the same for all. Nothing without passes of one."""
    if not seconds.get(1):
        return []
    unit = statistics.median(seconds[1])
    return [
        PassCost(
            tokens=tokens,
            time_s=figure(values),
            cost=figure([1.0] * len(values) if tokens == 1 else [v / unit for v in values]),
        )
        for tokens, values in sorted(seconds.items())
        if values
    ]


def whole_model(whole: Seconds, headless: Seconds, share: float) -> dict[int, list[float]]:
    """The times of a model of which ``share`` of the layers' bytes were in memory.

    time = time of the stack + (1 / share - 1) x its time without the output head, whose median is
    taken: head and layers add up, and layers of the same kind take the same time each.
    """
    if share >= 1:
        return {tokens: list(values) for tokens, values in whole.items()}
    return {
        tokens: [value + (1 / share - 1) * statistics.median(headless[tokens]) for value in values]
        for tokens, values in whole.items()
        if headless.get(tokens)
    }


def best_lengths(costs: Mapping[int, float]) -> list[BestLength]:
    """The best draft length with the measured v(n), between two sizes on a straight line."""
    curve = measured_curve(costs, max(costs))
    found = []
    for draft_cost in _DRAFT_COSTS:
        for acceptance in _ACCEPTANCES:
            best = best_draft_length(
                acceptance, draft_cost, lambda tokens: curve[tokens - 1], longest=len(curve) - 1
            )
            found.append(
                BestLength(
                    acceptance=acceptance,
                    draft_cost=draft_cost,
                    draft_length=best.draft_length,
                    speedup=best.speedup,
                )
            )
    return found


def roofline_cost(
    tokens: int, weight_bytes: float, flop_per_token: float, bandwidth: float, flop_per_s: float
) -> float:
    """v(n) as a roofline has it: max(bytes / bandwidth, n x operations / rate) over that of one."""

    def time_s(rows: int) -> float:
        return max(weight_bytes / bandwidth, rows * flop_per_token / flop_per_s)

    return time_s(tokens) / time_s(1)


def layers_that_fit(spec: ModelSpec, one_layer_bytes: float, rest_bytes: float, room: float) -> int:
    """How many of the model's layers fit into ``room`` beside the rest; 0: not even one."""
    return max(min(int((room - rest_bytes) / one_layer_bytes), spec.layers), 0)


def _is_unstable(values: Sequence[float], low: float, middle: float, high: float) -> bool:
    if len(values) < _FEWEST_TO_JUDGE:
        return False
    half = len(values) // 2
    drift = statistics.median(values[half:]) / statistics.median(values[:half]) - 1
    return (high - low) / middle > UNSTABLE or abs(drift) > UNSTABLE
