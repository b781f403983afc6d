"""Where answers part, and the logit gap there."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from edgeprof.profiling.divergence import Divergence, first_divergence, logit_gap


@pytest.mark.parametrize(
    ("reference", "tokens", "expected"),
    [
        ([1, 2, 3], [1, 2, 3], None),
        ([], [], None),
        ([1, 2, 3], [1, 5, 3], Divergence(1, 2, 5)),
        ([1, 2], [1, 2, 3], Divergence(2, None, 3)),
        ([1, 2], [1], Divergence(1, 2, None)),
    ],
)
def test_the_first_difference(
    reference: list[int], tokens: list[int], expected: Divergence | None
) -> None:
    assert first_divergence(reference, tokens) == expected


class Scores:
    """A model whose logit for token n is 10 n less the length of the text; a head of 3 tokens."""

    vocab_size = 100
    capacity = 50
    stamps_ns = (0, 0)

    def __init__(self) -> None:
        self.seen: list[int] = [9, 9]

    @property
    def length(self) -> int:
        return len(self.seen)

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> NDArray[np.float32]:
        self.seen += tokens
        ids = self.token_ids(np.arange(3))
        logits: NDArray[np.float32] = (10 * ids - len(self.seen)).astype(np.float32)
        return logits[None]

    def rewind(self, length: int) -> None:
        del self.seen[length:]

    def token_ids(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([4, 7, 40])[columns]


def test_the_gap_is_that_after_the_common_text() -> None:
    model = Scores()
    # after [1, 2] + [40]: logit of 7 is 70 - 3, of 4 is 40 - 3
    gap = logit_gap(model, [1, 2], [40, 7, 7], Divergence(1, 7, 4))
    assert gap == 30
    assert model.length == 0


def test_no_gap_where_one_answer_had_ended() -> None:
    assert logit_gap(Scores(), [1], [4], Divergence(1, None, 4)) is None
