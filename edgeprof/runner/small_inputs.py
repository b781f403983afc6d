"""The inputs beside the cache: tokens, positions, mask and counts, written anew for every pass.

How they reach the provider depends on where it computes; the values do not.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from edgeprof.runner.graph_layout import ELEMENTS, SmallInput
from edgeprof.runner.providers import load_onnxruntime


class PassShape(NamedTuple):
    """A pass of ``new`` tokens after ``past`` cached ones, of which the last ``rows`` give logits.
    Attention sees ``total`` positions."""

    past: int
    new: int
    total: int
    rows: int


class SmallInputs:
    """The small inputs of passes of one size, for one binding.

    The mask is the one that grows with every pass: ones for what is cached, out of an array with
    room for ``slots``. Where ``shapes_stay`` it is as long as the cache at once, zeros last.
    """

    def __init__(
        self,
        io: Any,
        inputs: Sequence[SmallInput],
        count: int,
        *,
        slots: int,
        device: str,
        shapes_stay: bool,
    ) -> None:
        self._tensors: list[tuple[SmallInput, _Tensor]] = []
        self._growing: list[_GrowingMask] = []
        for value in inputs:
            if value.role == "mask" and not shapes_stay:
                self._growing.append(_GrowingMask(io, value, slots))
            else:
                dims = _dims(value, count, slots)
                tensor = _Tensor(io, value, dims, device, in_place=shapes_stay)
                self._tensors.append((value, tensor))

    def write(self, tokens: Sequence[int], shape: PassShape) -> None:
        """What the next pass is given."""
        for value, tensor in self._tensors:
            if value.role == "tokens":
                tensor.array[0] = tokens
            elif value.role == "positions":
                tensor.array[0] = np.arange(shape.past, shape.past + shape.new)
            elif value.role == "mask":
                tensor.array[0] = np.arange(tensor.array.shape[1]) < shape.total
            else:
                tensor.array[...] = _number(value, shape)
            tensor.send()
        for mask in self._growing:
            mask.bind(shape.total)


class _Tensor:
    """An array on the host and the way it reaches the provider.

    On the CPU an array that is bound shares its memory with the provider: writing it is all a pass
    needs (a test holds on to this). Elsewhere binding copies, so that each pass binds again; or,
    ``in_place``, the copy stays where it is and is written there, which a captured pass needs.
    """

    def __init__(
        self, io: Any, value: SmallInput, dims: tuple[int, ...], device: str, *, in_place: bool
    ) -> None:
        self.array = np.zeros(dims, ELEMENTS[value.storage].numpy)
        self._io = io
        self._place = value.name, "cpu", 0, ELEMENTS[value.storage].code, dims, _address(self.array)
        self._again = device != "cpu"
        self._copy: Any = None
        if in_place and device != "cpu":
            self._copy = load_onnxruntime().OrtValue.ortvalue_from_numpy(self.array, device, 0)
            io.bind_ortvalue_input(value.name, self._copy)
        else:
            io.bind_input(*self._place)

    def send(self) -> None:
        if self._copy is not None:
            self._copy.update_inplace(self.array)
        elif self._again:
            self._io.bind_input(*self._place)


class _GrowingMask:
    """Ones, of which each pass is shown as many as there are positions."""

    def __init__(self, io: Any, value: SmallInput, slots: int) -> None:
        self._io = io
        self._name, self._code = value.name, ELEMENTS[value.storage].code
        self._ones = np.ones((1, slots), ELEMENTS[value.storage].numpy)
        self._address = _address(self._ones)

    def bind(self, total: int) -> None:
        self._io.bind_input(self._name, "cpu", 0, self._code, (1, total), self._address)


def _address(array: Any) -> int:
    address: int = array.ctypes.data
    return address


def _dims(value: SmallInput, count: int, slots: int) -> tuple[int, ...]:
    if value.role == "mask":
        return 1, slots
    return (1, count) if value.role in ("tokens", "positions") else (1,) * value.rank


def _number(value: SmallInput, shape: PassShape) -> int:
    return {
        "branch": shape.past > 0,
        "past": shape.past,
        "last": shape.total - 1,
        "total": shape.total,
        "rows": shape.rows,
        "first_row": shape.new - shape.rows,
    }[value.role]
