"""How a model's provider is set up on this machine, and whether it agrees with the CPU."""

from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tiny_decoder import Decoder, write_folder

from edgeprof.errors import EnvironmentFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.profiling.loading import (
    model_files,
    open_model,
    provider_detail,
    require_parity,
    session_setup,
)
from edgeprof.profiling.messages import PreparedModel
from edgeprof.provider_settings import ProviderSettings
from edgeprof.runner.ort_model import OrtModel

ORIN = "NVIDIA Jetson Orin Nano Developer Kit"


@pytest.fixture
def folder(tmp_path: Path) -> DecoderFolder:
    return write_folder(Decoder(), tmp_path / "decoder")


@pytest.fixture
def prepared(folder: DecoderFolder) -> PreparedModel:
    return PreparedModel(
        role="target",
        folder=str(folder.location),
        source="x",
        weights="as-is",
        provider="cpu",
        threads=1,
    )


def board(root: Path, *, model: str | None) -> Path:
    (root / "proc/device-tree").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemFree: 1 kB\nMemAvailable:    1000000 kB\n")
    if model is not None:
        (root / "proc/device-tree/model").write_text(model + "\0")
    return root


def test_a_foreign_decoder_opens_and_is_recorded(prepared: PreparedModel) -> None:
    model, record = open_model(prepared, capacity=16, clock=lambda: 0)
    assert model.extend([1, 2]).shape == (2, 40)
    assert (record.layers, record.vocab_size, record.capacity_tokens) == (2, 40, 16)
    assert record.providers_in_session == ["CPUExecutionProvider"]
    # 16 x (64 + 32 + 32) and 64 x 16 of attention, 3 x 16 x 24 of the feed-forward, twice; a head
    # of 16 x 40. The embedding is only looked up.
    multiplied = 2 * (16 * 128 + 64 * 16 + 3 * 16 * 24) + 16 * 40
    assert record.streamed_weight_bytes is not None
    assert 0 <= record.streamed_weight_bytes - 4 * multiplied < 100  # a few constants
    assert record.flop_per_token == 2 * multiplied
    assert record.kv_bytes_per_token == 2 * 2 * 2 * 16 * 4
    assert provider_detail("t", model) is None


def test_all_files_of_a_model_count_to_its_load(tmp_path: Path) -> None:
    """In the folder of transformers.js, weights beside the graph under a name of their own."""
    write_folder(Decoder(), tmp_path, external=True)
    (tmp_path / "onnx").mkdir()
    for name in ("model.onnx", "model.onnx_data"):
        (tmp_path / name).rename(tmp_path / "onnx" / name)
    graph = tmp_path / "onnx" / "model.onnx"
    graph.write_bytes(graph.read_bytes().replace(b"model.onnx_data", b"weights-of.bin_"))
    (tmp_path / "onnx" / "model.onnx_data").rename(tmp_path / "onnx" / "weights-of.bin_")
    (tmp_path / "onnx" / "model_q4.onnx").write_bytes(b"another")
    files = model_files(read_decoder_folder(tmp_path))
    assert files == [graph, tmp_path / "onnx" / "weights-of.bin_"]


def test_r04_on_a_board_the_arena_is_bounded_by_what_is_available(
    prepared: PreparedModel, folder: DecoderFolder, tmp_path: Path
) -> None:
    on_gpu = replace(prepared, provider="cuda")
    root = board(tmp_path / "orin", model=ORIN)
    # nine tenths of 1 000 000 kB
    assert session_setup(on_gpu, folder, root).memory_limit_bytes == 921_600_000
    assert session_setup(prepared, folder, root).memory_limit_bytes is None
    # elsewhere a GPU has memory of its own
    host = board(tmp_path / "host", model=None)
    assert session_setup(on_gpu, folder, host).memory_limit_bytes is None


def test_r10_engines_are_kept_in_a_folder_of_their_own(
    prepared: PreparedModel,
    folder: DecoderFolder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EDGEPROF_CACHE", str(tmp_path / "cache"))
    on_gpu = replace(prepared, provider="tensorrt")
    kept = session_setup(on_gpu, folder, tmp_path).engine_folder
    assert kept is not None and kept.is_dir() and kept.parent == tmp_path / "cache" / "engines"
    settings = ProviderSettings(engine_cache=str(tmp_path / "mine"))
    chosen = replace(on_gpu, provider_settings=settings)
    assert session_setup(chosen, folder, tmp_path).engine_folder == tmp_path / "mine"
    (tmp_path / "taken").write_text("")
    taken = replace(chosen, provider_settings=ProviderSettings(engine_cache=f"{tmp_path}/taken"))
    with pytest.raises(EnvironmentFault, match=r"taken cannot be made: .*engine_cache"):
        session_setup(taken, folder, tmp_path)


def test_r39_a_provider_that_computes_something_else_is_refused(
    folder: DecoderFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played by a model whose logits are another's."""
    model = OrtModel.open(folder, threads=1, capacity=32)
    assert require_parity(model, folder) == 0
    extend = OrtModel.extend

    def other(self: OrtModel, tokens: list[int], rows: int | None = None) -> np.ndarray:
        logits = extend(self, tokens, rows)
        return logits[:, ::-1] if self is model else logits

    monkeypatch.setattr(OrtModel, "extend", other)
    with pytest.raises(EnvironmentFault, match=r"provider 'cpu' and the CPU disagree"):
        require_parity(model, folder)
