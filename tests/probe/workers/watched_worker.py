"""Does what a probe's worker does; how many bytes it has read stands in a file that others watch.

The count is taken of the memory that a pass is given, not of what the worker tells.
"""

import mmap
import os
import struct
from typing import Any

from edgeprof.probe import worker
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.messages import Order

STREAM = vars(worker)["Stream"]


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Every pass over memory adds to the count as it ends."""
    with open(os.environ["WATCHED_BYTES"], "r+b") as file:
        count = mmap.mmap(file.fileno(), 8)

    class Watched(STREAM):  # type: ignore[misc, valid-type]
        def run(self) -> None:
            super().run()
            given: dict[str, Any] = self._binding._arrays[0]
            read = sum(array.nbytes for array in given.values())
            struct.pack_into("<q", count, 0, struct.unpack_from("<q", count)[0] + read)

    vars(worker)["Stream"] = Watched
    worker.work(job, outbox, control)


if __name__ == "__main__":
    serve(work)
