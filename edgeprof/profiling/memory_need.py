"""What a job's models will occupy, from their graphs, before anything is loaded."""

from collections.abc import Iterable

from msgspec import Struct

from edgeprof.analysis.memory import RUNTIME_BYTES
from edgeprof.models.readers.onnx_graph import OnnxGraph
from edgeprof.runner.graph_layout import ELEMENTS, Layout

# A process with onnxruntime in it, measured on x86; a CUDA runtime as analysis.memory has it.
# What TensorRT needs to build an engine is not known beforehand and not counted.
_PROCESS_BYTES = 64 << 20
_RUNTIME_BYTES = {"cpu": 0, "cuda": RUNTIME_BYTES, "tensorrt": RUNTIME_BYTES}


class MemoryNeed(Struct, frozen=True, kw_only=True):
    """Everything resident at once. Weights count as they are stored: kernels of the CPU pack some
    of them again, which may take up to as much once more and is not counted."""

    weights_bytes: int
    cache_bytes: int
    logits_bytes: int
    runtime_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.weights_bytes + self.cache_bytes + self.logits_bytes + self.runtime_bytes

    def __str__(self) -> str:
        parts = (
            ("weights", self.weights_bytes),
            ("caches", self.cache_bytes),
            ("logits", self.logits_bytes),
            ("the runtime", self.runtime_bytes),
        )
        return ", ".join(f"{size / 2**30:.2f} GiB for {name}" for name, size in parts)


def model_need(
    graph: OnnxGraph, layout: Layout, *, slots: int, prompt_tokens: int, vocab_size: int
) -> MemoryNeed:
    """Of one model with a cache of ``slots`` tokens, without the runtime.

    A graph that cannot be told which rows are wanted gives logits for all of the ``prompt_tokens``
    of a pass.
    """
    rows = 1 if layout.chooses_rows else prompt_tokens
    row_bytes = (layout.columns or vocab_size) * ELEMENTS[layout.logits_storage].size
    return MemoryNeed(
        weights_bytes=sum(tensor.byte_length for tensor in graph.tensors.values()),
        cache_bytes=slots * layout.cache_bytes_per_token,
        logits_bytes=rows * row_bytes,
        runtime_bytes=0,
    )


def job_need(needs: Iterable[MemoryNeed], providers: Iterable[str]) -> MemoryNeed:
    """Of all models in one process, the runtimes of their providers included."""
    models = list(needs)
    return MemoryNeed(
        weights_bytes=sum(need.weights_bytes for need in models),
        cache_bytes=sum(need.cache_bytes for need in models),
        logits_bytes=sum(need.logits_bytes for need in models),
        runtime_bytes=_PROCESS_BYTES + max(_RUNTIME_BYTES[name] for name in providers),
    )
