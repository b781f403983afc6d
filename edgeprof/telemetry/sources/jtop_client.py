"""Says what the jtop service of jetson-stats says, as JSON lines on stdout; a program of its own.

The only file that knows jtop. It knows nothing of edgeprof and needs no more than the standard
library (of Python 3.6 and up) and jetson-stats, so that any interpreter which has both can run it:

    PYTHON -I jtop_client.py --interval 1.0 [--or-python PYTHON]...

jetson-stats is licensed under the AGPL, loads large libraries and may hang for ever while it
connects: it is imported in this process alone, which ends when its stdin is closed, and with its
parent.

Each line is an object whose ``kind`` is ``hello`` (connected), ``update`` or ``error`` (the last).
"""

import argparse
import json
import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import AuthenticationError
from typing import Any, NoReturn

# What an error line may name, and the exit code that goes with it. 0: stdin was closed.
EXIT_CODES = {
    "failed": 1,  # anything not foreseen
    "not-installed": 3,
    "no-service": 4,
    "no-permission": 5,
    "version": 6,  # client and service are of different releases
    "python": 7,  # the service runs a Python whose pickles this one cannot read
    "authentication": 8,
    "no-data": 9,  # connected, but the first reading did not come in time
    "lost": 10,  # the service went away
    "silent": 11,  # updates stopped
}
_CAUSES = (
    (ImportError, "not-installed"),
    (PermissionError, "no-permission"),
    (FileNotFoundError, "no-service"),
    (ConnectionRefusedError, "no-service"),
    (AuthenticationError, "authentication"),
    (EOFError, "lost"),
    (ConnectionError, "lost"),
)
_VERSIONS = re.compile(r"service\W+(\w[\w.]*)\W+and\W+client\W+(\w[\w.]*)")
_NEXT_INTERPRETER_MAY_DO = ("not-installed", "version", "python")

_PR_SET_PDEATHSIG = 1  # prctl(2)
_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", 7)  # nameless before Python 3.7
_SLOWER = 1.01
_LONGEST_TEXT = 200
_DEEPEST = 6
_NS = 1e9


class Lines:
    """Takes stdout for itself: what libraries print goes to stderr. Whole lines, one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._descriptor = os.dup(1)
        self._file = os.fdopen(self._descriptor, "w")
        os.dup2(2, 1)

    def put(self, kind: str, **values: object) -> None:
        with self._lock:
            self._file.write(json.dumps(dict(values, kind=kind), allow_nan=False) + "\n")
            self._file.flush()

    def give_back(self) -> None:
        os.dup2(self._descriptor, 1)


def main() -> NoReturn:
    options = _options()
    _end_with_parent()
    lines = Lines()
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    connected = threading.Event()
    try:
        _follow(options.interval, lines, connected)
        error = {"error": "silent", "message": "ok() was false"}
    except Exception as problem:
        error = _describe(problem, connected.is_set())
    if error["error"] in _NEXT_INTERPRETER_MAY_DO and options.or_python:
        with suppress(OSError):
            _start_again(lines, options.or_python[0], options.interval, options.or_python[1:])
    lines.put("error", python=sys.executable, **error)
    os._exit(EXIT_CODES[error["error"]])  # threads of jtop may hang: nothing is waited for


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Print what the jtop service says, as JSON lines.")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two updates")
    parser.add_argument(
        "--or-python",
        action="append",
        default=[],
        help="an interpreter to go on with where the jetson-stats of this one does not fit",
    )
    return parser.parse_args()


def _end_with_parent() -> None:
    """Where the system can. One that is stopped sees no end of stdin."""
    with suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def _start_again(lines: Lines, python: str, interval: float, others: "list[str]") -> None:
    """Become the same program with another interpreter or interval; pipes and process id stay."""
    lines.give_back()
    isolated = ["-I"] if sys.flags.isolated else []
    command = [python, *isolated, os.path.abspath(__file__), "--interval", repr(interval)]
    for other in others:
        command += ["--or-python", other]
    os.execv(python, command)


def _follow(interval: float, lines: Lines, connected: threading.Event) -> None:
    """Tell every update until none comes any more.

    The first one after the connection is left out: averages and differences of the service start
    anew with it.
    """
    import jtop

    client = jtop.jtop(interval)
    client.start()
    connected.set()
    given = client.interval
    if given > client.interval_user * _SLOWER:
        # Another client was there first. One that waits for less than the service's own interval
        # is cut off by it.
        _start_again(lines, sys.executable, given, [])
    lines.put(
        "hello",
        interval_s=_plain(given),
        client_version=_plain(getattr(jtop, "__version__", None)),
        python=sys.executable,
    )
    # As an observer it sees whole updates, never half of one and half of the next.
    client.attach(lambda client: lines.put("update", **_update(client)))
    while client.ok():
        pass


def _update(client: "Any") -> "dict[str, Any]":
    monotonic_s = time.clock_gettime(time.CLOCK_MONOTONIC)
    offset_s = time.clock_gettime(_BOOTTIME) - monotonic_s
    sections: dict[str, Callable[[], Any]] = {
        # Seconds since boot at which the service began to read; the only stamp that it gives.
        "uptime_s": lambda: client._stats.get("uptime"),
        "memory": lambda: _memory(client.memory),
        "gpu": lambda: dict(client.gpu.items()),
        "power": lambda: dict(client.power.items()),
        "temperature": lambda: dict(client.temperature.items()),
        "cores_online": lambda: [core.get("online") for core in client.cpu["cpu"]],
        "power_mode": lambda: client.nvpmodel and client.nvpmodel.name,
        "jetson_clocks": lambda: client.jetson_clocks and client.jetson_clocks.status,
    }
    values = {name: _section(read) for name, read in sections.items()}
    values["heard_ns"] = int(monotonic_s * _NS)
    values["boottime_offset_ns"] = int(offset_s * _NS)
    return values


def _memory(memory: "Any") -> "dict[str, Any]":
    kept = {name: memory.get(name) for name in ("RAM", "SWAP", "EMC") if name in memory}
    if isinstance(kept.get("SWAP"), dict):
        kept["SWAP"] = {name: kept["SWAP"].get(name) for name in ("used", "tot")}
    return kept


def _section(read: "Callable[[], Any]") -> "Any":
    try:
        return _plain(read())
    except Exception:  # one part that this release does not have, or calls otherwise
        return None


def _plain(value: "Any", depth: int = _DEEPEST) -> "Any":
    """A value as JSON can tell it; what it cannot is None."""
    if isinstance(value, str):
        return value[:_LONGEST_TEXT].encode("utf-8", "replace").decode("utf-8")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict) and depth:
        return {_plain(str(key)): _plain(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)) and depth:
        return [_plain(inner, depth - 1) for inner in value]
    return None


def _describe(problem: Exception, connected: bool) -> "dict[str, Any]":
    """The error line for an exception of the client, by what raised it rather than by its words.

    jtop raises an exception of its own while it handles the one that tells what happened.
    """
    text = " ".join(str(problem).split())
    cause = problem.__context__ or problem
    kind = next((kind for error, kind in _CAUSES if isinstance(cause, error)), "failed")
    versions = _VERSIONS.search(text)
    if isinstance(cause, ValueError) and "pickle" in str(cause):
        kind = "python"
    elif versions:
        kind = "version"
    elif kind == "no-service" and connected:
        kind = "lost"
    elif kind == "failed" and type(problem).__name__ == "JtopException":
        kind = "no-data"
    error = {"error": kind, "message": _plain(f"{type(problem).__name__}: {text}")}
    if versions:
        error["service_version"], error["client_version"] = versions.groups()
    return error


if __name__ == "__main__":
    main()
