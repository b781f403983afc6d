"""Duty blocks: one verify pass and 0, K or 3 K throw-away draft passes in turn, as a check of what
held legs say. The slope over the number of draft passes is a draft pass, the start a verify pass.
Pure arithmetic.
"""

import random
from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from edgeprof.analysis.channels import Channel
from edgeprof.analysis.held_bytes import (
    Draw,
    Held,
    Stretch,
    held_value,
    slope_and_intercept,
    stretches_of,
    widened_band,
)
from edgeprof.analysis.held_legs import HeldLeg, attribute
from edgeprof.analysis.statistics import resampled
from edgeprof.quantity import Quantity

_SOURCE = (
    "least squares over duty blocks of 0, K and 3 K throw-away draft passes a verify pass; 90 % "
    "bootstrap over blocks and held legs"
)
_SEED = 0
_Point = tuple[int, Stretch]  # so many draft passes a verify pass, and what was read meanwhile


class DutyCheck(Struct, frozen=True, kw_only=True):
    """The bytes of a draft and a verify pass by the slope and the start of the duty blocks."""

    target: str
    drafter: str
    tokens: int
    blocks: int
    draft_bytes: Quantity
    verify_bytes: Quantity
    draft_over_held: float | None
    verify_over_held: float | None


def duty_checks(blocks: Sequence[HeldLeg], channel: Channel, figures: Held) -> list[DutyCheck]:
    """One a pair of target and drafter whose blocks were covered."""
    pairs: dict[tuple[str, str, int], list[HeldLeg]] = defaultdict(list)
    for block in blocks:
        drafter = block.leg.attrs.get("drafter")
        if isinstance(drafter, str):
            pairs[block.leg.variant, drafter, block.key.tokens].append(block)
    checks = (
        _check(*pair, _points(same, channel, figures), figures) for pair, same in pairs.items()
    )
    return [check for check in checks if check is not None]


def _points(blocks: Sequence[HeldLeg], channel: Channel, figures: Held) -> list[_Point]:
    found = []
    for block in blocks:
        round_s = block.round_s
        if round_s is None:
            continue
        leg = block.key, block.leg, round_s
        for stretch in stretches_of([leg], channel, figures.estimate.delay_s):
            found.append((attribute(block.leg, "draft_passes") or 0, stretch))
    return found


def _check(
    target: str, drafter: str, tokens: int, points: Sequence[_Point], figures: Held
) -> DutyCheck | None:
    estimate = _line(figures.estimate, points)
    if estimate is None:
        return None
    rng = random.Random(_SEED)
    drawn = [_line(draw, resampled(points, rng)) for draw in figures.draws]
    lines = [line for line in drawn if line is not None]
    draft, verify = (
        _quantity(value, [line[i] for line in lines], len(points))
        for i, value in enumerate(estimate)
    )
    held = figures.estimate.bytes_per_pass
    held_draft = held_value(held, "draft", drafter, 1)
    held_verify = held_value(held, "verify", target, tokens)
    return DutyCheck(
        target=target,
        drafter=drafter,
        tokens=tokens,
        blocks=len(points),
        draft_bytes=draft,
        verify_bytes=verify,
        draft_over_held=estimate[0] / held_draft if held_draft else None,
        verify_over_held=estimate[1] / held_verify if held_verify else None,
    )


def _line(draw: Draw, points: Sequence[_Point]) -> tuple[float, float] | None:
    """Slope and start of the bytes of a round over its draft passes."""
    if not points:
        return None
    idle = draw.idle_bytes_per_s
    return slope_and_intercept(
        [(count, (one.level(draw.delay_s) - idle) * one.period_s) for count, one in points]
    )


def _quantity(value: float, draws: Sequence[float], blocks: int) -> Quantity:
    """A line takes one block more than a mean."""
    low, high = widened_band(value, draws, blocks - 1)
    return Quantity(value=value, low=low, high=high, n=blocks, kind="measured", source=_SOURCE)
