"""The jtop source: readings from the service of jetson-stats, heard from a client in a child.

Never imports jetson-stats, and never waits for the client, which may hang for ever.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from edgeprof.hardware.board_files import printable
from edgeprof.session.records import Event, Severity
from edgeprof.telemetry.chain import WHOLE_SOURCE
from edgeprof.telemetry.line_child import LineChild
from edgeprof.telemetry.source import Absence, Batch, BoardFigures, Channel, Reading, SourceName
from edgeprof.telemetry.sources import jtop_faults
from edgeprof.telemetry.sources.jtop_faults import ClientError, Remedy
from edgeprof.telemetry.sources.jtop_readings import (
    GPU_OFF,
    EmcCheck,
    Truth,
    Update,
    emc_percent,
    is_percentage,
    readings,
)

_CLIENT = Path(__file__).with_name("jtop_client.py")
_SHORTEST_INTERVAL_S = 0.1  # below, the service stalls or gives its client up
_CONNECT_S = 8.0
_SHORTEST_SILENCE_S = 5.0
_SILENT_INTERVALS = 3
_OLDEST_INTERVALS = 10
_LONGEST_UPTIME_S = 1e10

_AGE = "read by the service up to 0.1 s before it was received"
_AVERAGES = {
    "emc_busy_frac": "running average over an unknown time",
    "dram_bandwidth_bytes_per_s": "running average over an unknown time",
    "gpu_busy_frac": "averaged by the driver over an unknown time",
    "power_w": "voltage x current, averaged by the sensor over an unknown time",
    "temp_c": "averaged by the sensor over an unknown time",
}
_PLACES = {
    "emc_busy_frac": "memory['EMC']['val']",
    "emc_clock_hz": "memory['EMC']['cur']",
    "dram_bandwidth_bytes_per_s": "memory['EMC']",
    "gpu_busy_frac": "gpu[...]['status']['load']",
    "gpu_clock_hz": "gpu[...]['freq']",
    "cpu_online": "cpu['cpu'][...]['online']",
    "ram_used_bytes": "memory['RAM']['used']",
    "ram_total_bytes": "memory['RAM']['tot']",
    "swap_used_bytes": "memory['SWAP']['used']",
    "power_w": "power[...]['power']",
    "temp_c": "temperature[...]['temp']",
}
_NO_LINE = "not a line of the client"
_NO_PERCENTAGE = "no percentage: a raw counter or a size stands in its place"
_REPEATED = "the service repeated its last update"
_UNTOLD = Reading(None, reason="the service does not tell it any more")
_EXPECTED = ("gpu_busy_frac", "gpu_clock_hz", "emc_clock_hz", "power_w", "temp_c")


class _Hello(Struct, frozen=True, kw_only=True, tag_field="kind", tag="hello"):
    """The client is connected. ``interval_s`` is the service's own, which its first client set."""

    interval_s: float
    python: str
    client_version: str | None = None


_decoder = msgspec.json.Decoder(_Hello | Update | ClientError)


class JtopStream:
    """Hears the client, which speaks every ``interval_s``, the asked one until the service has
    told its own.

    ``command`` runs the client in place of an interpreter that has jetson-stats; options are
    appended. ``truth`` gives the true busy share of the EMC at this moment, where it is known. The
    owner gives up a stream that is ``overdue``, may start a closed one again after
    ``restart_after_s`` where that is not None, and asks an open one what is left to say
    ``at_end``.
    """

    source: SourceName = "jtop"

    def __init__(
        self,
        board: BoardFigures,
        interval_s: float = 1.0,
        command: Sequence[str] | None = None,
        truth: Callable[[], Truth | None] = lambda: None,
    ) -> None:
        self.asked_s = interval_s if interval_s >= _SHORTEST_INTERVAL_S else _SHORTEST_INTERVAL_S
        self.interval_s = self.asked_s
        self.restart_after_s: float | None = None
        self.client_version: str | None = None
        self.heard_ns = 0
        self._board = board
        self._command = command
        self._child: LineChild | None = None
        self._connected = False
        self._has_told = self._has_hung = False
        self._check = EmcCheck(truth)
        self._notes: list[tuple[str, Severity, dict[str, Any]]] = []
        self._suspicions: set[str] = set()
        self._known: set[str] = set()
        self._uptime_s: float | None = None
        self._mode: dict[str, Any] | None = None
        if self.asked_s != interval_s:
            self._note_interval(interval_s, "warning", "the service does not sustain a shorter one")

    def start(self) -> Sequence[Absence]:
        self.close()
        self._connected = False
        self.restart_after_s = None
        self.heard_ns = time.monotonic_ns()
        if self._command is None:
            if remedy := self._unreachable():
                return [self._lose(remedy)]
            pythons = jtop_faults.interpreters_with_jetson_stats()
            if not pythons:
                return [self._lose(jtop_faults.not_installed())]
            self._command = _client_command(pythons)
        try:
            self._child = LineChild([*self._command, "--interval", repr(self.asked_s)])
        except OSError as error:
            reason = f"{self._command[0]} cannot be started: {error.strerror or error}"
            return [self._lose(Remedy(reason=printable(reason)))]
        return []

    @property
    def open(self) -> bool:
        return self._child is not None

    @property
    def silence_s(self) -> float:
        """After so long without a word the client hangs."""
        if not self._connected:
            return _CONNECT_S
        return max(_SILENT_INTERVALS * self.interval_s, _SHORTEST_SILENCE_S)

    def overdue(self, now_ns: int) -> bool:
        return self.open and now_ns - self.heard_ns > self.silence_s * 1e9

    def give_up(self) -> Absence | None:
        """Close it, overdue as it is; why, where the service has not even greeted."""
        if not self._connected:
            self._has_hung = True
            return self._lose(jtop_faults.HANGS)
        self.close()
        return None

    def at_end(self, now_ns: int) -> Iterator[Absence | Event]:
        """What nobody would know of otherwise, where all ends now."""
        if not self._has_told and not self._has_hung:
            yield self._absence(WHOLE_SOURCE, jtop_faults.nothing_yet(self._connected))
        if outcome := self._check.cut_short():
            yield from self._conclude(outcome)
        yield from self._noted(now_ns)

    def fileno(self) -> int:
        assert self._child is not None
        return self._child.fileno()

    def receive(self, now_ns: int) -> Iterator[Batch | Absence | Event]:
        yield from self._noted(now_ns)
        child = self._child
        if child is None:
            return
        for line in child.lines():
            self.heard_ns = now_ns
            yield from self._take(line, now_ns)
            yield from self._noted(now_ns)
            if not self.open:
                return
        if not child.open:
            yield self._lose(jtop_faults.after_end(child.cause_of_end()))

    def channel(self, name: str) -> Channel:
        family = name.partition(".")[0]
        average = _AVERAGES.get(family)
        return Channel(
            name=name,
            node=f"jtop {_PLACES[family]}",
            window_kind="unknown" if average else "instantaneous",
            window_basis=None if average else "assumed",
            note=f"{average}; {_AGE}" if average else _AGE,
        )

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None

    def _unreachable(self) -> Remedy | None:
        if self._board.simulated:
            root = printable(self._board.root)
            return Remedy(reason=f"jtop reads this machine's own board, not files below {root}")
        return jtop_faults.unreachable()

    def _take(self, line: str, now_ns: int) -> Iterator[Batch | Absence]:
        try:
            said = _decoder.decode(line)
        except (msgspec.DecodeError, RecursionError):
            self._note_suspect(WHOLE_SOURCE, printable(line), _NO_LINE)
            return
        if isinstance(said, _Hello):
            self._greet(said)
        elif isinstance(said, Update):
            yield from self._tell(said, now_ns)
        else:
            yield self._lose(jtop_faults.remedy(said))

    def _greet(self, hello: _Hello) -> None:
        self._connected = True
        self._uptime_s = None
        self.client_version = hello.client_version
        if hello.interval_s > 0:
            self.interval_s = hello.interval_s
        if self.interval_s != self.asked_s:
            self._note_interval(self.asked_s, "info", "another client of the service came first")

    def _tell(self, update: Update, now_ns: int) -> Iterator[Batch | Absence]:
        is_first, self._has_told = not self._has_told, True
        yield from self._check_emc(emc_percent(update.memory))
        self._note_mode(update)
        found = readings(update, self._board, believe_emc=self._check.agreed)
        self._known |= {name for name, reading in found.items() if reading.value is not None}
        told = {name: found.get(name, _UNTOLD) for name in sorted(self._known)}
        if self._is_repeated(update):
            told = {name: reading._replace(quality="suspect") for name, reading in told.items()}
        t0_ns, t1_ns = _span(update, now_ns, _OLDEST_INTERVALS * self.interval_s)
        yield Batch(t0_ns=t0_ns, t1_ns=t1_ns, readings=told)
        if is_first:
            yield from self._missing(found)

    def _missing(self, found: Mapping[str, Reading]) -> Iterator[Absence]:
        """The signals that the first update had no value for."""
        families = {name.partition(".")[0] for name in self._known}
        gpu_is_off = found["gpu_clock_hz"].reason == GPU_OFF
        for signal in _EXPECTED:
            if signal not in families:
                remedy = jtop_faults.not_shown(signal, self.client_version)
                if gpu_is_off and signal.startswith("gpu_"):
                    remedy = Remedy(reason=GPU_OFF)
                yield self._absence(signal, remedy)

    def _check_emc(self, percent: float | None) -> Iterator[Absence]:
        if percent is not None and not is_percentage(percent) and not self._check.agreed:
            self._note_suspect("emc_busy_frac", str(percent), _NO_PERCENTAGE)
        if outcome := self._check.look(percent):
            yield from self._conclude(outcome)

    def _conclude(self, outcome: dict[str, Any]) -> Iterator[Absence]:
        self._notes.append(("emc_check", "info", outcome))
        if not self._check.agreed:
            sensor_helps = self._board.emc_counter_established and self._check.against != "sysfs"
            remedy = jtop_faults.emc_not_believed(outcome["reason"], sensor_helps=sensor_helps)
            yield self._absence("emc_busy_frac", remedy)
            yield self._absence("dram_bandwidth_bytes_per_s", remedy)

    def _note_suspect(self, signal: str, raw: str | None, reason: str) -> None:
        """Once when something turns suspect, not for as long as it is."""
        if reason not in self._suspicions:
            self._suspicions.add(reason)
            detail = {"signal": signal, "raw": raw, "reason": reason}
            self._notes.append(("suspect", "warning", detail))

    def _note_mode(self, update: Update) -> None:
        mode = {"power_mode": update.power_mode, "jetson_clocks": update.jetson_clocks}
        if update.power_mode is None or mode == self._mode:
            return
        severity: Severity = "warning" if self._mode else "info"
        self._notes.append(("power_mode", severity, {**mode, "before": self._mode}))
        self._mode = mode

    def _note_interval(self, asked_s: float, severity: Severity, reason: str) -> None:
        detail = {"asked_s": asked_s, "given_s": self.interval_s, "reason": reason}
        self._notes.append(("interval", severity, detail))

    def _is_repeated(self, update: Update) -> bool:
        """The same stamp twice: the service has not read again. Equal values alone mean nothing."""
        repeated = update.uptime_s is not None and update.uptime_s == self._uptime_s
        self._uptime_s = update.uptime_s
        if repeated:
            self._note_suspect(WHOLE_SOURCE, str(update.uptime_s), _REPEATED)
        else:
            self._suspicions.discard(_REPEATED)
        return repeated

    def _noted(self, now_ns: int) -> Iterator[Event]:
        notes, self._notes = self._notes, []
        for kind, severity, detail in notes:
            detail = {"source": self.source, **detail}
            yield Event(leg_id=None, t_ns=now_ns, kind=kind, severity=severity, detail=detail)

    def _lose(self, remedy: Remedy) -> Absence:
        self.close()
        may_come_again = self._has_told or not remedy.only_if_met
        self.restart_after_s = remedy.restart_after_s if may_come_again else None
        return self._absence(WHOLE_SOURCE, remedy)

    def _absence(self, signal: str, remedy: Remedy) -> Absence:
        return Absence(signal=signal, source=self.source, reason=remedy.reason, fix=remedy.fix)


def _client_command(pythons: Sequence[str]) -> list[str]:
    """The first interpreter runs the client; where its jetson-stats does not fit, the next."""
    command = [pythons[0], "-I", str(_CLIENT)]
    for python in pythons[1:]:
        command += ["--or-python", python]
    return command


def _span(update: Update, now_ns: int, oldest_s: float) -> tuple[int, int]:
    """From the service's stamp, where that can be, to the receipt by the client."""
    t1_ns = update.heard_ns if 0 <= update.heard_ns <= now_ns else now_ns
    if update.uptime_s is None or not 0 <= update.uptime_s < _LONGEST_UPTIME_S:
        return t1_ns, t1_ns
    t0_ns = round(update.uptime_s * 1e9) - update.boottime_offset_ns
    return (t0_ns if 0 <= t1_ns - t0_ns <= oldest_s * 1e9 else t1_ns), t1_ns
