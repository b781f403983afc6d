"""Has ``edgeprof watch`` record an emulated board, and reads what it recorded."""

import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from edgeprof.errors import FileFault, UsageFault
from edgeprof.session.records import Sample, Session, Signal
from edgeprof.session.store import read_session
from emulated.namespace import EmulatedBoard

LONGEST_WAIT_S = 20.0
_END_S = 15.0
_POLL_S = 0.1
_numbers = itertools.count(1)


class Track(Struct, frozen=True, kw_only=True):
    """A signal of one source and its samples."""

    signal: Signal
    samples: list[Sample]

    @property
    def values(self) -> list[float]:
        """Those that are known."""
        return [sample.value for sample in self.samples if sample.value is not None]


class Recording:
    """A block in which the board is recorded; everything is in the session while it goes on.

    ``sources`` are to give all they can; without, per signal the first that works is taken. After
    the block the recording has ended by itself, with exit code 0 and not a word.
    """

    def __init__(
        self,
        board: EmulatedBoard,
        *sources: str,
        interval_s: float | None = None,
        unprivileged: bool = False,
        in_jtop_group: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.path = board.open_folder / f"recording-{next(_numbers)}.sqlite"
        self._board = board
        options = [f"--source={source}" for source in sources]
        if interval_s is not None:
            options.append(f"--interval={interval_s}")
        # It lives as long as the command, which ends with its stdin.
        watch = ["watch", "-q", "-o", str(self.path), *options, "--", "cat"]
        self._command = [sys.executable, "-m", "edgeprof", *watch]
        self._options: dict[str, Any] = {
            "unprivileged": unprivileged,
            "in_jtop_group": in_jtop_group,
            "environment": environment,
        }

    def __enter__(self) -> "Recording":
        pipe = subprocess.PIPE
        self.process = self._board.popen(
            self._command, stdin=pipe, stdout=pipe, stderr=pipe, **self._options
        )
        try:
            self.wait_until(self._has_begun, "nothing was recorded")
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self.process:
            if kind is not None:
                self.process.kill()
            try:
                out, err = self.process.communicate(timeout=_END_S)
            finally:
                self.process.kill()
        if kind is None:
            assert (self.process.returncode, out, err) == (0, "", "")

    def wait_until(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Wait for something to be in the session."""
        until_s = time.monotonic() + LONGEST_WAIT_S
        while not holds():
            if self.process.poll() is not None or time.monotonic() > until_s:
                raise AssertionError(f"{otherwise}; events: {self.session.events}")
            time.sleep(_POLL_S)

    def wait_for_signals(self, source: str, names: Collection[str], samples: int = 1) -> None:
        """Wait until there are so many known samples of each of these signals."""

        def all_there() -> bool:
            tracks = self.tracks(source)
            return all(name in tracks and len(tracks[name].values) >= samples for name in names)

        self.wait_until(all_there, f"{source} does not tell {sorted(names)}")

    def wait_for_event(self, kind: str, **detail: str) -> dict[str, Any]:
        """Wait for an event with such a detail; give its whole detail."""
        self.wait_until(
            lambda: bool(self.events(kind, **detail)), f"there is no event {kind} {detail}"
        )
        return self.events(kind, **detail)[0]

    def _has_begun(self) -> bool:
        try:
            return bool(self.session.samples)
        except (FileFault, UsageFault):  # it is only being made
            return False

    @property
    def session(self) -> Session:
        """What is recorded so far, read with every check."""
        return read_session(self.path)

    def tracks(self, source: str) -> dict[str, Track]:
        """By name the signals of one source of which a value is known."""
        session = self.session
        found = {
            signal.name: Track(
                signal=signal, samples=[s for s in session.samples if s.signal_id == signal.id]
            )
            for signal in session.signals
            if signal.source == source
        }
        return {name: track for name, track in found.items() if track.values}

    def events(self, kind: str, **detail: str) -> list[dict[str, Any]]:
        """The details of the events of a kind, as far as they contain ``detail``."""
        told = [event.detail for event in self.session.events if event.kind == kind]
        return [each for each in told if detail.items() <= each.items()]

    def processes(self) -> dict[int, str]:
        """The processes that record, with their command lines."""
        import psutil

        below = psutil.Process(self.process.pid).children(recursive=True)
        return {process.pid: " ".join(process.cmdline()) for process in below}
