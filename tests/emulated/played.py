"""Plays a scripted decode in real time: the board shows it, the real sampler reads it, the real
store keeps it."""

import random
import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path

from edgeprof.profiling.board import board_figures
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.session.records import SessionInfo
from edgeprof.session.store import SessionWriter
from emulated.tree import Tree
from emulated.truth import PEAK, Script, Shown, session_info

_STEP_S = 0.01


class Driver(threading.Thread):
    """Shows on the board what the counter of a script makes of it, with noise. ``beside`` is told
    the bytes a second, to show what else follows from them."""

    def __init__(self, tree: Tree, script: Script, beside: Callable[[float], None]) -> None:
        super().__init__(daemon=True)
        self._tree = tree
        self._script = script
        self._beside = beside
        self._shown = Shown(script)
        self._rng = random.Random(0)

    def run(self) -> None:
        while (now_s := time.monotonic()) < self._script.now_s:
            bytes_per_s = float(self._shown.at(now_s))
            noise = 1 + self._script.truth.counter.noise * self._rng.gauss(0, 1)
            self._tree.set_emc(busy_frac=bytes_per_s * noise / PEAK)
            self._beside(bytes_per_s)
            time.sleep(_STEP_S)


def _nothing_else(bytes_per_s: float) -> None:
    pass


def play(
    tree: Tree,
    script: Callable[[float], Script],
    path: Path,
    *,
    beside: Callable[[float], None] = _nothing_else,
    info: SessionInfo | None = None,
) -> Script:
    """``script`` makes it from the time at which it starts; the session is then in ``path``."""
    writer = SessionWriter(path, info or session_info(), force=True)
    with SamplerLink(SampleJob(board=board_figures(tree.root)), writer.add) as link:
        selector = selectors.DefaultSelector()
        link.attach(selector)
        while not link.settled:
            link.receive(0.1)
        played = script(time.monotonic())
        driver = Driver(tree, played, beside)
        driver.start()
        while driver.is_alive():
            for _ in selector.select(0.1):
                link.receive()
            link.look(time.monotonic_ns())
    for one in played.records():
        writer.add(one)
    writer.close()
    return played
