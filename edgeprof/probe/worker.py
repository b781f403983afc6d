"""The child process that times one part of a probe. Knows nothing of profiles or of the board."""

import gc
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from edgeprof.profiling.channel import Outbox
from edgeprof.profiling.child import Control, serve
from edgeprof.profiling.messages import Ended, Order, ProbeFacts, ProbeJob, ProbeRun
from edgeprof.runner.product import (
    FOLD_ALL,
    INNER,
    Kernel,
    Product,
    Stream,
    Weights,
    require_growth,
    resident_bytes,
    timed_runs,
)
from edgeprof.runner.providers import SessionSetup
from edgeprof.runner.token_model import ModelRun

CONTEXT_TOKENS = 128  # cached before the passes of a stack of layers
_GEMM_COLUMNS = 4096  # few enough that arithmetic is all that many rows take
_GEMM_ROWS = (128, 256)
_GEMM_ROUNDS = (4, 7)
_clock = time.monotonic_ns


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Time the job's part, and tell every run as it is done."""
    assert isinstance(job, ProbeJob)
    setup = SessionSetup(job.provider, job.threads)
    parts: dict[str, Callable[[], None]] = {
        "read": lambda: _stream(job, setup, outbox, control),
        "copy": lambda: _stream(job, setup, outbox, control),
        "load": lambda: _load(job, setup, outbox, control),
        "product": lambda: _product(job, setup, outbox, control),
        "model": lambda: _model(job, setup, outbox, control),
    }
    parts[job.part]()
    outbox.put(Ended(interrupted=control.stop_asked()))


def _stream(job: ProbeJob, setup: SessionSetup, outbox: Outbox, control: Control) -> None:
    stream = Stream("copy" if job.part == "copy" else "read", job.size_bytes, setup)
    outbox.put(ProbeFacts(facts={"moved_bytes": stream.moved_bytes}))
    runs = _timed(job, lambda size: stream.run(), [1], job.rounds)
    _tell(job.part, runs, outbox, control)


def _load(job: ProbeJob, setup: SessionSetup, outbox: Outbox, control: Control) -> None:
    """Read as fast as can be until told to stop; every run tells how many bytes it was."""
    stream = Stream("read", job.size_bytes, setup)
    while not control.stop_asked():
        t0_ns = _clock()
        stream.run()
        outbox.put(ProbeRun(what="load", size=stream.moved_bytes, t0_ns=t0_ns, t1_ns=_clock()))


def _product(job: ProbeJob, setup: SessionSetup, outbox: Outbox, control: Control) -> None:
    """Growing numbers of rows through one large matrix, then many rows through a smaller one."""
    kernel = Kernel(msgspec.convert(job.weights, Weights), job.accuracy_level)
    columns = max(int(job.size_bytes / (kernel.bytes_per_weight * INNER)) // 64, 1) * 64
    product = Product(kernel, columns, setup)
    facts = {"weight_bytes": product.weight_bytes, "flop_per_row": product.flop_per_row}
    outbox.put(ProbeFacts(facts=facts))
    if not _tell("rows", _timed(job, product.run, job.sizes, job.rounds), outbox, control):
        return
    del product
    gc.collect()
    gemm = Product(kernel, min(_GEMM_COLUMNS, columns), setup)
    outbox.put(ProbeFacts(facts={"gemm_flop_per_row": gemm.flop_per_row}))
    _tell("gemm", _timed(job, gemm.run, _GEMM_ROWS, _GEMM_ROUNDS), outbox, control)


def _model(job: ProbeJob, setup: SessionSetup, outbox: Outbox, control: Control) -> None:
    """Passes of every size through a stack of layers, with the output head and without it."""
    from edgeprof.convert.synthetic import build_decoder
    from edgeprof.runner.ort_model import OrtModel

    assert job.model is not None
    capacity = CONTEXT_TOKENS + max(job.sizes)
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as scratch:
        stack = build_decoder(job.model, job.layers, Path(scratch), context_tokens=capacity + 1)
        before_bytes = resident_bytes()
        model = OrtModel.open(stack.folder, setup, capacity=capacity, entries=FOLD_ALL)
    manifest = stack.folder.manifest
    assert manifest is not None
    require_growth(before_bytes, manifest.resident_weight_bytes, job.provider)
    outbox.put(
        ProbeFacts(
            facts={
                "layers": stack.layers,
                "layer_bytes": stack.layer_bytes,
                "all_layer_bytes": stack.all_layer_bytes,
                "stack_bytes": manifest.streamed_weight_bytes,
                "flop_per_token": manifest.flop_per_token,
                "kv_bytes_per_token": manifest.kv_bytes_per_token,
            }
        )
    )
    model.extend([0] * CONTEXT_TOKENS, rows=1)

    def run(signed_size: int) -> None:
        """A negative size is that of a pass without the head."""
        size = abs(signed_size)
        model.extend(list(range(size)), rows=None if signed_size > 0 else 0)
        model.rewind(CONTEXT_TOKENS)

    sizes = [*job.sizes]
    if stack.layers < job.model.layers:
        sizes += [-size for size in job.sizes]
    for timed in _timed(job, run, sizes, job.rounds):
        size, (t0_ns, t1_ns) = timed.tokens, model.stamps_ns
        what = "whole" if size > 0 else "headless"
        outbox.put(ProbeRun(what=what, size=abs(size), t0_ns=t0_ns, t1_ns=t1_ns))
        if control.stop_asked():
            return


def _timed(
    job: ProbeJob, run: Callable[[int], None], sizes: "list[int] | tuple[int, ...]",
    rounds: tuple[int, int],
) -> Iterator[ModelRun]:  # fmt: skip
    return timed_runs(
        run, sizes, warm_s=job.warm_s, budget_s=job.budget_s, rounds=rounds, clock=_clock
    )


def _tell(what: str, runs: Iterator[ModelRun], outbox: Outbox, control: Control) -> bool:
    """Tell the runs as they come; False where there was the wish to stop."""
    for run in runs:
        outbox.put(ProbeRun(what=what, size=run.tokens, t0_ns=run.t0_ns, t1_ns=run.t1_ns))
        if control.stop_asked():
            return False
    return True


if __name__ == "__main__":
    serve(work)
