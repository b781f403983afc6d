"""The converted graphs against a float64 decoder written independently (see conftest.py).

How far they may be apart is derived by Monte Carlo arithmetic: the reference runs again with
random errors of the size that the kernels' arithmetic makes, and the largest change of a logit,
times 2 for the few samples taken, is the limit.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgeprof.convert import blocks
from edgeprof.convert import decoder as building
from edgeprof.convert.folder import WeightForm, convert
from edgeprof.models.decoder_folder import DecoderFolder

TinyGguf = Callable[..., Path]
Folders = Callable[[WeightForm], DecoderFolder]
TOKENS = [5, 80, 299, 17, 17, 160, 2, 244, 91, 33, 128, 7]
STORAGES = ("F32", "Q4_0", "Q4_1", "Q8_0")
SAMPLES = 4


def largest(difference: Any) -> float:
    return float(np.abs(difference).max())


class Case:
    """A file, its reference logits, and the limits that follow from the kernels' arithmetic."""

    def __init__(self, path: Path, tokens: list[int], reference: Any, rounding: Any) -> None:
        decoder = reference(path)
        self.path = path
        self.tokens = tokens
        self.logits = decoder.logits(tokens)

        def limit(**kind: bool) -> float:
            samples = (decoder.logits(tokens, rounding(seed, **kind)) for seed in range(SAMPLES))
            return 2 * max(largest(sample - self.logits) for sample in samples)

        self.float32_limit = limit()
        self.int8_limit = limit(int8=True)


@pytest.fixture(scope="module")
def case(
    tiny_gguf: TinyGguf,
    tmp_path_factory: pytest.TempPathFactory,
    reference_decoder: Any,
    rounding: Any,
) -> Callable[[str], Case]:
    made: dict[str, Case] = {}

    def make(storage: str) -> Case:
        if storage not in made:
            path = tmp_path_factory.mktemp(storage) / "tiny.gguf"
            tiny_gguf(path, matrices=storage, embedding="F32" if storage == "F32" else "Q8_0")
            made[storage] = Case(path, TOKENS, reference_decoder, rounding)
        return made[storage]

    return make


def with_float_activations(folder: DecoderFolder, out: Path) -> Path:
    """The same graph and weights with the activations of every product left in float32."""
    model = onnx.load(folder.onnx_path)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "accuracy_level":
                attribute.i = 0
    onnx.save(model, out)
    return out


@pytest.mark.parametrize("storage", STORAGES)
def test_fp32_graph_agrees_with_the_reference(
    storage: str, case: Callable[[str], Case], plain_decoder: Any, tmp_path: Path
) -> None:
    wanted = case(storage)
    folder = convert(wanted.path, tmp_path / "out", weights="fp32")
    logits = plain_decoder(folder.onnx_path).extend(TOKENS)
    assert largest(logits - wanted.logits) <= wanted.float32_limit
    # The limit itself says something: it is far below the logits.
    assert wanted.float32_limit < 1e-4 * largest(wanted.logits)


@pytest.mark.parametrize("storage", STORAGES)
def test_as_is_graph_holds_the_weights_exactly(
    storage: str, case: Callable[[str], Case], plain_decoder: Any, tmp_path: Path
) -> None:
    """With float activations the quantised container gives what the dequantised weights give."""
    wanted = case(storage)
    folder = convert(wanted.path, tmp_path / "out")
    exact = with_float_activations(folder, tmp_path / "exact.onnx")
    assert largest(plain_decoder(exact).extend(TOKENS) - wanted.logits) <= wanted.float32_limit


@pytest.mark.parametrize("storage", STORAGES[1:])
def test_int8_activations_deviate_as_much_as_their_rounding_explains(
    storage: str,
    case: Callable[[str], Case],
    plain_decoder: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted = case(storage)
    folder = convert(wanted.path, tmp_path / "out")
    deviation = largest(plain_decoder(folder.onnx_path).extend(TOKENS) - wanted.logits)
    with capsys.disabled():
        print(
            f"\n{storage} with int8 activations: largest logit deviation {deviation:.3g}, "
            f"limit {wanted.int8_limit:.3g}, largest logit {largest(wanted.logits):.3g}"
        )
    assert wanted.float32_limit < deviation <= wanted.int8_limit


@pytest.mark.parametrize("heads", ["attn_q", "attn_k"])
def test_a_wrong_order_of_query_or_key_rows_is_caught(
    heads: str,
    case: Callable[[str], Case],
    plain_decoder: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Leave one of the two in the file's order (4 query heads, 2 key heads of 16)."""
    right = blocks.half_split_rows
    skipped = {"attn_q": 4, "attn_k": 2}[heads]

    def half_wrong(count: int, head_dim: int) -> Any:
        return np.arange(count * head_dim) if count == skipped else right(count, head_dim)

    monkeypatch.setattr(building, "half_split_rows", half_wrong)
    wanted = case("F32")
    folder = convert(wanted.path, tmp_path / "out", weights="fp32")
    logits = plain_decoder(folder.onnx_path).extend(TOKENS)
    assert largest(logits - wanted.logits) > 1000 * wanted.float32_limit


@pytest.mark.parametrize("embedding", ["Q4_0", "Q4_1", "Q8_0", "F16"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_storage_of_embedding_and_head(
    embedding: str,
    tied: bool,
    tiny_gguf: TinyGguf,
    reference_decoder: Any,
    rounding: Any,
    plain_decoder: Any,
    tmp_path: Path,
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", matrices="Q8_0", embedding=embedding, tied=tied, layers=1)
    wanted = Case(path, TOKENS, reference_decoder, rounding)
    exact = with_float_activations(convert(path, tmp_path / "out"), tmp_path / "exact.onnx")
    assert largest(plain_decoder(exact).extend(TOKENS) - wanted.logits) <= wanted.float32_limit


@pytest.mark.parametrize("weights", ["as-is", "fp32"])
@pytest.mark.parametrize("storage", ["Q4_1", "Q8_0"])
def test_passes_of_any_size_give_the_same_logits_to_the_last_bit(
    storage: str,
    weights: Any,
    case: Callable[[str], Case],
    plain_decoder: Any,
    tmp_path: Path,
) -> None:
    folder = convert(case(storage).path, tmp_path / "out", weights=weights)
    whole = plain_decoder(folder.onnx_path).extend(TOKENS)
    for size in (1, 2, 3, 5):
        decoder = plain_decoder(folder.onnx_path)
        parts = [decoder.extend(TOKENS[i : i + size]) for i in range(0, len(TOKENS), size)]
        assert np.array_equal(np.concatenate(parts), whole)


def test_without_the_dummy_row_a_lone_token_rounds_otherwise(
    case: Callable[[str], Case], plain_decoder: Any, tmp_path: Path
) -> None:
    """The reason for the dummy row, and the proof that the test above can fail."""
    folder = convert(case("Q4_1").path, tmp_path / "out", attention_pad=0)
    whole = plain_decoder(folder.onnx_path).extend(TOKENS)
    decoder = plain_decoder(folder.onnx_path)
    alone = np.concatenate([decoder.extend([token]) for token in TOKENS])
    assert 0 < largest(alone - whole) < case("Q4_1").int8_limit


def test_the_dummy_row_changes_nothing_else(
    case: Callable[[str], Case], plain_decoder: Any, tmp_path: Path
) -> None:
    path = case("Q4_1").path
    padded = convert(path, tmp_path / "padded")
    plain = convert(path, tmp_path / "plain", attention_pad=0)
    assert np.array_equal(
        plain_decoder(padded.onnx_path).extend(TOKENS),
        plain_decoder(plain.onnx_path).extend(TOKENS),
    )


def test_a_shorter_length_rolls_the_cache_back(
    case: Callable[[str], Case], plain_decoder: Any, tmp_path: Path
) -> None:
    decoder = plain_decoder(convert(case("Q4_1").path, tmp_path / "out").onnx_path)
    decoder.extend(TOKENS[:6])
    before = decoder.extend(TOKENS[6:])
    decoder.length = 6
    decoder.extend([9, 9, 9])
    decoder.length = 6
    assert np.array_equal(decoder.extend(TOKENS[6:]), before)


def test_only_the_rows_asked_for_reach_the_head(
    case: Callable[[str], Case], plain_decoder: Any, tmp_path: Path
) -> None:
    folder = convert(case("Q4_1").path, tmp_path / "out")
    whole = plain_decoder(folder.onnx_path).extend(TOKENS)
    last = plain_decoder(folder.onnx_path).extend(TOKENS, keep_from=len(TOKENS) - 2)
    assert np.array_equal(last, whole[-2:])


@pytest.mark.parametrize("weights", ["as-is", "fp32"])
@pytest.mark.parametrize("embedding", ["Q8_0", "Q4_1", "F32"])
def test_a_cut_head_gives_the_kept_columns(
    weights: Any, embedding: str, tiny_gguf: TinyGguf, plain_decoder: Any, tmp_path: Path
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", matrices="Q4_1", embedding=embedding)
    rows = np.array([0, 2, 3, 64, 150, 151, 299], dtype=np.uint16)
    np.save(tmp_path / "rows.npy", rows)
    whole = convert(path, tmp_path / "whole", weights=weights)
    cut = convert(path, tmp_path / "cut", weights=weights, head_rows=tmp_path / "rows.npy")
    expected = plain_decoder(whole.onnx_path).extend(TOKENS)[:, rows]
    logits = plain_decoder(cut.onnx_path).extend(TOKENS)
    assert logits.shape == (len(TOKENS), 7)
    # Fewer columns may be summed in another order. Two float32 sums of 64 products differ by at
    # most 2 x 64 u x |x| |w|; a normalised row is at most 8 long, times norm weights up to 1.5,
    # and the rows of the head, 64 values of variance 1/64, are well below 2 long.
    assert largest(logits - expected) <= 2 * 64 * 2.0**-24 * (8 * 1.5) * 2
    assert np.array_equal(np.load(cut.path / "head_rows.npy"), rows)


def test_the_real_model_agrees_with_the_reference(
    smollm2_gguf: Path,
    smollm2_folder: Folders,
    reference_decoder: Any,
    rounding: Any,
    plain_decoder: Any,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """30 layers, a prompt of 8 tokens; one sample of rounding errors for each limit."""
    tokens = [1, 4093, 198, 19556, 28, 638, 359, 346]
    decoder = reference_decoder(smollm2_gguf)
    reference = decoder.logits(tokens)
    limit = 2 * largest(decoder.logits(tokens, rounding(0)) - reference)
    int8_limit = 2 * largest(decoder.logits(tokens, rounding(0, int8=True)) - reference)
    fp32 = plain_decoder(smollm2_folder("fp32").onnx_path).extend(tokens)
    as_is = plain_decoder(smollm2_folder("as-is").onnx_path).extend(tokens)
    with capsys.disabled():
        print(
            f"\nSmolLM2-135M, logits spanning {np.ptp(reference):.2g}: deviation of float32 "
            f"{largest(fp32 - reference):.2g} (limit {limit:.2g}), of int8 activations "
            f"{largest(as_is - reference):.2g} (limit {int8_limit:.2g})"
        )
    assert largest(fp32 - reference) <= limit < 1e-4 * np.ptp(reference)
    assert np.array_equal(fp32.argmax(axis=-1), reference.argmax(axis=-1))
    assert limit < largest(as_is - reference) <= int8_limit


def test_lone_tokens_and_many_agree_on_the_real_model(
    smollm2_folder: Folders, plain_decoder: Any
) -> None:
    tokens = np.random.default_rng(0).integers(0, 49_152, 24).tolist()
    folder = smollm2_folder("as-is")
    whole = plain_decoder(folder.onnx_path).extend(tokens)
    decoder = plain_decoder(folder.onnx_path)
    alone = np.concatenate([decoder.extend([token]) for token in tokens])
    assert np.array_equal(alone, whole)
