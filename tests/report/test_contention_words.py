"""What is said of kappa, by which of slack, sharing and worse its interval holds."""

import pytest
from msgspec.structs import replace

from edgeprof.analysis.contention import Antagonist, JointLeg, Setting
from edgeprof.analysis.contention_curve import contended
from edgeprof.analysis.joint_legs import Contention
from edgeprof.analysis.summary import summarise
from edgeprof.quantity import Quantity
from edgeprof.report.contention import contention_notes, contention_sentences
from edgeprof.session.records import Session


def sentence(session: Session, low: float | None, high: float | None) -> str:
    """A pass of 10 GB takes 0.5 s alone and 1 s beside a read of 20 GB/s: kappa as it is given."""
    legs = [
        JointLeg(repeat=1, antagonist=None, dose=0.0, overlap_s=3.0, pass_s=0.5),
        JointLeg(
            repeat=1, antagonist="read", dose=1.0, overlap_s=3.0, pass_s=1.0,
            antagonist_bytes_per_s=20e9,
        ),
    ]  # fmt: skip
    size = Quantity(value=10e9, kind="modelled", source="by hand")
    read = Antagonist(kind="read", competes_for=["bus"])
    found = contended(legs, Setting(target="t", pass_bytes=size, antagonists={"read": read}))
    kappa = Quantity(value=0.5, low=low, high=high, kind="modelled", source="by hand")
    target = replace(found, curves=[replace(found.curves[0], kappa=kappa)])
    summary = replace(summarise(session), contention=Contention(targets=[target], lent_by="other"))
    assert contention_notes(summary)[0] == "Measured in another session, other."
    (told,) = contention_sentences(summary)
    return told


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-0.2, 0.9, "kappa is 0.50 [-0.20, 0.90]: the bus has room for both."),
        (0.2, 0.9, "they share the bus in part."),
        (0.2, 1.1, "they share the bus."),
        (1.1, 1.3, "worse than a shared bus: row conflicts, the cache or clocks come on top."),
        (-0.2, 1.1, "too uncertain to tell slack from a shared bus."),
        (None, None, "kappa is 0.50: how sure that is, one repeat does not tell."),
    ],
)
def test_what_kappa_means(
    made_session: Session, low: float | None, high: float | None, says: str
) -> None:
    told = sentence(made_session, low, high)
    assert told.startswith("t beside read at 100 % keeps 0.50 of its speed; kappa is 0.50")
    assert told.endswith(says)


def test_legs_at_two_speeds_are_said_to_be_a_mixture(made_session: Session) -> None:
    """Beside one and the same read 18.8 ms in three legs and 26 ms in two."""
    legs = [
        JointLeg(repeat=n, antagonist=name, dose=float(name is not None), overlap_s=1, pass_s=s)
        for name, times in (("read", (0.0186, 0.0188, 0.0259, 0.0261, 0.019)), (None, [0.0185]))
        for n, s in enumerate(times, start=1)
    ]
    read = Antagonist(kind="read", competes_for=["bus"])
    found = contended(legs, Setting(target="t", pass_bytes=None, antagonists={"read": read}))
    summary = replace(summarise(made_session), contention=Contention(targets=[found]))
    (told,) = [note for note in contention_notes(summary) if "nothing between" in note]
    assert told.startswith(
        "t, read at 100 %: of 5 legs 3 had passes of 18.8 ms and 2 of 26.0 ms, with nothing between"
    )
    assert "virtual machine" in told
