"""How long a pass over some positions takes at best on a board, and how long it may well take.

Two answers, never mixed. The *bound* is max(bytes / peak bandwidth, operations / peak rate): no
engine beats it. The *expected band* uses what boards sustain and what classes of engines reach.
Pure arithmetic; knows nothing of files, names or printing.
"""

import math
from typing import Literal

from msgspec import Struct

from edgeprof.catalog import AnyDevice, Device
from edgeprof.errors import EdgeprofError
from edgeprof.hardware.engines import BATCH_POSITIONS, EngineClass
from edgeprof.hardware.measured import MeasuredProfile
from edgeprof.hardware.profile import DeviceProfile, PowerMode
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec
from edgeprof.quantity import Band

# Bits a weight up to which a model is of this format of the measured ones, scales included.
_FORMATS = ((5.5, "int4"), (10.0, "int8"), (16.0, "fp16"))

Phase = Literal["decode", "verify", "prefill", "draft"]
Wall = Literal["memory", "compute"]


class Roof(Struct, frozen=True, kw_only=True):
    """What a board in one mode can do at most, the bandwidth that it sustains, and its GPU clocks:
    of one unit, and of all SMs that are on together."""

    bandwidth_bytes_per_s: float
    flop_per_s: float | None
    sustained_bytes_per_s: Band | None = None
    gpu_clock_hz: float | None = None
    sm_clocks_per_s: float | None = None

    @property
    def ridge_flop_per_byte(self) -> float | None:
        """The intensity from which arithmetic, not memory, is the wall."""
        return None if self.flop_per_s is None else self.flop_per_s / self.bandwidth_bytes_per_s


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
    """A pass on a roof: the bound, and the band expected of a class of engines."""

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
    clocks = _clocked_mode(profile, mode)
    return Roof(
        bandwidth_bytes_per_s=peak,
        flop_per_s=profile.peak_flop_per_s(mode).get(data_type),
        sustained_bytes_per_s=(
            None if share is None else Band(low=peak * share.low, high=peak * share.high)
        ),
        gpu_clock_hz=clocks and clocks[1],
        sm_clocks_per_s=clocks and clocks[0] * clocks[1],
    )


def roof_of_device(device: AnyDevice, data_type: str = "fp16") -> Roof:
    """The roof of a device: by its datasheet, or of a machine without one what was measured.

    A measured roof is what large kernels reached, a lower bound of the hardware's own: its
    bandwidth is the most that was read, its sustained band what the kernels read at one row.
    """
    if isinstance(device, Device):
        return roof_of(device.profile, device.mode, data_type)
    measured = device.measured
    best = measured.best_bandwidth_bytes_per_s
    if best is None:
        raise EdgeprofError("the profile of this machine holds no bandwidth: run `edgeprof probe`")
    reads = [one.bandwidth_bytes_per_s.value for one in measured.kernels] or [best]
    return Roof(
        bandwidth_bytes_per_s=best,
        flop_per_s=measured.rates_flop_per_s().get(data_type),
        sustained_bytes_per_s=Band(low=min(reads), high=max(reads)),
    )


def measured_format(measured: MeasuredProfile, model: ModelSpec, asked: str) -> str:
    """Whose measured rate tells of a model: that of the arithmetic asked for, else that of the
    format that holds most of the model's bytes, else the one measured first."""
    rates = measured.rates_flop_per_s()
    largest = max(model.streamed_groups, key=lambda group: group.bytes).bits_per_weight
    by_width = next((name for bits, name in _FORMATS if largest <= bits), "fp32")
    return next((name for name in (asked, by_width, *rates) if name in rates), asked)


def _clocked_mode(profile: DeviceProfile, mode: PowerMode) -> tuple[int, float] | None:
    """SMs and GPU clock of a mode; where they are not published, those of the fullest mode that
    has them, as the bandwidth of such a mode is the fullest one's too."""
    published = [
        (one.sms, one.gpu_mhz * 1e6)
        for one in (mode, *profile.modes)
        if one.sms is not None and one.gpu_mhz is not None
    ]
    if mode.sms is not None and mode.gpu_mhz is not None:
        return published[0]
    return max(published, key=math.prod, default=None)


def pass_cost(
    model: ModelSpec, kv: StorageType, phase: Phase, tokens: int, context_tokens: int
) -> PassCost:
    """One pass over ``tokens`` positions with ``context_tokens`` cached before it.

    Weights are read once, whatever ``tokens`` is; of experts, the union that the positions need; of
    an untied input embedding, a row a position.
    A prefill multiplies lm_head for its last position only, other passes for all.
    """
    kv_read = model.kv_read_bytes(context_tokens, kv)
    kv_write = tokens * model.kv_bytes_per_token(kv)
    parts = [
        PartCost(
            name=group.role,
            bytes=group.streamed_bytes(tokens),
            flop=_product_flop(group.used_parameters, group.role, phase, tokens),
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
        weight_bytes=model.streamed_bytes(tokens) + tokens * model.embedding_row_bytes,
        kv_read_bytes=kv_read,
        kv_write_bytes=kv_write,
        flop=sum(part.flop for part in parts),
        parts=tuple(parts),
    )


def attention_flop(model: ModelSpec, tokens: int, context_tokens: int) -> int:
    """2 x heads x (key width for scores + value width for their use) a token attended to, itself
    included."""
    return sum(
        2
        * kind.heads
        * (kind.key_dim + kind.value_dim)
        * kind.layers
        * _attended(tokens, context_tokens, kind.window_tokens)
        for kind in model.attention.kinds
    )


def pass_time(cost: PassCost, roof: Roof, engine: EngineClass | None = None) -> PassTime:
    """The bound of a pass, and the band expected of a class of engines where one is given."""
    memory_s = cost.total_bytes / roof.bandwidth_bytes_per_s
    compute_s = 0.0 if roof.flop_per_s is None else cost.flop / roof.flop_per_s
    return PassTime(
        cost=cost,
        ridge_flop_per_byte=roof.ridge_flop_per_byte,
        bound="compute" if compute_s > memory_s else "memory",
        time_s=max(memory_s, compute_s),
        expected_time_s=None if engine is None else expected_time(cost, roof, engine),
    )


def expected_time(cost: PassCost, roof: Roof, engine: EngineClass) -> Band | None:
    """What a class of engines makes of a pass: each part at its own wall, one after the other.

    None where the board's sustained bandwidth or GPU clock is not known, nor for more positions
    than memory alone can tell of where its arithmetic rate is not.
    """
    sustained = roof.sustained_bytes_per_s
    if sustained is None or (engine.needs_gpu_clock and roof.sm_clocks_per_s is None):
        return None
    if roof.flop_per_s is None and cost.tokens > BATCH_POSITIONS:
        return None
    bound_s = pass_time(cost, roof).time_s

    def end(fast: bool) -> float:
        """High shares go with low costs at the fast end, and the other way at the slow one."""

        def share(band: Band) -> float:
            return band.high if fast else band.low

        def price(band: Band) -> float:
            return band.low if fast else band.high

        bytes_per_s = share(sustained) * share(engine.bandwidth_share)
        serial_s = _serial_time(
            cost,
            _seconds_per_byte(roof, bytes_per_s, price(engine.unpack_clocks_per_byte)),
            None if roof.flop_per_s is None else roof.flop_per_s * share(engine.compute_share),
            price(engine.extra_position),
        )
        return max(bound_s, serial_s + _overhead_s(roof, price(engine.overhead_clocks)))

    return Band(low=end(fast=True), high=end(fast=False))


def _seconds_per_byte(roof: Roof, bytes_per_s: float, unpack_clocks_per_byte: float) -> float:
    """Reading a byte, then unpacking it on one of the SMs that share the work."""
    unpack_s = 0.0
    if roof.sm_clocks_per_s is not None:
        unpack_s = unpack_clocks_per_byte / roof.sm_clocks_per_s
    return 1 / bytes_per_s + unpack_s


def _overhead_s(roof: Roof, clocks: float) -> float:
    return 0.0 if roof.gpu_clock_hz is None else clocks / roof.gpu_clock_hz


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
    cost: PassCost, seconds_per_byte: float, flop_per_s: float | None, extra_position: float
) -> float:
    further = min(cost.tokens, BATCH_POSITIONS) - 1
    slower = 1 + extra_position * further
    return sum(
        max(
            part.bytes * seconds_per_byte * slower,
            0.0 if flop_per_s is None else part.flop / flop_per_s,
        )
        for part in cost.parts
    )
