import hashlib
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest

from edgeprof.errors import FileFault
from edgeprof.models.checksum import sha256_of
from edgeprof.models.draft_assembly import assemble_draft
from edgeprof.models.readers.gguf import read_header


@pytest.fixture
def base(tmp_path: Path, tiny_gguf: Callable[..., Path]) -> Path:
    return tiny_gguf(tmp_path / "base.gguf")


def write_layers(path: Path, base_sha256: str | None) -> Path:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    if base_sha256 is not None:
        writer.add_string("general.base_model.0.sha256", base_sha256)
    writer.add_tensor("output_norm.weight", np.arange(5, dtype=np.float32))
    writer.add_tensor("blk.0.attn_norm.weight", np.arange(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_real_draft_is_the_published_file(smollm2_draft_gguf: Path) -> None:
    assert smollm2_draft_gguf.stat().st_size == 43_817_696
    assert sha256_of(smollm2_draft_gguf) == (
        "0a238d3677d6f0acbb766d82028fcd61128d742337979883110abdcb35e278da"
    )
    header = read_header(smollm2_draft_gguf)
    assert header.metadata["llama.block_count"] == 4
    # the embedding, 9 tensors a layer, the last norm
    assert len(header.tensors) == 1 + 4 * 9 + 1


def test_the_gguf_package_reads_the_result(tmp_path: Path, base: Path) -> None:
    import gguf

    layers = write_layers(tmp_path / "layers.gguf", sha256_of(base))
    assemble_draft(layers, base, tmp_path / "draft.gguf")
    draft, source = gguf.GGUFReader(tmp_path / "draft.gguf"), gguf.GGUFReader(base)
    assert [tensor.name for tensor in draft.tensors] == [
        "token_embd.weight",
        "output_norm.weight",
        "blk.0.attn_norm.weight",
    ]
    assert draft.tensors[0].data.tobytes() == source.tensors[0].data.tobytes()
    assert draft.tensors[1].data.tolist() == [0, 1, 2, 3, 4]
    assert draft.tensors[2].data.tolist() == list(range(64))
    assert draft.fields["llama.block_count"].contents() == 1
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.eos_token_id"):
        assert draft.fields[key].contents() == source.fields[key].contents()
    assert "llama.context_length" not in draft.fields  # sizes are the layers file's business


def test_another_base_is_refused(tmp_path: Path, base: Path) -> None:
    layers = write_layers(tmp_path / "layers.gguf", hashlib.sha256(b"another").hexdigest())
    with pytest.raises(FileFault, match=f"{base}: SHA-256 is {sha256_of(base)}"):
        assemble_draft(layers, base, tmp_path / "draft.gguf")
    assert not (tmp_path / "draft.gguf").exists()


def test_an_ordinary_model_is_no_layers_file(tmp_path: Path, base: Path) -> None:
    layers = write_layers(tmp_path / "layers.gguf", None)
    with pytest.raises(FileFault, match="not the layers of a draft"):
        assemble_draft(layers, base, tmp_path / "draft.gguf")


def test_a_base_without_embedding_is_refused(tmp_path: Path) -> None:
    base = write_layers(tmp_path / "base.gguf", None)
    layers = write_layers(tmp_path / "layers.gguf", sha256_of(base))
    with pytest.raises(FileFault, match=r"tensor token_embd\.weight is missing"):
        assemble_draft(layers, base, tmp_path / "draft.gguf")


def test_the_head_rows_are_tokens_of_the_model() -> None:
    import numpy as np

    with resources.as_file(resources.files("edgeprof.recipes")) as recipes:
        rows = np.load(recipes / "smollm2-135m-draft-head-rows-8192.npy", allow_pickle=False)
    assert rows.shape == (8192,)
    assert (np.diff(rows.astype(int)) > 0).all()
    assert rows[-1] < 49152
