"""Rounding to 8 bits, and its account."""

import sys

import numpy as np
import pytest

from edgeprof.convert.blocks import dequantise
from edgeprof.convert.requantise import REQUANTISABLE, Requantiser, read_by_gguf
from edgeprof.errors import EnvironmentFault
from edgeprof.models.readers.gguf import STORAGE_TYPES


def test_a_block_worked_out_by_hand() -> None:
    """The largest weight, -127, makes the step 1: 0.25 is lost, 2.6 becomes 3 and off by 0.4."""
    weights = np.zeros((1, 32), dtype=np.float32)
    weights[0, :3] = [-127, 0.25, 2.6]
    assert Requantiser().account is None
    requantiser = Requantiser()
    blocks = requantiser.round(weights, "IQ3_S")
    assert dequantise(blocks)[0, :4].tolist() == [-127, 0, 3, 0]
    assert blocks.correction is None
    account = requantiser.account
    assert account is not None
    assert (account.storages, account.weights) == (["IQ3_S"], 32)
    assert account.largest_error_of_block == pytest.approx(0.4 / 127)
    size = (127**2 + 0.25**2 + 2.6**2) ** 0.5
    assert account.relative_rms_error == pytest.approx((0.25**2 + 0.4**2) ** 0.5 / size)


def test_the_account_covers_all_matrices() -> None:
    requantiser = Requantiser()
    exact = np.full((2, 64), 5.0, dtype=np.float32)
    requantiser.round(exact, "Q2_K")
    account = requantiser.account
    assert account is not None
    assert (account.weights, account.relative_rms_error) == (128, 0.0)
    requantiser.round(np.linspace(-1, 1, 96, dtype=np.float32).reshape(1, 96), "IQ4_XS")
    account = requantiser.account
    assert account is not None
    assert (account.storages, account.weights) == (["IQ4_XS", "Q2_K"], 224)
    assert 0 < account.largest_error_of_block <= 0.5 / 127 * 1.0001


@pytest.mark.parametrize("size", [0.0, 1e-45, 2e-43, 1e-38])
def test_weights_at_the_end_of_the_range_do_not_run_over(size: float) -> None:
    """2e-43 / 127 is one denormal step, of which 143 would be needed."""
    weights = np.linspace(-size, size, 32, dtype=np.float32)[None]
    requantiser = Requantiser()
    rounded = dequantise(requantiser.round(weights, "Q3_K"))
    assert np.all(np.abs(rounded - weights) <= size)
    assert np.all(rounded * weights >= 0)


@pytest.mark.parametrize("storage", REQUANTISABLE)
def test_every_format_that_may_be_rounded_is_read(storage: str) -> None:
    _, block_weights, block_bytes = next(
        entry for entry in STORAGE_TYPES.values() if entry[0] == storage
    )
    raw = np.zeros(3 * 2 * block_bytes, dtype=np.uint8)
    weights = read_by_gguf(raw, storage, rows=3)
    assert weights.shape == (3, 2 * block_weights)
    assert weights.dtype == np.float32


def test_a_missing_package_is_named_with_the_way_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(EnvironmentFault, match=r"IQ4_NL need the package gguf: pip install"):
        read_by_gguf(np.zeros(18, dtype=np.uint8), "IQ4_NL", rows=1)
