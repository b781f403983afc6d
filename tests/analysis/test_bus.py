"""The bus around a variant, from sessions made by hand.

A round of ``fp32+draft k=2`` takes 30 ms: two draft passes of 3, a verify pass of 20, 4 outside.
Moved by 2 ms, the second draft pass and the verify pass run at once for 2 of the draft's 6 ms.
"""

from typing import Any

import pytest
from made_session import MS, SessionMaker
from msgspec.structs import replace

from edgeprof.analysis.bus import Bus, Together, bus_of
from edgeprof.analysis.closure import Closure
from edgeprof.analysis.contention import Contended, Curve, has_room
from edgeprof.analysis.variants import variants_of
from edgeprof.quantity import Quantity

NAME = "fp32+draft k=2"


def known(value: float, low: float | None = None, high: float | None = None) -> Quantity:
    return Quantity(value=value, low=low, high=high, n=5, kind="measured", source="by hand")


def curve(name: str, kappa: Quantity | None) -> Curve:
    return Curve(
        antagonist=name, kind="model", competes_for=["bus"], pass_bytes=None,
        alone_passes_per_s=None, alone_bandwidth_bytes_per_s=None, ceiling_bytes_per_s=None,
        ceiling_reached=True, knee_bytes_per_s=None, kappa=kappa, ceiling_from="read", reason=None,
    )  # fmt: skip


def contended(*curves: Curve, target: str = "fp32") -> Contended:
    return Contended(
        target=target, seed=1, alone_s=None, alone_tokens_per_s=None, pass_bytes=None, regimes=[],
        curves=[*curves],
    )  # fmt: skip


def closed(variant: str, remainder: Quantity) -> Closure:
    return Closure(
        variant=variant, answers=3, seconds=9.0, held_bytes=1.0, held_bytes_by_phase={},
        measured_bytes=1.0, interference_frac=remainder,
    )  # fmt: skip


def seen(
    maker: SessionMaker, *targets: Contended, closures: tuple[Closure, ...] = (), **models: Any
) -> Bus:
    session = maker.session()
    run = next(run for run in variants_of(session) if run.name == NAME)
    records = session.info.models
    changed = {key: replace(records[key], **models[key]) for key in models}
    return bus_of(run, {**records, **changed}, targets, closures)


@pytest.fixture
def drafting(maker: SessionMaker) -> SessionMaker:
    """They take turns."""
    maker.decode_leg("fp32")
    maker.decode_leg(NAME)
    return maker


@pytest.fixture
def at_once(drafting: SessionMaker) -> SessionMaker:
    """Every draft pass begins 2 ms later."""
    moved = []
    for one in drafting.passes:
        later = 2 * MS if one.phase == "draft" else 0
        moved.append(replace(one, t0_ns=one.t0_ns + later, t1_ns=one.t1_ns + later))
    drafting.passes[:] = moved
    return drafting


def test_draft_and_target_that_take_turns(drafting: SessionMaker) -> None:
    assert seen(drafting) == Bus()


def test_draft_and_target_at_the_same_time(at_once: SessionMaker) -> None:
    together = seen(at_once).together
    assert together is not None and not together.on_gpu
    assert together.share == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("target", "draft", "on_gpu"),
    [("cuda", "cuda", True), ("cuda", "tensorrt", True), ("cuda", "cpu", False)],
)
def test_both_on_one_gpu(at_once: SessionMaker, target: str, draft: str, on_gpu: bool) -> None:
    together = seen(at_once, fp32={"provider": target}, draft={"provider": draft}).together
    assert together is not None and together.on_gpu is on_gpu


def test_kappa_is_that_of_the_draft_beside_its_target(drafting: SessionMaker) -> None:
    kappa = known(0.8, 0.6, 1.0)
    assert seen(drafting, contended(curve("draft", kappa))) == Bus(kappa=kappa)
    assert seen(drafting, contended(curve("draft", kappa), target="int4")) == Bus()
    assert seen(drafting, contended(curve("other", kappa), curve("draft", None))) == Bus()


def test_the_remainder_is_that_of_the_variant(drafting: SessionMaker) -> None:
    remainder = known(0.2, 0.1, 0.3)
    bus = seen(drafting, closures=(closed(NAME, remainder), closed("x", known(0.5))))
    assert bus == Bus(remainder=remainder)
    assert bus.is_shared is True


@pytest.mark.parametrize(
    ("value", "low", "high", "shared"),
    [
        (0.2, 0.1, 0.3, True),
        (0.02, 0.01, 0.04, False),  # it is there, and costs nobody anything
        (0.02, 0.01, 0.06, None),
        (-0.2, -0.3, -0.1, False),  # fewer bytes than held passes move
        (0.1, -0.1, 0.3, None),
        (0.2, None, None, None),
    ],
)
def test_a_remainder_must_be_sure_and_noticeable(
    value: float, low: float | None, high: float | None, shared: bool | None
) -> None:
    assert Bus(remainder=known(value, low, high)).is_shared is shared


@pytest.mark.parametrize(
    ("low", "high", "room"),
    [(-0.1, 0.2, True), (0.1, 0.3, False), (0.9, 1.2, False), (-0.2, 1.1, None),
     (None, None, None)],
)  # fmt: skip
def test_room_by_the_interval_of_kappa(
    low: float | None, high: float | None, room: bool | None
) -> None:
    assert has_room(known(0.5, low, high)) is room


@pytest.mark.parametrize(
    ("kappa", "shared"),
    [
        (known(0.8, 0.7, 0.9), True),
        (known(0.1, -0.1, 0.3), False),
        (known(0.03, 0.01, 0.05), False),  # sure, and too little to be noticed
        (known(0.5, -0.2, 1.2), None),
        (known(0.8), None),  # one repeat: nobody knows how sure
    ],
)
def test_kappa_must_be_sure_and_noticeable(kappa: Quantity, shared: bool | None) -> None:
    assert Bus(together=Together(share=0.5), kappa=kappa).is_shared is shared
