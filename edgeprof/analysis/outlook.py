"""What is to be expected of a model on a board: the passes asked for, and whether it fits.

On a board whose figures are not published an ``Outline`` is all there is: what the passes move and
compute, and what lies in memory.
"""

from collections.abc import Sequence

from msgspec import Struct

from edgeprof.analysis.memory import Fit, Resident, fit, resident
from edgeprof.analysis.roofline import (
    PassCost,
    PassTime,
    Phase,
    Roof,
    measured_format,
    pass_cost,
    pass_time,
    roof_of_device,
)
from edgeprof.catalog import (
    AnyDevice,
    MeasuredDevice,
    engine_classes,
    find_engine,
    measured_engine,
)
from edgeprof.hardware.engines import EngineClass
from edgeprof.hardware.profile import AnnouncedBoard
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec

DEFAULT_PROMPT_TOKENS = 512  # what is prefilled where no context is asked for


class Outlook(Struct, frozen=True, kw_only=True):
    """The answer for one board, mode, model and perhaps draft.

    The passes are expected of ``engine``; ``engines`` are the classes to tell apart.
    """

    device: AnyDevice
    model: ModelSpec
    draft: ModelSpec | None
    kv: StorageType
    data_type: str
    roof: Roof
    engine: EngineClass
    engines: tuple[EngineClass, ...]
    passes: tuple[PassTime, ...]
    fit: Fit


class Outline(Struct, frozen=True, kw_only=True):
    """What can be said of a model on a board that is only announced."""

    board: AnnouncedBoard
    model: ModelSpec
    draft: ModelSpec | None
    kv: StorageType
    passes: tuple[PassCost, ...]
    resident: Resident


def outlook(
    *,
    device: AnyDevice,
    model: ModelSpec,
    kv: StorageType,
    draft: ModelSpec | None = None,
    data_type: str = "fp16",
    contexts: Sequence[int] = (0,),
    draft_length: int = 4,
    tokens: int | None = None,
    engine: EngineClass | None = None,
) -> Outlook:
    """Decoding and verifying at each context, prefilling the deepest; the fit at the deepest.

    Without a class of engines the widest is expected of the passes. Of a machine without a
    datasheet the roof is the measured one, by the arithmetic of the model's format where that asked
    for was not measured.
    """
    if isinstance(device, MeasuredDevice):
        data_type = measured_format(device.measured, model, data_type)
        engine = engine or measured_engine(device.measured)
    expected_of = engine or find_engine()
    roof = roof_of_device(device, data_type)
    costs = pass_costs(model, draft, kv, contexts, draft_length, tokens)
    return Outlook(
        device=device,
        model=model,
        draft=draft,
        kv=kv,
        data_type=data_type,
        roof=roof,
        engine=expected_of,
        engines=engine_classes() if engine is None else (engine,),
        passes=tuple(pass_time(cost, roof, expected_of) for cost in costs),
        fit=fit(
            target=model,
            draft=draft,
            kv=kv,
            tokens=_deepest_token(costs),
            dram_bytes=device.profile.visible_dram_bytes,
        ),
    )


def outline(
    *,
    board: AnnouncedBoard,
    model: ModelSpec,
    kv: StorageType,
    draft: ModelSpec | None = None,
    contexts: Sequence[int] = (0,),
    draft_length: int = 4,
    tokens: int | None = None,
) -> Outline:
    """The passes of an ``outlook``, without the times that nobody can know yet."""
    costs = pass_costs(model, draft, kv, contexts, draft_length, tokens)
    return Outline(
        board=board,
        model=model,
        draft=draft,
        kv=kv,
        passes=costs,
        resident=resident(target=model, draft=draft, kv=kv, tokens=_deepest_token(costs)),
    )


def pass_costs(
    model: ModelSpec,
    draft: ModelSpec | None,
    kv: StorageType,
    contexts: Sequence[int],
    draft_length: int,
    tokens: int | None,
) -> tuple[PassCost, ...]:
    """Decoding, verifying and drafting at each context, prefilling the deepest."""
    asked: list[tuple[ModelSpec, Phase, int, int]] = []
    for context in contexts:
        asked.append((model, "decode", 1, context))
        asked.append((model, "verify", draft_length + 1, context))
        if tokens is not None and tokens not in (1, draft_length + 1):
            asked.append((model, "verify", tokens, context))
        if draft is not None:
            asked.append((draft, "draft", 1, context))
    asked.append((model, "prefill", max(contexts) or DEFAULT_PROMPT_TOKENS, 0))
    return tuple(pass_cost(spec, kv, phase, count, at) for spec, phase, count, at in asked)


def _deepest_token(costs: Sequence[PassCost]) -> int:
    """The last position that a pass of the target reaches; a prefill ends where the contexts do."""
    return max(c.context_tokens + c.tokens for c in costs if c.phase in ("decode", "verify"))
