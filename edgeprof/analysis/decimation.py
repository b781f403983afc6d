"""A long channel thinned for drawing: the least and the greatest of each piece of time stay.

Peaks survive, whatever the length; the samples themselves stay in the session.
"""

import numpy as np
import numpy.typing as npt

from edgeprof.analysis.channels import Channel

Floats = npt.NDArray[np.float64]


def thinned(channel: Channel, start_ns: int, pieces: int) -> tuple[Floats, Floats]:
    """Seconds since ``start_ns`` and values: of each piece its least and its greatest.

    NaN stands where readings are missing, so that no line is drawn there.
    """
    times_s = (channel.times_ns - start_ns) / 1e9
    values = channel.values
    breaks = np.flatnonzero(~channel.held) + 1  # a reading with nothing known right before it
    if channel.n > 2 * pieces:
        edges = np.linspace(times_s[0], times_s[-1], pieces + 1)[1:-1]
        cuts = np.concatenate([[0], np.searchsorted(times_s, edges), breaks])
        firsts = np.unique(cuts[cuts < channel.n])
        least = np.minimum.reduceat(values, firsts)
        greatest = np.maximum.reduceat(values, firsts)
        kept = np.isin(firsts, breaks)
        times_s, values = np.repeat(times_s[firsts], 2), np.column_stack([least, greatest]).ravel()
        breaks = 2 * np.flatnonzero(kept)
    return np.insert(times_s, breaks, np.nan), np.insert(values, breaks, np.nan)
