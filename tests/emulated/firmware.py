"""Counters of an emulated board that follow, in real time, what a process has really read."""

import math
import mmap
import struct
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from emulated.traffic import Counter
from emulated.tree import Tree

_STEP_S = 0.004


class Firmware:
    """While the block runs, shows the growth of the count in ``watched`` (8 bytes, little endian)
    as each counter would, on top of what others read all the time.

    ``longest_step_s`` is how old a reading may have been: a machine may let no thread run.
    """

    def __init__(
        self, tree: Tree, counters: Sequence[Counter], watched: Path, *, idle_bytes_per_s: float
    ) -> None:
        watched.write_bytes(bytes(8))
        with watched.open("rb") as file:
            self._count = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
        self._tree = tree
        self._counters = counters
        self._idle = idle_bytes_per_s
        self._averages = {one.node: 0.0 for one in counters}
        self._past = deque([(time.monotonic(), 0)])
        self.longest_step_s = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._go_on)

    def __enter__(self) -> "Firmware":
        self._step()
        self.longest_step_s = 0.0
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _go_on(self) -> None:
        while not self._over.wait(_STEP_S):
            self._step()

    def _step(self) -> None:
        before_s, before = self._past[-1]
        now_s, done = time.monotonic(), struct.unpack("<q", self._count[:])[0]
        self.longest_step_s = max(self.longest_step_s, now_s - before_s)
        self._past.append((now_s, done))
        while self._past[1][0] < now_s - max(one.window_s for one in self._counters):
            self._past.popleft()
        for one in self._counters:
            if one.kind == "boxcar":
                grown = done - self._done_at(now_s - one.window_s)
                self._averages[one.node] = grown / one.window_s
            else:
                rate = (done - before) / (now_s - before_s)
                kept = math.exp(-(now_s - before_s) / one.window_s)
                self._averages[one.node] = rate + (self._averages[one.node] - rate) * kept
            raw = (self._idle + self._averages[one.node]) / one.bytes_per_s_per_unit
            self._tree.put(one.node, round(raw))

    def _done_at(self, t_s: float) -> float:
        """The count at an earlier time, along a straight line between two that were seen."""
        before_s, before = self._past[0]
        for after_s, after in self._past:
            if after_s >= t_s:
                break
            before_s, before = after_s, after
        if t_s <= before_s:
            return before
        return before + (after - before) * (t_s - before_s) / (after_s - before_s)
