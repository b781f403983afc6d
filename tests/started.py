"""edgeprof as a process that a test starts and waits for."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

Start = Callable[..., "subprocess.Popen[str]"]


@contextmanager
def starting(folder: Path, environment: Mapping[str, str]) -> Iterator[Start]:
    """Starts edgeprof in ``folder``, as a process group of its own like a shell does, on those
    ``cores`` where they are given; kills what is left in the end."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str | Path, cores: set[int] | None = None) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "edgeprof", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
            preexec_fn=None if cores is None else lambda: os.sched_setaffinity(0, cores),
        )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in started:
            process.kill()
            process.communicate()


def finish(process: "subprocess.Popen[str]", timeout_s: float = 90) -> tuple[int, str, str]:
    """Its exit code, what it printed and what it said."""
    out, err = process.communicate(timeout=timeout_s)
    return process.returncode, out, err
