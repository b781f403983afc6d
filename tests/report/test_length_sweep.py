"""What is said of a sweep of draft lengths."""

import pytest
from msgspec.structs import replace

from edgeprof.analysis.length_sweep import LengthSweep, SweptLength
from edgeprof.analysis.summary import summarise
from edgeprof.quantity import Quantity
from edgeprof.report.length_sweep import sweep_notes
from edgeprof.session.records import Session


def swept(length: int, value: float, predicted: float | None, wide: float = 0.02) -> SweptLength:
    speedup = Quantity(
        value=value, low=value - wide, high=value + wide, kind="measured", source="by hand"
    )
    return SweptLength(draft_tokens=length, decode_speedup=speedup, predicted_speedup=predicted)


@pytest.mark.parametrize(
    ("lengths", "best", "advised", "agrees", "says"),
    [
        (
            [swept(1, 1.2, 1.2), swept(3, 1.5, 1.4)], 3, 3, True,
            "t+d: best at K = 3; the run at K = 3 advises K = 3, which is as good as the best.",
        ),
        (
            [swept(1, 1.2, 1.5), swept(3, 1.5, 1.4)], 3, 1, False,
            "t+d: best at K = 3; the run at K = 3 advises K = 1, which is more than 5 % below the "
            "best.",
        ),
        (
            [swept(1, 1.2, 1.5, 0.2), swept(3, 1.5, 1.4, 0.2)], 3, 1, False,
            "t+d: best at K = 3; the run at K = 3 advises K = 1, which is more than 5 % below the "
            "best, though their intervals overlap.",
        ),
        (
            [swept(1, 0.6, 0.9), swept(3, 0.7, 0.8)], 3, 1, False,
            "t+d: no length pays, the best is K = 3; the run at K = 3 advises plain decoding, with "
            "0.90x predicted at K = 1, the most of all.",
        ),
        (
            [swept(1, 1.2, None), swept(3, 1.5, None)], 3, None, None,
            "t+d: best at K = 3; no advice, as no passes were held.",
        ),
    ],
)  # fmt: skip
def test_what_is_best_and_what_was_advised(
    made_session: Session,
    lengths: list[SweptLength],
    best: int,
    advised: int | None,
    agrees: bool | None,
    says: str,
) -> None:
    sweep = LengthSweep(
        target="t", drafter="d", lengths=lengths, best_draft_tokens=best,
        advised_draft_tokens=advised, advised_from=3, agrees=agrees,
    )  # fmt: skip
    assert sweep_notes(replace(summarise(made_session), draft_lengths=[sweep])) == [says]
