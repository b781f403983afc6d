"""How long the models took to load, and whether their files were in memory before."""

from typing import Literal

from msgspec import Struct

from edgeprof.session.records import Session

_COLD, _WARM = 0.1, 0.9  # of the file; a few pages are read by whoever looks at it


class Load(Struct, frozen=True, kw_only=True):
    """One loading. ``cached_share`` is how much of the file the system held in memory just before;
    None, like ``start``, where it does not tell."""

    model: str
    load_s: float
    cached_share: float | None
    start: Literal["cold", "warm", "partly cached"] | None


def loads_of(session: Session) -> list[Load]:
    """In order; of one file, a second is warm."""
    found = []
    for event in session.events:
        model, load_s = event.detail.get("model"), event.detail.get("load_s")
        share = event.detail.get("cached_share")
        if event.kind == "load" and isinstance(model, str) and isinstance(load_s, float):
            known = float(share) if isinstance(share, int | float) else None
            found.append(Load(model=model, load_s=load_s, cached_share=known, start=_start(known)))
    return found


def _start(share: float | None) -> Literal["cold", "warm", "partly cached"] | None:
    if share is None:
        return None
    return "cold" if share < _COLD else "warm" if share > _WARM else "partly cached"
