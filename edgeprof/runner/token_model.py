"""What decoding needs of a model: token ids in, logits out, and a cache that can be cut back."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Logits = NDArray[np.float32]
    TokenIds = NDArray[np.int64]


class ModelRun(NamedTuple):
    """One run of a model, as its provider stamped it."""

    tokens: int
    context_tokens: int
    t0_ns: int
    t1_ns: int


class TokenModel(Protocol):
    """A causal language model over token ids, with one sequence in its cache.

    It knows nothing of text. ``capacity`` is the number of tokens the cache can hold.
    """

    @property
    def vocab_size(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    @property
    def length(self) -> int:
        """Tokens cached now."""
        ...

    @property
    def stamps_ns(self) -> tuple[int, int]:
        """When the provider's last run started and ended, by the clock the model was given."""
        ...

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> "Logits":
        """Append ``tokens`` and return the logits of the last ``rows`` positions (None: of all).

        The result has shape [rows, columns]; it may be overwritten by the next call. A model
        whose output head was cut has fewer columns than ``vocab_size``: see ``token_ids``.
        Raises ValueError for no tokens or for more than the cache can take.
        """
        ...

    def rewind(self, length: int) -> None:
        """Forget all but the first ``length`` cached tokens. Costs nothing now; a cache that grows
        with every pass may have to be cut before the next one."""
        ...

    def token_ids(self, columns: "TokenIds") -> "TokenIds":
        """The tokens that these columns of the logits stand for."""
        ...


def greedy_tokens(model: TokenModel, logits: "Logits") -> list[int]:
    """The most probable token of each row; the lowest column wins a tie."""
    tokens: list[int] = model.token_ids(logits.argmax(axis=-1)).tolist()
    return tokens
