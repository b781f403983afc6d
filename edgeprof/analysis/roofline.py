"""How long a pass over some positions takes at best on a board, and how long it may well take.

Two answers, never mixed. The *bound* is max(bytes / peak bandwidth, operations / peak rate): no
engine beats it. The *expected band* uses what boards sustain and what classes of engines reach.
Pure arithmetic; knows nothing of files, names or printing.
"""

from typing import Literal

from msgspec import Struct

from edgeprof.hardware.profile import DeviceProfile, PowerMode
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec

Phase = Literal["decode", "verify", "prefill", "draft"]
Wall = Literal["memory", "compute"]


class Band(Struct, frozen=True, kw_only=True):
    """A figure between two ends."""

    low: float
    high: float


class Roof(Struct, frozen=True, kw_only=True):
    """What a board in one mode can do at most, and the bandwidth that it sustains."""

    bandwidth_bytes_per_s: float
    flop_per_s: float | None
    sustained_bytes_per_s: Band | None = None

    @property
    def ridge_flop_per_byte(self) -> float | None:
        """The intensity from which arithmetic, not memory, is the wall."""
        return None if self.flop_per_s is None else self.flop_per_s / self.bandwidth_bytes_per_s


class EngineClass(Struct, frozen=True, kw_only=True):
    """What one kind of decoding engine makes of a roof.

    ``bandwidth_share`` is of the sustained bandwidth, ``compute_share`` of the dense peak.
    ``overhead_s`` comes on top once a pass. ``extra_position`` is what each further position of a
    pass costs a matrix, as a share of its one-position time, up to ``BATCH_POSITIONS``, from where
    such engines too take a batched kernel.
    """

    name: str
    engines: str
    bandwidth_share: Band
    compute_share: Band
    overhead_s: Band
    extra_position: Band


BATCH_POSITIONS = 8

# Bandwidth, overhead: fitted by eye to published decoding rates on Orin and Thor boards (1B to 32B
# models; 135M ones for the overhead). Compute: published prompt rates over 2 x parameters; a BF16
# product alone reaches 0.79 of peak on AGX Orin (infinigence/ApxInf doc/jetson-roofline.md).
# Further positions: ggml-org/llama.cpp PR #28285, a pass over 8 tokens costs 3.1 (Orin Nano) with
# the matrix-vector kernel and 0.9 to 1.0 with the matrix-matrix one.
ENGINE_CLASSES = (
    EngineClass(
        name="tuned",
        engines="TensorRT-LLM, MLC",
        bandwidth_share=Band(low=0.9, high=1.0),
        compute_share=Band(low=0.4, high=0.8),
        overhead_s=Band(low=0.0003, high=0.0025),
        extra_position=Band(low=0.0, high=0.0),
    ),
    EngineClass(
        name="general",
        engines="llama.cpp, Ollama, vLLM",
        bandwidth_share=Band(low=0.45, high=0.85),
        compute_share=Band(low=0.25, high=0.8),
        overhead_s=Band(low=0.001, high=0.007),
        extra_position=Band(low=0.0, high=0.33),
    ),
)


class PassCost(Struct, frozen=True, kw_only=True):
    """What a pass moves and computes, whatever the board."""

    phase: Phase
    tokens: int
    context_tokens: int
    weight_bytes: int
    kv_read_bytes: int
    kv_write_bytes: int
    flop: int
    parts: tuple["PartCost", ...]

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes

    @property
    def intensity_flop_per_byte(self) -> float:
        return self.flop / self.total_bytes


class PartCost(Struct, frozen=True, kw_only=True):
    """The share of one weight group, or of attention over the cache, in a pass."""

    name: str
    bytes: int
    flop: int


class PassTime(Struct, frozen=True, kw_only=True):
    """A pass on a roof: the bound, and the band expected of the engine classes together."""

    cost: PassCost
    ridge_flop_per_byte: float | None
    bound: Wall
    time_s: float
    expected_time_s: Band | None

    @property
    def tokens_per_s(self) -> float:
        """Positions processed a second at the bound; not the same as tokens accepted."""
        return self.cost.tokens / self.time_s

    @property
    def expected_tokens_per_s(self) -> Band | None:
        if self.expected_time_s is None:
            return None
        tokens, time = self.cost.tokens, self.expected_time_s
        return Band(low=tokens / time.high, high=tokens / time.low)


def roof_of(profile: DeviceProfile, mode: PowerMode, data_type: str = "fp16") -> Roof:
    """The roof of a board in a mode, for arithmetic in one data type."""
    peak = profile.peak_bandwidth_bytes_per_s(mode)
    share = profile.sustained
    return Roof(
        bandwidth_bytes_per_s=peak,
        flop_per_s=profile.peak_flop_per_s(mode).get(data_type),
        sustained_bytes_per_s=(
            None if share is None else Band(low=peak * share.low, high=peak * share.high)
        ),
    )


def pass_cost(
    model: ModelSpec, kv: StorageType, phase: Phase, tokens: int, context_tokens: int
) -> PassCost:
    """One pass over ``tokens`` positions with ``context_tokens`` cached before it.

    Weights are read once, whatever ``tokens`` is; of an untied input embedding, a row a position.
    A prefill multiplies lm_head for its last position only, other passes for all.
    """
    kv_read = model.kv_read_bytes(context_tokens, kv)
    kv_write = tokens * model.kv_bytes_per_token(kv)
    parts = [
        PartCost(
            name=group.role,
            bytes=group.bytes,
            flop=_product_flop(group.parameters, group.role, phase, tokens)
            if group.multiplies
            else 0,
        )
        for group in model.streamed_groups
    ]
    attention = attention_flop(model, tokens, context_tokens)
    parts.append(
        PartCost(name="attention over the cache", bytes=kv_read + kv_write, flop=attention)
    )
    return PassCost(
        phase=phase,
        tokens=tokens,
        context_tokens=context_tokens,
        weight_bytes=model.streamed_weight_bytes + tokens * model.embedding_row_bytes,
        kv_read_bytes=kv_read,
        kv_write_bytes=kv_write,
        flop=sum(part.flop for part in parts),
        parts=tuple(parts),
    )


def attention_flop(model: ModelSpec, tokens: int, context_tokens: int) -> int:
    """4 x heads x head_dim (scores and their use, 2 each) a token attended to, itself included."""
    shape = model.attention
    window = shape.window
    full_layers = shape.layers - (window.layers if window else 0)
    attended = full_layers * _attended(tokens, context_tokens, None)
    if window is not None:
        attended += window.layers * _attended(tokens, context_tokens, window.tokens)
    return 4 * shape.heads * shape.head_dim * attended


def pass_time(cost: PassCost, roof: Roof) -> PassTime:
    """The bound and the expected band of a pass."""
    memory_s = cost.total_bytes / roof.bandwidth_bytes_per_s
    compute_s = 0.0 if roof.flop_per_s is None else cost.flop / roof.flop_per_s
    bands = [band for engine in ENGINE_CLASSES if (band := expected_time(cost, roof, engine))]
    return PassTime(
        cost=cost,
        ridge_flop_per_byte=roof.ridge_flop_per_byte,
        bound="compute" if compute_s > memory_s else "memory",
        time_s=max(memory_s, compute_s),
        expected_time_s=Band(low=min(b.low for b in bands), high=max(b.high for b in bands))
        if bands
        else None,
    )


def expected_time(cost: PassCost, roof: Roof, engine: EngineClass) -> Band | None:
    """What a class of engines makes of a pass: each part at its own wall, one after the other.

    None where the board's sustained bandwidth is not known, nor for more positions than memory
    alone can tell of where its arithmetic rate is not.
    """
    if roof.sustained_bytes_per_s is None:
        return None
    if roof.flop_per_s is None and cost.tokens > BATCH_POSITIONS:
        return None
    return Band(
        low=_serial_time(
            cost,
            roof.sustained_bytes_per_s.high * engine.bandwidth_share.high,
            None if roof.flop_per_s is None else roof.flop_per_s * engine.compute_share.high,
            engine.extra_position.low,
        )
        + engine.overhead_s.low,
        high=_serial_time(
            cost,
            roof.sustained_bytes_per_s.low * engine.bandwidth_share.low,
            None if roof.flop_per_s is None else roof.flop_per_s * engine.compute_share.low,
            engine.extra_position.high,
        )
        + engine.overhead_s.high,
    )


def _product_flop(parameters: int, role: str, phase: Phase, tokens: int) -> int:
    positions = 1 if role == "lm_head" and phase == "prefill" else tokens
    return 2 * parameters * positions


def _attended(tokens: int, context_tokens: int, window: int | None) -> int:
    """Sum over the positions of a pass of the tokens each attends to: min(window, C + i + 1)."""
    first, last = context_tokens + 1, context_tokens + tokens
    if window is None or last <= window:
        return tokens * (first + last) // 2
    growing = max(window - first + 1, 0)
    return growing * (first + window) // 2 + (tokens - growing) * window


def _serial_time(
    cost: PassCost, bytes_per_s: float, flop_per_s: float | None, extra_position: float
) -> float:
    further = min(cost.tokens, BATCH_POSITIONS) - 1
    slower = 1 + extra_position * further
    return sum(
        max(
            part.bytes / bytes_per_s * slower,
            0.0 if flop_per_s is None else part.flop / flop_per_s,
        )
        for part in cost.parts
    )
