"""Opens the models of a job and says what each of them is."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edgeprof.catalog import identify_board
from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.hardware.memory_state import read_memory_state
from edgeprof.models.cache import KEY_DIGITS, cache_dir
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.models.readers.onnx_graph import read_onnx_graph
from edgeprof.models.readers.onnx_model import describe_onnx
from edgeprof.profiling.messages import PreparedModel
from edgeprof.runner.agreement import logit_distance
from edgeprof.runner.ort_model import OrtModel
from edgeprof.runner.placement import node_counts
from edgeprof.runner.providers import SessionSetup, provider_options
from edgeprof.session.records import ModelRecord

# Of what is available, where CPU and GPU share it: the rest is for what is not in the arena.
_ARENA_SHARE = 0.9
_PARITY_CAPACITY = 32
_CPU_COPIES = 2  # of the weights, as the CPU's kernels pack them again
_LARGEST_DISTANCE = 0.5  # far above any rounding, far below unrelated logits


def open_model(
    prepared: PreparedModel,
    *,
    capacity: int,
    longest_pass: int | None = None,
    clock: Callable[[], int],
) -> tuple[OrtModel, ModelRecord]:
    """The model, loaded on its provider with a cache for ``capacity`` tokens, and its record."""
    folder = read_decoder_folder(Path(prepared.folder))
    model = OrtModel.open(
        folder,
        session_setup(prepared, folder),
        capacity=capacity,
        longest_pass=longest_pass,
        clock=clock,
    )
    if prepared.provider != "cpu":
        require_parity(model, folder)
    manifest = folder.manifest
    record = ModelRecord(
        role=prepared.role,
        source=prepared.source,
        sha256=manifest.source_sha256 if manifest else None,
        weights=manifest.weights if manifest else prepared.weights,
        provider=prepared.provider,
        providers_in_session=model.providers,
        threads=prepared.threads,
        vocab_size=folder.vocab_size,
        capacity_tokens=model.capacity,
        layers=folder.layers,
        load_s=model.load_s,
        kernel=manifest.kernel if manifest else None,
        requantised=manifest.requantised if manifest else None,
        **_sizes(folder, model),
    )
    return model, record


def model_files(folder: DecoderFolder) -> list[Path]:
    """What is read when the model is loaded: the graph, and the files beside it that it names."""
    beside = read_onnx_graph(folder.onnx_path).external
    return [folder.onnx_path, *(folder.onnx_path.parent / name for name in beside)]


def _sizes(folder: DecoderFolder, model: OrtModel) -> dict[str, Any]:
    """What the manifest says, or else the graph; nothing where that is of no known form."""
    if manifest := folder.manifest:
        return {
            "parameters": manifest.parameters,
            "streamed_weight_bytes": manifest.streamed_weight_bytes,
            "resident_weight_bytes": manifest.resident_weight_bytes,
            "kv_bytes_per_token": manifest.kv_bytes_per_token,
            "flop_per_token": manifest.flop_per_token,
        }
    try:
        spec = describe_onnx(folder.onnx_path)
    except FileFault:
        return {}
    return {
        "parameters": spec.parameters,
        "streamed_weight_bytes": spec.streamed_weight_bytes,
        "resident_weight_bytes": spec.resident_weight_bytes,
        "kv_bytes_per_token": model.kv_bytes_per_token,
        "flop_per_token": 2 * spec.used_parameters,
    }


def require_parity(model: OrtModel, folder: DecoderFolder) -> float | None:
    """How far the model's logits are from those of the CPU, on a short text; None where there is no
    memory to load it there too. EnvironmentFault where the two have nothing in common."""
    weights_bytes = sum(t.byte_length for t in read_onnx_graph(folder.onnx_path).tensors.values())
    available_bytes = read_memory_state().available_bytes
    if available_bytes is None or available_bytes < _CPU_COPIES * weights_bytes:
        return None
    reference = OrtModel.open(folder, threads=model.setup.threads, capacity=_PARITY_CAPACITY)
    distance = logit_distance(model, reference)
    if not distance < _LARGEST_DISTANCE:  # not a number is no agreement either
        raise EnvironmentFault(
            f"{folder.onnx_path}: provider {model.setup.provider!r} and the CPU disagree: their "
            f"logits differ by {distance:.2f} of what they vary; take another version of "
            "onnxruntime, another export or another provider"
        )
    return distance


def provider_detail(key: str, model: OrtModel) -> dict[str, Any] | None:
    """How the provider of a model was set up and what it took; None for the CPU's, which takes all
    and has no settings."""
    setup = model.setup
    if setup.provider == "cpu":
        return None
    return {
        "model": key,
        "provider": setup.provider,
        "options": provider_options(setup, setup.provider),
        "nodes": None if model.placement is None else node_counts(model.placement),
    }


def session_setup(
    prepared: PreparedModel, folder: DecoderFolder, root: Path = Path("/")
) -> SessionSetup:
    """What the provider needs to know besides the recipe's settings; the board's files lie below
    ``root``."""
    on_gpu = prepared.provider != "cpu"
    return SessionSetup(
        provider=prepared.provider,
        threads=prepared.threads,
        settings=prepared.provider_settings,
        memory_limit_bytes=_arena_limit_bytes(root) if on_gpu else None,
        engine_folder=_engine_folder(prepared, folder) if prepared.provider == "tensorrt" else None,
    )


def _arena_limit_bytes(root: Path) -> int | None:
    """Of a board, whose GPU takes from the same memory as all others; None elsewhere."""
    available = read_memory_state(root).available_bytes
    if available is None or identify_board(root).facts.model is None:
        return None
    return int(available * _ARENA_SHARE)


def _engine_folder(prepared: PreparedModel, folder: DecoderFolder) -> Path:
    """Where TensorRT keeps what it built for this graph."""
    name = hashlib.sha256(str(folder.onnx_path.absolute()).encode()).hexdigest()[:KEY_DIGITS]
    chosen = prepared.provider_settings.engine_cache
    path = Path(chosen).expanduser() if chosen is not None else cache_dir() / "engines" / name
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise EnvironmentFault(
            f"{path} cannot be made: {error.strerror}; choose another folder with "
            "provider_settings.engine_cache"
        ) from error
    return path
