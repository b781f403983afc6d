"""Masks that grow with every pass, on memory that onnxruntime shares."""

from typing import Any

import pytest

from edgeprof.runner.graph_layout import SmallInput
from edgeprof.runner.small_inputs import Masks


class Io:
    """Notes what is bound."""

    def __init__(self) -> None:
        self.value: Any = None
        self.times = 0

    def bind_ortvalue_input(self, name: str, value: Any) -> None:
        assert name == "m"
        self.value = value
        self.times += 1


@pytest.mark.parametrize(
    ("step", "lengths", "times"), [(1, [3, 4, 2, 9, 10], 5), (4, [4, 4, 4, 10, 10], 2)]
)
def test_a_mask_has_a_one_for_each_position_through_growth_and_rollback(
    step: int, lengths: list[int], times: int
) -> None:
    """Ten slots: with steps of four the last step is cut short, and a rollback leaves zeros."""
    masks = Masks([SmallInput(name="m", role="mask", storage="i64", rank=2)], 10, step=step)
    io, bound = Io(), 0
    for total, length in zip([3, 4, 2, 9, 10], lengths, strict=True):
        bound = masks.show(io, total, bound)
        assert bound == length
        assert io.value.numpy().tolist() == [[1] * total + [0] * (length - total)]
    assert io.times == times
