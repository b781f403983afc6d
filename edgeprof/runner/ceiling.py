"""The ceilings of this machine inside the runtime that decodes: one large product a weight format.

One row reads every weight once and computes little: its rate is bandwidth. Many rows share that
read: their best rate is arithmetic. Both are honest lower bounds of the hardware.
"""

import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from edgeprof.runner.providers import SessionSetup, load_onnxruntime, open_session
from edgeprof.runner.token_model import ModelRun

_INNER = 4096
_ROWS = (1, 4, 16, 64)
_REPEATS = 7
_WARMUP_ROUNDS = 1
_BLOCK = 32
# Several times what a cache holds on common machines; the last-level cache is in the session.
_FP32_COLUMNS = 32_768  # 0.54 GB
_INT4_COLUMNS = 131_072  # 0.27 GB of values, 0.07 GB of scales


class Ceiling(NamedTuple):
    """One kernel's runs; ``tokens`` of a run is its number of rows."""

    kernel: str
    weight_bytes: int
    flop_per_row: int
    runs: list[ModelRun]


def measure_ceilings(
    *, threads: int, clock: Callable[[], int] = time.monotonic_ns
) -> Iterator[Ceiling]:
    """Time fp32 MatMul and int4 MatMulNBits (int8 activations) at 1, 4, 16 and 64 rows.

    CPU provider. Needs about 1.2 GB of memory at a time; needs the ``onnx`` package.
    """
    for kernel, columns, nodes, weight_bytes in (
        ("fp32 MatMul", _FP32_COLUMNS, _fp32_product(), 4 * _INNER * _FP32_COLUMNS),
        (
            "int4 MatMulNBits",
            _INT4_COLUMNS,
            _int4_product(),
            _INNER * _INT4_COLUMNS // 2 + 4 * _INNER // _BLOCK * _INT4_COLUMNS,
        ),
    ):
        runs = _time_rows(_graph(nodes, columns), columns, threads, clock)
        yield Ceiling(kernel, weight_bytes, 2 * _INNER * columns, runs)


def _fp32_product() -> list[Any]:
    from onnx import helper

    return [
        *_constant("weights", (_INNER, _FP32_COLUMNS), np.float32(0.5)),
        helper.make_node("MatMul", ["rows", "weights"], ["product"]),
    ]


def _int4_product() -> list[Any]:
    from onnx import helper

    blocks = _INNER // _BLOCK
    return [
        *_constant("weights", (_INT4_COLUMNS, blocks, _BLOCK // 2), np.uint8(0x9A)),
        *_constant("scales", (_INT4_COLUMNS, blocks), np.float32(0.5)),
        helper.make_node(
            "MatMulNBits",
            ["rows", "weights", "scales"],
            ["product"],
            domain="com.microsoft",
            K=_INNER,
            N=_INT4_COLUMNS,
            bits=4,
            block_size=_BLOCK,
            accuracy_level=4,
        ),
    ]


def _constant(name: str, shape: tuple[int, ...], value: Any) -> list[Any]:
    """Weights that need no file: onnxruntime folds them into memory when it loads the graph."""
    from onnx import helper, numpy_helper

    filled = numpy_helper.from_array(np.array([value]))
    return [
        helper.make_node("Constant", [], [f"{name}_shape"], value_ints=shape),
        helper.make_node("ConstantOfShape", [f"{name}_shape"], [name], value=filled),
    ]


def _graph(nodes: list[Any], columns: int) -> bytes:
    from onnx import TensorProto, helper

    rows = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["R", _INNER])
    product = helper.make_tensor_value_info("product", TensorProto.FLOAT, ["R", columns])
    graph = helper.make_graph(nodes, "ceiling", [rows], [product])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    content: bytes = model.SerializeToString()
    return content


def _time_rows(
    graph: bytes, columns: int, threads: int, clock: Callable[[], int]
) -> list[ModelRun]:
    """Runs of every number of rows, interleaved in random order, without the warm-up round."""
    session = open_session(graph, SessionSetup("cpu", threads))
    value = load_onnxruntime().OrtValue.ortvalue_from_numpy
    bindings = {}
    for rows in _ROWS:
        io = session.io_binding()
        io.bind_ortvalue_input("rows", value(np.full((rows, _INNER), 0.25, np.float32)))
        io.bind_ortvalue_output("product", value(np.zeros((rows, columns), np.float32)))
        bindings[rows] = io
    order = list(_ROWS)
    chooser = random.Random(0)
    runs = []
    for round_index in range(_WARMUP_ROUNDS + _REPEATS):
        chooser.shuffle(order)
        for rows in order:
            t0_ns = clock()
            session.run_with_iobinding(bindings[rows])
            if round_index >= _WARMUP_ROUNDS:
                runs.append(ModelRun(rows, 0, t0_ns, clock()))
    return runs
