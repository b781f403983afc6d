"""How long edgeprof takes to start, beside importing click alone: ``python benchmarks/startup.py``.

Whole processes, interleaved so that a busy moment hits all alike; medians and ratios are printed.
"""

import statistics
import subprocess
import sys
import time

ROUNDS = 15
COMMANDS = {
    "import click": ["-c", "import click"],
    "edgeprof --help": ["-m", "edgeprof", "--help"],
    "edgeprof roofline": ["-m", "edgeprof", "roofline", "--device=orin-nano", "--model=7b-q4"],
    "edgeprof roofline --json": [
        "-m",
        "edgeprof",
        "roofline",
        "--device=orin-nano",
        "--model=7b-q4",
        "--json",
    ],
}


def main() -> None:
    """Prints one line a command: median seconds, and the ratio to importing click."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(ROUNDS):
        for name, arguments in COMMANDS.items():
            times[name].append(_seconds(arguments))
    reference = statistics.median(times["import click"])
    print(f"{'command':<26}{'median s':>10}{'min s':>10}{'x click':>10}")
    for name, seconds in times.items():
        median = statistics.median(seconds)
        print(f"{name:<26}{median:>10.3f}{min(seconds):>10.3f}{median / reference:>10.2f}")


def _seconds(arguments: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
