"""Where a session's samples are from: read from a board, or simulated, or replayed, or both."""

from collections import Counter

import numpy as np

from edgeprof.session.columns import QUALITIES
from edgeprof.session.records import Session

_REPLAY = "replay"


def sample_counts(session: Session) -> Counter[str]:
    """How many samples there are of each quality.

    One of a simulated board that was replayed counts as both: its quality is ``simulated``, and its
    source says the other.
    """
    samples = session.samples
    codes = np.bincount(samples.quality, minlength=len(QUALITIES)).tolist()
    counts = Counter[str](dict(zip(QUALITIES, codes, strict=True)))
    replays = [signal.id for signal in session.signals if signal.source == _REPLAY]
    simulated = samples.quality == QUALITIES.index("simulated")
    counts["replayed"] += int((simulated & np.isin(samples.column("signal_id"), replays)).sum())
    return +counts
