"""The inputs beside the cache: tokens, positions, mask and counts, written anew for every pass.

How they reach the provider depends on where it computes; the values do not.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from edgeprof.runner.graph_layout import ELEMENTS, ROW_CHOICES, Role, SmallInput
from edgeprof.runner.providers import load_onnxruntime


class Masks:
    """Masks that grow with every pass: a one for each position.

    Kept for all bindings of a model, since binding one that is there costs little. Binding none
    costs nothing: with ``step`` above 1 zeros follow the ones up to a multiple of it, and the shape
    stays for many passes. That is for graphs that only sum the mask up.
    """

    def __init__(self, inputs: Sequence[SmallInput], slots: int, *, step: int) -> None:
        self.slots = slots
        self._step = step
        self._total = 0
        self._shown: dict[tuple[str, int], Any] = {}
        self._arrays = {
            value.name: np.zeros((1, slots), ELEMENTS[value.storage].numpy)
            for value in inputs
            if value.role == "mask"
        }

    def show(self, io: Any, total: int, bound: int) -> int:
        """``total`` ones each, for ``io`` to which masks of the length ``bound`` are bound; returns
        the length that is bound then."""
        before, self._total = self._total, total
        length = min(-(-total // self._step) * self._step, self.slots)
        for name, array in self._arrays.items():
            array[0, before:total] = 1
            array[0, total:before] = 0
            if length != bound:
                if (name, length) not in self._shown:
                    shown = load_onnxruntime().OrtValue.ortvalue_from_numpy(array[:, :length])
                    self._shown[name, length] = shown
                io.bind_ortvalue_input(name, self._shown[name, length])
        return length


class SmallInputs:
    """The small inputs of passes that take ``count`` tokens and give ``rows`` rows of logits.

    The mask grows with every pass, unless ``shapes_stay``: then it is as long as the cache at once,
    zeros last.
    """

    def __init__(
        self,
        io: Any,
        inputs: Sequence[SmallInput],
        masks: Masks,
        *,
        count: int,
        rows: int,
        device: str,
        shapes_stay: bool,
    ) -> None:
        self._io = io
        self._count = count
        self._masks = None if shapes_stay else masks
        self._mask_length = 0  # none is bound yet
        self._tensors: list[tuple[Role, _Tensor]] = []
        self._settled: list[_Tensor] = []  # bound by address, so they must stay
        for value in inputs:
            if value.role == "mask" and not shapes_stay:
                continue
            dims = _dims(value, count, masks.slots)
            tensor = _Tensor(io, value, dims, device, in_place=shapes_stay)
            if value.role in ROW_CHOICES:
                tensor.array[...] = rows if value.role == "rows" else count - rows
                tensor.send()
                self._settled.append(tensor)
            else:
                self._tensors.append((value.role, tensor))

    def write(self, tokens: Sequence[int], past: int) -> None:
        """What the next pass is given: ``tokens`` after ``past`` cached ones."""
        total = past + self._count
        for role, tensor in self._tensors:
            if role == "tokens":
                tensor.array[0] = tokens
            elif role == "positions":
                tensor.array[0] = np.arange(past, total)
            elif role == "mask":
                tensor.array[0] = np.arange(tensor.array.shape[1]) < total
            else:
                tensor.array[...] = _number(role, past, total)
            tensor.send()
        if self._masks is not None:
            self._mask_length = self._masks.show(self._io, total, self._mask_length)


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


def _address(array: Any) -> int:
    address: int = array.ctypes.data
    return address


def _dims(value: SmallInput, count: int, slots: int) -> tuple[int, ...]:
    if value.role == "mask":
        return 1, slots
    return (1, count) if value.role in ("tokens", "positions") else (1,) * value.rank


def _number(role: Role, past: int, total: int) -> int:
    counts: dict[Role, int] = {
        "branch": past > 0,
        "past": past,
        "last": total - 1,
        "total": total,
    }
    return counts[role]
