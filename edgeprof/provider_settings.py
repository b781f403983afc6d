"""What a recipe may ask of an execution provider. Knows nothing of onnxruntime."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

ProviderName = Literal["cpu", "cuda", "tensorrt"]

_USED_BY: dict[str, tuple[str, ...]] = {
    "fallback": ("cuda", "tensorrt"),
    "arena": ("cuda", "tensorrt"),
    "memory_limit_bytes": ("cuda", "tensorrt"),
    "cuda_graph": ("cuda",),
    "fp16": ("tensorrt",),
    "engine_cache": ("tensorrt",),
}


class ProviderSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a model's provider is set up.

    ``fallback`` lets nodes that the provider does not take run elsewhere. The ``arena`` grows by
    what is asked for; onnxruntime's own default doubles it. ``memory_limit_bytes`` bounds it: None
    is what the machine has available when the model is loaded, where CPU and GPU share memory,
    else no bound. ``cuda_graph`` replays captured passes. TensorRT builds in half precision with
    ``fp16`` and keeps its engines in the folder ``engine_cache``: None is edgeprof's own cache.
    """

    fallback: bool = False
    arena: Literal["same-as-requested", "next-power-of-two"] = "same-as-requested"
    memory_limit_bytes: Annotated[int, Meta(ge=1 << 20, le=1 << 44)] | None = None
    cuda_graph: bool = False
    fp16: bool = False
    engine_cache: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None


def check_settings(provider: str, settings: ProviderSettings) -> None:
    """Raises ValueError for a setting that the provider does not have."""
    default = ProviderSettings()
    for name, users in _USED_BY.items():
        if getattr(settings, name) != getattr(default, name) and provider not in users:
            raise ValueError(
                f"provider_settings.{name} is for {' and '.join(users)}, the provider is {provider}"
            )
