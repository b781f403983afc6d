"""Speculative greedy output equals plain greedy output, token for token, on the real model.

The reference is plain one-token decoding of the same graph: its attention is padded, so that all
passes agree. At least 2 000 tokens a variant in 4 bits, whose activations are rounded, and half as
many in fp32, which takes several times as long.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from edgeprof.convert.folder import WeightForm, cached_conversion
from edgeprof.models.cache import cache_dir
from edgeprof.models.checksum import sha256_of
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.runner.agreement import probe_agreement
from edgeprof.runner.decode import FirstToken, RoundDone, decode
from edgeprof.runner.drafters import Drafter, ModelDrafter, NgramDrafter
from edgeprof.runner.ort_model import OrtModel

TOKENS_A_PROMPT = 336
PROMPTS = (
    "Write a Python function that reverses a list, then one that counts words.",
    "Tell me a story about a lighthouse keeper and a lost ship.",
    "List the planets of the solar system with one fact about each.",
    "Summarise: the bus moves every weight once a token, so its rate sets the speed of decoding.",
    "Rewrite this text without the word very: The very old dog slept in the very warm sun.",
    "What is the difference between a process and a thread?",
)


def answers(
    target: OrtModel, prompts: list[list[int]], drafter: Drafter | None, draft_tokens: int
) -> tuple[list[list[int]], int]:
    """Answers to every prompt, and how many drafted tokens stood."""
    texts, accepted = [], 0
    for prompt in prompts:
        text: list[int] = []
        for step in decode(
            target,
            prompt,
            new_tokens=TOKENS_A_PROMPT,
            clock=time.monotonic_ns,
            drafter=drafter,
            draft_tokens=draft_tokens,
        ):
            if isinstance(step, FirstToken):
                text.append(step.token)
            elif isinstance(step, RoundDone):
                text += step.tokens
                accepted += step.accepted
        texts.append(text)
    return texts, accepted


@pytest.fixture(scope="module")
def converted(smollm2_gguf: Path, smollm2_draft_gguf: Path) -> Callable[..., DecoderFolder]:
    cache = cache_dir() / "decoders"  # where `edgeprof run` looks too
    sources = {"target": smollm2_gguf, "draft": smollm2_draft_gguf}

    def convert(role: str, weights: WeightForm) -> DecoderFolder:
        gguf = sources[role]
        return cached_conversion(gguf, sha256_of(gguf), cache=cache, weights=weights)

    return convert


@pytest.fixture(scope="module")
def draft(converted: Callable[..., DecoderFolder]) -> OrtModel:
    return OrtModel.open(converted("draft", "as-is"), threads=1, capacity=512)


@pytest.mark.parametrize(("weights", "texts"), [("fp32", PROMPTS[:3]), ("as-is", PROMPTS)])
def test_speculative_output_is_plain_output(
    weights: str,
    texts: Sequence[str],
    converted: Callable[..., DecoderFolder],
    draft: OrtModel,
) -> None:
    from tokenizers import Tokenizer

    folder = converted("target", weights)
    tokenizer = Tokenizer.from_file(str(folder.tokenizer_path))
    prompts = [
        tokenizer.encode(f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n").ids
        for text in texts
    ]
    target = OrtModel.open(folder, threads=2, capacity=512)
    assert probe_agreement(target).one_token_passes_agree
    plain, _ = answers(target, prompts, None, 0)
    assert sum(map(len, plain)) >= 2000 * len(texts) / len(PROMPTS)
    for drafter, draft_tokens in ((NgramDrafter(), 3), (ModelDrafter(draft), 2)):
        speculative, accepted = answers(target, prompts, drafter, draft_tokens)
        assert speculative == plain
        assert accepted > 50 * len(texts)  # and not because nothing was ever drafted
