"""What a session shows around a variant."""

from typing import Any

import pytest
from made_session import MS, SessionMaker
from msgspec.structs import replace

from edgeprof.analysis.board import Readings
from edgeprof.analysis.channels import channels_of
from edgeprof.analysis.circumstances import Circumstances, byte_ratio, circumstances_of
from edgeprof.analysis.disturbance import Disturbance
from edgeprof.analysis.variants import variants_of
from edgeprof.session.records import Event

NAME = "fp32+draft k=2"


def seen(maker: SessionMaker, *disturbances: Disturbance, **models: Any) -> Circumstances:
    """Around the drafting variant; ``models`` changes records of the models."""
    session = maker.session()
    changed = {key: replace(session.info.models[key], **models[key]) for key in models}
    known = {**session.info.models, **changed}
    session = replace(session, info=replace(session.info, models=known))
    run = next(run for run in variants_of(session) if run.name == NAME)
    return circumstances_of(session, run, Readings(channels_of(session)), disturbances)


@pytest.fixture
def drafting(maker: SessionMaker) -> SessionMaker:
    """Two prompts in 2 x (50 + 4 x 30) = 340 ms."""
    maker.decode_leg("fp32")
    maker.decode_leg(NAME)
    return maker


def with_attrs(maker: SessionMaker, **attrs: Any) -> None:
    leg = maker.legs[-1]
    maker.legs[-1] = replace(leg, attrs={**leg.attrs, **attrs})


def test_nothing_is_seen_where_nothing_is_wrong(drafting: SessionMaker) -> None:
    assert seen(drafting) == Circumstances()


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({"swap_growth_bytes": 1 << 30}, "swap grew by 1.07 GB in a leg"),
        ({"swap_growth_bytes": 1 << 20, "major_faults": 34}, "100 pages a second"),
        ({"swap_growth_bytes": 1 << 20, "major_faults": 3}, None),
    ],
)
def test_memory(drafting: SessionMaker, memory: dict[str, int], words: str | None) -> None:
    with_attrs(drafting, memory=memory)
    told = seen(drafting).memory
    assert told is None if words is None else told is not None and words in told


def test_throttling_is_that_of_the_variant_or_its_baseline(drafting: SessionMaker) -> None:
    def disturbed(variant: str, *reasons: str) -> Disturbance:
        return Disturbance(
            leg_id=1, leg="x", variant=variant, repeat=0, reasons=[*reasons], left_out=True
        )

    counter = "throttled (counter oc1 4 to 7)"
    told = seen(drafting, disturbed(NAME, counter), disturbed("fp32", counter)).throttled
    assert told == "throttled (counter oc1 4 to 7) in 2 legs"
    assert seen(drafting, disturbed("int4", counter)).throttled is None
    assert seen(drafting, disturbed(NAME, "other programs took 1.0 cores")).throttled is None


def test_a_clock_that_moved_while_it_ran(drafting: SessionMaker) -> None:
    start = drafting.legs[-1].t0_ns
    values = [(start + MS, 400e6), (start + 2 * MS, 600e6)]
    drafting.signal("gpu_clock_hz", "Hz", values)
    told = seen(drafting)
    assert told.clocks == "gpu_clock_hz moved between 400 and 600 MHz"
    assert told.clock_gain == pytest.approx(600 / 500)


def test_a_target_on_the_processor_beside_an_idle_gpu(drafting: SessionMaker) -> None:
    start = drafting.legs[-1].t0_ns
    drafting.signal("gpu_busy_frac", "", [(start + MS, 0.0), (start + 2 * MS, 0.04)])
    told = seen(drafting).provider
    assert told == "the target ran on the CPU, while the GPU was 2 % busy"
    assert seen(drafting, fp32={"provider": "cuda"}).provider is None


def test_vocabularies(drafting: SessionMaker) -> None:
    told = seen(drafting, draft={"vocab_size": 900}).vocabularies
    assert told == "the target knows 1000 tokens and the draft 900"
    assert seen(drafting, draft={"vocab_size": 995}).vocabularies is None  # padding
    detail = {"draft": "draft", "target": "fp32", "field": "eos_token"}
    drafting.events.append(
        Event(leg_id=None, t_ns=0, kind="special_tokens", severity="warning", detail=detail)
    )
    assert seen(drafting).vocabularies == "draft and target differ in eos_token"


def test_draft_and_target_at_the_same_time(drafting: SessionMaker) -> None:
    """Every draft pass is moved 2 of its 3 ms into the target pass that follows the second one: of
    the 6 ms of a round's drafts the target then runs during 2."""
    moved = []
    for one in drafting.passes:
        later = 2 * MS if one.phase == "draft" else 0
        moved.append(replace(one, t0_ns=one.t0_ns + later, t1_ns=one.t1_ns + later))
    drafting.passes[:] = moved
    assert seen(drafting).overlap == "the target ran during 33 % of the draft's time"


def test_cores(drafting: SessionMaker) -> None:
    with_attrs(drafting, processor={"others_s": 0.204})
    told = seen(drafting)
    assert told.cores == "other programs took 0.6 cores while it ran"
    assert told.core_gain == pytest.approx(2 / 1.4)  # of two cores 1.4 were left
    with_attrs(drafting, processor={"others_s": 0.68})
    assert seen(drafting).core_gain == 2.0  # all were wanted by others too, and half were had
    with_attrs(drafting, processor={"others_s": 0.01})
    assert seen(drafting).cores is None
    assert seen(drafting, fp32={"threads": 4}).cores == "4 threads run on 2 cores"
    cuda = {"threads": 4, "provider": "cuda"}
    assert seen(drafting, fp32=cuda).cores is None


def test_the_drafts_share_of_bytes(drafting: SessionMaker) -> None:
    session = drafting.session()
    runs = variants_of(session)
    assert byte_ratio(session.info.models, runs[1]) == pytest.approx(20 / 500)
    assert byte_ratio(session.info.models, runs[0]) is None  # nothing drafts
