"""The tegrastats source: NVIDIA's own monitor in a child process, heard line by line.

Knows the command and what its lines stand for, not how they are written. Lines are stamped when
they arrive. It gives the memory controller's (EMC) load to root only: an existing sudo rule for it
is used, a password never asked for.
"""

import os
import select
import shutil
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from edgeprof.hardware.board_files import printable
from edgeprof.session.records import Event, Severity, WindowBasis, WindowKind
from edgeprof.telemetry.chain import WHOLE_SOURCE
from edgeprof.telemetry.emc import NAME_THE_BOARD, NO_BUS_WIDTH, SENSOR
from edgeprof.telemetry.line_child import LineChild
from edgeprof.telemetry.source import Absence, Batch, BoardFigures, Channel, Reading, SourceName
from edgeprof.telemetry.tegrastats_line import (
    TegrastatsLine,
    begins_whole,
    parse_line,
    readings,
)

_PLACES = ("/usr/bin/tegrastats", "/home/nvidia/tegrastats", "/home/ubuntu/tegrastats")
_SHORTEST_INTERVAL_S = 0.01
_SHORTEST_SILENCE_S = 5.0
_SUDO_PATIENCE_S = 3.0
_REFUSAL_PATIENCE_S = 0.3
_LINES_TO_JUDGE_BY = 5
_LATE = 1.5  # times the interval that was asked for
_MOST_UNKNOWN = 50
_UNPRINTED = Reading(None, reason="the line does not tell it")
_BUSY, _CLOCK, _BANDWIDTH = "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"

UNSCALED = (
    "what this board's counter of memory traffic counts is not established, and the share that is "
    "printed comes from it: it must be calibrated against a known number of bytes a second"
)
_EMC_NOTE = (
    "whole per cents of the running clock; the kernel's running average over a time that is not "
    "documented for all boards"
)
_USED_NOTE = (
    "tegrastats counts used memory in its own way: it is not total less what programs can have"
)
# By signal or family: kind of window, its ground, and what to know.
_WINDOWS: Mapping[str, tuple[WindowKind, WindowBasis | None, str | None]] = {
    _BUSY: ("unknown", None, _EMC_NOTE),
    _BANDWIDTH: ("unknown", None, f"busy x clock x bytes a clock: {_EMC_NOTE}"),
    _CLOCK: ("instantaneous", "assumed", "whole MHz"),
    "gpu_busy_frac": ("unknown", None, "whole per cents; the driver's average over unknown time"),
    "gpu_clock_hz": ("instantaneous", "assumed", "whole MHz; the highest of all clusters"),
    "cpu_busy_frac": ("boxcar", "assumed", "mean of whole per cents since the line before"),
    "cpu_online": ("instantaneous", "assumed", None),
    "ram_used_bytes": ("instantaneous", "assumed", _USED_NOTE),
    "ram_total_bytes": ("instantaneous", "assumed", None),
    "swap_used_bytes": ("instantaneous", "assumed", None),
    "power_w": (
        "unknown", None,
        "the present value of the rail, which its sensor averages over an unknown time; the "
        "average that tegrastats prints beside it is left out",
    ),
    "temp_c": ("instantaneous", "assumed", None),
}  # fmt: skip


class TegrastatsStream:
    """``tegrastats`` with the interval that is asked for; ``interval_s`` is what it delivers.

    The command always reads the machine's own board; with another root than ``/``, as tests have,
    its readings are marked as simulated.
    """

    source: SourceName = "tegrastats"

    def __init__(self, board: BoardFigures, interval_s: float = 0.2) -> None:
        self.asked_s = max(interval_s, _SHORTEST_INTERVAL_S)
        self.interval_s = self.asked_s
        self.dropped = 0
        self._board = board
        self._child: LineChild | None = None
        self._rooted = False
        self._early: list[str] = []
        self._known: dict[str, None] = {}  # signals that had a value, in their order
        self._unknown_fields: set[str] = set()
        self._begun = False
        self._lines = self._told_dropped = 0  # of this child
        self._first_ns = self._heard_ns = 0
        self._notes: list[tuple[str, Severity, dict[str, Any]]] = []

    @property
    def open(self) -> bool:
        return self._child is not None

    @property
    def silence_s(self) -> float:
        """How long it may say nothing."""
        return max(3 * self.interval_s, _SHORTEST_SILENCE_S)

    def start(self) -> Sequence[Absence]:
        program = find_tegrastats()
        if program is None:
            return [self._absence("tegrastats is not installed: only Jetson boards have it")]
        command = [program, "--interval", str(round(self.asked_s * 1000))]
        self._rooted = os.geteuid() == 0
        self._begun = False
        self._early = []
        self._lines = self.dropped = self._told_dropped = 0
        try:
            self._child = self._under_sudo(command) or LineChild(command)
        except OSError as error:
            return [self._absence(f"{program} cannot be started: {error.strerror}")]
        return []

    def fileno(self) -> int:
        assert self._child is not None
        return self._child.fileno()

    def receive(self, now_ns: int) -> Iterator[Batch | Absence | Event]:
        child = self._child
        if child is None:
            return
        lines = [*self._early, *child.lines()]
        self._early.clear()
        for number, text in enumerate(lines, start=1):
            # Of several at once only the last has just come.
            just_came = number == len(lines) or not self._lines
            yield from self._tell(text, now_ns if just_came else self._heard_ns, now_ns)
        if lines:
            self._heard_ns = now_ns
        self._count_dropped(child)
        yield from self._noted(now_ns)
        if not child.open:
            yield self._ended(child)

    def channel(self, name: str) -> Channel:
        return tegrastats_channel(name)

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _under_sudo(self, command: Sequence[str]) -> LineChild | None:
        """The command as root, where that needs no password."""
        sudo = shutil.which("sudo")
        if self._rooted or sudo is None or not _may_run(sudo, command):
            return None
        child = LineChild([sudo, "-n", *command])
        select.select([child], [], [], _REFUSAL_PATIENCE_S)
        self._early = list(child.lines())
        if not child.open and not self._early:  # some rules are listed, but ask for the password
            child.close()
            return None
        self._rooted = True
        return child

    def _tell(self, text: str, t0_ns: int, now_ns: int) -> Iterator[Batch | Absence]:
        line = parse_line(text) if self._begun or begins_whole(text) else None
        self._begun |= bool(text.strip())
        if line is None:
            self.dropped += bool(text.strip())
            return
        found = board_readings(line, self._board)
        self._known.update(
            (name, None) for name, reading in found.items() if reading.value is not None
        )
        told = {name: found.get(name, _UNPRINTED) for name in {**found, **self._known}}
        if self._board.simulated:
            told = {name: _simulated(reading) for name, reading in told.items()}
        yield Batch(t0_ns=t0_ns, t1_ns=now_ns, readings=told)
        if self._lines == 0:
            self._first_ns = now_ns
            yield from self._missing(found)
        self._lines += 1
        self._note_unknown(line.unread)
        self._note_interval(now_ns)

    def _missing(self, found: Mapping[str, Reading]) -> Iterator[Absence]:
        """What the first line has no value for."""
        given = {name for name, reading in found.items() if reading.value is not None}
        why = None if self._rooted else "tegrastats gives it to root only"
        fix = None if self._rooted else f"{SENSOR}, or a sudo rule for tegrastats"
        yield from emc_absences(given, self._board, self.source, why=why, fix=fix)

    def _note_unknown(self, fields: Sequence[str]) -> None:
        names = {field.partition(" ")[0] for field in fields} - self._unknown_fields
        if names and len(self._unknown_fields) < _MOST_UNKNOWN:
            self._unknown_fields |= names
            self._notes.append(("unknown_fields", "info", {"fields": sorted(names)}))

    def _note_interval(self, now_ns: int) -> None:
        """What counts is what comes."""
        if self._lines != _LINES_TO_JUDGE_BY:
            return
        delivered_s = (now_ns - self._first_ns) / 1e9 / (self._lines - 1)
        if delivered_s > _LATE * self.asked_s:
            self.interval_s = delivered_s
            reason = "tegrastats prints no faster"
            detail = {"asked_s": self.asked_s, "given_s": delivered_s, "reason": reason}
            self._notes.append(("interval", "info", detail))

    def _count_dropped(self, child: LineChild) -> None:
        """Told at the first and whenever they have doubled."""
        dropped = self.dropped + child.dropped
        if dropped > 2 * self._told_dropped:
            self._told_dropped = dropped
            self._notes.append(("dropped", "info", {"lines": dropped}))

    def _noted(self, now_ns: int) -> Iterator[Event]:
        for kind, severity, detail in self._notes:
            detail = {"source": self.source, **detail}
            yield Event(leg_id=None, t_ns=now_ns, kind=kind, severity=severity, detail=detail)
        self._notes.clear()

    def _ended(self, child: LineChild) -> Absence:
        cause = f"tegrastats {printable(child.cause_of_end())}"
        self.close()
        return self._absence(cause)

    def _absence(self, reason: str) -> Absence:
        """Of the whole source."""
        return Absence(signal=WHOLE_SOURCE, source=self.source, reason=reason)


def find_tegrastats() -> str | None:
    """The program, also where older releases put it."""
    found = shutil.which("tegrastats")
    if found is not None:
        return os.path.abspath(found)
    return next((place for place in _PLACES if os.access(place, os.X_OK)), None)


def tegrastats_channel(name: str) -> Channel:
    """A signal as tegrastats gives it."""
    kind, basis, note = _WINDOWS[name if name in _WINDOWS else name.partition(".")[0]]
    return Channel(name=name, node="tegrastats", window_kind=kind, window_basis=basis, note=note)


def board_readings(line: TegrastatsLine, board: BoardFigures) -> Mapping[str, Reading]:
    """What the line tells of that board; of a memory load without a known scale only the text."""
    found = readings(line, board.bytes_per_emc_clock, module_rails=board.module_rails)
    if board.emc_counter_established:
        return found
    unscaled = {
        name: Reading(None, found[name].raw) for name in (_BUSY, _BANDWIDTH) if name in found
    }
    return {**found, **unscaled}


def emc_absences(
    given: Collection[str],
    board: BoardFigures,
    source: SourceName,
    *,
    why: str | None = None,
    fix: str | None = None,
) -> Iterator[Absence]:
    """Why there is no EMC load, clock or bandwidth, where ``given`` lacks them; ``why`` and ``fix``
    are of lines that tell nothing of the EMC at all."""
    if _BUSY not in given and _CLOCK not in given:
        reason = why or "no line tells of the EMC"
        for signal in (_BUSY, _CLOCK, _BANDWIDTH):
            yield Absence(signal=signal, source=source, reason=reason, fix=fix)
    elif _BUSY not in given:
        reason = (
            "tegrastats printed the EMC clock without its load"
            if board.emc_counter_established
            else UNSCALED
        )
        for signal in (_BUSY, _BANDWIDTH):
            yield Absence(signal=signal, source=source, reason=reason)
    elif _CLOCK not in given:
        reason = "EMC clock unknown: tegrastats printed the load without it"
        for signal in (_CLOCK, _BANDWIDTH):
            yield Absence(signal=signal, source=source, reason=reason)
    elif board.bytes_per_emc_clock is None:
        yield Absence(signal=_BANDWIDTH, source=source, reason=NO_BUS_WIDTH, fix=NAME_THE_BOARD)


def _may_run(sudo: str, command: Sequence[str]) -> bool:
    """Whether a rule lets this user run it; never asks, and leaves a sudo behind that hangs."""
    process = subprocess.Popen(
        [sudo, "-n", "-l", *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
        start_new_session=True,
    )
    try:
        return process.wait(_SUDO_PATIENCE_S) == 0
    except subprocess.TimeoutExpired:
        with suppress(PermissionError, subprocess.TimeoutExpired):  # it is root's
            process.kill()
            process.wait(_REFUSAL_PATIENCE_S)
        return False


def _simulated(reading: Reading) -> Reading:
    return reading._replace(quality="simulated") if reading.quality == "ok" else reading
