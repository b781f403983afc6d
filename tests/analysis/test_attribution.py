"""Known bytes through the real store and back: what is found, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated.truth import Counter, Script, Truth, Work, random_truth, write
from msgspec.structs import replace

from edgeprof.analysis.attribution import Attribution, attribution_of
from edgeprof.analysis.board import Readings
from edgeprof.analysis.channels import channels_of
from edgeprof.analysis.phase_shares import PhaseShares
from edgeprof.analysis.summary import Summary, VariantFigures, summarise
from edgeprof.analysis.variants import variants_of
from edgeprof.quantity import Quantity
from edgeprof.report.markdown import markdown
from edgeprof.report.text import session_text
from edgeprof.session.columns import Samples
from edgeprof.session.records import Event, Sample, Session
from edgeprof.session.store import read_session


def found(path: Path) -> Attribution:
    attribution = summarise(read_session(path)).attribution
    assert attribution is not None
    return attribution


def value(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.value is not None
    return quantity.value


BOXCAR = Counter(kind="boxcar", window_s=0.8, noise=0.03, offset_s=-0.05, gaps=3)
EXPONENTIAL = Counter(kind="exponential", window_s=1.5, noise=0.02, offset_s=0.05)


@pytest.mark.parametrize("counter", [BOXCAR, EXPONENTIAL], ids=["boxcar", "exponential"])
def test_known_bytes_are_found(tmp_path: Path, counter: Counter) -> None:
    truth = random_truth(7)._replace(counter=counter)
    path = tmp_path / "s.sqlite"
    write(path, Script(truth, seed=7), 7)
    attribution = found(path)
    assert attribution.refused is None and attribution.seed == 7
    for phase in attribution.phases:
        assert value(phase.bytes_per_pass) == pytest.approx(
            truth.passes[phase.phase].bytes, rel=0.02
        )
        assert phase.legs == 4 and phase.bytes_per_pass.kind == "measured"
    (closure,) = attribution.closure
    assert value(closure.interference_frac) == pytest.approx(truth.interference, abs=0.02)
    (check,) = attribution.duty
    assert value(check.draft_bytes) == pytest.approx(truth.passes["draft"].bytes, rel=0.05)
    assert value(check.verify_bytes) == pytest.approx(truth.passes["verify"].bytes, rel=0.05)
    assert (check.target, check.drafter, check.tokens, check.blocks) == ("t", "d", 4, 6)


def small() -> Truth:
    """Slow passes, so that a session is small."""
    return Truth(
        passes={
            "decode": Work(4e9, 0.1),
            "verify": Work(4.2e9, 0.12),
            "draft": Work(0.4e9, 0.02),
        },
        idle_bytes_per_s=1e9,
        interference=0.0,
        counter=Counter(kind="exponential", window_s=0.4, noise=0.01, offset_s=0.0),
    )


@pytest.fixture
def session(tmp_path: Path) -> Callable[..., Path]:
    def made(*, spoil: Any = None, clock: Any = None, **shape: Any) -> Path:
        path = tmp_path / "s.sqlite"
        shape = {"leg_s": 3.0, "repeats": 2, "duty": False, "answers": 1, "answer_s": 4.0, **shape}
        write(path, Script(small(), seed=3, **shape), 3, spoil=spoil, clock=clock)
        return path

    return made


def test_one_draft_length_alone_is_refused(session: Callable[..., Path]) -> None:
    refused = found(session(held=False)).refused
    assert refused is not None
    assert refused.startswith("no phase was held: at one draft length alone")


def test_clocks_that_differ_are_refused(session: Callable[..., Path]) -> None:
    """The EMC clock falls by 3 % in the middle of the held legs, which begin at 1001 s."""
    refused = found(session(clock=lambda t_s: 2133e6 if t_s < 1012 else 2069e6)).refused
    assert refused is not None
    assert "emc_clock_hz differs by 3.1 %: 2069 MHz in" in refused
    assert "above 2 % nothing is compared" in refused


def test_clocks_within_two_per_cent_are_compared(session: Callable[..., Path]) -> None:
    assert found(session(clock=lambda t_s: 2133e6 if t_s < 1012 else 2100e6)).refused is None


def test_a_stuck_channel_is_refused(session: Callable[..., Path]) -> None:
    def stick(sample: Sample) -> Sample:
        return replace(sample, value=11e9) if sample.t0_ns > 1006e9 else sample

    refused = found(session(spoil=stick)).refused
    assert refused is not None and "is stuck: the same reading for" in refused


def test_a_suspect_channel_is_refused(session: Callable[..., Path]) -> None:
    def doubt(sample: Sample) -> Sample:
        return replace(sample, quality="suspect") if sample.t0_ns > 1010e9 else sample

    refused = found(session(spoil=doubt)).refused
    assert refused is not None and refused.startswith("the bandwidth is suspect: ")


def test_the_reason_of_a_suspicion_is_told(session: Callable[..., Path]) -> None:
    stored = read_session(session())
    detail = {"signal": "dram_bandwidth_bytes_per_s", "source": "sysfs", "reason": "above the peak"}
    event = Event(leg_id=None, t_ns=0, kind="suspect", severity="warning", detail=detail)
    spoilt = replace(stored, events=[event])
    assert attributed(spoilt).refused == "the bandwidth is suspect: above the peak"


def attributed(session: Session) -> Attribution:
    channels = channels_of(session)
    found = attribution_of(session, variants_of(session), channels, Readings(channels))
    assert found is not None
    return found


def test_legs_that_are_too_short_are_refused(session: Callable[..., Path]) -> None:
    refused = found(session(leg_s=1.6)).refused
    assert refused is not None and "raise held_leg_s" in refused


def test_six_windows_are_asked_for_where_the_source_declares_them(
    session: Callable[..., Path],
) -> None:
    """Legs of 3 s are enough for the delay of 0.4 s that the edges show, and too short for six
    times a window of 0.9 s."""
    stored = read_session(session())
    (signal,) = stored.signals
    declared = replace(signal, window_s=0.9, window_kind="boxcar")
    refused = attributed(replace(stored, signals=[declared])).refused
    assert refused is not None
    assert "at a window of 0.90 s it takes 5.4 s: raise held_leg_s" in refused


def test_answers_that_are_too_short_are_not_closed(session: Callable[..., Path]) -> None:
    attribution = found(session(answer_s=1.0))
    assert attribution.refused is None and attribution.closure == []
    (reason,) = attribution.not_closed
    assert (
        reason.startswith("t+d k=3: the longest answer decoded for 1.") and "new_tokens" in reason
    )


def test_a_pass_that_was_not_held_leaves_the_balance_open(session: Callable[..., Path]) -> None:
    stored = read_session(session())
    without = [leg for leg in stored.legs if leg.attrs.get("phase") != "draft"]
    attribution = attributed(replace(stored, legs=without))
    assert attribution.not_closed == ["t+d k=3: not every kind of pass in it was held"]


def test_passes_that_the_counter_does_not_see_are_not_closed(tmp_path: Path) -> None:
    """A model in the caches moves 0.1 MB a pass beside 1 GB/s of idle traffic and 3 % of noise."""
    cached = small()._replace(
        passes={
            "decode": Work(1e5, 0.1), "verify": Work(1e5, 0.12), "draft": Work(1e5, 0.02),
        },
        counter=Counter(kind="exponential", window_s=0.4, noise=0.03, offset_s=0.0),
    )  # fmt: skip
    script = Script(cached, seed=4, leg_s=3.0, repeats=2, duty=False, answers=2, answer_s=6.0)
    write(tmp_path / "s.sqlite", script, 4)
    attribution = found(tmp_path / "s.sqlite")
    assert attribution.refused is None and attribution.closure == []
    reason = "t+d k=3: the counter does not tell the held passes from idleness"
    assert attribution.not_closed == [reason]


def test_nothing_is_said_where_nothing_was_asked(session: Callable[..., Path]) -> None:
    stored = read_session(session())
    bare = replace(stored, signals=[], samples=[])
    assert attributed(bare).refused == "the bandwidth was not read while phases were held"
    decoded = replace(bare, legs=[leg for leg in bare.legs if leg.kind == "decode"])
    channels = channels_of(decoded)
    assert attribution_of(decoded, variants_of(decoded), channels, Readings(channels)) is None


def test_reports_show_bytes_and_reasons(session: Callable[..., Path]) -> None:
    stored = read_session(session())
    summary = summarise(stored)
    for text in (session_text(summary, 100), markdown(summary)):
        assert "The counter lags by" in text and "interference" in text
    decoded = replace(stored, legs=[leg for leg in stored.legs if leg.kind == "decode"])
    assert "Bytes a pass are not told: no phase was held" in markdown(summarise(decoded))


def speculative(summary: Summary) -> VariantFigures:
    (found,) = summary.legs
    return found


def parts(shares: PhaseShares | None) -> list[float]:
    assert shares is not None and shares.reason is None
    return [value(one) for one in (shares.draft, shares.verify, shares.decode, shares.other)]


def test_known_bytes_give_their_shares(session: Callable[..., Path]) -> None:
    """A round is three draft passes of 0.4 GB and a verify pass of 4.2 GB."""
    summary = summarise(read_session(session(answer_s=8.0)))
    shares = speculative(summary).traffic_share
    assert parts(shares) == pytest.approx([1.2 / 5.4, 4.2 / 5.4, 0.0, 0.0], abs=0.02)
    for text in (session_text(summary, 200), markdown(summary)):
        assert "memory traffic" in text


def test_the_reason_of_a_bandwidth_that_was_not_read_is_told(session: Callable[..., Path]) -> None:
    stored = read_session(session())
    bare = replace(stored, signals=[], samples=Samples.of([]))
    shares = speculative(summarise(bare)).traffic_share
    assert shares == PhaseShares(reason="dram_bandwidth_bytes_per_s was not read")


@pytest.mark.parametrize(
    ("interference", "leading", "words"),
    [(0.0, "alternation", "so the bus is not in the way"), (0.3, "bus contention", "counter saw")],
)
def test_the_remainder_says_whether_the_bus_is_to_blame(
    tmp_path: Path, interference: float, leading: str, words: str
) -> None:
    """Passes take 1.6 times as long as held, while as many bytes go by or a third more."""
    truth = small()._replace(interference=interference)
    script = Script(
        truth, seed=5, leg_s=3.0, repeats=3, duty=False, answers=2, answer_s=8.0, plain=True,
        in_situ=1.6,
    )  # fmt: skip
    write(tmp_path / "s.sqlite", script, 5)
    (comparison,) = summarise(read_session(tmp_path / "s.sqlite")).comparisons
    limit = comparison.verdict.limits[0]
    assert limit.name == leading and words in limit.evidence
