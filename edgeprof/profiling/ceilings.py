"""The legs that measure what the runtime reaches on this machine at best."""

import time
from importlib.util import find_spec

from edgeprof.profiling.journal import Journal, ModelName
from edgeprof.profiling.messages import DecodeJob
from edgeprof.runner.ceiling import measure_ceilings


def run_ceilings(job: DecodeJob, journal: Journal) -> None:
    """Once for every number of threads that a target on the CPU uses.

    Runs before the models are loaded, whose memory it would need. Without the package onnx, which
    builds its graphs, a note takes its place.
    """
    if not job.recipe.measure_ceiling:
        return
    on_cpu = [m for m in job.models.values() if m.role == "target" and m.provider == "cpu"]
    if on_cpu and find_spec("onnx") is None:
        journal.note(None, "skipped", {"what": "ceilings", "cause": "no package onnx"})
        return
    for threads in sorted({model.threads for model in on_cpu}):
        _run(threads, journal)


def _run(threads: int, journal: Journal) -> None:
    for ceiling in measure_ceilings(threads=threads, clock=time.monotonic_ns):
        attrs = {
            "weight_bytes": ceiling.weight_bytes,
            "flop_per_row": ceiling.flop_per_row,
            "threads": threads,
        }
        with journal.leg(
            f"ceiling {ceiling.kernel}",
            kind="ceiling",
            variant=ceiling.kernel,
            t0_ns=ceiling.runs[0].t0_ns,
            attrs=attrs,
        ) as leg:
            for run in ceiling.runs:
                journal.run(leg, "ceiling", ModelName(ceiling.kernel, "cpu"), run)
