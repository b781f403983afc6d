"""A model that drafts for itself, in ONNX Runtime: all it drafts stands, and the text stays."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgeprof.convert.folder import convert
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.runner.decode import FirstToken, RoundDone, decode
from edgeprof.runner.draft_length import AdaptiveLength, PassCost
from edgeprof.runner.drafters import ModelDrafter
from edgeprof.runner.ort_model import OrtModel

PROMPT = [7, 1, 30, 255, 12, 99, 3, 41]
NEW_TOKENS = 60


@pytest.fixture(scope="module")
def folder(
    tiny_gguf: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> DecoderFolder:
    base = tmp_path_factory.mktemp("self")
    return convert(tiny_gguf(base / "m.gguf", matrices="Q4_1"), base / "onnx")


@pytest.fixture
def models(folder: DecoderFolder) -> Iterator[OrtModel]:
    """Target and draft, each with two threads."""
    return iter([OrtModel.open(folder, threads=2, capacity=96) for _ in range(2)])


def answered(
    target: OrtModel, draft: OrtModel | None, length: AdaptiveLength | None = None
) -> tuple[list[int], list[RoundDone]]:
    steps = list(
        decode(
            target,
            PROMPT,
            new_tokens=NEW_TOKENS,
            clock=time.monotonic_ns,
            drafter=None if draft is None else ModelDrafter(draft),
            draft_tokens=0 if draft is None else 5,
            draft_length=length,
        )
    )
    rounds = [step for step in steps if isinstance(step, RoundDone)]
    text = [step.token for step in steps if isinstance(step, FirstToken)]
    return text + [token for step in rounds for token in step.tokens], rounds


@pytest.mark.parametrize("kind", ["fixed", "adaptive"])
def test_r41_all_that_a_model_drafts_for_itself_stands(
    kind: str, models: Iterator[OrtModel]
) -> None:
    target, draft = models
    # A draft step as costly as a pass never pays: passes that cost alike make it worth a try.
    free = PassCost(dict.fromkeys(range(1, 7), 1.0))
    length = None if kind == "fixed" else AdaptiveLength(free)
    plain, _ = answered(target, None)
    text, rounds = answered(target, draft, length)
    assert text == plain and len(text) == NEW_TOKENS
    assert sum(step.drafted for step in rounds) > 0
    assert all(step.accepted == step.evaluated == step.drafted for step in rounds)
    if kind == "fixed":
        # 59 tokens after the first, 6 a round: nine whole rounds and one of 4 drafted tokens.
        assert [step.drafted for step in rounds] == [5] * 9 + [4]
