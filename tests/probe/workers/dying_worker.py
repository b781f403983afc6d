"""Does what a probe's worker does, but is killed in the middle of a product."""

import os
import signal
from typing import Any

from edgeprof.probe import worker
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.messages import Order, ProbeJob

PRODUCT = vars(worker)["Product"]


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """The second product of a job, which comes after the rows, is its end."""
    assert isinstance(job, ProbeJob)
    made: list[Any] = []

    def product(*arguments: Any) -> Any:
        if made:
            outbox.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        made.append(arguments)
        return PRODUCT(*arguments)

    vars(worker)["Product"] = product
    worker.work(job, outbox, control)


if __name__ == "__main__":
    serve(work)
