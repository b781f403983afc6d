"""What converting and loading take: ``python benchmarks/convert_load.py``; about a minute.

SmolLM2-135M from its GGUF, with its own 4-bit blocks and as fp32, each step in a process of its own
with the file in the page cache: seconds without the start of Python, and the most memory held.
Medians of five.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPEATS = 5


def convert(gguf: str, folder: str, weights: Any) -> float:
    from edgeprof.convert import folder as convert_folder

    t0_s = time.perf_counter()
    convert_folder.convert(Path(gguf), Path(folder), weights=weights)
    return time.perf_counter() - t0_s


def load(folder: str) -> float:
    from edgeprof.models.decoder_folder import read_decoder_folder
    from edgeprof.runner.ort_model import OrtModel
    from edgeprof.runner.providers import load_onnxruntime

    load_onnxruntime()
    t0_s = time.perf_counter()
    OrtModel.open(read_decoder_folder(Path(folder)), threads=2, capacity=640)
    return time.perf_counter() - t0_s


def in_a_child(*arguments: str) -> tuple[float, int]:
    """Seconds and bytes."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, peak_bytes = json.loads(done.stdout)
    return float(seconds), int(peak_bytes)


def measure() -> None:
    from edgeprof.models.fetch import fetch

    gguf = str(fetch("smollm2-135m").path)
    print(f"{'weights':<10}{'step':<10}{'seconds':>9}{'(most)':>9}{'peak, MiB':>11}")
    with tempfile.TemporaryDirectory() as scratch:
        for weights in ("as-is", "fp32"):
            steps: dict[str, list[tuple[float, int]]] = {"convert": [], "load": []}
            for repeat in range(REPEATS):
                folder = f"{scratch}/{weights}-{repeat}"
                steps["convert"].append(in_a_child("convert", gguf, folder, weights))
                steps["load"].append(in_a_child("load", folder))
            for step, found in steps.items():
                seconds = [taken_s for taken_s, _ in found]
                peak_bytes = max(size for _, size in found)
                print(
                    f"{weights:<10}{step:<10}{statistics.median(seconds):>9.2f}"
                    f"{max(seconds):>9.2f}{peak_bytes / 2**20:>11.0f}"
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", nargs="?", choices=["convert", "load"])
    parser.add_argument("arguments", nargs="*")
    given = parser.parse_args()
    if given.step is None:
        measure()
        return
    seconds = (convert if given.step == "convert" else load)(*given.arguments)
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps([seconds, peak_bytes]))


if __name__ == "__main__":
    main()
