"""A TokenModel without the columns that pad its output head: no token of the text stands for them.

A padded row holds whatever training left there, and its logit may be the largest.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgeprof.runner.token_model import TokenModel

if TYPE_CHECKING:
    from edgeprof.runner.token_model import Logits, TokenIds


class KnownTokens:
    """``model`` as far as its tokens are below ``id_count``. See TokenModel for what its methods
    promise."""

    def __init__(self, model: TokenModel, id_count: int) -> None:
        self._model = model
        self._id_count = id_count
        self._kept: Any = None  # columns, known once the model has answered

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def capacity(self) -> int:
        return self._model.capacity

    @property
    def length(self) -> int:
        return self._model.length

    @property
    def stamps_ns(self) -> tuple[int, int]:
        return self._model.stamps_ns

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> "Logits":
        logits = self._model.extend(tokens, rows)
        if self._kept is None:
            self._kept = _columns_to_keep(self._model, logits.shape[-1], self._id_count)
        kept: Logits = logits[:, self._kept]
        return kept

    def rewind(self, length: int) -> None:
        self._model.rewind(length)

    def token_ids(self, columns: "TokenIds") -> "TokenIds":
        if self._kept is None or isinstance(self._kept, slice):
            return self._model.token_ids(columns)
        return self._model.token_ids(self._kept[columns])


def _columns_to_keep(model: TokenModel, columns: int, id_count: int) -> Any:
    """A slice, which costs nothing, where the padding comes last, as it always does; else the
    columns themselves."""
    known = np.flatnonzero(model.token_ids(np.arange(columns)) < id_count)
    is_first = len(known) == 0 or known[-1] == len(known) - 1
    return slice(0, len(known)) if is_first else known
