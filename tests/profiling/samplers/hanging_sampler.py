"""The sampler over a board of two nodes, of which reading one blocks for ever after a while."""

import os
import time
from collections.abc import Mapping

from edgeprof.profiling.child import serve
from edgeprof.profiling.sampling import work
from edgeprof.telemetry.source import BoardFigures, Channel, Offer, Reader, Reading
from edgeprof.telemetry.sources import sysfs

_GOOD_FOR_S = 0.5


def open_board(board: BoardFigures, lent: object = None) -> Offer:
    start_s = time.monotonic()
    nothing_comes, _ = os.pipe()

    def good() -> Mapping[str, Reading]:
        return {"ram_used_bytes": Reading(1e9)}

    def bad() -> Mapping[str, Reading]:
        if time.monotonic() - start_s > _GOOD_FOR_S:
            os.read(nothing_comes, 1)
        return {"emc_busy_frac": Reading(0.5)}

    return Offer(
        readers=[
            Reader(
                source="sysfs", name=name, channels=[Channel(name=signal)], rate_hz=20, read=read
            )
            for name, signal, read in (
                ("memory", "ram_used_bytes", good),
                ("EMC activity", "emc_busy_frac", bad),
            )
        ]
    )


if __name__ == "__main__":
    sysfs.open_sysfs = open_board
    serve(work)
