"""Collects the nodes and constants of an ONNX decoder, and knows how a matrix is multiplied.

Activations are [positions, width] throughout: rows of two dimensions let the exact correction of a
quantised product ride on a Gemm.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from edgeprof import __version__
from edgeprof.convert.blocks import Blocks, Dense, Floats, Matrix, kind, stack

MICROSOFT = "com.microsoft"
# What the oldest ONNX Runtime in use (1.23) reads.
OPSET, IR_VERSION = 21, 10
# Products of quantised weights round the activations to 8 bits, block by block, as llama.cpp does.
INT8_ACTIVATIONS = 4
# Constants of a page or more go into the data file, where there is one, and begin at a page there:
# ONNX Runtime maps those into memory instead of reading them.
PAGE_BYTES = 1 << 12


class DataFile:
    """The file beside a graph that takes its large constants as they are made."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def tensor(self, name: str, value: NDArray[Any]) -> onnx.TensorProto:
        """Writes the array at the end of the file; returns the constant that refers to it."""
        offset = -(-self._file.tell() // PAGE_BYTES) * PAGE_BYTES
        self._file.seek(offset)
        self._file.write(np.ascontiguousarray(value).data)
        place = {"location": self._name, "offset": offset, "length": value.nbytes}
        return onnx.TensorProto(
            name=name,
            data_type=helper.np_dtype_to_tensor_dtype(value.dtype),
            dims=value.shape,
            data_location=onnx.TensorProto.EXTERNAL,
            external_data=[
                onnx.StringStringEntryProto(key=key, value=str(part)) for key, part in place.items()
            ],
        )


class Graph:
    """A graph under construction.

    ``model`` holds what has been built so far, its large constants apart where there is a ``data``
    file. ``weight_bytes`` counts the weights as they are stored; ``streamed_bytes`` those of them
    that every pass reads from end to end.
    """

    def __init__(self, data: DataFile | None = None) -> None:
        self.model = helper.make_model(
            onnx.GraphProto(name="decoder"),
            opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)],
            ir_version=IR_VERSION,
            producer_name="edgeprof",
            producer_version=__version__,
        )
        self.weight_bytes = 0
        self.streamed_bytes = 0
        self._data = data
        self._names: set[str] = set()
        self._streamed: set[str] = set()

    def input(self, name: str, kind: int, shape: Sequence[int | str]) -> str:
        self.model.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def output(self, name: str, kind: int, shape: Sequence[int | str]) -> None:
        self.model.graph.output.append(helper.make_tensor_value_info(name, kind, shape))

    def node(
        self,
        operator: str,
        inputs: Sequence[str],
        outputs: Sequence[str],
        domain: str = "",
        **attributes: Any,
    ) -> str:
        """Adds a node; returns the name of its first output."""
        node = helper.make_node(
            operator, inputs, outputs, name=outputs[0], domain=domain, **attributes
        )
        self.model.graph.node.append(node)
        return outputs[0]

    def constant(self, name: str, value: NDArray[Any]) -> str:
        """A constant that is no weight. The same name is the same constant."""
        if name not in self._names:
            self._names.add(name)
            self.model.graph.initializer.append(self._tensor(name, value))
        return name

    def _tensor(self, name: str, value: NDArray[Any]) -> onnx.TensorProto:
        if self._data is not None and value.nbytes >= PAGE_BYTES:
            return self._data.tensor(name, value)
        return numpy_helper.from_array(np.ascontiguousarray(value), name)

    def integers(self, *values: int) -> str:
        """A constant vector of int64."""
        name = "int64_" + "_".join(map(str, values))
        return self.constant(name, np.array(values, dtype=np.int64))

    def weight(self, name: str, value: NDArray[Any], *, streamed: bool = True) -> str:
        """A constant that counts as the model's weights, once however often it is used."""
        if name not in self._names:
            self.weight_bytes += value.nbytes
        if streamed and name not in self._streamed:
            self._streamed.add(name)
            self.streamed_bytes += value.nbytes
        return self.constant(name, value)

    def stack(self, parts: Sequence[Matrix]) -> Matrix:
        """The rows of all parts, which are of one kind, below each other."""
        return stack(parts)

    def project(
        self, x: str, parts: Sequence[Matrix], name: str, bias: Floats | None = None
    ) -> str:
        """x times the transposed rows of all ``parts``, side by side, plus ``bias``.

        Neighbours that fit into one matrix are multiplied as one.
        """
        groups = [self.stack(list(alike)) for _, alike in groupby(parts, key=kind)]
        if len(groups) == 1:
            product = self.multiply(x, groups[0], name)
        else:
            columns = [self.multiply(x, group, f"{name}.{i}") for i, group in enumerate(groups)]
            product = self.node("Concat", columns, [name + ".out"], axis=-1)
        if bias is None:
            return product
        return self.node("Add", [product, self.weight(name + ".bias", bias)], [name + ".biased"])

    def multiply(self, x: str, matrix: Matrix, name: str) -> str:
        """x times the transposed rows of ``matrix``."""
        if isinstance(matrix, Dense):
            rows = self.weight(name, matrix.values)
            return self.node("Gemm", [x, rows], [name + ".out"], transB=1)
        return self._multiply_blocks(x, matrix, name)

    def _multiply_blocks(self, x: str, matrix: Blocks, name: str) -> str:
        """x times transposed quantised rows.

        With an offset m in each block the rows are d * (q - z) + (m + z d), z in mid-range. The
        first term is what MatMulNBits computes; the second adds, for each block, the sum of x over
        the block times (m + z d): exact but for float32 rounding, and all in fast kernels.
        """
        symmetric = self.node(
            "MatMulNBits",
            [
                x,
                self.weight(name + ".quantised", matrix.packed),
                self.weight(name + ".scale", matrix.scale),
            ],
            [name + (".out" if matrix.offset is None else ".symmetric")],
            MICROSOFT,
            K=matrix.columns,
            N=matrix.rows,
            bits=matrix.bits,
            block_size=matrix.block,
            accuracy_level=INT8_ACTIVATIONS,
        )
        if matrix.correction is None:
            return symmetric
        blocks = self.node(
            "Reshape",
            [x, self.integers(-1, matrix.columns // matrix.block, matrix.block)],
            [name + ".blocks"],
        )
        sums = self.node("ReduceSum", [blocks, self.integers(-1)], [name + ".sums"], keepdims=0)
        correction = self.weight(name + ".correction", matrix.correction.T)
        return self.node("Gemm", [sums, correction, symmetric], [name + ".out"])
