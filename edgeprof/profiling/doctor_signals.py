"""What each signal of the board shows right now: a few seconds of the real sampler, looked at.

The sampler runs in a process of its own, as in a run, so that a read that hangs hangs there.
"""

import os
import pwd
import selectors
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from edgeprof.diagnosis import SignalFinding
from edgeprof.hardware.board_files import BoardFiles
from edgeprof.naming import numeric_order
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.session.records import Event, Sample, Signal
from edgeprof.telemetry.chain import WHOLE_SOURCE
from edgeprof.telemetry.signals import FAMILIES, UNITS
from edgeprof.telemetry.source import POLLED, BoardFigures, SourceName
from edgeprof.telemetry.sources.jtop_faults import SOCKET
from edgeprof.telemetry.sources.tegrastats import find_tegrastats

_LEAST_S = 1.2  # after the first reading; what is read once a second has come by then
_SILENT_S = 2.0  # a sampler that has opened all there is and gives nothing has nothing to give
_MOST_S = 15.0  # a jtop service that hangs is given up after 8
_TURN_S = 0.1
_READINGS = 64
_BOARD = ("emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s", "gpu_busy_frac",
          "gpu_clock_hz", "power_w", "temp_c")  # fmt: skip
_HOST = ("cpu_busy_frac", "cpu_online", "ram_used_bytes", "ram_total_bytes", "swap_used_bytes")
# Of these no board needs to have one.
_OPTIONAL = ("cooling_state", "throttle_events")
_ASKED: Sequence[SourceName] = ("sysfs", "tegrastats", "jtop")
# jtop has no load of the memory that can be believed, and of its own remedies is told elsewhere.
_NOT_OF_JTOP = ("emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s")
_FAILURES = ("death", "failure", "gap")
_NOTHING = "no reading came in {:.0f} s"


def read_signals(board: BoardFigures) -> list[SignalFinding]:
    """One finding for each signal that is served, and one for each that should be and is not."""
    heard = _Heard(("sysfs",) if board.simulated else _ASKED)
    begin = time.monotonic()
    with (
        selectors.DefaultSelector() as selector,
        SamplerLink(SampleJob(board=board), heard.take) as link,
    ):
        link.attach(selector)
        first_s: float | None = None
        settled_s: float | None = None
        while (spent_s := time.monotonic() - begin) < _MOST_S:
            first_s = spent_s if first_s is None and heard.readings else first_s
            settled_s = spent_s if settled_s is None and link.settled else settled_s
            if first_s is not None and spent_s - first_s >= _LEAST_S and link.settled:
                if heard.all_told:
                    break
            elif first_s is None and settled_s is not None and spent_s - settled_s >= _SILENT_S:
                break
            for _ in selector.select(_TURN_S):
                link.receive()
            link.look(time.monotonic_ns())
    return list(heard.findings(BoardFiles(Path(board.root)), time.monotonic() - begin))


class _Heard:
    """What the sampler told."""

    def __init__(self, sources: Sequence[SourceName]) -> None:
        self.readings = 0
        self._sources = sources
        self._signals: dict[int, Signal] = {}
        self._latest: dict[int, Sample] = {}
        self._reads: dict[int, deque[int]] = {}
        self._events: list[Event] = []

    def take(self, record: Signal | Sample | Event) -> None:
        if isinstance(record, Signal):
            self._signals[record.id] = record
        elif isinstance(record, Event):
            self._events.append(record)
        else:
            self.readings += 1
            reads = self._reads.setdefault(record.signal_id, deque(maxlen=_READINGS))
            reads.append(record.t1_ns - record.t0_ns)
            if record.value is not None or record.signal_id not in self._latest:
                self._latest[record.signal_id] = record

    @property
    def all_told(self) -> bool:
        """Whether every signal of a board has a value, or every source said why it gives none."""
        return all(
            name in self._known or {*self._sources} <= {source for source, _, _ in self._why(name)}
            for name in _BOARD
        )

    @property
    def _known(self) -> set[str]:
        names = {
            self._signals[number].name
            for number, sample in self._latest.items()
            if sample.value is not None and number in self._signals
        }
        return names | {name.partition(".")[0] for name in names}

    def _why(self, name: str) -> list[tuple[str, str, str | None]]:
        """Source, reason and remedy of each that lacks the signal; the latest word of each."""
        family = name.partition(".")[0]
        told: dict[str, tuple[str, str, str | None]] = {}
        for event in self._events:
            detail = event.detail
            if event.kind == "absent" and detail["signal"] in (name, family, WHOLE_SOURCE):
                source = detail["source"]
                told[source] = (source, detail["reason"], detail.get("fix"))
        return list(told.values())

    def findings(self, files: BoardFiles, spent_s: float) -> Iterator[SignalFinding]:
        served = {
            signal.name: signal
            for number, signal in self._signals.items()
            if number in self._latest and self._latest[number].value is not None
        }
        known = self._known
        absent = [name for name in (*_BOARD, *_HOST) if name not in known]
        for name in sorted([*served, *absent], key=numeric_order):
            if name in served:
                yield self._served(served[name], files)
            elif name not in _OPTIONAL:
                yield self._absent(name, spent_s)

    def _served(self, signal: Signal, files: BoardFiles) -> SignalFinding:
        sample = self._latest[signal.id]
        path = _path(signal)
        return SignalFinding(
            name=signal.name,
            unit=signal.unit,
            state="suspect" if sample.quality == "suspect" else "ok",
            source=signal.source,
            path=path,
            permission=None if path is None else permission(files, path),
            value=sample.value,
            quality=sample.quality,
            read_latency_s=median(self._reads[signal.id]) / 1e9
            if signal.source in POLLED
            else None,
            window_s=signal.window_s,
            window_kind=signal.window_kind,
            window_basis=signal.window_basis,
            reason=self._doubt(signal) if sample.quality == "suspect" else None,
        )

    def _doubt(self, signal: Signal) -> str | None:
        """Why it is not believed, as far as that was told."""
        for event in reversed(self._events):
            detail = event.detail
            told_of = detail.get("signal"), detail.get("source")
            if event.kind == "suspect" and told_of == (signal.name, signal.source):
                return str(detail["reason"])
        return None

    def _absent(self, name: str, spent_s: float) -> SignalFinding:
        why = self._why(name)
        deaths = [e.detail["cause"] for e in self._events if e.kind in _FAILURES and _is_own(e)]
        reasons = [f"{source}: {reason}" for source, reason, _ in why]
        reasons += [f"the sampler {cause}" for cause in deaths]
        fixes = [
            fix
            for source, _, fix in why
            if fix is not None and not (source == "jtop" and name in _NOT_OF_JTOP)
        ]
        return SignalFinding(
            name=name,
            unit=UNITS.get(name) or FAMILIES[name],
            state="absent",
            reason="; ".join(reasons) or _NOTHING.format(spent_s),
            fix=fixes[0] if fixes else None,
        )


def _is_own(event: Event) -> bool:
    """Whether it is of the sampler itself."""
    return event.detail.get("process") == "sampler" and "cause" in event.detail


def _path(signal: Signal) -> str | None:
    """What is read: a node of the board, a program, a socket."""
    if signal.source == "tegrastats":
        return find_tegrastats()
    return str(SOCKET) if signal.source == "jtop" else signal.node


def permission(files: BoardFiles, path: str) -> str | None:
    """Mode and owner as `ls -l` shows them, or that it is closed to this user."""
    where = files.where(path)
    if where is None:
        return None
    try:
        status = os.stat(files.root / where.lstrip("/"))
    except PermissionError:
        return "closed to this user"
    except OSError:
        return None
    return f"{stat.filemode(status.st_mode)} {_owner(status.st_uid)}"


def _owner(uid: int) -> str:
    """Who owns it, without the name of whoever looks."""
    if uid != 0 and uid == os.geteuid():
        return "you"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
