"""The child process that times one part of a probe. Knows nothing of profiles or of the board."""

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from edgeprof.runner.ort_model import OrtModel

CONTEXT_TOKENS = 128  # cached before the passes of a stack of layers
_GEMM_COLUMNS = 4096  # few enough that arithmetic is all that many rows take
_GEMM_ROWS = (128, 256)
_GEMM_ROUNDS = (4, 7)
_clock = time.monotonic_ns


class _Stopped(Exception):
    """The parent wants no more."""


def work(job: Order, outbox: Outbox, control: Control) -> None:
    """Time the job's part, and tell every run as it is done, until the order to stop."""
    assert isinstance(job, ProbeJob)
    part = _Part(job, outbox, control)
    with suppress(_Stopped):
        parts: dict[str, Callable[[], None]] = {
            "read": part.stream,
            "copy": part.stream,
            "load": part.load,
            "product": part.product,
            "model": part.model,
        }
        parts[job.part]()
    outbox.put(Ended(interrupted=control.stop_asked()))


class _Part:
    """One part, set up as its job says."""

    def __init__(self, job: ProbeJob, outbox: Outbox, control: Control) -> None:
        self._job = job
        self._setup = SessionSetup(job.provider, job.threads)
        self._outbox = outbox
        self._control = control

    def stream(self) -> None:
        job = self._job
        stream = Stream("copy" if job.part == "copy" else "read", job.size_bytes, self._setup)
        self._tell_facts({"moved_bytes": stream.moved_bytes})
        for run in self._timed(lambda size: stream.run(), [1], job.rounds):
            self._tell(job.part, 1, run.t0_ns, run.t1_ns)

    def load(self) -> None:
        """Read as fast as can be until told to stop; every run tells how many bytes it was."""
        stream = Stream("read", self._job.size_bytes, self._setup)
        while True:
            t0_ns = _clock()
            self._go_on(stream.run)
            self._tell("load", stream.moved_bytes, t0_ns, _clock())

    def product(self) -> None:
        """Growing numbers of rows through one large matrix, then many through a smaller one."""
        job = self._job
        kernel = Kernel(msgspec.convert(job.weights, Weights), job.accuracy_level)
        columns = max(int(job.size_bytes / (kernel.bytes_per_weight * INNER)) // 64, 1) * 64
        product = Product(kernel, columns, self._setup)
        weight_bytes, flop_per_row = product.weight_bytes, product.flop_per_row
        self._tell_facts({"weight_bytes": weight_bytes, "flop_per_row": flop_per_row})
        for run in self._timed(product.run, job.sizes, job.rounds):
            self._tell("rows", run.tokens, run.t0_ns, run.t1_ns)
        del product
        gc.collect()
        gemm = Product(kernel, min(_GEMM_COLUMNS, columns), self._setup)
        self._tell_facts({"gemm_flop_per_row": gemm.flop_per_row})
        for run in self._timed(gemm.run, _GEMM_ROWS, _GEMM_ROUNDS):
            self._tell("gemm", run.tokens, run.t0_ns, run.t1_ns)

    def model(self) -> None:
        """Passes of every size through a stack of layers, with the output head; where layers are
        missing, without it too."""
        model, layers = self._open_stack()
        assert self._job.model is not None
        model.extend([0] * CONTEXT_TOKENS, rows=1)

        def run(signed_size: int) -> None:
            """A negative size is that of a pass without the head."""
            size = abs(signed_size)
            model.extend(list(range(size)), rows=None if signed_size > 0 else 0)
            model.rewind(CONTEXT_TOKENS)

        sizes = [*self._job.sizes]
        if layers < self._job.model.layers:
            sizes += [-size for size in self._job.sizes]
        for timed in self._timed(run, sizes, self._job.rounds):
            what = "whole" if timed.tokens > 0 else "headless"
            self._tell(what, abs(timed.tokens), *model.stamps_ns)

    def _open_stack(self) -> "tuple[OrtModel, int]":
        """The stack, loaded, and the number of its layers."""
        from edgeprof.convert.synthetic import build_decoder
        from edgeprof.runner.ort_model import OrtModel

        job = self._job
        assert job.model is not None
        capacity = CONTEXT_TOKENS + max(job.sizes)
        with tempfile.TemporaryDirectory(prefix="edgeprof-") as scratch:
            stack = build_decoder(job.model, job.layers, Path(scratch), context_tokens=capacity + 1)
            before_bytes = resident_bytes()
            model = OrtModel.open(stack.folder, self._setup, capacity=capacity, entries=FOLD_ALL)
        manifest = stack.folder.manifest
        assert manifest is not None
        require_growth(before_bytes, manifest.resident_weight_bytes, job.provider)
        self._tell_facts(
            {
                "layers": stack.layers,
                "layer_bytes": stack.layer_bytes,
                "all_layer_bytes": stack.all_layer_bytes,
                "stack_bytes": manifest.streamed_weight_bytes,
                "flop_per_token": manifest.flop_per_token,
                "kv_bytes_per_token": manifest.kv_bytes_per_token,
            }
        )
        return model, stack.layers

    def _timed(
        self, run: Callable[[int], None], sizes: Sequence[int], rounds: tuple[int, int]
    ) -> Iterator[ModelRun]:
        return timed_runs(
            lambda size: self._go_on(lambda: run(size)),
            sizes,
            warm_s=self._job.warm_s,
            budget_s=self._job.budget_s,
            rounds=rounds,
            clock=_clock,
        )

    def _go_on(self, run: Callable[[], None]) -> None:
        """Run, unless there is the wish to stop."""
        if self._control.stop_asked():
            raise _Stopped
        run()

    def _tell(self, what: str, size: int, t0_ns: int, t1_ns: int) -> None:
        self._outbox.put(ProbeRun(what=what, size=size, t0_ns=t0_ns, t1_ns=t1_ns))

    def _tell_facts(self, facts: dict[str, int]) -> None:
        self._outbox.put(ProbeFacts(facts=facts))


if __name__ == "__main__":
    serve(work)
