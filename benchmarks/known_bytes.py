"""Are known bytes found, and do the intervals hold them? ``python benchmarks/known_bytes.py``.

A scripted decode moves known bytes a pass; a counter averages them in a way that the analysis is
not told: a boxcar or an exponential window of 0.3 to 1.5 s, noise of 1 to 3 %, a clock that is up
to 50 ms early or late, gaps of 1.5 s in a third of the cases. Every case has its seed. ``--cases
N`` are made faster than time goes and pass through the real session store; ``--live N`` run in real
time, side by side, through the files of an emulated board and the real sampler (5 minutes).
"""

import argparse
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from emulated.played import play
from emulated.tree import build
from emulated.truth import Script, Truth, random_truth, write

from edgeprof.analysis.attribution import Attribution
from edgeprof.analysis.summary import summarise
from edgeprof.quantity import Quantity
from edgeprof.session.store import read_session


class Finding(NamedTuple):
    """One figure against the truth; ``error`` is relative, of the interference absolute."""

    what: str
    error: float
    inside: bool


def findings(found: Attribution, truth: Truth) -> Iterator[Finding]:
    for phase in found.phases:
        yield _finding(
            f"bytes of a {phase.phase} pass", phase.bytes_per_pass, truth.passes[phase.phase].bytes
        )
    for closure in found.closure:
        quantity, true = closure.interference_frac, truth.interference
        error = (quantity.value or 0.0) - true
        yield Finding("interference", error, _holds(quantity, true))
    for check in found.duty:
        for name, quantity in (("draft", check.draft_bytes), ("verify", check.verify_bytes)):
            yield _finding(f"{name} pass by duty blocks", quantity, truth.passes[name].bytes)


def _finding(what: str, quantity: Quantity, true: float) -> Finding:
    return Finding(what, (quantity.value or 0.0) / true - 1, _holds(quantity, true))


def _holds(quantity: Quantity, true: float) -> bool:
    low, high = quantity.low, quantity.high
    return low is not None and high is not None and low <= true <= high


def simulated(seed: int, folder: Path) -> tuple[Attribution | None, Truth]:
    truth, path = random_truth(seed), folder / f"{seed}.sqlite"
    write(path, Script(truth, seed=seed), seed)
    found = summarise(read_session(path)).attribution
    path.unlink()
    return found, truth


def live(seeds: range, folder: Path) -> Iterator[tuple[Attribution | None, Truth]]:
    """All at once: each has a board and a sampler of its own."""
    truths = {seed: random_truth(seed) for seed in seeds}

    def run(seed: int) -> None:
        tree = build(folder / f"board-{seed}", "orin-nano")
        path = folder / f"{seed}.sqlite"
        play(tree, lambda start_s: Script(truths[seed], seed=seed, start_s=start_s), path)

    threads = [threading.Thread(target=run, args=[seed]) for seed in seeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seed in seeds:
        yield summarise(read_session(folder / f"{seed}.sqlite")).attribution, truths[seed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--live", type=int, default=0)
    given = parser.parse_args()
    told: dict[str, list[Finding]] = defaultdict(list)
    refused: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        cases = [simulated(seed, folder) for seed in range(given.cases)]
        cases += live(range(1000, 1000 + given.live), folder)
    for found, truth in cases:
        if found is None or found.refused is not None:
            refused.append("nothing was found" if found is None else str(found.refused))
            continue
        for finding in findings(found, truth):
            told[finding.what].append(finding)
    for what, same in told.items():
        errors = [100 * finding.error for finding in same]
        inside = 100 * fmean(finding.inside for finding in same)
        print(
            f"{what}: {len(same)} cases, 90 % interval holds the truth in {inside:.0f} %, "
            f"mean error {fmean(errors):+.2f} %, largest {max(map(abs, errors)):.2f} %"
        )
    print(f"refused: {len(refused)}", *dict.fromkeys(refused), sep="\n")


if __name__ == "__main__":
    main()
