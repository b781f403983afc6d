"""Is contention repeatable? The demo's target beside its antagonists, several sessions in a row.

    python benchmarks/contention.py run FOLDER --placement apart --sessions 5
    python benchmarks/contention.py show FOLDER

``apart`` gives the target a core and the antagonists another one, ``shared`` leaves both on all
cores. ``show`` reads the sessions that lie in the folder: for every antagonist kappa and what the
target kept at the full dose, session by session, and how many of their intervals hold the mean of
the other sessions. Needs a quiet machine with two cores and the models of the demo.
"""

import argparse
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from edgeprof.analysis.contention import Contended
from edgeprof.analysis.summary import summarise
from edgeprof.quantity import Quantity
from edgeprof.session.store import read_session

PLACEMENTS = {
    "apart": ["--threads", "1", "--target-core", "0", "--antagonist-core", "1"],
    "shared": ["--threads", "2"],
}
COMMON = ["smollm2-135m", "--target", "fp32", "--dose", "50", "--dose", "100"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["run", "show"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--placement", choices=PLACEMENTS, default="apart")
    parser.add_argument("--sessions", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    asked = parser.parse_args()
    if asked.action == "run":
        run(asked.folder, asked.placement, asked.sessions, asked.repeats, asked.seconds)
    else:
        for placement in PLACEMENTS:
            show(asked.folder, placement)


def run(folder: Path, placement: str, sessions: int, repeats: int, seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, sessions + 1):
        output = folder / f"{placement}-{number}.sqlite"
        command = [
            sys.executable, "-m", "edgeprof", "contend", *COMMON, *PLACEMENTS[placement],
            "-r", str(repeats), "--seconds", str(seconds), "--seed", str(number), "-q", "--force",
            "-o", str(output),
        ]  # fmt: skip
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def show(folder: Path, placement: str) -> None:
    paths = sorted(folder.glob(f"{placement}-*.sqlite"))
    targets = [summarise(read_session(path)).contention.targets[0] for path in paths]
    if not targets:
        return
    print(
        f"{placement}: {len(targets)} sessions, target alone {_each(t.alone_s for t in targets)} s"
    )
    for name, found in _figures(targets).items():
        values = [one.value for one in found if one.value is not None]
        held = sum(_holds(one, found[:i] + found[i + 1 :]) for i, one in enumerate(found))
        print(
            f"  {name:28s} mean {statistics.fmean(values):6.3f}  hold the others' mean: "
            f"{held} of {len(found)}  {_each(found)}"
        )


def _figures(targets: list[Contended]) -> Mapping[str, list[Quantity]]:
    found: dict[str, list[Quantity]] = defaultdict(list)
    for target in targets:
        for curve in target.curves:
            if curve.kappa is not None:
                found[f"kappa {curve.antagonist}"].append(curve.kappa)
            if curve.ceiling_bytes_per_s is not None and curve.ceiling_reached:
                found[f"ceiling {curve.antagonist}"].append(curve.ceiling_bytes_per_s)
        for regime in target.regimes:
            if regime.dose == 1.0:
                for what in ("target_retained", "antagonist_retained"):
                    quantity = getattr(regime, what)
                    if quantity is not None:
                        found[f"{what} {regime.antagonist}"].append(quantity)
    return found


def _holds(one: Quantity, others: list[Quantity]) -> bool:
    values = [other.value for other in others if other.value is not None]
    if not values or one.low is None or one.high is None:
        return False
    return one.low <= statistics.fmean(values) <= one.high


def _each(quantities: "Iterator[Quantity | None] | list[Quantity]") -> str:
    return " ".join(
        f"{one.value:.3g} [{one.low:.3g}, {one.high:.3g}]"
        for one in quantities
        if one is not None and one.low is not None and one.high is not None
    )


if __name__ == "__main__":
    main()
