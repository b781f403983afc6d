"""Every layout that exporters give, on random little decoders: logits, rollback, speculation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_decoder import Decoder, reference_logits, write_folder

from edgeprof.errors import FileFault
from edgeprof.provider_settings import ProviderSettings
from edgeprof.runner.agreement import logit_distance, probe_agreement
from edgeprof.runner.decode import FirstToken, RoundDone, decode
from edgeprof.runner.drafters import Drafter, ModelDrafter, NgramDrafter
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.providers import SessionSetup

TOKENS = [7, 1, 30, 39, 12, 9, 3, 11, 20, 8, 5, 6]
GQA: dict[str, Any] = {"attention": "gqa", "positions": False}
# float32 sums of some 30 products of size 1 against float64.
FLOAT32 = 1e-5
# 16-bit types keep 11 and 8 bits: half a step of logits that stay below 8.
FLOAT16_LOGITS, BFLOAT16_LOGITS = 4 * 2**-11, 4 * 2**-8
# A key or value that rounds the other way moves what is made of it by a step.
FLOAT16_CACHE, BFLOAT16_CACHE = 8 * 2**-10, 8 * 2**-7

LAYOUTS: dict[str, tuple[dict[str, Any], float]] = {
    "m26 shared buffer": (GQA, FLOAT32),
    "m26 shared buffer, float16": (GQA | {"cache": "f16"}, FLOAT16_CACHE),
    "counts of attention under any name": (
        GQA | {"mask": False, "counts": ("past_seq_len", "n")},
        FLOAT32,
    ),
    "counts from the shape of the past": (GQA | {"mask": False, "counts": "past"}, FLOAT32),
    "optimum": ({}, FLOAT32),
    "no mask, no positions": ({"mask": False, "positions": False}, FLOAT32),
    "mask only": ({"positions": False}, FLOAT32),
    "m24 merged": ({"merged": True}, FLOAT32),
    "m24 m27 merged, int32, float16": (
        {"merged": True, "ids": "i32", "cache": "f16", "mask": False, "positions": False},
        FLOAT16_CACHE,
    ),
    "m25 past.N": ({"past": "past.%d.%s", "present": "present.%d.%s"}, FLOAT32),
    "m25 names of no pattern": (
        {"past": "stored_%d_%s", "present": "out_%d_%s", "head": "scores", "tokens": "text"},
        FLOAT32,
    ),
    "m25 no pattern and another order": (
        {"past": "stored_%d_%s", "present": "out_%d_%s", "backwards": True},
        FLOAT32,
    ),
    "m26 float16 cache": ({"cache": "f16"}, FLOAT16_CACHE),
    "m26 bfloat16 cache": ({"cache": "bf16"}, BFLOAT16_CACHE),
    "m27 int32": ({"ids": "i32"}, FLOAT32),
    "float16 logits": ({"logits": "f16"}, FLOAT16_LOGITS),
    "bfloat16 logits": ({"logits": "bf16"}, BFLOAT16_LOGITS),
    "one key head": ({"heads": 2, "kv_heads": 1}, FLOAT32),
    "tokens before heads": ({"axis": 1}, FLOAT32),
    "tokens last": ({"axis": 3}, FLOAT32),
    "r11 padded vocabulary": ({"columns": 64}, FLOAT32),
    "r11 padded, columns open": ({"columns": 64, "open_columns": True}, FLOAT32),
    "rows chosen": ({"rows": True}, FLOAT32),
}


@pytest.fixture(params=LAYOUTS, scope="module")
def layout(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def spec(layout: str) -> Decoder:
    return Decoder(**LAYOUTS[layout][0])


@pytest.fixture(scope="module")
def model(spec: Decoder, tmp_path_factory: pytest.TempPathFactory) -> OrtModel:
    folder = write_folder(spec, tmp_path_factory.mktemp("decoder"))
    return OrtModel.open(folder, threads=1, capacity=32)


@pytest.fixture(scope="module")
def expected(spec: Decoder) -> np.ndarray:
    logits = reference_logits(spec, TOKENS)
    assert abs(logits).max() < 8  # what the bounds above count on
    return logits


def test_one_pass_computes_what_the_reference_does(
    model: OrtModel, expected: np.ndarray, layout: str
) -> None:
    model.rewind(0)
    logits = model.extend(TOKENS)
    assert logits.dtype == np.float32 and logits.shape == (len(TOKENS), model.vocab_size)
    np.testing.assert_allclose(logits, expected, atol=LAYOUTS[layout][1], rtol=0)
    model.rewind(0)
    last = model.extend(TOKENS, rows=1)
    np.testing.assert_allclose(last, expected[-1:], atol=LAYOUTS[layout][1], rtol=0)


def test_what_is_cached_counts_and_what_was_rolled_back_does_not(
    model: OrtModel, expected: np.ndarray, layout: str
) -> None:
    """A prompt, a draft that is partly rejected, one that is all rejected, single steps, a second
    rollback without a pass between, and a new start."""
    bound = LAYOUTS[layout][1]

    def step(tokens: Sequence[int], first: int) -> None:
        logits = model.extend(tokens)
        np.testing.assert_allclose(
            logits, expected[first : first + len(tokens)], atol=bound, rtol=0
        )

    model.rewind(0)
    step(TOKENS[:4], 0)
    model.extend([TOKENS[4], TOKENS[5], 2, 2])  # the first two stand
    model.rewind(6)
    step(TOKENS[6:7], 6)
    model.extend([33, 34, 35])
    model.rewind(7)  # to just before the pass
    step(TOKENS[7:9], 7)
    model.rewind(8)
    model.rewind(5)
    step(TOKENS[5:12], 5)
    model.rewind(0)
    step(TOKENS[:1], 0)
    step(TOKENS[1:3], 1)


def test_passes_agree_and_nothing_of_a_rollback_is_left(model: OrtModel, layout: str) -> None:
    agreement = probe_agreement(model)
    assert agreement.after_rollback == 0
    assert max(agreement.max_logit_difference.values()) <= 2 * LAYOUTS[layout][1]
    assert model.length == 0


def answer(model: OrtModel, drafter: Drafter | None, draft_tokens: int) -> tuple[list[int], int]:
    tokens, accepted, ticks = [], 0, iter(range(10_000))
    for step in decode(
        model,
        TOKENS[:5],
        new_tokens=20,
        clock=lambda: next(ticks),
        drafter=drafter,
        draft_tokens=draft_tokens,
    ):
        if isinstance(step, FirstToken):
            tokens.append(step.token)
        elif isinstance(step, RoundDone):
            tokens += step.tokens
            accepted += step.accepted
    return tokens, accepted


def test_r41_speculative_output_is_plain_output(
    spec: Decoder, model: OrtModel, tmp_path: Path
) -> None:
    """Drafted by the model itself, by another one and from the text."""
    plain, _ = answer(model, None, 0)
    assert len(plain) == 20
    folder = write_folder(spec, tmp_path / "twin")
    twin = OrtModel.open(folder, threads=1, capacity=32)
    speculative, accepted = answer(model, ModelDrafter(twin), 3)
    # 19 tokens after the first: 4 rounds of 3 drafted and 1 bonus, then one of 2 and 1.
    assert (speculative, accepted) == (plain, 14)
    other = OrtModel.open(write_folder(Decoder(seed=1), tmp_path / "other"), threads=1, capacity=32)
    for drafter in (ModelDrafter(other), NgramDrafter()):
        assert answer(model, drafter, 3)[0] == plain


def test_r11_columns_that_pad_the_head_are_never_chosen(tmp_path: Path) -> None:
    """Columns 40 to 63 hold the largest logits of all; they are not even shown."""
    spec = Decoder(columns=64)
    model = OrtModel.open(write_folder(spec, tmp_path), threads=1, capacity=32)
    assert model.vocab_size == 40
    logits = model.extend(TOKENS)
    assert logits.shape == (len(TOKENS), 40)
    assert abs(logits).max() < 8


@pytest.mark.parametrize("attention", ["standard", "gqa"])
def test_logits_of_the_last_token_only_are_refused(tmp_path: Path, attention: Any) -> None:
    """A graph pruned for plain generation: its output leaves open how many rows it has."""
    folder = write_folder(
        Decoder(attention=attention, positions=attention == "standard", last_row_only=True),
        tmp_path,
    )
    with pytest.raises(FileFault) as refused:
        OrtModel.open(folder, threads=1, capacity=32)
    assert str(refused.value) == (
        f"{folder.onnx_path}: output 'logits' has 1 row for a pass of 2 tokens, but verifying "
        "takes the logits of every token; export it with the logits of all tokens"
    )


def test_shapes_that_stay_give_the_same_logits(tmp_path: Path) -> None:
    """As a captured pass is fed: a mask of full length, zeros last."""
    spec = Decoder(**GQA)
    folder = write_folder(spec, tmp_path)
    setup = SessionSetup("cpu", 1, ProviderSettings(cuda_graph=True))
    model = OrtModel.open(folder, setup, capacity=32)
    expected = reference_logits(spec, TOKENS)
    np.testing.assert_allclose(model.extend(TOKENS[:7]), expected[:7], atol=FLOAT32, rtol=0)
    model.rewind(5)
    np.testing.assert_allclose(model.extend(TOKENS[5:9]), expected[5:9], atol=FLOAT32, rtol=0)
    model.rewind(6)
    np.testing.assert_allclose(model.extend(TOKENS[6:7]), expected[6:7], atol=FLOAT32, rtol=0)


def test_r39_models_that_agree_are_told_from_those_that_do_not(tmp_path: Path) -> None:
    def opened(name: str, spec: Decoder) -> OrtModel:
        return OrtModel.open(write_folder(spec, tmp_path / name), threads=1, capacity=32)

    whole = opened("whole", Decoder())
    assert logit_distance(whole, whole) == 0
    assert logit_distance(opened("half", Decoder(cache="bf16", logits="f16")), whole) < 0.05
    assert logit_distance(opened("other", Decoder(seed=1)), whole) > 1
    assert whole.length == 0
