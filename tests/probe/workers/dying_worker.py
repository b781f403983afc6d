"""Does what a probe's worker does, but is killed in the middle of a product."""

import os
import signal

from edgeprof.probe import worker
from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.messages import Order, ProbeJob


def work(job: Order, outbox: Outbox, control: Control) -> None:
    assert isinstance(job, ProbeJob)
    if job.part == "product":

        class Dying(worker.Product):
            def __init__(self, *arguments: object) -> None:
                if hasattr(Dying, "made"):  # the second product, after the rows
                    outbox.flush()
                    os.kill(os.getpid(), signal.SIGKILL)
                Dying.made = True  # type: ignore[attr-defined]
                super().__init__(*arguments)  # type: ignore[arg-type]

        worker.Product = Dying  # type: ignore[misc]
    worker.work(job, outbox, control)


if __name__ == "__main__":
    serve(work)
