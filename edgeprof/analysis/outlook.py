"""What is to be expected of a model on a board: the passes asked for, and whether it fits."""

from collections.abc import Sequence

from msgspec import Struct

from edgeprof.analysis.memory import Fit, fit
from edgeprof.analysis.roofline import PassTime, Phase, Roof, pass_cost, pass_time, roof_of
from edgeprof.catalog import Device
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec

DEFAULT_PROMPT_TOKENS = 512  # what is prefilled where no context is asked for


class Outlook(Struct, frozen=True, kw_only=True):
    """The answer for one board, mode, model and perhaps draft."""

    device: Device
    model: ModelSpec
    draft: ModelSpec | None
    kv: StorageType
    data_type: str
    roof: Roof
    passes: tuple[PassTime, ...]
    fit: Fit


def outlook(
    *,
    device: Device,
    model: ModelSpec,
    kv: StorageType,
    draft: ModelSpec | None = None,
    data_type: str = "fp16",
    contexts: Sequence[int] = (0,),
    draft_length: int = 4,
    tokens: int | None = None,
) -> Outlook:
    """Decoding and verifying at each context, prefilling the deepest; the fit at the deepest."""
    roof = roof_of(device.profile, device.mode, data_type)
    asked: list[tuple[ModelSpec, Phase, int, int]] = []
    for context in contexts:
        asked.append((model, "decode", 1, context))
        asked.append((model, "verify", draft_length + 1, context))
        if tokens is not None and tokens not in (1, draft_length + 1):
            asked.append((model, "verify", tokens, context))
        if draft is not None:
            asked.append((draft, "draft", 1, context))
    deepest_token = max(context + t for m, _, t, context in asked if m is model)
    asked.append((model, "prefill", max(contexts) or DEFAULT_PROMPT_TOKENS, 0))
    return Outlook(
        device=device,
        model=model,
        draft=draft,
        kv=kv,
        data_type=data_type,
        roof=roof,
        passes=tuple(
            pass_time(pass_cost(spec, kv, phase, count, context), roof)
            for spec, phase, count, context in asked
        ),
        fit=fit(
            target=model,
            draft=draft,
            kv=kv,
            tokens=deepest_token,
            dram_bytes=device.profile.visible_dram_bytes,
        ),
    )
