"""Channels thinned for drawing: peaks stay, gaps stay gaps."""

import numpy as np
import pytest

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.decimation import thinned
from edgeprof.session.records import Signal


def channel(times_s: list[float], values: list[float], held: list[bool] | None = None) -> Channel:
    return Channel(
        signal=Signal(id=1, name="power_w.total", unit="W", source="sysfs"),
        times_ns=np.array([round(t * 1e9) for t in times_s], dtype=np.int64),
        values=np.array(values, dtype=np.float64),
        held=np.array([True] * (len(times_s) - 1) if held is None else held, dtype=np.bool_),
        qualities={"ok": len(times_s)},
        suspect=None,
    )


def test_a_short_channel_is_drawn_as_it_is() -> None:
    times_s, values = thinned(channel([1.0, 2.0, 3.0], [5.0, 6.0, 7.0]), 1_000_000_000, 10)
    assert times_s.tolist() == [0.0, 1.0, 2.0] and values.tolist() == [5.0, 6.0, 7.0]


def test_a_gap_is_no_line() -> None:
    times_s, values = thinned(channel([0.0, 1.0, 9.0], [5.0, 6.0, 7.0], [True, False]), 0, 10)
    assert np.isnan(values).tolist() == [False, False, True, False]
    assert np.isnan(times_s).tolist() == [False, False, True, False]


def test_p15_eight_hours_keep_their_one_peak() -> None:
    """57 600 samples at 2 Hz, all 10 W but one of 99 W and one of 1 W."""
    values = [10.0] * 57_600
    values[31_234], values[44_444] = 99.0, 1.0
    times_s, kept = thinned(channel([i / 2 for i in range(57_600)], values), 0, 600)
    assert len(kept) <= 1200
    assert kept.max() == 99.0 and kept.min() == 1.0
    assert times_s[int(kept.argmax())] == pytest.approx(31_234 / 2, abs=28_800 / 600)
    assert (np.diff(times_s) >= 0).all()


def test_gaps_in_a_long_channel_stay() -> None:
    held = [True] * 9_999
    held[5_000] = False
    _, kept = thinned(channel([float(i) for i in range(10_000)], [1.0] * 10_000, held), 0, 100)
    assert np.isnan(kept).sum() == 1
    assert np.isnan(kept)[0] == np.False_ and 90 < np.flatnonzero(np.isnan(kept))[0] < 110
