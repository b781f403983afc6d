"""The machine as a board: a private mount namespace in which the real jetson-stats service runs.

Nothing outside of it changes, and all of it is gone with the block, or with the process that
opened it. The board's files stay open to the tests outside, which drive them.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from emulated.boards import BOARDS
from emulated.holder import JTOP_GROUP_ID
from emulated.tree import Tree, build

_TESTS = Path(__file__).parent.parent
_NOBODY = 65_534
_START_S = 30.0
_END_S = 10.0


@cache
def unshare_options() -> tuple[str, ...] | None:
    """What lets this user have a mount namespace: ``-m``, else ``-rm``; None where nothing does."""
    return next((option for option in (("-m",), ("-rm",)) if refusal(option) is None), None)


def refusal(options: Sequence[str]) -> str | None:
    """Why ``unshare`` with these options does not work here."""
    try:
        done = subprocess.run(
            ["unshare", *options, "true"], capture_output=True, text=True, timeout=_END_S
        )
    except FileNotFoundError:
        return "no unshare(1)"
    return None if done.returncode == 0 else done.stderr.strip()


def _exists(user_id: int) -> bool:
    """Whether this user namespace knows that user."""
    rows = (line.split() for line in Path("/proc/self/uid_map").read_text().splitlines())
    return any(int(first) <= user_id < int(first) + int(count) for first, _, count in rows)


class EmulatedBoard:
    """A block in which commands can be run on the board of that name.

    ``tree`` drives the board. ``open_folder`` is a folder that everybody may write into, of the
    same path inside and outside. Raises OSError where the board cannot be made.
    """

    def __init__(self, board: str) -> None:
        self.board = BOARDS[board]
        self._work = Path(tempfile.mkdtemp(prefix="emulated-board-"))
        self._work.chmod(0o711)
        self.open_folder = self._work / "open"
        self.open_folder.mkdir()
        self.open_folder.chmod(0o1777)
        (self._work / "inside").mkdir()
        self.tree: Tree = build(self._work / "tree", board)
        self.service: subprocess.Popen[str] | None = None
        self._options = unshare_options() or ("-m",)
        self._holder: subprocess.Popen[str] | None = None

    def __enter__(self) -> "EmulatedBoard":
        self._holder = subprocess.Popen(
            [
                *("unshare", *self._options, "--propagation", "private"),
                *(sys.executable, "-m", "emulated.holder", str(self._work), self.board.name),
                *(os.readlink("/proc/self/ns/mnt"), "one" if self.one_user else "many"),
            ],
            env={**os.environ, "PYTHONPATH": str(_TESTS)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # who kills this process's group leaves it to tidy up
        )
        assert self._holder.stdout is not None
        answer = self._holder.stdout.readline().strip()
        if answer != "ready":
            self.__exit__()
            raise OSError(f"no board {self.board.name}: {answer or 'the holder ended'}")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._holder is not None
        self._holder.communicate(timeout=_END_S)  # the end of its stdin is the sign
        if self.service is not None:
            self.service.wait(_END_S)
        shutil.rmtree(self._work, ignore_errors=True)

    # ---- commands

    @property
    def one_user(self) -> bool:
        """Whether nobody but the caller exists inside."""
        return self._options == ("-rm",) or not _exists(_NOBODY)

    @property
    def user_id(self) -> int:
        """Of the unprivileged user, as it is inside."""
        return 0 if self.one_user else _NOBODY

    def command(
        self, command: Sequence[str], *, unprivileged: bool = False, in_jtop_group: bool = False
    ) -> list[str]:
        """``command`` as it has to be called from outside to run on the board.

        An ``unprivileged`` one may not enter debugfs, and reaches the service only where it is
        ``in_jtop_group``. Where one user is all there is, it is that user without the rights of
        root, who owns the service's socket.
        """
        assert self._holder is not None
        space = ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt"]
        if self._options == ("-rm",):
            space += [f"--user=/proc/{self._holder.pid}/ns/user", "--preserve-credentials"]
        if unprivileged and self.one_user:
            space += ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        elif unprivileged:
            groups = f"--groups={JTOP_GROUP_ID}" if in_jtop_group else "--clear-groups"
            space += ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", groups]
        return [*space, "--", *command]

    def popen(
        self,
        command: Sequence[str],
        *,
        unprivileged: bool = False,
        in_jtop_group: bool = False,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "subprocess.Popen[str]":
        """Start a command on the board, with text pipes unless ``options`` say otherwise."""
        return subprocess.Popen(
            self.command(command, unprivileged=unprivileged, in_jtop_group=in_jtop_group),
            env={**os.environ, "HOME": str(self.open_folder), **(environment or {})},
            text=True,
            **options,
        )

    def run(
        self, command: Sequence[str], *, timeout_s: float = 30.0, **options: Any
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command on the board to its end."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self.popen(command, **{**pipes, **options}) as process:
            try:
                out, err = process.communicate(timeout=timeout_s)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    # ---- the service of jetson-stats

    @property
    def service_log(self) -> str:
        log = self._work / "service.log"
        return log.read_text() if log.exists() else ""

    def start_service(self) -> None:
        """Start the service as root and wait until it can be reached."""
        with (self._work / "service.log").open("w") as log:
            self.service = self.popen(
                [sys.executable, "-m", "jtop", "--force"],
                environment={"JTOP_SERVICE": "True"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until_s = time.monotonic() + _START_S
        while "service ready" not in self.service_log:
            if self.service.poll() is not None or time.monotonic() > until_s:
                raise OSError(f"the service did not start:\n{self.service_log}")
            time.sleep(0.05)

    def stop_service(self) -> None:
        """As systemd stops it."""
        self._signal_service(signal.SIGTERM)
        assert self.service is not None
        self.service.wait(_END_S)

    def kill_service(self) -> None:
        """All of its processes at once, without a word; its socket file stays."""
        self._signal_service(signal.SIGKILL)
        assert self.service is not None
        self.service.wait(_END_S)

    @property
    def service_runs(self) -> bool:
        return self.service is not None and self.service.poll() is None

    def suspend_service(self) -> None:
        """Let it hang: whoever connects waits."""
        self._signal_service(signal.SIGSTOP)

    def resume_service(self) -> None:
        self._signal_service(signal.SIGCONT)

    def _signal_service(self, number: signal.Signals) -> None:
        assert self.service is not None
        os.killpg(self.service.pid, number)
