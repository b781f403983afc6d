"""Long series thinned for drawing: what stands out stays, the rest is kept in the session only."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_KEPT_A_STRETCH = 4


def thinned(times: Floats, values: Floats, most: int) -> npt.NDArray[np.intp]:
    """The indices of at most ``most`` points (at least 4) that draw as all of them do.

    The time is cut into equal stretches; of each stay the first and the last point, the lowest and
    the highest, so that no extreme is lost. ``times`` ascend; ``values`` are known, all of them.
    All indices come back where there are no more than ``most``.
    """
    count = len(times)
    if count <= most:
        return np.arange(count)
    stretches = max(most // _KEPT_A_STRETCH, 1)
    start, end = times[0], times[-1]
    width = (end - start) / stretches if end > start else 1.0
    stretch = np.minimum((times - start) // width, stretches - 1)
    first = np.flatnonzero(np.diff(stretch, prepend=-1.0))
    last = np.append(first[1:], count) - 1
    lowest, highest = (
        _first_equal(values, extreme.reduceat(values, first), first)
        for extreme in (np.minimum, np.maximum)
    )
    return np.unique(np.concatenate([first, last, lowest, highest]))


def _first_equal(values: Floats, wanted: Floats, first: npt.NDArray[np.intp]) -> Any:
    """The place of the first value in each stretch that is the one wanted of it."""
    lengths = np.diff(first, append=len(values))
    places = np.flatnonzero(values == np.repeat(wanted, lengths))
    return places[np.searchsorted(places, first)]
