"""Stands in for ``tegrastats`` on an emulated board: composes lines from the files that it finds.

The form of a line follows the board's release. Like the real one it tells nothing of the memory
controller to a user who may not open debugfs: newer releases leave the field out, older ones
print a zero without a clock. The percentages of the CPU are made up.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from emulated import tree
from emulated.boards import BOARDS, Board


class Composer:
    """Makes the lines of one board below ``root``; keeps the means and maxima that they show."""

    def __init__(self, board: Board, root: Path = Path("/")) -> None:
        self._board = board
        self._root = root
        self._seen: defaultdict[str, list[float]] = defaultdict(list)

    def line(self) -> str:
        release = self._board.l4t[0]
        stamp = [time.strftime("%m-%d-%Y %H:%M:%S")] if release >= 34 else []
        engines = ["NVENC off", "NVDEC off"] if release >= 36 else []
        parts = [self._memory(), self._cpu(), *self._emc(), self._gpu(), *engines, "APE 174"]
        return " ".join([*stamp, *parts, *self._temperatures(), *self._rails()])

    def _memory(self) -> str:
        rows = (line.split() for line in self._text("/proc/meminfo").splitlines())
        mib = {row[0].rstrip(":"): int(row[1]) >> 10 for row in rows}
        used = mib["MemTotal"] - mib["MemFree"] - mib["Buffers"] - mib["Cached"]
        swap = f"{mib['SwapTotal'] - mib['SwapFree']}/{mib['SwapTotal']}MB (cached 0MB)"
        return f"RAM {used}/{mib['MemTotal']}MB (lfb 33x4MB) SWAP {swap}"

    def _cpu(self) -> str:
        mhz = self._board.cpu_khz[0] // 1000
        return f"CPU [{','.join(f'{core % 3}%@{mhz}' for core in range(self._board.cores))}]"

    def _emc(self) -> Iterator[str]:
        clock_hz = self._number(tree.clock_nodes(self._board)[0])
        activity = self._number(tree.activity_nodes(self._board)[0])
        if clock_hz is None:
            if self._board.l4t[0] < 36:
                yield "EMC_FREQ 0%"
        elif activity is None:
            yield f"EMC_FREQ @{clock_hz // 10**6}"
        else:
            # A Thor's prints a share too, which nobody has checked.
            khz = activity if self._board.counts_khz else activity // 20
            yield f"EMC_FREQ {100_000 * khz // clock_hz}%@{clock_hz // 10**6}"

    def _gpu(self) -> str:
        node = tree.gpu_load_node(self._board)
        load = None if node is None else self._number(node)
        share = "" if load is None else f"{load // 10}%"
        mhz = (self._number(tree.gpu_clock_node(self._board)) or 0) // 10**6
        clocks = f"[{mhz},{mhz}]" if self._board.l4t[0] >= 35 else f"{mhz}"
        return f"GR3D_FREQ {share}@{clocks}"

    def _temperatures(self) -> Iterator[str]:
        for zone, folder in tree.zone_folders(self._board).items():
            milli = self._number(f"{folder}/temp")
            name = zone.partition("-")[0]
            celsius = -256.0 if milli is None else milli / 1000
            yield f"{name}@{celsius:g}C" + self._maximum(name, celsius, "C")

    def _rails(self) -> Iterator[str]:
        unit = "mW" if self._board.l4t[0] >= 34 else ""
        for label, nodes in tree.rail_nodes(self._board).items():
            mv, ma = self._number(nodes.mv), self._number(nodes.ma)
            if mv is None or ma is None:
                continue
            mw = mv * ma // 1000
            seen = self._seen[label]
            seen.append(mw)
            mean = f"{sum(seen) // len(seen):.0f}{unit}"
            yield f"{label} {mw}{unit}/{mean}" + self._maximum(label, mw, unit)

    def _maximum(self, name: str, value: float, unit: str) -> str:
        """Shown from release 39 on."""
        self._seen[name].append(value)
        return f"/{max(self._seen[name]):g}{unit}" if self._board.l4t[0] >= 39 else ""

    def _number(self, node: str) -> int | None:
        try:
            return int(self._text(node))
        except (OSError, ValueError):
            return None

    def _text(self, node: str) -> str:
        return (self._root / node.lstrip("/")).read_text()


def main(board: str, *options: str) -> None:
    """Print a line every ``--interval`` milliseconds until nobody reads them."""
    interval_s = 1.0
    if "--interval" in options:
        interval_s = int(options[options.index("--interval") + 1]) / 1000
    composer = Composer(BOARDS[board])
    due_s = time.monotonic()
    try:
        while True:
            print(composer.line(), flush=True)
            due_s += interval_s
            time.sleep(max(due_s - time.monotonic(), 0))
    except (BrokenPipeError, KeyboardInterrupt):
        sys.stderr.close()  # says nothing of what could not be flushed


if __name__ == "__main__":
    main(*sys.argv[1:])
