"""Long series thinned for drawing: what stands out stays, the rest is kept in the session only."""

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
    by_value = np.lexsort((values, stretch))  # within each stretch; places are those of ``stretch``
    return np.unique(np.concatenate([first, last, by_value[first], by_value[last]]))
