"""A figure between two ends, and a figure that knows where it came from."""

from typing import Literal

from msgspec import Struct

Kind = Literal["measured", "modelled", "calibrated", "documented"]


class Band(Struct, frozen=True, kw_only=True):
    """A figure between two ends."""

    low: float
    high: float


class Quantity(Struct, frozen=True, kw_only=True):
    """One figure with its band, its number of observations and its origin.

    ``low`` and ``high`` bound the value (the caller says which interval); ``n`` counts independent
    observations; ``window_s`` is the averaging window of the source where one is known. The unit is
    in the name of the field that holds the quantity.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    kind: Kind
    source: str
    window_s: float | None = None
