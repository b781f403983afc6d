"""A cache whose past and present are one buffer a tensor, as GroupQueryAttention allows."""

from typing import Any

from edgeprof.runner.cache import CacheBuffers
from edgeprof.runner.graph_layout import Layout
from edgeprof.runner.providers import Device


class SharedCache:
    """A pass writes behind what is there, and what a later pass is not told of is overwritten.

    Bound once, at full length: rolling back is a smaller number among the small inputs.
    """

    def __init__(self, layout: Layout, slots: int, device: Device) -> None:
        self._slots = slots
        self._buffers = CacheBuffers(layout.caches, slots, device)

    def bind(self, io: Any) -> None:
        self._buffers.bind_input(io, self._slots)
        self._buffers.bind_output(io, self._slots)

    def bind_pass(self, io: Any, length: int, count: int) -> None:
        pass

    def passed(self, length: int) -> None:
        pass
