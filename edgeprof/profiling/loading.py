"""Opens the models of a job and says what each of them is."""

from collections.abc import Callable
from pathlib import Path

from edgeprof.models.decoder_folder import read_decoder_folder
from edgeprof.profiling.messages import PreparedModel
from edgeprof.runner.ort_model import OrtModel
from edgeprof.session.records import ModelRecord


def open_model(
    prepared: PreparedModel, *, capacity: int, clock: Callable[[], int]
) -> tuple[OrtModel, ModelRecord]:
    """The model, loaded on its provider with a cache for ``capacity`` tokens, and its record."""
    folder = read_decoder_folder(Path(prepared.folder))
    model = OrtModel.open(
        folder,
        provider=prepared.provider,
        threads=prepared.threads,
        capacity=capacity,
        clock=clock,
    )
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
        parameters=manifest.parameters if manifest else None,
        streamed_weight_bytes=manifest.streamed_weight_bytes if manifest else None,
        resident_weight_bytes=manifest.resident_weight_bytes if manifest else None,
        kv_bytes_per_token=manifest.kv_bytes_per_token if manifest else None,
        flop_per_token=manifest.flop_per_token if manifest else None,
        load_s=model.load_s,
        kernel=manifest.kernel if manifest else None,
    )
    return model, record
