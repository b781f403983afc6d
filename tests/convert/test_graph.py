"""Products of quantised matrices, run in ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from made_gguf import RANDOM_BLOCKS, random_blocks
from numpy.typing import NDArray
from onnx import TensorProto

from edgeprof.convert.blocks import Dense, Matrix, decode, dequantise
from edgeprof.convert.graph import Graph

ROWS, COLUMNS = 5, 256


def random_matrix(storage: str, seed: int) -> Matrix:
    import gguf

    rng = np.random.default_rng(seed)
    if storage in RANDOM_BLOCKS:
        raw = random_blocks(storage, ROWS, COLUMNS, rng)
    else:
        weights = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
        raw = gguf.quants.quantize(weights, gguf.GGMLQuantizationType[storage])
    return decode(raw.view(np.uint8).reshape(-1), storage, ROWS, COLUMNS)


def split_in_terms(matrix: Matrix) -> Any:
    """What the kernels add up: sizes of the symmetric part and of the correction of each weight."""
    if isinstance(matrix, Dense):
        return np.abs(matrix.values)
    steps = np.abs(matrix.quantised.astype(np.float64) - matrix.middle)
    sizes = steps * np.abs(matrix.scale)[..., None]
    if matrix.correction is not None:
        sizes = sizes + np.abs(matrix.correction)[..., None]
    return sizes.reshape(ROWS, COLUMNS)


def run(graph: Graph, x: NDArray[np.float32]) -> Any:
    import onnxruntime

    session = onnxruntime.InferenceSession(
        graph.model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": x})[0]


def product(graph: Graph, parts: list[Matrix], x: Any, bias: Any = None) -> Any:
    graph.input("x", TensorProto.FLOAT, ["rows", COLUMNS])
    name = graph.project("x", parts, "w", bias)
    graph.output(name, TensorProto.FLOAT, ["rows", len(parts) * ROWS])
    return run(graph, x)


@pytest.mark.parametrize(
    "storages",
    [
        *[(storage,) for storage in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16")],
        *[("Q4_K",), ("Q5_K",), ("Q6_K",)],
        *[("Q4_0", "Q4_0"), ("Q4_1", "Q8_0", "F32"), ("Q4_0", "Q4_1")],
        *[("Q4_K", "Q4_K", "Q6_K"), ("Q4_1", "Q4_K"), ("Q6_K", "Q4_K", "Q6_K")],
    ],
)
def test_parts_of_any_storage_stand_side_by_side(storages: tuple[str, ...]) -> None:
    """Whole numbers up to 127, with 127 in every block, survive rounding to 8 bits: what is left
    are float32 sums of 256 products, off by at most 256 u times the sum of the terms' sizes. A
    corrected product is two such sums."""
    parts = [random_matrix(storage, seed) for seed, storage in enumerate(storages)]
    x = np.random.default_rng(9).integers(-127, 128, (3, COLUMNS)).astype(np.float32)
    x[:, ::16] = 127
    weights = np.concatenate([dequantise(part) for part in parts]).astype(np.float64)
    terms = np.concatenate([split_in_terms(part) for part in parts])
    sizes = np.abs(x).astype(np.float64) @ terms.T
    result = product(Graph(), parts, x)
    assert np.all(np.abs(result - x @ weights.T) <= 2 * COLUMNS * 2.0**-24 * sizes)


def test_neighbours_of_one_kind_are_one_product() -> None:
    """Queries and keys in Q4_K, values in Q6_K, as in a Q4_K_M file: two products, not three."""
    graph = Graph()
    graph.input("x", TensorProto.FLOAT, ["rows", COLUMNS])
    graph.project("x", [random_matrix(s, 0) for s in ("Q4_K", "Q4_K", "Q6_K")], "w")
    operators = [node.op_type for node in graph.model.graph.node]
    assert operators.count("MatMulNBits") == 2


@pytest.mark.parametrize("storages", [("F32",), ("Q8_0", "Q4_1")])
def test_a_bias_is_added_to_every_row(storages: tuple[str, ...]) -> None:
    parts = [random_matrix(storage, 1) for storage in storages]
    bias = np.arange(len(parts) * ROWS, dtype=np.float32)
    x = np.random.default_rng(2).standard_normal((3, COLUMNS)).astype(np.float32)
    plain = product(Graph(), parts, x)
    assert np.array_equal(product(Graph(), parts, x, bias), plain + bias)


def test_a_constant_used_twice_is_stored_and_counted_once() -> None:
    graph = Graph()
    table = np.ones((4, 8), dtype=np.float32)
    graph.weight("table", table, streamed=False)
    assert (graph.weight_bytes, graph.streamed_bytes) == (128, 0)
    graph.weight("table", table)
    graph.weight("table", table)
    assert (graph.weight_bytes, graph.streamed_bytes) == (128, 128)
    assert len(graph.model.graph.initializer) == 1
