"""Where a session's samples are from: read from a board, or simulated, or replayed, or both."""

from collections import Counter

from edgeprof.session.records import Session

_REPLAY = "replay"


def sample_counts(session: Session) -> Counter[str]:
    """How many samples there are of each quality.

    One of a simulated board that was replayed counts as both: its quality is ``simulated``, and its
    source says the other.
    """
    replayed = {signal.id for signal in session.signals if signal.source == _REPLAY}
    counts = Counter[str](sample.quality for sample in session.samples)
    counts["replayed"] += sum(
        sample.quality == "simulated" and sample.signal_id in replayed for sample in session.samples
    )
    return +counts
