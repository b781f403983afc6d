"""Runs the scripts of benchmarks/ as a user does."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

Run = Callable[..., str]


@pytest.fixture(scope="session")
def run() -> Run:
    def script(name: str, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / name), *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return script
