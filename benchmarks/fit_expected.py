"""Fits what engines make of a board to published rates: ``python benchmarks/fit_expected.py``.

The time of a decoded token is bytes / (share x sustained bandwidth), plus what unpacking the bytes
costs the SMs where the reads do not hide it, plus an overhead in GPU clocks. Three figures fitted
to the rows that were decoded on a GPU, one to those on a CPU; what each board sustains is data of
its profile. ``--write`` stores them where edgeprof reads them.
"""

import argparse
import csv
import datetime
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace
from published import SHIPPED, Placed, place, read_rows

from edgeprof.analysis.roofline import expected_time
from edgeprof.catalog import HARDWARE_FOLDER
from edgeprof.hardware.engines import PROCESSOR, EngineClass
from edgeprof.quantity import Band

COMMAND = "python benchmarks/fit_expected.py --write"
LEVEL = 0.875  # the middle of the coverage that is wanted, 80 to 95 %
FLAT = 1.02  # scores this near to the least are as good
FEWEST_BOARDS = 3  # one left out, and two to tell boards from engines
ROUNDS = 6  # of the search along one parameter after the other; it settles in three


class Parameters(Struct, frozen=True, kw_only=True):
    """All that is fitted, on grids as coarse as the rows deserve."""

    general_bandwidth_share: float = 0.8
    unpack_clocks_per_byte: float = 0.1
    overhead_clocks: float = 2e6
    cpu_bandwidth_share: float = 0.5


GRIDS: dict[str, list[float]] = {
    "general_bandwidth_share": [step / 50 for step in range(25, 51)],
    "unpack_clocks_per_byte": [step / 100 for step in range(31)],
    "overhead_clocks": [step * 0.5e6 for step in range(21)],
    "cpu_bandwidth_share": [step / 20 for step in range(4, 21)],
}

# Those that rows decoded on a GPU tell.
GPU_PARAMETERS = ("overhead_clocks", "unpack_clocks_per_byte", "general_bandwidth_share")


def bands(fitted: Parameters) -> dict[str, tuple[Band, Band, Band]]:
    """Bandwidth share, unpacking and overhead by class; the classes differ in which ends meet."""
    share, cpu = fitted.general_bandwidth_share, fitted.cpu_bandwidth_share
    nothing = Band(low=0.0, high=0.0)
    unpack = Band(low=0.0, high=fitted.unpack_clocks_per_byte)
    overhead = Band(low=0.0, high=fitted.overhead_clocks)
    widest = (Band(low=share, high=1.0), unpack, overhead)
    return {
        "tuned": (Band(low=1.0, high=1.0), nothing, overhead),
        "general": (Band(low=share, high=share), unpack, overhead),
        "serving": widest,
        "any": widest,
        "cpu": (Band(low=cpu, high=1.0), nothing, nothing),
    }


def predicted(row: Placed, fitted: Parameters) -> Band:
    """The band of tokens/s."""
    share, unpack, overhead = bands(fitted)[row.engine_class.name]
    engine: EngineClass = replace(
        row.engine_class,
        bandwidth_share=share,
        unpack_clocks_per_byte=unpack,
        overhead_clocks=overhead,
    )
    assert row.cost is not None
    time = expected_time(row.cost, row.roof, engine)
    assert time is not None
    return Band(low=1 / time.high, high=1 / time.low)


def interval_score(band: Band, measured: float) -> float:
    """Width of the band, plus what the measured rate is outside of it, dearer the higher the
    level (Gneiting and Raftery 2007); in logarithms, as rates are told by ratios."""
    low, high, x = math.log(band.low), math.log(band.high), math.log(measured)
    return high - low + 2 / (1 - LEVEL) * max(low - x, x - high, 0.0)


def fit(rows: Sequence[Placed], names: Sequence[str]) -> Parameters:
    """The parameters of least interval score, one after the other until they stay."""
    fitted = Parameters()
    for _ in range(ROUNDS):
        before = fitted
        for name in names:
            trials = [replace(fitted, **{name: value}) for value in GRIDS[name]]
            fitted = min(trials, key=lambda trial: _total_score(rows, trial))
        if fitted == before:
            break
    return _with_most_overhead(rows, fitted) if "overhead_clocks" in names else fitted


def _with_most_overhead(rows: Sequence[Placed], fitted: Parameters) -> Parameters:
    """The most overhead that scores about as well as the best. The smallest models, which would
    tell it, are mostly flagged LOW and left out, so that the score hardly knows it."""
    enough = FLAT * _total_score(rows, fitted)
    trials = [replace(fitted, overhead_clocks=value) for value in GRIDS["overhead_clocks"]]
    return max(
        (trial for trial in trials if _total_score(rows, trial) <= enough),
        key=lambda trial: trial.overhead_clocks,
    )


def widest_cpu_share(rows: Sequence[Placed]) -> float:
    """The highest share whose band holds all rows: too few boards for a score to tell more."""
    holding = [
        share
        for share in GRIDS["cpu_bandwidth_share"]
        if all(
            predicted(row, Parameters(cpu_bandwidth_share=share)).low <= _rate(row) for row in rows
        )
    ]
    return max(holding, default=min(GRIDS["cpu_bandwidth_share"]))


def fit_one_band(rows: Sequence[Placed]) -> Band:
    """For comparison: the one band of the share of peak bandwidth that serves all engines best."""
    shares = sorted(_rate(row) / _peak_rate(row) for row in rows)
    candidates = [Band(low=low, high=high) for low in shares for high in shares if low < high]
    return min(
        candidates, key=lambda band: math.fsum(interval_score(band, share) for share in shares)
    )


class Verdict(Struct, frozen=True, kw_only=True):
    """How bands did on rows that they were not fitted to."""

    rows: int
    coverage: float
    median_high_over_low: float
    interval_score: float
    missed: tuple[str, ...] = ()


def verdict(judged: Sequence[tuple[Placed, Band]]) -> Verdict:
    """Coverage, width and score."""
    missed = [row.row_id for row, band in judged if not band.low <= _rate(row) <= band.high]
    return Verdict(
        rows=len(judged),
        coverage=1 - len(missed) / len(judged),
        median_high_over_low=statistics.median(band.high / band.low for _, band in judged),
        interval_score=statistics.mean(interval_score(band, _rate(row)) for row, band in judged),
        missed=tuple(missed),
    )


def leave_one_board_out(rows: Sequence[Placed]) -> tuple[Verdict, Verdict]:
    """The classes and the one band, each row judged by a fit without its board."""
    by_class, by_one = [], []
    for board in sorted({row.board for row in rows}):
        others = [row for row in rows if row.board != board]
        fitted, one = fit(others, GPU_PARAMETERS), fit_one_band(others)
        for row in rows:
            if row.board == board:
                peak = _peak_rate(row)
                by_class.append((row, predicted(row, fitted)))
                by_one.append((row, Band(low=one.low * peak, high=one.high * peak)))
    return verdict(by_class), verdict(by_one)


def _total_score(rows: Sequence[Placed], fitted: Parameters) -> float:
    return math.fsum(interval_score(predicted(row, fitted), _rate(row)) for row in rows)


def _rate(row: Placed) -> float:
    assert row.tokens_per_s is not None
    return float(row.tokens_per_s)


def _peak_rate(row: Placed) -> float:
    assert row.cost is not None
    return float(row.roof.bandwidth_bytes_per_s / row.cost.total_bytes)


def _with_figures(rows: Sequence[Placed]) -> list[Placed]:
    """Rows of which all is known that the fit needs."""
    return [
        row
        for row in rows
        if row.judged
        and (row.roof.sm_clocks_per_s is not None or row.engine_class.name == PROCESSOR)
    ]


def toml(
    fitted: Parameters, rows: Sequence[Placed], classes: Verdict, one: Verdict, source: str
) -> str:
    """The file that edgeprof reads, with the account of how it came about."""
    boards = {row.board for row in rows}
    lines = [
        "# Written by benchmarks/fit_expected.py; change that, not this file.",
        "# The time of a token is bytes / (bandwidth_share x sustained) + bytes x",
        "# unpack_clocks_per_byte / (SMs x clock) + overhead_clocks / clock; the slow end of a",
        "# band takes the low share and the high costs. Fitted by the least interval score of the",
        "# logarithm of tokens/s.",
        "",
        "[fit]",
        f'date = "{datetime.date.today().isoformat()}"',
        f'command = "{COMMAND}"',
        f'rows_from = "{source}"',
        f"rows = {len(rows)}",
        f"boards = {len(boards)}",
        f"level = {LEVEL}",
        "",
        "[fit.parameters]",
        *[f"{name} = {getattr(fitted, name):g}" for name in GRIDS],
        "",
        "[fit.leave_one_board_out]  # engines on a GPU",
        *_verdict_lines(classes),
        "",
        "[fit.one_band_for_all]  # for comparison: a share of peak bandwidth, engine unknown",
        *_verdict_lines(one),
    ]
    for name, (share, unpack, overhead) in bands(fitted).items():
        lines += ["", f"[classes.{name}]"]
        lines += [f"bandwidth_share = {_ends(share)}"]
        lines += [f"unpack_clocks_per_byte = {_ends(unpack)}"]
        lines += [f"overhead_clocks = {_ends(overhead)}"]
        lines += _residual_lines([row for row in rows if row.engine_class.name == name], fitted)
    return "\n".join(lines) + "\n"


def _verdict_lines(of: Verdict) -> list[str]:
    return [
        f"rows = {of.rows}",
        f"coverage = {of.coverage:.3f}",
        f"median_high_over_low = {of.median_high_over_low:.2f}",
        f"interval_score = {of.interval_score:.3f}",
        "missed = [" + ", ".join(f'"{row_id}"' for row_id in of.missed) + "]",
    ]


def _residual_lines(rows: Sequence[Placed], fitted: Parameters) -> list[str]:
    judged = [(row, predicted(row, fitted)) for row in rows]
    covered = sum(band.low <= _rate(row) <= band.high for row, band in judged)
    lines = [f"rows = {len(rows)}", f"covered = {covered}"]
    if judged:
        width = statistics.median(band.high / band.low for _, band in judged)
        middle = [_rate(row) / math.sqrt(band.low * band.high) for row, band in judged]
        lines += [
            f"median_high_over_low = {width:.2f}",
            f"median_measured_over_middle = {statistics.median(middle):.2f}",
        ]
    return lines


def _ends(band: Band) -> str:
    return f"[{float(band.low)!r}, {float(band.high)!r}]"


def main() -> None:
    """Prints the file; with ``--write`` stores it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("csv", nargs="?", type=Path, default=SHIPPED)
    parser.add_argument("--write", action="store_true", help="store what is printed")
    options = parser.parse_args()
    try:
        rows = _with_figures([place(row) for row in read_rows(options.csv)])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        parser.error(f"{options.csv}: cannot be read: {error}")
    on_gpu = [row for row in rows if row.engine_class.name != PROCESSOR]
    on_cpu = [row for row in rows if row.engine_class.name == PROCESSOR]
    if len({row.board for row in on_gpu}) < FEWEST_BOARDS:
        parser.error(f"{options.csv}: holds usable rows of fewer than {FEWEST_BOARDS} boards")
    fitted = fit(on_gpu, GPU_PARAMETERS)
    fitted = replace(fitted, cpu_bandwidth_share=widest_cpu_share(on_cpu))
    classes, one = leave_one_board_out(on_gpu)
    content = toml(fitted, rows, classes, one, options.csv.name)
    print(content, end="")
    if options.write:
        (HARDWARE_FOLDER / "expected.toml").write_text(content)


if __name__ == "__main__":
    main()
