"""A model small enough to think through: its next token is a function of the text so far."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count

import numpy as np
import pytest
from numpy.typing import NDArray

NextToken = Callable[[tuple[int, ...]], int]


class RuleModel:
    """A TokenModel whose greedy choice is ``rule(text so far)``; its clock ticks once a call."""

    def __init__(self, rule: NextToken, *, vocab_size: int = 16, capacity: int = 64) -> None:
        self.rule = rule
        self.vocab_size = vocab_size
        self.capacity = capacity
        self.cached: list[int] = []
        self.passes: list[int] = []
        self.stamps_ns = (0, 0)
        self._ticks = count(1)

    @property
    def length(self) -> int:
        return len(self.cached)

    def extend(self, tokens: Sequence[int], rows: int | None = None) -> NDArray[np.float32]:
        if not 0 < len(tokens) <= self.capacity - self.length:
            raise ValueError(f"cannot take {len(tokens)} tokens")
        self.stamps_ns = (next(self._ticks), next(self._ticks))
        self.passes.append(len(tokens))
        logits = np.zeros((len(tokens), self.vocab_size), np.float32)
        for row, token in enumerate(tokens):
            self.cached.append(token)
            logits[row, self.rule(tuple(self.cached)) % self.vocab_size] = 1
        return logits[-(len(tokens) if rows is None else rows) :]

    def rewind(self, length: int) -> None:
        assert 0 <= length <= self.length
        del self.cached[length:]

    def token_ids(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        return columns


@pytest.fixture(scope="session")
def rule_model() -> type[RuleModel]:
    return RuleModel


@pytest.fixture
def ticks() -> Callable[[], int]:
    """A clock that gives 1, 2, 3, ..."""
    counter: Iterator[int] = count(1)
    return lambda: next(counter)
