"""Traffic on an emulated board, and counters of it that average and scale as they please.

Time is the test's: it passes only where somebody waits, and the files follow it.
"""

import math
import random
from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from edgeprof.analysis.emc_window import Chunk
from emulated.tree import Tree

_STEP_S = 0.005


class Counter(NamedTuple):
    """How a counter shows traffic: averaged over ``window_s``, ``bytes_per_s_per_unit`` a unit, as
    whole numbers that jitter by ``noise`` of the value."""

    node: str
    kind: Literal["boxcar", "exponential"]
    window_s: float
    bytes_per_s_per_unit: float
    noise: float = 0.01


class Traffic:
    """A load that can be switched on, beside what others read all the time, and the clockwork that
    lets both happen. Serves as the load of a calibration."""

    def __init__(
        self,
        tree: Tree,
        counters: Sequence[Counter],
        *,
        load_bytes_per_s: float,
        idle_bytes_per_s: float,
    ) -> None:
        self.chunks: list[Chunk] = []
        self._tree = tree
        self._counters = counters
        self._load = load_bytes_per_s
        self._idle = idle_bytes_per_s
        self._on = False
        self._now_s = 100.0
        self._random = random.Random(0)
        self._averages = {one.node: idle_bytes_per_s for one in counters}
        self._past = {
            one.node: deque([idle_bytes_per_s] * round(one.window_s / _STEP_S)) for one in counters
        }
        self._show()

    def now_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        until_s = self._now_s + seconds
        while self._now_s < until_s:
            self._step()
        self._show()

    def start(self) -> None:
        self._on = True

    def poll(self) -> None:
        pass

    def stop(self) -> None:
        self._on = False

    def _step(self) -> None:
        self._now_s += _STEP_S
        if self._on:
            size = round(self._load * _STEP_S)
            self.chunks.append(Chunk(self._now_s - _STEP_S, self._now_s, size))
        rate = self._idle + (self._load if self._on else 0.0)
        for one in self._counters:
            past = self._past[one.node]
            if one.kind == "boxcar":
                past.append(rate)
                past.popleft()
                self._averages[one.node] = math.fsum(past) / len(past)
            else:
                kept = math.exp(-_STEP_S / one.window_s)
                self._averages[one.node] = rate + (self._averages[one.node] - rate) * kept

    def _show(self) -> None:
        for one in self._counters:
            raw = self._averages[one.node] / one.bytes_per_s_per_unit
            self._tree.put(one.node, round(raw * (1 + self._random.gauss(0, one.noise))))
