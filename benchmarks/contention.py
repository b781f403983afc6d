"""Is contention repeatable? The demo's target beside its antagonists, several sessions in a row.

    python benchmarks/contention.py run FOLDER --placement apart --sessions 5
    python benchmarks/contention.py show FOLDER

``apart`` gives the target a core and the antagonists another one, ``shared`` leaves both on all
cores. ``show`` reads the sessions that lie in the folder: for every antagonist kappa and what the
target kept at the full dose, session by session, and how many of their intervals hold the mean of
the other sessions. Where the legs beside what moves bytes ran at two speeds, ``--split SECONDS``
shows those with faster passes and those with slower ones apart, sessions with fewer than two at the
full dose left out. Needs a quiet machine with two cores and the models of the demo.
"""

import argparse
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from edgeprof.analysis.contention import Contended
from edgeprof.analysis.latency import seconds
from edgeprof.analysis.summary import summarise
from edgeprof.quantity import Quantity
from edgeprof.session.records import Leg, Session
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
    parser.add_argument("--split", type=float, metavar="SECONDS")
    asked = parser.parse_args()
    if asked.action == "run":
        run(asked.folder, asked.placement, asked.sessions, asked.repeats, asked.seconds)
    else:
        for placement in PLACEMENTS:
            sessions = [
                read_session(path) for path in sorted(asked.folder.glob(f"{placement}-*.sqlite"))
            ]
            show(placement, sessions)
            if asked.split is not None:
                slower = [by_speed(session, asked.split, slow=True) for session in sessions]
                faster = [by_speed(session, asked.split, slow=False) for session in sessions]
                show(f"{placement}, slower legs", slower)
                show(f"{placement}, faster legs", faster)


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


def by_speed(session: Session, split_s: float, *, slow: bool) -> Session:
    """Without the legs beside a stream whose passes ran at the other speed."""
    passes: dict[int, list[float]] = defaultdict(list)
    for one in session.passes:
        if one.stream == 0:
            passes[one.leg_id].append(seconds(one))

    def is_of_speed(leg: Leg) -> bool:
        if leg.attrs.get("antagonist_kind") not in ("read", "copy") or leg.id not in passes:
            return True
        return (statistics.median(passes[leg.id]) > split_s) == slow

    return replace(session, legs=[leg for leg in session.legs if is_of_speed(leg)])


def show(title: str, sessions: list[Session]) -> None:
    targets = [t for one in sessions for t in summarise(one).contention.targets]
    if not targets:
        return
    print(f"{title}: {len(targets)} sessions, target alone {_each(t.alone_s for t in targets)} s")
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
        full = {regime.antagonist for regime in target.regimes if regime.dose == 1 < regime.legs}
        for curve in target.curves:
            if curve.antagonist not in full:
                continue
            if curve.kappa is not None:
                found[f"kappa {curve.antagonist}"].append(curve.kappa)
            if curve.ceiling_bytes_per_s is not None and curve.ceiling_reached:
                found[f"ceiling {curve.antagonist}"].append(curve.ceiling_bytes_per_s)
        for regime in target.regimes:
            if regime.dose == 1 < regime.legs:
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
