"""Cold and warm loads."""

from typing import Any

import pytest

from edgeprof.analysis.loading import loads_of
from edgeprof.session.records import Event


def loaded(maker: Any, **detail: Any) -> None:
    maker.events.append(Event(leg_id=None, t_ns=1, kind="load", severity="info", detail=detail))


@pytest.mark.parametrize(
    ("share", "start"),
    [(0.0, "cold"), (0.09, "cold"), (0.5, "partly cached"), (0.95, "warm"), (1.0, "warm")],
)
def test_a_start_is_cold_or_warm_by_what_was_in_memory(
    maker: Any, share: float, start: str
) -> None:
    loaded(maker, model="t", load_s=2.5, cached_share=share)
    (load,) = loads_of(maker.session())
    assert (load.model, load.load_s, load.cached_share, load.start) == ("t", 2.5, share, start)


def test_where_the_system_does_not_tell_nothing_is_said(maker: Any) -> None:
    loaded(maker, model="t", load_s=2.5, cached_share=None)
    (load,) = loads_of(maker.session())
    assert load.cached_share is None and load.start is None


def test_loads_come_in_order_and_damaged_ones_not_at_all(maker: Any) -> None:
    loaded(maker, model="t", load_s=2.0, cached_share=0.0)
    loaded(maker, model=3, load_s=2.0)
    loaded(maker, model="t", load_s="long")
    loaded(maker, model="d", load_s=1.0)
    assert [(load.model, load.load_s) for load in loads_of(maker.session())] == [
        ("t", 2.0), ("d", 1.0),
    ]  # fmt: skip
