"""All samples of a session as columns: hours of them take no Python object each.

A sequence like any other, that makes a record when one is asked for. ``raw``, the text that a
source gave, stays in the file: nothing is computed from it, and it would be most of the memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args, overload

import numpy as np
import numpy.typing as npt

from edgeprof.session.records import Quality, Sample

QUALITIES: tuple[Quality, ...] = get_args(Quality)
# One row as it is read: unknown values are NaN here, which SQLite cannot hold.
ROW = np.dtype(
    [("signal_id", "i8"), ("t0_ns", "i8"), ("t1_ns", "i8"), ("value", "f8"), ("quality", "i1")]
)
_CHUNK = 10_000


class Samples(Sequence[Sample]):
    """Grouped by signal, and within a signal in the order in which they were written.

    ``t0_ns`` and ``t1_ns`` are int64; ``value`` is float64, NaN where it is unknown; ``quality``
    counts places in ``QUALITIES``.
    """

    def __init__(self, rows: npt.NDArray[Any]) -> None:
        """``rows`` are of type ``ROW``, in any order."""
        order = np.argsort(rows["signal_id"], kind="stable")
        self._set(*(rows[name][order] for name in ROW.names or ()))

    def _set(self, *columns: npt.NDArray[Any]) -> None:
        self.signal_id, self.t0_ns, self.t1_ns, self.value, self.quality = columns

    @classmethod
    def of(cls, samples: Iterable[Sample]) -> "Samples":
        """Samples that are at hand as records."""
        rows = [
            (one.signal_id, one.t0_ns, one.t1_ns, one.value, QUALITIES.index(one.quality))
            for one in samples
        ]
        return cls(np.array(rows, dtype=ROW))

    def of_signal(self, signal_id: int) -> "Samples":
        """Those of one signal, none of them copied."""
        first, last = np.searchsorted(self.signal_id, [signal_id, signal_id + 1])
        return self._part(slice(first, last))

    def chunks(self) -> Iterator["Samples"]:
        """All of them, some thousands at a time."""
        for first in range(0, len(self), _CHUNK):
            yield self._part(slice(first, first + _CHUNK))

    def _part(self, part: slice) -> "Samples":
        found = Samples.__new__(Samples)
        found._set(*(getattr(self, name)[part] for name in ROW.names or ()))
        return found

    def __len__(self) -> int:
        return len(self.signal_id)

    def __iter__(self) -> Iterator[Sample]:
        for chunk in self.chunks():
            columns = (getattr(chunk, name).tolist() for name in ROW.names or ())
            for signal_id, t0_ns, t1_ns, value, quality in zip(*columns, strict=True):
                yield Sample(
                    signal_id=signal_id,
                    t0_ns=t0_ns,
                    t1_ns=t1_ns,
                    value=value if value == value else None,
                    quality=QUALITIES[quality],
                )

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> "Samples": ...
    def __getitem__(self, index: int | slice) -> "Sample | Samples":
        if isinstance(index, slice):
            return self._part(index)
        (found,) = self._part(slice(range(len(self))[index], range(len(self))[index] + 1))
        return found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Samples) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]
