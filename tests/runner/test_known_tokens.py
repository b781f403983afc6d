"""A head that is padded, with the largest logits in the padding."""

from typing import Any

import numpy as np
import pytest

from edgeprof.runner.known_tokens import KnownTokens
from edgeprof.runner.token_model import greedy_tokens


class CutHead:
    """A model with logits of its own for the tokens that its head knows."""

    vocab_size, capacity, length, stamps_ns = 16, 8, 3, (1, 2)

    def __init__(self, ids: list[int], logits: list[list[float]]) -> None:
        self.ids, self.logits = np.array(ids), np.array(logits, np.float32)
        self.rewound: int | None = None

    def extend(self, tokens: Any, rows: int | None = None) -> Any:
        return self.logits

    def rewind(self, length: int) -> None:
        self.rewound = length

    def token_ids(self, columns: Any) -> Any:
        return self.ids[columns]


def test_r11_the_most_probable_token_is_one_that_the_tokenizer_knows(rule_model: Any) -> None:
    model = KnownTokens(rule_model(lambda text: 13, vocab_size=16), 12)
    logits = model.extend([1, 2])
    assert logits.shape == (2, 12)
    assert greedy_tokens(model, logits) == [0, 0]  # all others are alike, the lowest wins
    assert (model.vocab_size, model.length) == (16, 2)


@pytest.mark.parametrize(
    ("ids", "logits", "best"),
    [
        ([0, 4, 9, 12], [[1, 3, 2, 9]], 4),  # sorted: a slice
        ([12, 0, 13, 4], [[9, 1, 8, 3]], 4),  # padding anywhere
        ([12, 13], [[9, 1]], None),  # nothing but padding: nothing to choose from
    ],
)
def test_r11_a_cut_head_loses_its_padding_wherever_it_stands(
    ids: list[int], logits: list[list[float]], best: int | None
) -> None:
    model = KnownTokens(CutHead(ids, logits), 12)
    kept = model.extend([1])
    if best is None:
        assert kept.shape == (1, 0)
    else:
        assert greedy_tokens(model, kept) == [best]


def test_all_else_is_the_models_own() -> None:
    inner = CutHead([0], [[1.0]])
    model = KnownTokens(inner, 1)
    model.rewind(2)
    assert inner.rewound == 2
    assert (model.capacity, model.length, model.stamps_ns) == (8, 3, (1, 2))
