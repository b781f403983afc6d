"""A long text by short passes: the same cache and the same logits as by one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_decoder import Decoder, reference_logits, write_folder

from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.prefill import take_in

TEXT = [(7 * place * place + 3 * place) % 40 for place in range(1100)]


def last_logits(model: OrtModel, tokens: list[int], most_tokens: int) -> np.ndarray:
    model.rewind(0)
    *_, last = take_in(model, tokens, most_tokens)
    assert model.length == len(tokens)
    return np.array(last.logits)


def test_passes_are_as_long_as_asked_and_the_last_takes_the_rest(tmp_path: Path) -> None:
    model = OrtModel.open(write_folder(Decoder(), tmp_path), threads=1, capacity=32)
    taken = [(one.run.tokens, one.run.context_tokens) for one in take_in(model, TEXT[:7], 3)]
    assert taken == [(3, 0), (3, 3), (1, 6)]
    assert list(take_in(model, [], 3)) == []
    assert [one.run.tokens for one in take_in(model, TEXT[:3], 3)] == [3]


@pytest.mark.parametrize("matrices", ["Q4_0", "F32"])
def test_a_converted_decoder_gives_the_very_same_logits(
    tmp_path: Path, tiny_gguf: Callable[..., Path], matrices: str
) -> None:
    """Bit for bit, a lone last token included: the attention of its graph is padded."""
    from edgeprof.convert.folder import convert

    gguf = tiny_gguf(tmp_path / "m.gguf", matrices=matrices, context=1200)
    model = OrtModel.open(convert(gguf, tmp_path / "m"), threads=2, capacity=1100)
    for length in (513, 1025, 1100):
        whole = last_logits(model, TEXT[:length], length)
        assert whole.any()
        for most in (512, 37):
            assert np.array_equal(last_logits(model, TEXT[:length], most), whole)


@pytest.mark.parametrize("layout", [{}, {"attention": "gqa", "positions": False}])
def test_a_foreign_decoder_gives_what_the_reference_does(
    tmp_path: Path, layout: dict[str, Any]
) -> None:
    spec = Decoder(context=600, **layout)
    model = OrtModel.open(write_folder(spec, tmp_path), threads=1, capacity=600)
    expected = reference_logits(spec, TEXT[:600])[-1:]
    for most in (600, 512, 64):
        np.testing.assert_allclose(last_logits(model, TEXT[:600], most), expected, atol=1e-5)
