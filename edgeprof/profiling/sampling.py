"""The sampler: the child process that owns every read of the board."""

import time

from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.messages import Order, SampleJob
from edgeprof.telemetry.sampler import sample
from edgeprof.telemetry.source import Reader
from edgeprof.telemetry.sources.host import host_readers

_SOURCES = {"host": host_readers}


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Read the job's sources until the recorder asks to stop."""
    assert isinstance(job, SampleJob)
    readers: list[Reader] = [
        reader for source in job.sources or ["host"] for reader in _SOURCES[source]()
    ]
    sample(readers, outbox.put, clock=time.monotonic_ns, pause=control.pause)


if __name__ == "__main__":
    serve(work)
