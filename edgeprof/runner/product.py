"""One large matrix product in the runtime that decodes, a weight format and kernel at a time.

One row reads every weight once and computes little: its rate is bandwidth. Many rows share that
read: their best rate is arithmetic. The weights are a random pattern that ONNX Runtime repeats to
the full size when it loads the graph, so that they need no file. Knows nothing of models.
"""

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from edgeprof.errors import EnvironmentFault, NotOffered
from edgeprof.runner.placement import profiled_nodes
from edgeprof.runner.providers import (
    PROVIDERS,
    SessionSetup,
    load_onnxruntime,
    open_session,
    run_bound,
)
from edgeprof.runner.token_model import ModelRun

INNER = 4096  # inputs of every product, the width of a model of 7 G parameters
BLOCK = 32
# By default newer versions leave large constants to be made anew in every run.
FOLD_ALL = {"optimization.constant_folding_max_output_size_in_bytes": str(1 << 40)}
_PATTERN_ROWS = 16
_FOLDED_SHARE = 0.7  # of the weights, by which the process must have grown
_FEW_BYTES = 32 << 20  # may lie where something lay before
_LABEL = "a large product"

Weights = Literal["fp32", "fp16", "int8", "int4"]
_BITS: dict[Weights, int] = {"fp32": 32, "fp16": 16, "int8": 8, "int4": 4}


class Kernel(NamedTuple):
    """How weights are stored and multiplied. ``accuracy_level`` is MatMulNBits' own: 4 rounds the
    activations to 8 bits, 0 leaves them as they are."""

    weights: Weights
    accuracy_level: int | None = None

    @property
    def operator(self) -> str:
        """As sessions name it: ``int4 MatMulNBits``."""
        return f"{self.weights} {'MatMulNBits' if self.is_quantised else 'MatMul'}"

    @property
    def label(self) -> str:
        """``int4:4``: the format and the accuracy level."""
        return self.weights + ("" if self.accuracy_level is None else f":{self.accuracy_level}")

    @property
    def is_quantised(self) -> bool:
        return self.weights in ("int8", "int4")

    @property
    def bytes_per_weight(self) -> float:
        """Float32 scales, one a block, included."""
        return _BITS[self.weights] / 8 + (4 / BLOCK if self.is_quantised else 0)


# 8-bit products without rounded activations take a path on the CPU that no decoder would choose.
KERNELS: dict[str, tuple[Kernel, ...]] = {
    "cpu": (
        Kernel("fp32"),
        Kernel("fp16"),
        Kernel("int8", 4),
        Kernel("int4", 4),
        Kernel("int4", 0),
    ),
    "cuda": (Kernel("fp32"), Kernel("fp16"), Kernel("int8", 0), Kernel("int4", 0)),
    "tensorrt": (Kernel("fp32"), Kernel("fp16")),
}


class Product:
    """A product of any number of rows with [INNER, columns] weights, loaded on a provider.

    Raises NotOffered where the provider has no such kernel, EnvironmentFault where there is no
    memory for it.
    """

    def __init__(self, kernel: Kernel, columns: int, setup: SessionSetup) -> None:
        self.columns = columns
        self.weight_bytes = round(kernel.bytes_per_weight * INNER * columns)
        self.flop_per_row = 2 * INNER * columns
        self._device = PROVIDERS[setup.provider].device
        # Quantised weights are multiplied with the activations that decoders have there.
        halves = kernel.weights == "fp16" or (kernel.is_quantised and setup.provider != "cpu")
        self._element = np.float16 if halves else np.float32
        if kernel.weights == "fp16" and setup.provider == "cpu":
            _require_half_precision(setup)
        before_bytes = resident_bytes()
        graph = product_graph(kernel, columns, self._element)
        self._session = open_session(graph, setup, entries=FOLD_ALL, alone=True)
        require_growth(before_bytes, self.weight_bytes, setup.provider)
        self._bindings: dict[int, _Binding] = {}

    def run(self, rows: int) -> None:
        """Multiply once. The first time for a number of rows takes longer."""
        if rows not in self._bindings:
            given = np.random.default_rng(rows).standard_normal((rows, INNER), dtype=np.float32)
            self._bindings[rows] = _Binding(
                self._session,
                self._device,
                {"rows": given.astype(self._element)},
                {"product": np.zeros((rows, self.columns), self._element)},
            )
        self._bindings[rows].run(_LABEL)


class Stream:
    """A pass over ``size_bytes`` of memory and nothing else: it is read, or copied.

    ``moved_bytes`` counts each byte that is read or written once, as programs see it.
    """

    def __init__(self, kind: Literal["read", "copy"], size_bytes: int, setup: SessionSetup) -> None:
        rows = max(size_bytes // (4 * INNER), 1)
        source = np.ones((rows, INNER), np.float32)
        target = np.zeros((rows, 1) if kind == "read" else source.shape, np.float32)
        self.moved_bytes = source.nbytes + (target.nbytes if kind == "copy" else 0)
        session = open_session(_stream_graph(kind), setup, alone=True)
        device = PROVIDERS[setup.provider].device
        self._binding = _Binding(session, device, {"source": source}, {"target": target})

    def run(self) -> None:
        self._binding.run("a pass over memory")


class _Binding:
    """What one size of run reads and writes, kept where it is computed.

    On the CPU the runtime uses the arrays' own memory and does not hold it: they are kept here.
    """

    def __init__(
        self, session: Any, device: str, given: dict[str, Any], room: dict[str, Any]
    ) -> None:
        value = load_onnxruntime().OrtValue.ortvalue_from_numpy
        self._session = session
        self._on_host = device == "cpu"
        self._inputs = {name: value(array, device, 0) for name, array in given.items()}
        self._outputs = {name: value(array, device, 0) for name, array in room.items()}
        self._arrays = (given, room) if self._on_host else ()
        self._io = session.io_binding()
        for name, one in self._inputs.items():
            self._io.bind_ortvalue_input(name, one)
        for name, one in self._outputs.items():
            self._io.bind_ortvalue_output(name, one)

    def run(self, label: str) -> None:
        """Returns once the results are there."""
        run_bound(self._session, self._io, label)
        if not self._on_host:
            self._io.synchronize_outputs()


def timed_runs(
    run: Callable[[int], None],
    sizes: Sequence[int],
    *,
    warm_s: float,
    budget_s: float,
    rounds: tuple[int, int],
    clock: Callable[[], int] = time.monotonic_ns,
) -> Iterator[ModelRun]:
    """Runs of every size, each once a round, in random order, so that a drift falls on all alike.

    Warms up first, at least ``warm_s`` and each size once, for clocks that rise with load. Then no
    fewer and no more ``rounds`` than given, and between the two as many as ``budget_s`` has time
    for.
    """
    start_ns = clock()
    warmed = False
    while not warmed or clock() - start_ns < warm_s * 1e9:
        for size in sizes:
            run(size)
        warmed = True
    order, chooser = list(sizes), random.Random(0)
    start_ns = clock()
    for done in range(rounds[1]):
        if done >= rounds[0] and clock() - start_ns > budget_s * 1e9:
            return
        chooser.shuffle(order)
        for size in order:
            t0_ns = clock()
            run(size)
            yield ModelRun(size, 0, t0_ns, clock())


def product_graph(kernel: Kernel, columns: int, element: Any = np.float32) -> bytes:
    """rows [R, INNER] -> product [R, columns]."""
    from onnx import TensorProto, helper

    if kernel.is_quantised:
        bits = _BITS[kernel.weights]
        blocks = INNER // BLOCK
        nodes, constants = _repeated("weights", (columns, blocks, BLOCK * bits // 8), np.uint8)
        scales = _repeated("scales", (columns, blocks), element)
        nodes, constants = nodes + scales[0], constants + scales[1]
        multiply = helper.make_node(
            "MatMulNBits",
            ["rows", "weights", "scales"],
            ["product"],
            domain="com.microsoft",
            K=INNER,
            N=columns,
            bits=bits,
            block_size=BLOCK,
            accuracy_level=kernel.accuracy_level,
        )
    else:
        nodes, constants = _repeated("weights", (INNER, columns), element)
        multiply = helper.make_node("MatMul", ["rows", "weights"], ["product"])
    code = TensorProto.FLOAT16 if element == np.float16 else TensorProto.FLOAT
    graph = helper.make_graph(
        [*nodes, multiply],
        "product",
        [helper.make_tensor_value_info("rows", code, ["R", INNER])],
        [helper.make_tensor_value_info("product", code, ["R", columns])],
        constants,
    )
    return _serialised(graph)


def _repeated(name: str, shape: tuple[int, ...], element: Any) -> tuple[list[Any], list[Any]]:
    """The node that makes a weight of a pattern of rows, and its constants."""
    from onnx import helper, numpy_helper

    rows = next(rows for rows in range(_PATTERN_ROWS, 0, -1) if shape[0] % rows == 0)
    generator = np.random.default_rng(len(name))
    pattern: Any
    if element == np.uint8:
        pattern = generator.integers(0, 256, (rows, *shape[1:]), dtype=np.uint8)
    else:
        pattern = generator.random((rows, *shape[1:]), dtype=np.float32).astype(element) / 64
    repeats = np.array([shape[0] // rows, *[1] * (len(shape) - 1)], dtype=np.int64)
    constants = [
        numpy_helper.from_array(pattern, f"{name}_pattern"),
        numpy_helper.from_array(repeats, f"{name}_repeats"),
    ]
    return [helper.make_node("Tile", [c.name for c in constants], [name])], constants


def _stream_graph(kind: str) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    columns = INNER if kind == "copy" else 1
    axis = numpy_helper.from_array(np.array([1], dtype=np.int64), "axis")
    if kind == "copy":
        node = helper.make_node("Neg", ["source"], ["target"])
    else:
        node = helper.make_node("ReduceSum", ["source", "axis"], ["target"], keepdims=1)
    graph = helper.make_graph(
        [node],
        "stream",
        [helper.make_tensor_value_info("source", TensorProto.FLOAT, ["R", INNER])],
        [helper.make_tensor_value_info("target", TensorProto.FLOAT, ["R", columns])],
        [axis] if kind == "read" else [],
    )
    return _serialised(graph)


def _serialised(graph: Any) -> bytes:
    from onnx import helper

    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def _require_half_precision(setup: SessionSetup) -> None:
    """NotOffered where the provider widens half floats before it multiplies them: then it
    would be the single-precision kernel that is measured."""
    graph = product_graph(Kernel("fp16"), 64, np.float16)
    with tempfile.TemporaryDirectory(prefix="edgeprof-") as scratch:
        session = open_session(graph, setup, profile_prefix=Path(scratch) / "pass")
        session.run(None, {"rows": np.ones((2, INNER), np.float16)})
        ran = profiled_nodes(Path(session.end_profiling()))
    if any("Cast" in operators for operators in ran.values()):
        raise NotOffered(
            f"provider {setup.provider!r} has no half-precision product: it widens to fp32"
        )


def resident_bytes() -> int | None:
    """What this process holds in memory; None where the system does not tell."""
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return None
    match = re.search(r"^VmRSS:\s*(\d{1,15}) kB", text, re.M)
    return int(match[1]) << 10 if match else None


def require_growth(before_bytes: int | None, weight_bytes: int, provider: str) -> None:
    """EnvironmentFault where a session was opened that does not hold its weights: such a one would
    make them anew in every pass. Short of memory onnxruntime gives up making them and says nothing.
    On the CPU only: elsewhere they lie on the device."""
    now_bytes = resident_bytes()
    if before_bytes is None or now_bytes is None:
        return
    if provider != "cpu" or weight_bytes < _FEW_BYTES:
        return
    if now_bytes - before_bytes < _FOLDED_SHARE * weight_bytes:
        raise EnvironmentFault(
            f"onnxruntime {load_onnxruntime().__version__} did not make {weight_bytes / 1e6:.0f} MB"
            " of weights when it loaded the graph, so that nothing can be measured: memory is short"
            " or limited; if it is not, take another version"
        )
