"""A decoding rate that somebody measured, against what paper says of the same pass.

A rate above the bound is never clipped: it is a finding, for the board, its mode or the bytes are
not what was measured.
"""

from typing import Literal

from msgspec import Struct

from edgeprof.analysis.roofline import PassTime

Standing = Literal["above the bound", "above expected", "as expected", "below expected", "bounded"]
TOLERANCE = 0.02  # rounding of published clocks and rates


class Observation(Struct, frozen=True, kw_only=True):
    """A rate of decoding, and what to call it."""

    label: str
    tokens_per_s: float


class Comparison(Struct, frozen=True, kw_only=True):
    """How an observation stands; ``bounded`` is below the bound where no band is known."""

    observation: Observation
    bound_share: float
    standing: Standing


def compare(observation: Observation, decode: PassTime) -> Comparison:
    """Where a measured rate stands between the band and the bound of a decode pass."""
    share = observation.tokens_per_s / decode.tokens_per_s
    return Comparison(
        observation=observation, bound_share=share, standing=_standing(observation, decode, share)
    )


def _standing(observation: Observation, decode: PassTime, share: float) -> Standing:
    band = decode.expected_tokens_per_s
    if share > 1 + TOLERANCE:
        return "above the bound"
    if band is None:
        return "bounded"
    if observation.tokens_per_s > band.high:
        return "above expected"
    return "below expected" if observation.tokens_per_s < band.low else "as expected"
