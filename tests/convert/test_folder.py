"""The folder that a conversion leaves, and that it leaves none when it fails."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_gguf import write_decoder_gguf

from edgeprof.convert import folder as converting
from edgeprof.convert.folder import cached_conversion, convert
from edgeprof.convert.weights import DecoderWeights
from edgeprof.errors import EdgeprofError, EnvironmentFault, FileFault, UsageFault
from edgeprof.models.checksum import sha256_of
from edgeprof.models.decoder_folder import Manifest, read_decoder_folder
from edgeprof.models.readers.gguf import read_header

TinyGguf = Callable[..., Path]
# The tiny model: hidden 64, 4 heads, 2 key-value heads of 16, feed-forward 128, 2 layers, 300
# tokens. A layer multiplies with q 64 x 64, k and v 32 x 64, output 64 x 64, gate, up and down
# 128 x 64 each: 4096 + 2 x 2048 + 4096 + 3 x 8192 = 36 864 parameters.
LAYER, EMBEDDING, NORMS = 36_864, 300 * 64, 5 * 64


@pytest.fixture
def gguf(tiny_gguf: TinyGguf, tmp_path: Path) -> Path:
    return tiny_gguf(tmp_path / "tiny.gguf", matrices="Q4_1")


def manifest_of(path: Path) -> Manifest:
    manifest = read_decoder_folder(path).manifest
    assert manifest is not None
    return manifest


def test_the_manifest_counts_what_the_graph_stores(gguf: Path, tmp_path: Path) -> None:
    """Q4_1 takes 4 bits a weight, a float32 scale and a float32 correction for 32: 6 bits. The
    Q8_0 head, shared with the embedding, takes 8 and a scale: 9 bits. Norms are float32."""
    manifest = manifest_of(convert(gguf, tmp_path / "out").path)
    streamed = 2 * LAYER * 6 // 8 + EMBEDDING * 9 // 8 + NORMS * 4
    assert manifest.streamed_weight_bytes == streamed == 78_176
    assert manifest.resident_weight_bytes == streamed
    assert manifest.parameters == 2 * LAYER + EMBEDDING + NORMS == 93_248
    assert manifest.flop_per_token == 2 * (2 * LAYER + EMBEDDING) == 185_856
    # 2 layers, keys and values, 2 heads of 16 float32 values.
    assert manifest.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4 == 512
    assert (manifest.weights, manifest.kernel) == ("as-is", "int4 MatMulNBits")
    assert (manifest.attention_pad, manifest.head_rows) == (1, None)
    assert manifest.source_sha256 == sha256_of(gguf)
    assert manifest.onnx_sha256 == sha256_of(tmp_path / "out" / "model.onnx")


def test_fp32_weights_take_four_bytes_each(gguf: Path, tmp_path: Path) -> None:
    manifest = manifest_of(convert(gguf, tmp_path / "out", weights="fp32").path)
    assert manifest.streamed_weight_bytes == 4 * (2 * LAYER + EMBEDDING + NORMS)
    assert manifest.resident_weight_bytes == manifest.streamed_weight_bytes
    assert manifest.kernel == "fp32 MatMul"


def test_an_untied_embedding_is_resident_but_not_streamed(
    tiny_gguf: TinyGguf, tmp_path: Path
) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", matrices="F32", embedding="F32", tied=False)
    manifest = manifest_of(convert(path, tmp_path / "out").path)
    assert manifest.streamed_weight_bytes == 4 * (2 * LAYER + EMBEDDING + NORMS)
    assert manifest.resident_weight_bytes == 4 * (2 * LAYER + 2 * EMBEDDING + NORMS)
    assert manifest.kernel == "fp32 MatMul"


def test_a_cut_head_streams_its_own_rows(gguf: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(0, 300, 3, dtype=np.uint16))
    out = convert(gguf, tmp_path / "out", head_rows=tmp_path / "rows.npy")
    manifest = manifest_of(out.path)
    head = 100 * 64
    assert manifest.head_rows == 100
    assert manifest.vocab_size == out.vocab_size == 300
    assert manifest.streamed_weight_bytes == 2 * LAYER * 6 // 8 + head * 9 // 8 + NORMS * 4
    assert manifest.resident_weight_bytes - manifest.streamed_weight_bytes == EMBEDDING * 9 // 8
    assert manifest.flop_per_token == 2 * (2 * LAYER + head)
    assert out.head_rows_path is not None


def test_the_folder_is_read_back_with_the_names_of_the_graph(gguf: Path, tmp_path: Path) -> None:
    import onnx

    out = convert(gguf, tmp_path / "out")
    graph = onnx.load(out.onnx_path).graph
    inputs = {value.name for value in graph.input}
    outputs = {value.name for value in graph.output}
    assert {out.inputs.input_ids, out.inputs.attention_mask} < inputs
    for layer in range(out.layers):
        assert {out.inputs.past_key_names % layer, out.inputs.past_value_names % layer} < inputs
        assert {
            out.outputs.present_key_names % layer,
            out.outputs.present_value_names % layer,
        } < outputs
    # Optional, because a constant of its name stands for it.
    assert "keep_from" in inputs & {constant.name for constant in graph.initializer}
    assert (out.layers, out.context_tokens, sorted(out.end_token_ids)) == (2, 256, [0, 2])
    assert sorted(path.name for path in out.path.iterdir()) == [
        "edgeprof.json",
        "genai_config.json",
        "model.onnx",
        "tokenizer.json",
        "tokenizer_config.json",
    ]


def test_the_same_file_gives_the_same_graph(gguf: Path, tmp_path: Path) -> None:
    first, second = (manifest_of(convert(gguf, tmp_path / name).path) for name in "ab")
    assert first == second


def test_weights_beyond_a_protobuf_go_into_a_file_beside_it(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_decoder: Any
) -> None:
    inside = convert(gguf, tmp_path / "inside")
    monkeypatch.setattr(converting, "MAX_WEIGHT_BYTES_INSIDE", 10_000)
    beside = convert(gguf, tmp_path / "beside")
    assert (beside.path / "model.onnx.data").stat().st_size > 50_000
    assert beside.onnx_path.stat().st_size < inside.onnx_path.stat().st_size / 2
    with_pages = 4096 * (2 * 9 + 6)  # no more than a page's gap before each of the large constants
    assert (beside.path / "model.onnx.data").stat().st_size < 78_176 + 2 * 4 * 257 * 8 + with_pages
    expected = plain_decoder(inside.onnx_path).extend([1, 2, 3])
    assert np.array_equal(plain_decoder(beside.onnx_path).extend([1, 2, 3]), expected)


def test_an_existing_folder_is_replaced_only_by_force_and_only_if_it_is_ours(
    gguf: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    convert(gguf, out)
    with pytest.raises(UsageFault, match="exists; choose another name, or replace it with --force"):
        convert(gguf, out, weights="fp32")
    assert manifest_of(out).weights == "as-is"
    convert(gguf, out, weights="fp32", force=True)
    assert manifest_of(out).weights == "fp32"

    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("...")
    for target in (precious, gguf):
        with pytest.raises(UsageFault, match="is no decoder folder of edgeprof"):
            convert(gguf, target, force=True)
    assert (precious / "thesis.tex").read_text() == "..."


def broken(data: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    assert old in data
    return data.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (b"GGUF", b"GGUX", "not a GGUF file"),
        (b"general.architecture", b"general.architectyre", "general.architecture is None"),
        (b"llama.block_count", b"llama.block_kount", "metadata key llama.block_count is missing"),
        (b"blk.1.ffn_up.weight", b"blk.1.ffn_xp.weight", "'blk.1.ffn_up.weight' is missing"),
        (b"output_norm.weight", b"output_norm.veight", "'output_norm.weight' is missing"),
        (b"token_embd.weight", b"token_embd.veight", "'token_embd.weight' is missing"),
        (b"smollm", b"smallm", "tokenizer.ggml.pre is 'smallm'"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_leaves_nothing(
    old: bytes, new: bytes, fault: str, gguf: Path, tmp_path: Path
) -> None:
    gguf.write_bytes(broken(gguf.read_bytes(), old, new))
    with pytest.raises(FileFault, match=fault) as caught:
        convert(gguf, tmp_path / "out")
    assert str(gguf) in str(caught.value)
    assert list(tmp_path.iterdir()) == [gguf]


@pytest.mark.parametrize("kept_bytes", [0, 3, 100, 20_000, -1])
def test_a_truncated_file_leaves_nothing(kept_bytes: int, gguf: Path, tmp_path: Path) -> None:
    gguf.write_bytes(gguf.read_bytes()[:kept_bytes])
    with pytest.raises(FileFault):
        convert(gguf, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [gguf]


def test_a_web_page_or_nothing_leaves_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><html></html>")
    with pytest.raises(FileFault, match="HTML page"):
        convert(page, tmp_path / "out")
    with pytest.raises(UsageFault, match="no such file"):
        convert(tmp_path / "none.gguf", tmp_path / "out")
    assert list(tmp_path.iterdir()) == [page]


def test_an_unsupported_storage_type_leaves_nothing(tmp_path: Path) -> None:
    path = write_decoder_gguf(tmp_path / "m.gguf", "llama", storage="IQ4_NL")
    with pytest.raises(FileFault, match=r"'token_embd.weight' is stored as IQ4_NL; .*--requantise"):
        convert(path, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_no_count_of_a_storage_is_below_what_is_written(architecture: str, tmp_path: Path) -> None:
    """Whether the weights go into a file of their own is decided before they are made."""
    for storage in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "Q4_K", "Q5_K", "Q6_K"):
        path = tmp_path / f"{storage}.gguf"
        write_decoder_gguf(path, architecture, storage=storage, hidden=256, ffn=512)
        for form in ("as-is", "fp32"):
            weights = DecoderWeights(read_header(path), float32=form == "fp32")
            manifest = manifest_of(convert(path, tmp_path / "out", weights=form, force=True).path)
            assert manifest.resident_weight_bytes <= weights.most_stored_bytes


def test_a_place_that_cannot_be_written_is_named(gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot be written"):
        convert(gguf, tmp_path / "file" / "out")


def test_a_missing_package_is_named_with_the_way_to_get_it(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(converting, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentFault, match=r"pip install 'edgeprof\[cpu\]'"):
        convert(gguf, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [gguf]


def test_a_conversion_is_made_once_for_each_content_and_choice(gguf: Path, tmp_path: Path) -> None:
    cache, sha256 = tmp_path / "cache", sha256_of(gguf)
    np.save(tmp_path / "rows.npy", np.array([1, 2], dtype=np.uint16))
    first = cached_conversion(gguf, sha256, cache=cache)
    made = first.onnx_path.stat().st_mtime_ns
    again = cached_conversion(gguf, sha256, cache=cache)
    assert again.path == first.path
    assert again.onnx_path.stat().st_mtime_ns == made
    others = [
        cached_conversion(gguf, sha256, cache=cache, weights="fp32"),
        cached_conversion(gguf, sha256, cache=cache, attention_pad=0),
        cached_conversion(gguf, sha256, cache=cache, head_rows=tmp_path / "rows.npy"),
        cached_conversion(gguf, sha256, cache=cache, requantise=True),
        cached_conversion(gguf, "f" * 64, cache=cache),
    ]
    assert len({first.path, *(other.path for other in others)}) == 6
    assert len(os.listdir(cache)) == 6


def test_a_failed_conversion_leaves_the_cache_empty(gguf: Path, tmp_path: Path) -> None:
    gguf.write_bytes(gguf.read_bytes()[:-1])
    with pytest.raises(EdgeprofError):
        cached_conversion(gguf, "0" * 64, cache=tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*"))


@pytest.mark.parametrize("name", ["genai_config.json", "edgeprof.json", "model.onnx"])
def test_a_cached_conversion_that_lost_a_part_is_made_again(
    gguf: Path, tmp_path: Path, name: str
) -> None:
    cache, sha256 = tmp_path / "cache", sha256_of(gguf)
    part = cached_conversion(gguf, sha256, cache=cache).path / name
    whole = part.read_bytes()
    if name == "edgeprof.json":
        part.write_bytes(whole[:10])
    else:
        part.unlink()
    said: list[str] = []
    cached_conversion(gguf, sha256, cache=cache, talk=said.append)
    assert part.read_bytes() == whole
    assert name in said[0] and said[0].endswith("; converting again")
    assert len(os.listdir(cache)) == 1


@pytest.mark.parametrize("left_bytes", [None, 0, 30_000])
def test_a_cached_conversion_that_lost_weights_beside_its_graph_is_made_again(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_bytes: int | None
) -> None:
    monkeypatch.setattr(converting, "MAX_WEIGHT_BYTES_INSIDE", 10_000)
    cache, sha256 = tmp_path / "cache", sha256_of(gguf)
    data = cached_conversion(gguf, sha256, cache=cache).path / "model.onnx.data"
    whole = data.read_bytes()
    if left_bytes is None:
        data.unlink()
    else:
        data.write_bytes(whole[:left_bytes])
    said: list[str] = []
    cached_conversion(gguf, sha256, cache=cache, talk=said.append)
    assert data.read_bytes() == whole
    assert "model.onnx.data is missing or cut short; converting again" in said[0]


def test_what_a_killed_conversion_left_is_removed_after_a_day(gguf: Path, tmp_path: Path) -> None:
    old, young = tmp_path / "cache" / ".old.x", tmp_path / "cache" / ".young.x"
    for folder in (old, young):
        (folder / "new").mkdir(parents=True)
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    cached_conversion(gguf, sha256_of(gguf), cache=tmp_path / "cache")
    assert young.exists() and not old.exists()
