"""Parts that the documents of several paper commands share: a model, its memory, a pass's work."""

from typing import Any

from edgeprof.analysis.memory import Fit, Resident
from edgeprof.analysis.roofline import PassCost
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec


def model_document(model: ModelSpec, kv: StorageType) -> dict[str, Any]:
    """What the model weighs, with its cache kept in the type ``kv``."""
    return {
        "name": model.name,
        "quantisation": model.quantisation,
        "parameters": model.parameters,
        "resident_weight_bytes": model.resident_weight_bytes,
        "streamed_weight_bytes": model.streamed_weight_bytes,
        "kv_bytes_per_token": model.kv_bytes_per_token(kv),
    }


def fit_document(held: Resident) -> dict[str, Any]:
    """What must be resident, and whether it fits; that is null where the memory is not known."""
    fit = held if isinstance(held, Fit) else None
    return {
        "weights_bytes": held.weights_bytes,
        "kv_bytes": held.kv_bytes,
        "draft_weights_bytes": held.draft_weights_bytes,
        "draft_kv_bytes": held.draft_kv_bytes,
        "runtime_bytes": held.runtime_bytes,
        "system_bytes": held.system_bytes,
        "total_bytes": held.total_bytes,
        "dram_bytes": None if fit is None else fit.dram_bytes,
        "fits": None if fit is None else fit.fits,
    }


def work_document(cost: PassCost) -> dict[str, Any]:
    """What a pass moves and computes, whatever the board."""
    return {
        "phase": cost.phase,
        "tokens": cost.tokens,
        "context_tokens": cost.context_tokens,
        "weight_bytes": cost.weight_bytes,
        "kv_read_bytes": cost.kv_read_bytes,
        "kv_write_bytes": cost.kv_write_bytes,
        "total_bytes": cost.total_bytes,
        "flop": cost.flop,
        "intensity_flop_per_byte": cost.intensity_flop_per_byte,
    }
