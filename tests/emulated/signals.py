"""Moves an emulated board between two regimes and keeps when it did so."""

import threading
import time
from typing import NamedTuple

from emulated.tree import Tree


class Regime(NamedTuple):
    """What one half of a wave sets: memory and GPU busy shares, the current of the first rail."""

    emc_busy_frac: float
    gpu_busy_frac: float
    rail_ma: int


class Average(NamedTuple):
    """How an activity monitor averages: every ``period_s`` it moves by 1/2^``exponent`` of what is
    missing."""

    exponent: int
    period_s: float

    @property
    def time_constant_s(self) -> float:
        return self.period_s * 2.0**self.exponent


class Step(NamedTuple):
    """A change of regime, stamped before and after."""

    t0_ns: int
    t1_ns: int
    regime: Regime


LOW = Regime(emc_busy_frac=0.2, gpu_busy_frac=0.3, rail_ma=1200)
HIGH = Regime(emc_busy_frac=0.8, gpu_busy_frac=0.9, rail_ma=3000)


class SquareWave(threading.Thread):
    """A block in which the board alternates between two regimes, ``low`` first.

    ``steps`` holds each change once it is made. With an ``average`` the memory's busy share follows
    as the average of it does; the rest changes at once. The block waits for the last half's end.
    """

    def __init__(
        self,
        tree: Tree,
        *,
        half_period_s: float,
        halves: int,
        low: Regime = LOW,
        high: Regime = HIGH,
        average: Average | None = None,
    ) -> None:
        super().__init__(daemon=True)
        self.steps: list[Step] = []
        self._tree = tree
        self._half_period_s = half_period_s
        self._halves = halves
        self._regimes = (low, high)
        self._average = average
        self._shown_frac = low.emc_busy_frac
        self._asked_to_end = threading.Event()

    def __enter__(self) -> "SquareWave":
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._asked_to_end.set()
        self.join()

    def run(self) -> None:
        start_s = time.monotonic()
        for half in range(self._halves):
            self._change(self._regimes[half % 2])
            self._hold(start_s + (half + 1) * self._half_period_s)

    def regime_at(self, t_ns: int) -> Regime | None:
        """What was set at that time; None before the first change and while one was made."""
        before = [step for step in self.steps if step.t0_ns <= t_ns]
        return before[-1].regime if before and before[-1].t1_ns <= t_ns else None

    def _change(self, regime: Regime) -> None:
        rail = self._tree.board.chips[0].rails[0].label
        t0_ns = time.monotonic_ns()
        if self._average is None:
            self._tree.set_emc(busy_frac=regime.emc_busy_frac)
        self._tree.set_gpu(busy_frac=regime.gpu_busy_frac)
        self._tree.set_rail(rail, ma=regime.rail_ma)
        self.steps.append(Step(t0_ns, time.monotonic_ns(), regime))

    def _hold(self, until_s: float) -> None:
        """Wait; where there is an average, move it on a grid of its periods meanwhile."""
        if self._average is None:
            self._asked_to_end.wait(max(until_s - time.monotonic(), 0))
            return
        goal = self.steps[-1].regime.emc_busy_frac
        due_s = time.monotonic()
        while due_s < until_s:
            if self._asked_to_end.wait(max(due_s - time.monotonic(), 0)):
                return
            while due_s <= time.monotonic():
                self._shown_frac += (goal - self._shown_frac) / 2**self._average.exponent
                due_s += self._average.period_s
            self._tree.set_emc(busy_frac=self._shown_frac)
