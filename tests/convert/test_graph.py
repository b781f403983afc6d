"""Products of quantised matrices, run in ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto

from edgeprof.convert.blocks import Matrix, decode, dequantise
from edgeprof.convert.graph import Graph

ROWS, COLUMNS = 5, 64


def random_matrix(storage: str, seed: int) -> Matrix:
    import gguf

    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
    raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[storage])
    return decode(raw.view(np.uint8).reshape(-1), storage, ROWS, COLUMNS)


def run(graph: Graph, x: NDArray[np.float32]) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        graph.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize(
    "storages",
    [("Q4_1",), ("Q8_0",), ("Q4_0", "Q4_0"), ("Q4_1", "Q8_0", "F32"), ("Q4_0", "Q4_1")],
)
def test_parts_of_any_storage_stand_side_by_side(storages: tuple[str, ...]) -> None:
    """Whole numbers up to 127, with 127 in every block, survive rounding to 8 bits: what is left
    are float32 sums of 64 products, off by at most 64 u times the sum of their sizes. A corrected
    product is two such sums, of terms that may be twice as large as the weights': 4 x 64 u."""
    parts = [random_matrix(storage, seed) for seed, storage in enumerate(storages)]
    x = np.random.default_rng(9).integers(-127, 128, (3, COLUMNS)).astype(np.float32)
    x[:, ::32] = 127
    graph = Graph()
    graph.input("x", TensorProto.FLOAT, ["rows", COLUMNS])
    name = graph.project("x", parts, "w")
    graph.output(name, TensorProto.FLOAT, ["rows", len(parts) * ROWS])
    weights = np.concatenate([dequantise(part) for part in parts]).astype(np.float64)
    sizes = np.abs(x).astype(np.float64) @ np.abs(weights).T
    assert np.all(np.abs(run(graph, x) - x @ weights.T) <= 4 * 64 * 2.0**-24 * sizes)


def test_a_constant_used_twice_is_stored_and_counted_once() -> None:
    graph = Graph()
    table = np.ones((4, 8), dtype=np.float32)
    graph.weight("table", table, streamed=False)
    assert (graph.weight_bytes, graph.streamed_bytes) == (128, 0)
    graph.weight("table", table)
    graph.weight("table", table)
    assert (graph.weight_bytes, graph.streamed_bytes) == (128, 128)
    assert len(graph.model.graph.initializer) == 1
