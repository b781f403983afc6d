"""Whether a model, its cache and its draft fit in the memory that CPU and GPU share."""

from msgspec import Struct, structs

from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec

# Single observations on Orin boards: a CUDA runtime, and Ubuntu at idle with its desktop.
RUNTIME_BYTES = round(0.5 * 2**30)
SYSTEM_BYTES = round(1.86 * 2**30)


class Resident(Struct, frozen=True, kw_only=True):
    """What lies in memory at the deepest point."""

    weights_bytes: int
    kv_bytes: int
    draft_weights_bytes: int
    draft_kv_bytes: int
    runtime_bytes: int
    system_bytes: int

    @property
    def total_bytes(self) -> int:
        return (
            self.weights_bytes
            + self.kv_bytes
            + self.draft_weights_bytes
            + self.draft_kv_bytes
            + self.runtime_bytes
            + self.system_bytes
        )


class Fit(Resident, frozen=True, kw_only=True):
    """What lies in memory, against what Linux can see."""

    dram_bytes: int

    @property
    def fits(self) -> bool:
        return self.total_bytes <= self.dram_bytes


def fit(
    *,
    target: ModelSpec,
    draft: ModelSpec | None,
    kv: StorageType,
    tokens: int,
    dram_bytes: int,
    runtime_bytes: int = RUNTIME_BYTES,
    system_bytes: int = SYSTEM_BYTES,
) -> Fit:
    """Everything resident at once, against the memory that there is."""
    needed = resident(
        target=target,
        draft=draft,
        kv=kv,
        tokens=tokens,
        runtime_bytes=runtime_bytes,
        system_bytes=system_bytes,
    )
    return Fit(**structs.asdict(needed), dram_bytes=dram_bytes)


def resident(
    *,
    target: ModelSpec,
    draft: ModelSpec | None,
    kv: StorageType,
    tokens: int,
    runtime_bytes: int = RUNTIME_BYTES,
    system_bytes: int = SYSTEM_BYTES,
) -> Resident:
    """All weights, and caches of ``tokens`` in full (an engine may allocate less for layers with a
    sliding window; that is not counted on)."""
    return Resident(
        weights_bytes=target.resident_weight_bytes,
        kv_bytes=tokens * target.kv_bytes_per_token(kv),
        draft_weights_bytes=0 if draft is None else draft.resident_weight_bytes,
        draft_kv_bytes=0 if draft is None else tokens * draft.kv_bytes_per_token(kv),
        runtime_bytes=runtime_bytes,
        system_bytes=system_bytes,
    )
