"""A cache that comes out of a pass longer than it went in: past and new, one after the other."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgeprof.errors import EnvironmentFault
from edgeprof.runner.cache import CacheBuffers
from edgeprof.runner.graph_layout import ELEMENTS, CacheTensor, Layout
from edgeprof.runner.providers import Device


class GrowingCache:
    """A pass reads the past from one set of buffers and writes past and new to a second; then the
    two change places.

    A rollback to before the last pass takes the first set again, and is free. Where the first
    tokens are not the first bytes any other one copies what stays to the second set, on the device:
    the price of this layout, paid when the next pass is bound.
    """

    def __init__(self, layout: Layout, slots: int, device: Device) -> None:
        self._front = CacheBuffers(layout.caches, slots, device)
        self._back = CacheBuffers(layout.caches, slots, device)
        self._held = 0  # tokens in front
        self._before: int | None = None  # tokens at the back, where they are still of this sequence
        is_view = all(tensor.starts_with_its_past for tensor in layout.caches)
        self._cutter = None if is_view else _Cutter(layout.caches, device)

    def bind(self, io: Any) -> None:
        pass

    def bind_pass(self, io: Any, length: int, count: int) -> None:
        if length != self._held:
            self._cut(length)
        self._front.bind_input(io, length)
        self._back.bind_output(io, length + count)

    def passed(self, length: int) -> None:
        self._front, self._back = self._back, self._front
        self._held, self._before = length, self._held

    def _cut(self, length: int) -> None:
        if length == self._before:
            self._front, self._back = self._back, self._front
        elif length and self._cutter is not None:
            self._cutter.copy(self._front, self._held, self._back, length)
            self._front, self._back = self._back, self._front
        self._held, self._before = length, None


class _Cutter:
    """Copies the first tokens of every tensor, in a small graph beside the model's."""

    def __init__(self, tensors: Sequence[CacheTensor], device: Device) -> None:
        self._device = device
        self._session = device.open_graph(_cutting_graph(tensors))
        self._io = self._session.io_binding()
        self._length = np.zeros(1, np.int64)

    def copy(self, held: CacheBuffers, held_tokens: int, kept: CacheBuffers, tokens: int) -> None:
        """The first ``tokens`` of ``held``, which holds ``held_tokens``, to ``kept``."""
        self._length[0] = tokens
        self._io.bind_cpu_input(_LENGTH, self._length)
        held.bind_input(self._io, held_tokens)
        kept.bind_output(self._io, tokens)
        self._device.run(self._session, self._io)


_LENGTH = "edgeprof.length"


def _cutting_graph(tensors: Sequence[CacheTensor]) -> bytes:
    """Cuts every past to the first tokens, under the names that the model has for both."""
    try:
        from onnx import TensorProto, helper
    except ImportError as error:
        raise EnvironmentFault(
            f"rolling back a cache of this layout needs onnx ({error}): pip install onnx"
        ) from error

    length = helper.make_tensor_value_info(_LENGTH, TensorProto.INT64, [1])
    constants = [
        helper.make_tensor(f"edgeprof.{number}", TensorProto.INT64, [1], [number])
        for number in range(4)
    ]
    nodes: list[Any] = []
    inputs, outputs = [length], list[Any]()
    for tensor in tensors:
        for name, values in ((tensor.past, inputs), (tensor.present, outputs)):
            shape: list[int | str] = [*tensor.shape]
            shape[tensor.axis] = f"{name}.tokens"
            values.append(helper.make_tensor_value_info(name, ELEMENTS[tensor.storage].code, shape))
        given = [tensor.past, "edgeprof.0", _LENGTH, f"edgeprof.{tensor.axis}"]
        nodes.append(helper.make_node("Slice", given, [tensor.present]))
    graph = helper.make_graph(nodes, "cut", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    content: bytes = model.SerializeToString()
    return content
