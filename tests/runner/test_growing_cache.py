"""When a cache that grows is copied: only where a rollback leaves no other way."""

from pathlib import Path

import pytest
from tiny_decoder import Decoder, write_folder

from edgeprof.runner.growing_cache import _Cutter
from edgeprof.runner.ort_model import OrtModel


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(tokens held, tokens kept) of every copy, which is made as ever."""
    seen: list[tuple[int, int]] = []
    copy = _Cutter.copy

    def counted(self: _Cutter, held: object, held_tokens: int, kept: object, tokens: int) -> None:
        seen.append((held_tokens, tokens))
        copy(self, held, held_tokens, kept, tokens)  # type: ignore[arg-type]

    monkeypatch.setattr(_Cutter, "copy", counted)
    return seen


def run(model: OrtModel) -> None:
    model.extend([1, 2, 3])
    model.extend([4])  # plain
    model.extend([5, 6, 7])
    model.rewind(4)  # to before the pass: the buffer that it read is still there
    model.extend([5, 6, 7])
    model.rewind(6)  # one token is rejected
    model.rewind(5)  # and another one: one copy is enough
    model.extend([8])
    model.rewind(0)  # a new text
    model.extend([1])


def test_only_a_rejection_within_a_pass_copies(
    tmp_path: Path, copies: list[tuple[int, int]]
) -> None:
    run(OrtModel.open(write_folder(Decoder(), tmp_path), threads=1, capacity=16))
    assert copies == [(7, 5)]


@pytest.mark.parametrize("spec", [Decoder(axis=1), Decoder(heads=2, kv_heads=1)])
def test_first_tokens_that_are_first_bytes_are_never_copied(
    tmp_path: Path, copies: list[tuple[int, int]], spec: Decoder
) -> None:
    run(OrtModel.open(write_folder(spec, tmp_path), threads=1, capacity=16))
    assert copies == []
