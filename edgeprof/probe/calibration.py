"""Finds out what a board's counters of memory traffic count: a known load is put on and taken off
while they are read. The arithmetic is that of ``emc_window``."""

import select
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from edgeprof.analysis.emc_window import Chunk, Reading, WindowFit, fit_window, scale_at
from edgeprof.catalog import identify_board
from edgeprof.errors import EnvironmentFault, NotOffered
from edgeprof.hardware.board_files import BoardFiles, printable
from edgeprof.hardware.measured import EmcCalibration, Figure
from edgeprof.probe.parts import MODULE
from edgeprof.profiling.children import Child
from edgeprof.profiling.messages import Failed, ProbeJob, ProbeRun
from edgeprof.telemetry.emc import SENSOR
from edgeprof.telemetry.nodes import Node, Nodes
from edgeprof.telemetry.sensor_client import borrow_nodes
from edgeprof.telemetry.sources.sysfs_emc import has_counter, open_clock, open_counters

# Long enough that an average over 1.5 s has followed by 98 %, and twice, to see whether it repeats.
_IDLE_S, _HOLD_S, _REST_S, _CYCLES = 6.0, 6.0, 6.0, 2
_INTERVAL_S = 0.01
_LOADING_S = 30.0
_ENDING_S = 2.0
_LEAST_EXPLAINED = 0.9
_CLOCK_MOVED = 1.02


class Load(Protocol):
    """Traffic of known size: reads memory on and on while it is on."""

    def start(self) -> None:
        """Returns once it reads. Raises EnvironmentFault where it cannot."""
        ...

    def poll(self) -> None:
        """Take note of what was read; call often."""
        ...

    def stop(self) -> None:
        """Returns once it reads no more."""
        ...

    @property
    def chunks(self) -> Sequence[Chunk]:
        """What was read, and when, in the order of time."""
        ...


class Clockwork(NamedTuple):
    """Time in seconds, and waiting."""

    now_s: Callable[[], float]
    sleep: Callable[[float], None]


class Trace(Struct, kw_only=True):
    """What was read while the load was off, on, off ...: a list a node, and the cycles' ends."""

    readings: dict[str, list[Reading]]
    clock_hz: list[float]
    cycle_ends_s: list[float]


def board_counts(root: Path) -> bool:
    """Whether there is a counter to calibrate."""
    nodes = _nodes(root)
    found = has_counter(nodes)
    nodes.close_unused()
    return found


def calibrate_board(
    job: ProbeJob, root: Path, wishes: Callable[[], int]
) -> tuple[list[EmcCalibration], str | None]:
    """Every counter of the board that can be read, and why one gave nothing. Raises NotOffered
    where none of them can be."""
    nodes = _nodes(root)
    counters, clock = open_counters(nodes), open_clock(nodes)
    nodes.close_unused()
    if not counters:
        raise NotOffered(f"only root can open the EMC counters of this board: {SENSOR}")
    facts = identify_board(root).facts
    if facts.model is None or facts.l4t is None:
        return [], "the board or its release of L4T is not known, which a calibration is for"
    load = _ChildLoad(job)
    try:
        trace = follow(counters, clock, load, Clockwork(time.monotonic, time.sleep), wishes)
    finally:
        load.stop()
    if trace is None:
        return [], "interrupted"
    found: list[EmcCalibration] = []
    causes = []
    for node in counters:
        fitted = calibration(node, trace, load.chunks, printable(facts.model), facts.l4t)
        if isinstance(fitted, str):
            causes.append(f"{node}: {fitted}")
        else:
            found.append(fitted)
    return found, "; ".join(causes) or None


def _nodes(root: Path) -> Nodes:
    """What a sensor lends are files of this machine, not of what lies below another root."""
    return Nodes(BoardFiles(root), borrow_nodes if root == Path("/") else _nothing_lent)


def _nothing_lent() -> Mapping[str, int]:
    return {}


def follow(
    counters: Mapping[str, Node],
    clock: Node | None,
    load: Load,
    clockwork: Clockwork,
    wishes: Callable[[], int] = lambda: 0,
) -> Trace | None:
    """Read the counters on and on: at rest, with the load, at rest again, and once more. None where
    there was the wish to stop."""
    trace = Trace(readings={node: [] for node in counters}, clock_hz=[], cycle_ends_s=[])

    def read_for(seconds: float, *, loaded: bool) -> None:
        until_s = clockwork.now_s() + seconds
        while clockwork.now_s() < until_s and not wishes():
            for path, node in counters.items():
                before_s = clockwork.now_s()
                raw = node.number()
                if raw is not None:
                    middle_s = (before_s + clockwork.now_s()) / 2
                    trace.readings[path].append(Reading(middle_s, float(raw)))
            if loaded and clock is not None and (clock_hz := clock.number()):
                trace.clock_hz.append(float(clock_hz))
            load.poll()
            clockwork.sleep(_INTERVAL_S)

    read_for(_IDLE_S, loaded=False)
    for _ in range(_CYCLES):
        load.start()
        read_for(_HOLD_S, loaded=True)
        load.stop()
        read_for(_REST_S, loaded=False)
        trace.cycle_ends_s.append(clockwork.now_s())
    return None if wishes() else trace


def calibration(
    node: str, trace: Trace, chunks: Sequence[Chunk], board: str, l4t: str
) -> EmcCalibration | str:
    """What the node counts, or why that cannot be said."""
    readings = trace.readings[node]
    if len(readings) < len(trace.cycle_ends_s) * 100:
        return "it could be read too seldom"
    clocks = trace.clock_hz
    if clocks and max(clocks) > _CLOCK_MOVED * min(clocks):
        low, high = min(clocks) / 1e6, max(clocks) / 1e6
        return (
            f"the memory clock moved between {low:.0f} and {high:.0f} MHz under load; pin it with"
            " jetson_clocks and probe again"
        )
    fit = fit_window(readings, chunks)
    if fit is None or fit.explained_share < _LEAST_EXPLAINED:
        share = 0.0 if fit is None else fit.explained_share
        return f"it does not follow what is read: {100 * share:.0f} % of it is explained by that"
    scales = _by_cycle(fit, readings, chunks, trace)
    scale = fit.bytes_per_s_per_unit
    return EmcCalibration(
        board=board,
        l4t=l4t,
        node=node,
        window_kind=fit.kind,
        window_s=fit.window_s,
        bytes_per_s_per_unit=Figure(
            value=scale, low=min([scale, *scales]), high=max([scale, *scales]), n=len(scales) or 1
        ),
        idle_raw=fit.idle_raw,
        emc_clock_hz=sum(clocks) / len(clocks) if clocks else None,
        explained_share=fit.explained_share,
    )


def _by_cycle(
    fit: WindowFit, readings: Sequence[Reading], chunks: Sequence[Chunk], trace: Trace
) -> list[float]:
    """The scale from each cycle by itself, to see how far they agree."""
    start_s, scales = readings[0].t_s, []
    for end_s in trace.cycle_ends_s:
        mine = [reading for reading in readings if start_s <= reading.t_s < end_s]
        loads = [chunk for chunk in chunks if start_s <= chunk.t0_s < end_s]
        scale = scale_at(fit.shape, mine, loads) if mine else None
        scales += [] if scale is None else [scale]
        start_s = end_s
    return scales


class _ChildLoad:
    """Reads in a child of its own, one each time it is started."""

    def __init__(self, job: ProbeJob) -> None:
        self._job = job
        self._child: Child | None = None
        self._chunks: list[Chunk] = []

    @property
    def chunks(self) -> Sequence[Chunk]:
        return self._chunks

    def start(self) -> None:
        self._child = Child("load", MODULE, self._job)
        known = len(self._chunks)
        until_s = time.monotonic() + _LOADING_S
        while len(self._chunks) == known:
            if not self._child.open or time.monotonic() > until_s:
                raise EnvironmentFault(f"the load {self._child.cause_of_end()}")
            self.poll(wait_s=0.1)

    def poll(self, wait_s: float = 0.0) -> None:
        """Waits for the first message at most: a fast load always has another one under way."""
        while self._child is not None and self._child.open:
            if not select.select([self._child.descriptor], [], [], wait_s)[0]:
                return
            wait_s = 0.0
            for message in self._child.receive():
                if isinstance(message, Failed):
                    raise EnvironmentFault(message.message)
                if isinstance(message, ProbeRun):
                    t0_s, t1_s = message.t0_ns / 1e9, message.t1_ns / 1e9
                    self._chunks.append(Chunk(t0_s, t1_s, message.size))

    def stop(self) -> None:
        if self._child is None:
            return
        self._child.stop()
        until_s = time.monotonic() + _ENDING_S
        while self._child.open and time.monotonic() < until_s:
            self.poll(wait_s=0.05)
        self._child.end()
        self._child.gone(_ENDING_S)
        self._child = None
