"""Every architecture and every storage, against a float64 decoder written independently.

The limits follow from the kernels' arithmetic by Monte Carlo arithmetic, as in test_decoder.py.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from made_gguf import write_decoder_gguf

from edgeprof.convert import weights as reading
from edgeprof.convert.folder import convert
from edgeprof.convert.weights import Architecture
from edgeprof.models.decoder_folder import DecoderFolder

TOKENS = [5, 80, 299, 17, 17, 160, 2, 244, 91, 33, 128, 7]
SAMPLES = 4
# GQA throughout: 4 query heads share 2 (or 1) of keys and values.
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"architecture": "llama"},
    "llama-rope-factors": {"architecture": "llama", "rope_base": 500_000.0, "rope_factors": True},
    "llama-biases-untied": {"architecture": "llama", "biases": True, "tied": False},
    "llama-wide-heads": {"architecture": "llama", "head_dim": 32, "kv_heads": 1},
    "qwen2": {"architecture": "qwen2", "biases": True, "rope_base": 1_000_000.0},
    "qwen2-untied": {"architecture": "qwen2", "biases": True, "tied": False, "kv_heads": 1},
    "qwen3": {"architecture": "qwen3", "head_dim": 32, "rope_base": 1_000_000.0},
    "qwen3-untied": {"architecture": "qwen3", "head_dim": 48, "tied": False, "kv_heads": 4},
}
# Storages of whole models; the K formats need rows of 256.
WIDE = {"hidden": 256, "ffn": 512, "heads": 4, "kv_heads": 2}
MIXES: dict[str, dict[str, Any]] = {
    "Q4_K_M": {
        "storage": "Q4_K",
        "storages": {"token_embd": "Q6_K", "attn_v": "Q6_K", "blk.1.ffn_down": "Q6_K"},
        **WIDE,
    },
    "Q5_K": {"storage": "Q5_K", "storages": {"blk.0.attn_k": "Q4_K"}, **WIDE},
    "Q4_K": {"storage": "Q4_K", **WIDE},
    "Q6_K": {"storage": "Q6_K", **WIDE},
    # A Q4_K_M whose rows are no multiple of 256 falls back to Q5_0 and Q8_0.
    "Q5_0": {"storage": "Q5_0", "storages": {"token_embd": "Q8_0", "attn_v": "Q8_0"}},
    "Q5_1": {"storage": "Q5_1"},
    "BF16": {"storage": "BF16", "storages": {"blk.0.attn_q": "F16"}},
}


def largest(difference: Any) -> float:
    return float(np.abs(difference).max())


class Case:
    """A file, its reference logits, and how far float32 kernels may be from them."""

    def __init__(self, path: Path, reference: Any, rounding: Any) -> None:
        decoder = reference(path)
        self.path = path
        self.logits = decoder.logits(TOKENS)
        samples = [decoder.logits(TOKENS, rounding(seed)) for seed in range(SAMPLES)]
        self.limit = 2 * max(largest(sample - self.logits) for sample in samples)


@pytest.fixture(scope="module")
def case(
    tmp_path_factory: pytest.TempPathFactory, reference_decoder: Any, rounding: Any
) -> Callable[..., Case]:
    def make(**choices: Any) -> Case:
        path = write_decoder_gguf(tmp_path_factory.mktemp("case") / "m.gguf", **choices)
        return Case(path, reference_decoder, rounding)

    return make


def with_float_activations(folder: DecoderFolder) -> Path:
    """The same graph and weights with the activations of every product left in float32."""
    model = onnx.load(folder.onnx_path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    onnx.save(model, folder.path / "exact.onnx")
    return folder.path / "exact.onnx"


@pytest.mark.parametrize("model", MODELS)
def test_every_architecture_agrees_with_the_reference(
    model: str, case: Callable[..., Case], plain_decoder: Any, tmp_path: Path
) -> None:
    wanted = case(**MODELS[model])
    folder = convert(wanted.path, tmp_path / "out")
    logits = plain_decoder(folder.onnx_path).extend(TOKENS)
    assert largest(logits - wanted.logits) <= wanted.limit < 1e-3 * largest(wanted.logits)
    assert folder.manifest is not None
    assert folder.manifest.architecture == MODELS[model]["architecture"]


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_storage_is_held_exactly(
    architecture: str, mix: str, case: Callable[..., Case], plain_decoder: Any, tmp_path: Path
) -> None:
    """With float activations the containers give what the dequantised weights give."""
    wanted = case(architecture=architecture, biases=architecture == "qwen2", **MIXES[mix])
    folder = convert(wanted.path, tmp_path / "out")
    logits = plain_decoder(with_float_activations(folder)).extend(TOKENS)
    assert largest(logits - wanted.logits) <= wanted.limit < 1e-3 * largest(wanted.logits)
    assert folder.manifest is not None
    assert folder.manifest.requantised is None


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_int8_activations_stay_near_and_passes_of_any_size_agree_to_the_last_bit(
    architecture: str, case: Callable[..., Case], plain_decoder: Any, tmp_path: Path
) -> None:
    biases = architecture == "qwen2"
    wanted = case(architecture=architecture, biases=biases, **MIXES["Q4_K_M"])
    folder = convert(wanted.path, tmp_path / "out")
    whole = plain_decoder(folder.onnx_path).extend(TOKENS)
    # Rounding a block of activations moves it by about 1/254 of its largest value; two layers of
    # seven products each leave well below a tenth of the logits' own size.
    assert wanted.limit < largest(whole - wanted.logits) < 0.1 * largest(wanted.logits)
    for size in (1, 2, 5):
        decoder = plain_decoder(folder.onnx_path)
        parts = [decoder.extend(TOKENS[i : i + size]) for i in range(0, len(TOKENS), size)]
        assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize(
    ("model", "wrong"),
    [
        ("llama", {"adjacent_pairs": False, "rope_factors": True}),
        ("llama-biases-untied", {"adjacent_pairs": False, "rope_factors": True}),
        ("qwen2", {"adjacent_pairs": True}),
        ("qwen3", {"adjacent_pairs": True, "head_norms": True}),
    ],
)
def test_the_other_row_order_of_queries_and_keys_is_caught(
    model: str,
    wrong: dict[str, bool],
    case: Callable[..., Case],
    plain_decoder: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Proof that the tests above tell the two ways of pairing apart."""
    wanted = case(**MODELS[model])
    name = MODELS[model]["architecture"]
    monkeypatch.setattr(reading, "ARCHITECTURES", {name: Architecture(**wrong)})
    folder = convert(wanted.path, tmp_path / "out")
    logits = plain_decoder(folder.onnx_path).extend(TOKENS)
    assert largest(logits - wanted.logits) > 1000 * wanted.limit


@pytest.mark.parametrize("model", ["llama-rope-factors", "qwen2", "qwen3"])
def test_biases_norms_of_heads_and_rope_factors_are_not_idle(
    model: str, case: Callable[..., Case], plain_decoder: Any, tmp_path: Path
) -> None:
    """The same file with the constants of one kind levelled gives other logits by far."""
    wanted = case(**MODELS[model])
    folder = convert(wanted.path, tmp_path / "out")
    graph = onnx.load(folder.onnx_path)
    marks = {"llama-rope-factors": "rotary_", "qwen2": ".bias", "qwen3": "_norm.weight"}
    for constant in graph.graph.initializer:
        heads = "attn_q_norm" in constant.name or "attn_k_norm" in constant.name
        if marks[model] in constant.name and (model != "qwen3" or heads):
            values = onnx.numpy_helper.to_array(constant)
            constant.CopyFrom(onnx.numpy_helper.from_array(np.ones_like(values), constant.name))
    onnx.save(graph, tmp_path / "levelled.onnx")
    levelled = plain_decoder(tmp_path / "levelled.onnx").extend(TOKENS)
    assert largest(levelled - wanted.logits) > 1000 * wanted.limit


@pytest.mark.parametrize("storage", ["Q2_K", "Q3_K", "IQ4_XS", "IQ4_NL"])
def test_requantised_weights_are_as_near_as_the_account_says(
    storage: str, case: Callable[..., Case], plain_decoder: Any, tmp_path: Path
) -> None:
    """One step of 8 bits is 1/127 of a block's largest weight, half of it the largest error. For
    weights spread evenly the root mean square error is 1/sqrt(3) of that, over weights that are a
    few times smaller than the largest: below 1 %."""
    wanted = case(architecture="llama", storage=storage, **WIDE)
    said: list[str] = []
    folder = convert(wanted.path, tmp_path / "out", requantise=True, talk=said.append)
    assert folder.manifest is not None
    account = folder.manifest.requantised
    assert account is not None
    assert account.storages == [storage]
    # Two layers: q and output 256 x 256, k and v 128 x 256, three of 512 x 256; 300 tokens.
    assert account.weights == 2 * (2 * 65_536 + 2 * 32_768 + 3 * 131_072) + 300 * 256
    assert 0 < account.largest_error_of_block <= 0.5 / 127 * 1.0001
    assert 0 < account.relative_rms_error < 0.01
    assert any(f"rounded {account.weights} weights stored as {storage}" in line for line in said)
    fp32 = plain_decoder(convert(wanted.path, tmp_path / "fp32", weights="fp32").onnx_path)
    exact = fp32.extend(TOKENS)
    assert largest(exact - wanted.logits) <= wanted.limit
    rounded = plain_decoder(with_float_activations(folder)).extend(TOKENS)
    assert wanted.limit < largest(rounded - exact) < 0.1 * largest(exact)
