"""Contention that one session lends to another, and why it may not."""

from typing import Any

import pytest
from made_session import MS, SessionMaker
from msgspec.structs import replace

from edgeprof.analysis.contention import Contended
from edgeprof.analysis.joint_legs import Contention
from edgeprof.analysis.lent import lent
from edgeprof.errors import UsageFault
from edgeprof.session.records import Session

MEASURED = Contention(
    targets=[
        Contended(target="fp32", seed=1, alone_s=None, alone_tokens_per_s=None, pass_bytes=None,
                  regimes=[], curves=[])
    ]
)  # fmt: skip


def session(kind: str, clock_hz: float = 2133e6) -> Session:
    maker = SessionMaker()
    start_ns = maker.now
    if kind == "contend":
        maker.leg("contend", "fp32", repeat=1)
        maker.now += 1000 * MS
        maker.end_leg()
    else:
        maker.decode_leg("fp32")
    times = range(start_ns, maker.now, 50 * MS)
    maker.signal("emc_clock_hz", "Hz", [(t, clock_hz) for t in times])
    return maker.session()


def changed(lender: Session, **info: Any) -> Session:
    return replace(lender, info=replace(lender.info, id="the-lender", **info))


def refused(lender: Session, contention: Contention = MEASURED) -> str:
    with pytest.raises(UsageFault) as caught:
        lent(session("run"), lender, contention)
    return str(caught.value)


def test_what_is_lent_says_by_whom() -> None:
    found = lent(session("run"), changed(session("contend")), MEASURED)
    assert found.targets == MEASURED.targets and found.lent_by == "the-lender"


def test_nothing_to_lend() -> None:
    assert "no target ran beside antagonists" in refused(session("run"), Contention())


def test_a_session_with_contention_of_its_own_borrows_none() -> None:
    own = session("contend")
    with pytest.raises(UsageFault, match="contention of its own"):
        lent(own, own, MEASURED)


@pytest.mark.parametrize(
    ("field", "value"), [("threads", 1), ("provider", "cuda"), ("weights", "int4"), ("sha256", "9")]
)
def test_other_models_are_refused(field: str, value: object) -> None:
    lender = session("contend")
    models = {**lender.info.models}
    models["fp32"] = replace(models["fp32"], **{field: value})
    assert f"{field} of fp32 (" in refused(changed(lender, models=models))


def test_another_machine_or_mode_is_refused() -> None:
    lender = session("contend")
    device = {**lender.info.device, "power_mode": "15W"}
    told = refused(changed(lender, device=device))
    assert "the power mode of the machine (not recorded; 15W)" in told
    assert "their models (fp32, int4, draft; )" in refused(changed(lender, models={}))


def test_other_clocks_are_refused() -> None:
    told = refused(session("contend", clock_hz=3199e6))
    assert "emc_clock_hz was 33.3 % lower" in told
