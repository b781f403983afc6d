"""Watching: samples the board while a command lives, or until told to stop.

The command's fate is its own: whatever fails here, it runs on and its exit code is passed on. Knows
neither what its phases mean nor how a live view looks.
"""

import os
import selectors
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from edgeprof import __version__
from edgeprof.catalog import find_device, identify_board
from edgeprof.errors import EdgeprofError, EnvironmentFault, UsageFault
from edgeprof.hardware.identify import present_mode
from edgeprof.hardware.profile import DeviceProfile, PowerMode
from edgeprof.marks import VARIABLE
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.environment import describe_device, describe_environment
from edgeprof.profiling.marks_inbox import MarksInbox
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.phases import Phases
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.profiling.watches import SwapWatch, stop_wishes
from edgeprof.session.records import (
    SCHEMA_VERSION,
    Event,
    Leg,
    LegStatus,
    Pass,
    Sample,
    SessionInfo,
    Signal,
)
from edgeprof.session.store import SessionWriter, check_output, remove_session
from edgeprof.telemetry.source import BoardFigures
from edgeprof.telemetry.sources.replay import Recording

_TURN_S = 0.05
_COMMIT_EVERY_NS = 200_000_000
_FIRST_WORD_NS = 3_000_000_000
_COMMAND_LEG = 1
_SIGNALLED = 128  # a shell's exit code of a command that a signal ended is this and the signal


class Watch(Struct, frozen=True, kw_only=True):
    """What to watch, and the session to keep it in, if any."""

    root: Path = Path("/")
    device: str | None = None
    sources: list[str] | None = None
    interval_s: float | None = None
    replay: Recording | None = None
    output: Path | None = None
    force: bool = False

    @property
    def job(self) -> SampleJob:
        return SampleJob(
            board=self._board,
            sources=self.sources,
            interval_s=self.interval_s,
            replay=None if self.replay is None else str(self.replay.path.absolute()),
        )

    @property
    def _board(self) -> BoardFigures:
        """A recording is not of the board that it is played on."""
        if self.replay is None:
            return board_figures(self.root, self.device)
        return BoardFigures() if self.device is None else board_figures(Path("/"), self.device)


class View(Protocol):
    """Who looks on: is given every record, and asked often whether it is time to show something."""

    def take(self, record: Signal | Sample | Event) -> None: ...

    def show(self, now_ns: int) -> None: ...


def describe_board(watch: Watch) -> dict[str, Any]:
    """The board that is watched, its power mode and what its memory can do; unknown is left out.

    Of a recording it is the board that was recorded.
    """
    device = _recorded(watch.replay) if watch.replay is not None else describe_device(watch.root)
    if watch.device is not None:
        chosen = find_device(watch.device)
        device |= {"name": chosen.profile.title, **_figures(chosen.profile, chosen.mode)}
    elif watch.replay is None:
        found = identify_board(watch.root)
        mode = present_mode(found)
        if found.profile is not None and mode is not None:
            device |= _figures(found.profile, mode)
    return {key: value for key, value in device.items() if value is not None}


def check_watch(watch: Watch) -> None:
    """Say before anything runs what would keep it from being recorded: UsageFault or, where the
    place cannot be written, EnvironmentFault."""
    if watch.output is None:
        return
    if watch.replay is not None and _is_same_file(watch.output, watch.replay.path):
        raise UsageFault(f"{watch.output}: is the recording that is replayed; choose another -o")
    check_output(watch.output, force=watch.force)


def watch_board(watch: Watch, view: View, *, seconds: float | None = None) -> bool:
    """Sample until Ctrl-C, or for some seconds; True where it was Ctrl-C, SIGTERM or a hang-up.

    Where the view finds its pipe or terminal closed, the session is finished before the OSError
    goes on.
    """
    check_watch(watch)
    closed: OSError | None = None
    end_ns = None if seconds is None else time.monotonic_ns() + round(seconds * 1e9)
    with (
        stop_wishes() as wishes,
        _recording(watch, None, view) as recording,
        _Sampling(watch.job, recording.put) as sampling,
    ):
        while not wishes() and (end_ns is None or time.monotonic_ns() < end_ns):
            left_s = _TURN_S if end_ns is None else (end_ns - time.monotonic_ns()) / 1e9
            sampling.turn(min(_TURN_S, max(left_s, 0.0)))
            recording.look(time.monotonic_ns())
            try:
                view.show(time.monotonic_ns())
            except OSError as error:
                closed = error
                break
        stopped = wishes() > 0
    if closed is not None and not stopped:
        raise closed
    return stopped


def watch_command(
    watch: Watch, command: Sequence[str], *, view: View, talk: Callable[[str], None]
) -> int:
    """Run ``command`` and sample while it lives; returns its exit code, 128 + n after signal n.

    Raises EnvironmentFault, before anything is recorded, where it cannot be started, and
    KeyboardInterrupt where Ctrl-C came before it was. What fails later is told to ``talk``.
    """
    assert watch.output is not None
    program = shutil.which(command[0])
    if program is None:
        raise EnvironmentFault(f"{command[0]}: no such command, or not executable; nothing was run")
    check_watch(watch)
    charge = _Charge(command, Path(command[0]).name)
    failure: Exception | None = None
    with charge.signals():
        try:
            _record_life(watch, charge, view, talk)
        except Exception as error:
            if charge.process is None:
                raise
            failure = error
        code = charge.wait()
    if failure is not None:
        talk(f"the recording of {charge.name} ended early: {_in_words(failure)}")
    return code


def _record_life(watch: Watch, charge: "_Charge", view: View, talk: Callable[[str], None]) -> None:
    """The command's life from before its start until after its end, as a session."""
    with (
        _recording(watch, charge, view) as recording,
        _marks_inbox(talk) as inbox,
        _Sampling(watch.job, recording.put) as sampling,
    ):
        sampling.await_word(charge)
        leg = charge.start(None if inbox is None else inbox.path)
        recording.put(leg)
        phases = Phases(recording.put, leg_id=leg.id, command=charge.name, start_ns=leg.t0_ns)
        sampling.wake_at_end_of(charge.pid)
        while charge.alive():
            sampling.turn(_TURN_S)
            _take_marks(inbox, phases)
            recording.look(time.monotonic_ns())
            view.show(time.monotonic_ns())
        leg = charge.ended(leg)
        if inbox is not None:
            inbox.close()
            _take_marks(inbox, phases)
            phases.note_dropped(inbox.dropped)
        if (event := phases.close(leg.t1_ns or leg.t0_ns)) is not None:
            recording.put(event)
        recording.put(leg)


class _Charge:
    """The command in our charge: started in our process group, so that Ctrl-C reaches it too."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self.name = name
        self.process: subprocess.Popen[bytes] | None = None
        self.stop_asked = False
        self._command = command
        self._terminated = False

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Inside the block Ctrl-C and a hang-up are left to the command, which gets them from the
        terminal as well; SIGTERM is passed on. What was ignored stays ignored, for both."""
        before = {
            number: signal.signal(number, self._note)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def start(self, marks: Path | None) -> Leg:
        """Raises EnvironmentFault where the system cannot run it."""
        if self.stop_asked:
            raise KeyboardInterrupt
        environment = dict(os.environ) if marks is None else {**os.environ, VARIABLE: str(marks)}
        t0_ns = time.monotonic_ns()
        try:
            self.process = subprocess.Popen(self._command, env=environment)
        except OSError as error:
            raise EnvironmentFault(
                f"{self._command[0]}: cannot be run: {error.strerror}; nothing was run"
            ) from error
        if self._terminated:
            self.process.terminate()
        return Leg(
            id=_COMMAND_LEG,
            name=self.name,
            kind="command",
            variant=self.name,
            repeat=1,
            warmup=False,
            t0_ns=t0_ns,
        )

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def alive(self) -> bool:
        assert self.process is not None
        return self.process.poll() is None

    def ended(self, leg: Leg) -> Leg:
        """The leg of the command, which has just ended."""
        t1_ns = time.monotonic_ns()
        code = self.wait()
        assert self.process is not None
        status: LegStatus = "died" if self.process.returncode < 0 else "complete"
        return replace(leg, t1_ns=t1_ns, status=status, attrs={"exit_code": code})

    def wait(self) -> int:
        """Its exit code as a shell tells it."""
        assert self.process is not None
        code = self.process.wait()
        return code if code >= 0 else _SIGNALLED - code

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.stop_asked = True
        if number == signal.SIGTERM:
            self._terminated = True
            if self.process is not None:
                self.process.terminate()


class _Sampling:
    """The sampler, and the wait for what it has to say."""

    def __init__(self, job: SampleJob, put: Callable[[Signal | Sample | Event], None]) -> None:
        self._link = SamplerLink(job, put)
        self._selector = selectors.DefaultSelector()
        self._process: int | None = None

    def await_word(self, charge: _Charge) -> None:
        """Until sampling has begun, so that the command's first moments are in it, or there is
        nothing to sample; but not long."""
        until_ns = time.monotonic_ns() + _FIRST_WORD_NS
        while not (self._link.settled or charge.stop_asked) and time.monotonic_ns() < until_ns:
            self.turn(_TURN_S)

    def __enter__(self) -> "_Sampling":
        self._link.__enter__()
        self._link.attach(self._selector)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._link.__exit__(kind, error, trace)
        finally:
            self._selector.close()
            if self._process is not None:
                os.close(self._process)

    def wake_at_end_of(self, pid: int) -> None:
        """Let no turn wait past the end of that process, where the system can tell (Linux 5.3)."""
        with suppress(OSError, AttributeError):
            self._process = os.pidfd_open(pid)
            self._selector.register(self._process, selectors.EVENT_READ)

    def turn(self, wait_s: float) -> None:
        """Wait a little for something to come, and have it put."""
        for key, _ in self._selector.select(wait_s):
            if key.data is self._link:
                self._link.receive()
        self._link.look(time.monotonic_ns())


class _Recording:
    """Where records go: to the view, and into a session where one is kept."""

    def __init__(self, writer: SessionWriter | None, view: View) -> None:
        self._writer = writer
        self._view = view
        self._swap = SwapWatch()
        self._committed_ns = 0

    def put(self, record: Leg | Pass | Signal | Sample | Event) -> None:
        if isinstance(record, Signal):
            self._swap.signal(record)
        elif isinstance(record, Sample):
            self._swap.sample(record)
        if isinstance(record, Signal | Sample | Event):
            self._view.take(record)
        if self._writer is not None:
            self._writer.add(record)

    def look(self, now_ns: int) -> None:
        """Commit when it is time."""
        if self._writer is not None and now_ns - self._committed_ns >= _COMMIT_EVERY_NS:
            self._writer.commit()
            self._committed_ns = now_ns

    def conclude(self) -> None:
        """All went well."""
        if self._writer is not None:
            if (swapping := self._swap.verdict(time.monotonic_ns())) is not None:
                self._writer.add(swapping)
            self._writer.update_info(complete=True)

    def fail(self, error: BaseException) -> None:
        """Say in the session why it ends, if that can still be written."""
        if self._writer is not None:
            with suppress(EdgeprofError):
                self._writer.update_info(ended_reason=_in_words(error))


@contextmanager
def _recording(watch: Watch, charge: _Charge | None, view: View) -> Iterator[_Recording]:
    """A session around the block; no file is left where a command was not even started."""
    if watch.output is None:
        yield _Recording(None, view)
        return
    writer = SessionWriter(watch.output, _info(watch, charge), force=watch.force)
    recording = _Recording(writer, view)
    try:
        yield recording
        recording.conclude()
    except BaseException as error:
        recording.fail(error)
        raise
    finally:
        writer.close()
        if charge is not None and charge.process is None:
            remove_session(watch.output)


@contextmanager
def _marks_inbox(talk: Callable[[str], None]) -> Iterator[MarksInbox | None]:
    """None where the system has no room for a socket; watching goes on without marks."""
    try:
        inbox = MarksInbox()
    except OSError as error:
        talk(f"warning: no marks can be taken: {error.strerror or error}")
        yield None
        return
    with inbox:
        yield inbox


def _take_marks(inbox: MarksInbox | None, phases: Phases) -> None:
    for datagram in inbox.take() if inbox is not None else ():
        phases.take(datagram)


def _info(watch: Watch, charge: _Charge | None) -> SessionInfo:
    settings = {
        "name": "watch" if charge is None else f"watch {charge.name}",
        "command": None if charge is None else charge.name,
        "sources": watch.sources,
        "interval_s": watch.interval_s,
        "replay": None if watch.replay is None else watch.replay.path.name,
    }
    return SessionInfo(
        id=uuid.uuid4().hex,
        created_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        edgeprof_version=__version__,
        schema_version=SCHEMA_VERSION,
        kind="watch",
        recipe={key: value for key, value in settings.items() if value is not None},
        device=describe_board(watch),
        environment=describe_environment(watch.root),
        models={},
    )


def _recorded(recording: Recording) -> dict[str, Any]:
    """What is known of the board of a recording: of a log nothing."""
    if recording.device is None:
        return {"name": "recorded log", "kind": "board"}
    return dict(recording.device)


def _is_same_file(one: Path, other: Path) -> bool:
    return one.exists() and one.samefile(other)


def _figures(profile: DeviceProfile, mode: PowerMode) -> dict[str, Any]:
    return {
        "profile": profile.name,
        "power_mode": mode.name,
        "peak_bandwidth_bytes_per_s": profile.peak_bandwidth_bytes_per_s(mode),
        "sustained_bandwidth_bytes_per_s": profile.sustained_bandwidth_bytes_per_s(mode),
    }


def _in_words(error: BaseException) -> str:
    return str(error) if isinstance(error, EdgeprofError) else f"{type(error).__name__}: {error}"
