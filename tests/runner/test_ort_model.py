"""The ONNX Runtime model on small random decoders, where the whole path is real."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from edgeprof.convert.folder import convert
from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.runner.agreement import probe_agreement
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.providers import SessionSetup

TinyGguf = Callable[..., Path]
TOKENS = [7, 1, 30, 255, 12, 99, 3, 41, 200, 8]


@pytest.fixture(scope="module")
def folder(tiny_gguf: TinyGguf, tmp_path_factory: pytest.TempPathFactory) -> DecoderFolder:
    base = tmp_path_factory.mktemp("tiny")
    return convert(tiny_gguf(base / "m.gguf", matrices="Q4_1"), base / "onnx")


@pytest.fixture
def model(folder: DecoderFolder) -> OrtModel:
    return OrtModel.open(folder, threads=1, capacity=64)


def test_passes_of_every_size_agree_bit_for_bit(model: OrtModel) -> None:
    """What padded attention is for: plain decoding itself is the reference of speculation."""
    agreement = probe_agreement(model)
    assert agreement.max_logit_difference == {1: 0, 2: 0, 3: 0, 4: 0, 8: 0}
    assert agreement.after_rollback == 0


def test_without_padding_the_probe_sees_the_difference(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    """The probe can fail: the same weights, attention unpadded, one-token kernels of their own."""
    unpadded = convert(
        tiny_gguf(tmp_path / "m.gguf", matrices="Q4_1"), tmp_path / "onnx", attention_pad=0
    )
    model = OrtModel.open(unpadded, threads=1, capacity=64)
    agreement = probe_agreement(model)
    assert agreement.max_logit_difference[8] == agreement.max_logit_difference[2] == 0
    assert agreement.after_rollback == 0
    assert not agreement.one_token_passes_agree


def test_rows_and_chunks_do_not_change_the_logits(model: OrtModel) -> None:
    whole = model.extend(TOKENS).copy()
    model.rewind(0)
    last = model.extend(TOKENS, rows=1).copy()
    model.rewind(0)
    model.extend(TOKENS[:4])
    rest = model.extend(TOKENS[4:]).copy()
    assert whole.shape == (10, model.vocab_size)
    assert np.array_equal(last[0], whole[-1])
    assert np.array_equal(rest, whole[4:])


def test_logits_are_a_view_that_the_next_pass_overwrites(model: OrtModel) -> None:
    """An OrtValue shares its array's memory on the CPU provider; the engine depends on it."""
    first = model.extend([1])
    kept = first.copy()
    model.extend([2])
    assert not np.array_equal(first, kept)


def test_the_cache_is_cut_back_by_its_length_alone(model: OrtModel) -> None:
    model.extend(TOKENS[:5])
    before = model.extend(TOKENS[5:]).copy()
    model.rewind(5)
    model.extend([9, 9, 9])
    model.rewind(5)
    assert np.array_equal(model.extend(TOKENS[5:]), before)
    with pytest.raises(ValueError, match="cannot rewind to 11"):
        model.rewind(11)


def test_capacity_counts_tokens_and_the_last_one_still_fits(folder: DecoderFolder) -> None:
    model = OrtModel.open(folder, threads=1, capacity=8)
    assert model.capacity == 8
    model.extend(TOKENS[:7])
    model.extend(TOKENS[7:8])
    with pytest.raises(ValueError, match="8 of 8"):
        model.extend([1])
    with pytest.raises(ValueError, match="0 tokens"):
        model.extend([])
    wide = OrtModel.open(folder, threads=1, capacity=100_000)
    assert wide.capacity == folder.context_tokens - 1  # the context less the padding row


def test_stamps_come_from_the_clock_that_was_given(folder: DecoderFolder) -> None:
    ticks = iter([10, 25])
    model = OrtModel.open(folder, threads=1, capacity=8, clock=lambda: next(ticks))
    model.extend([1])
    assert model.stamps_ns == (10, 25)


def test_a_cut_head_names_its_tokens(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    source = tiny_gguf(tmp_path / "m.gguf", matrices="Q4_1")
    rows = np.array([2, 5, 7, 100, 255], np.uint16)
    np.save(tmp_path / "rows.npy", rows)
    whole = OrtModel.open(convert(source, tmp_path / "whole"), threads=1, capacity=16)
    cut_folder = convert(source, tmp_path / "cut", head_rows=tmp_path / "rows.npy")
    cut = OrtModel.open(cut_folder, threads=1, capacity=16)
    # A product of five columns may take other steps than one of all: equal but for rounding.
    np.testing.assert_allclose(cut.extend(TOKENS), whole.extend(TOKENS)[:, rows], atol=1e-5)
    assert cut.token_ids(np.array([0, 4])).tolist() == [2, 255]
    assert cut.vocab_size == whole.vocab_size
    np.save(cut_folder.path / "head_rows.npy", np.array([1, 100_000]))
    with pytest.raises(FileFault, match="outside the vocabulary"):
        OrtModel.open(read_decoder_folder(cut_folder.path), threads=1, capacity=16)


def test_a_provider_that_is_not_there_is_named(folder: DecoderFolder) -> None:
    with pytest.raises(EnvironmentFault, match="CUDAExecutionProvider"):
        OrtModel.open(folder, SessionSetup("cuda", threads=1), capacity=8)


def test_a_damaged_graph_is_one_clear_line(tiny_gguf: TinyGguf, tmp_path: Path) -> None:
    folder = convert(tiny_gguf(tmp_path / "m.gguf"), tmp_path / "onnx")
    content = folder.onnx_path.read_bytes()
    folder.onnx_path.write_bytes(content[: len(content) // 2])
    with pytest.raises(FileFault, match=r"model\.onnx: damaged ONNX file: truncated"):
        OrtModel.open(folder, threads=1, capacity=8)


def test_a_graph_that_onnxruntime_refuses_is_one_clear_line(
    tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    folder = convert(tiny_gguf(tmp_path / "m.gguf"), tmp_path / "onnx")
    content = folder.onnx_path.read_bytes()
    folder.onnx_path.write_bytes(content.replace(b"Sigmoid", b"Sigmoyd"))
    with pytest.raises(
        FileFault, match=r"model\.onnx: onnxruntime cannot load it: .*Sigmoyd"
    ) as told:
        OrtModel.open(folder, threads=1, capacity=8)
    assert len(str(told.value).splitlines()) == 1


def test_the_graph_decides_where_the_configuration_names_other_things(
    folder: DecoderFolder,
) -> None:
    """Fewer layers, other names of caches, no mask: the graph has what it has."""
    elsewhere = replace(folder.outputs, present_key_names="now.%d")
    other = replace(
        folder,
        layers=1,
        inputs=replace(folder.inputs, attention_mask=None),
        outputs=elsewhere,
    )
    expected = OrtModel.open(folder, threads=1, capacity=64).extend(TOKENS)
    assert np.array_equal(OrtModel.open(other, threads=1, capacity=64).extend(TOKENS), expected)


def test_a_head_that_lacks_tokens_is_refused(folder: DecoderFolder) -> None:
    with pytest.raises(FileFault, match="gives 300 logits a token, expected 301"):
        OrtModel.open(replace(folder, vocab_size=301), threads=1, capacity=64)


def test_head_rows_that_lie_about_their_number_take_no_memory(
    folder: DecoderFolder, tmp_path: Path
) -> None:
    with (tmp_path / "head_rows.npy").open("wb") as file:
        header = {"descr": "<u4", "fortran_order": False, "shape": (10**11,)}
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(FileFault, match=r"head_rows\.npy: not a list of tokens"):
        OrtModel.open(replace(folder, path=tmp_path), threads=1, capacity=64)
