"""What a model needs of its cache, and the buffers that caches are made of.

All buffers are taken once, on the device that computes, and bound by their address; no pass copies
them through the host. Knows nothing of tokens.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from edgeprof.runner.graph_layout import ELEMENTS, CacheTensor
from edgeprof.runner.providers import Buffer, Device


class Cache(Protocol):
    """The keys and values of one sequence."""

    def bind(self, io: Any) -> None:
        """Bind what is the same in every pass."""
        ...

    def bind_pass(self, io: Any, length: int, count: int) -> None:
        """Cut the cache to ``length`` tokens and bind it for a pass that adds ``count``."""
        ...

    def passed(self, length: int) -> None:
        """A pass is done, and the cache holds ``length`` tokens."""
        ...


class CacheBuffers:
    """A buffer for each tensor of a cache, with room for ``slots`` tokens.

    Raises EnvironmentFault where there is no memory for them.
    """

    def __init__(self, tensors: Sequence[CacheTensor], slots: int, device: Device) -> None:
        self._device = device.name
        self._buffers: list[tuple[CacheTensor, Buffer]] = [
            (tensor, device.allocate(slots * tensor.bytes_per_token)) for tensor in tensors
        ]

    def bind_input(self, io: Any, tokens: int) -> None:
        """As what is past: ``tokens`` of it."""
        for tensor, buffer in self._buffers:
            code = ELEMENTS[tensor.storage].code
            dims = tensor.dims(tokens)
            io.bind_input(tensor.past, self._device, 0, code, dims, buffer.address)

    def bind_output(self, io: Any, tokens: int) -> None:
        """As what is present after a pass: ``tokens`` of it."""
        for tensor, buffer in self._buffers:
            code = ELEMENTS[tensor.storage].code
            dims = tensor.dims(tokens)
            io.bind_output(tensor.present, self._device, 0, code, dims, buffer.address)
