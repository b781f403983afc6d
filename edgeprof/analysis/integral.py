"""A channel summed up over a stretch of time, what its averaging window smears put back in place.

Between two readings lies a straight line. An exponential average follows dA/dt = (x - A) / tau, so
the integral of x is that of A + tau x (A at the end - A at the start), exactly. A reading that is a
mean over the last w seconds stands for the moment w / 2 before it. Pure arithmetic.
"""

import numpy as np

from edgeprof.analysis.channels import Channel

LEAST_READINGS = 3  # a stretch that is shorter says more of its neighbours than of itself
_LEAST_COVERAGE = 0.95


def integral(channel: Channel, t0_ns: int, t1_ns: int) -> float | None:
    """The channel's unit x seconds over [t0, t1].

    None where the stretch is shorter than three readings or averaging windows, or where readings
    cover less than 95 % of it; what little is missing is taken to be like the rest.
    """
    seconds = (t1_ns - t0_ns) / 1e9
    if seconds < LEAST_READINGS * resolution_s(channel):
        return None
    signal, shift_ns, smeared = channel.signal, 0, 0.0
    if signal.window_s is not None and signal.window_kind == "boxcar":
        shift_ns = round(signal.window_s * 1e9 / 2)
    area, covered_s = trapezoids(channel, t0_ns + shift_ns, t1_ns + shift_ns)
    if covered_s < _LEAST_COVERAGE * seconds:
        return None
    if signal.window_s is not None and signal.window_kind == "exponential":
        start, end = np.interp((t0_ns, t1_ns), channel.times_ns, channel.values)
        smeared = signal.window_s * float(end - start)
    return area * seconds / covered_s + smeared


def mean_over(channel: Channel, t0_ns: int, t1_ns: int) -> float | None:
    """The integral over the stretch's length; None where there is no integral."""
    area = integral(channel, t0_ns, t1_ns)
    return None if area is None else area / ((t1_ns - t0_ns) / 1e9)


def resolution_s(channel: Channel) -> float:
    """What a channel cannot see into: its averaging window or the time between two readings."""
    return max(channel.held_interval_s or 0.0, channel.signal.window_s or 0.0)


def trapezoids(channel: Channel, t0_ns: int, t1_ns: int) -> tuple[float, float]:
    """The area below the straight lines within [t0, t1], and the seconds that have one: nothing is
    drawn across a gap."""
    first = max(int(np.searchsorted(channel.times_ns, t0_ns)) - 1, 0)
    last = int(np.searchsorted(channel.times_ns, t1_ns, side="right")) + 1
    times, values = channel.times_ns[first:last], channel.values[first:last]
    held = channel.held[first : last - 1]
    starts_ns, ends_ns = np.maximum(times[:-1], t0_ns), np.minimum(times[1:], t1_ns)
    used = held & (ends_ns > starts_ns)
    seconds = (ends_ns - starts_ns)[used] / 1e9
    slopes = np.diff(values)[used] / np.diff(times)[used]
    into_ns = ((starts_ns + ends_ns) / 2 - times[:-1])[used]
    area = ((values[:-1][used] + slopes * into_ns) * seconds).sum()
    return float(area), float(seconds.sum())
