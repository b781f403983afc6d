"""What a session shows around a variant."""

from typing import Any

import pytest
from made_session import MS, SessionMaker
from msgspec.structs import replace

from edgeprof.analysis.board import Readings
from edgeprof.analysis.bus import Bus, Together
from edgeprof.analysis.channels import channels_of
from edgeprof.analysis.circumstances import Circumstances, byte_ratio, circumstances_of
from edgeprof.analysis.disturbance import Disturbance
from edgeprof.analysis.variants import variants_of
from edgeprof.session.records import Event

NAME = "fp32+draft k=2"


def seen(
    maker: SessionMaker, *disturbances: Disturbance, bus: Bus | None = None, **models: Any
) -> Circumstances:
    """Around the drafting variant; ``models`` changes records of the models."""
    session = maker.session()
    changed = {key: replace(session.info.models[key], **models[key]) for key in models}
    known = {**session.info.models, **changed}
    session = replace(session, info=replace(session.info, models=known))
    run = next(run for run in variants_of(session) if run.name == NAME)
    return circumstances_of(
        session, run, Readings(channels_of(session)), disturbances, bus or Bus()
    )


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
    assert told == "throttled (counter oc1 4 to 7) in 2 of 2 legs"
    assert seen(drafting, disturbed("int4", counter)).throttled is None
    assert seen(drafting, disturbed(NAME, "other programs took 1.0 cores")).throttled is None


def test_one_throttled_leg_of_many_limits_nothing(maker: SessionMaker) -> None:
    for repeat in range(10):
        maker.decode_leg("fp32", repeat=repeat)
        maker.decode_leg(NAME, repeat=repeat)
    reasons = ["other programs took 1.0 cores", "gpu_clock_hz fell to 600 MHz from 900 MHz"]

    def disturbed(leg_id: int) -> Disturbance:
        return Disturbance(
            leg_id=leg_id, leg="x", variant=NAME, repeat=0, reasons=reasons, left_out=True
        )

    assert seen(maker, disturbed(2)).throttled is None
    told = seen(maker, disturbed(2), disturbed(4)).throttled
    assert told == "gpu_clock_hz fell to 600 MHz from 900 MHz in 2 of 20 legs"


CUDA = {"provider": "cuda"}


def test_a_clock_that_moved_while_it_ran(drafting: SessionMaker) -> None:
    start = drafting.legs[-1].t0_ns
    values = [(start + MS, 400e6), (start + 2 * MS, 600e6)]
    drafting.signal("gpu_clock_hz", "Hz", values)
    told = seen(drafting, fp32=CUDA)
    assert told.clocks == "gpu_clock_hz moved between 400 and 600 MHz"
    assert told.clock_gain == pytest.approx(600 / 500)


def test_a_clock_that_the_models_do_not_run_by_may_move(drafting: SessionMaker) -> None:
    """While the GPU decodes, a governor slows the idle cores down to a half."""
    start = drafting.legs[-1].t0_ns
    drafting.signal("cpu_clock_hz", "Hz", [(start + MS, 700e6), (start + 2 * MS, 1400e6)])
    assert seen(drafting, fp32=CUDA, draft=CUDA).clocks is None
    beside = seen(drafting, fp32=CUDA)  # the draft runs on the cores
    assert beside.clocks == "cpu_clock_hz moved between 700 and 1400 MHz"
    drafting.signal("emc_clock_hz", "Hz", [(start + MS, 2133e6), (start + 2 * MS, 665e6)])
    told = seen(drafting, fp32=CUDA, draft=CUDA)
    assert told.clocks == "emc_clock_hz moved between 665 and 2133 MHz"


def test_a_target_on_the_processor_beside_an_idle_gpu(drafting: SessionMaker) -> None:
    start = drafting.legs[-1].t0_ns
    drafting.signal("gpu_busy_frac", "", [(start + MS, 0.0), (start + 2 * MS, 0.04)])
    told = seen(drafting).provider
    assert told == "the target ran on the CPU, while the GPU was 2 % busy"
    assert seen(drafting, fp32=CUDA).provider is None


def test_a_gpu_that_is_busy_with_something_else_is_no_fault(drafting: SessionMaker) -> None:
    start = drafting.legs[-1].t0_ns
    drafting.signal("gpu_busy_frac", "", [(start + MS, 0.9), (start + 2 * MS, 0.95)])
    assert seen(drafting).provider is None


def test_vocabularies(drafting: SessionMaker) -> None:
    told = seen(drafting, draft={"vocab_size": 900}).vocabularies
    assert told == "the target knows 1000 tokens and the draft 900"
    assert seen(drafting, draft={"vocab_size": 995}).vocabularies is None  # padding
    detail = {"draft": "draft", "target": "fp32", "field": "eos_token"}
    drafting.events.append(
        Event(leg_id=None, t_ns=0, kind="special_tokens", severity="warning", detail=detail)
    )
    assert seen(drafting).vocabularies == "draft and target differ in eos_token"


def test_cores(drafting: SessionMaker) -> None:
    with_attrs(drafting, processor={"others_s": 0.204})
    told = seen(drafting)
    assert told.cores == "other programs took 0.6 cores while it ran, and 2 are there for 2 threads"
    assert told.core_gain == pytest.approx(2 / 1.4)  # of two cores 1.4 were left
    with_attrs(drafting, processor={"others_s": 0.68})
    assert seen(drafting).core_gain == 2.0  # all were wanted by others too, and half were had
    with_attrs(drafting, processor={"others_s": 0.01})
    assert seen(drafting).cores is None
    assert seen(drafting, fp32={"threads": 4}).cores == "4 threads run on 2 cores"
    cuda = {"threads": 4, "provider": "cuda"}
    assert seen(drafting, fp32=cuda).cores is None


def test_cores_that_nobody_here_wants_are_not_fought_over(drafting: SessionMaker) -> None:
    """Others take 1.2 of eight cores: two threads have theirs, eight are left 6.8."""
    with_attrs(drafting, processor={"others_s": 0.408})
    drafting.info = replace(drafting.info, environment={"cores": 8})
    assert seen(drafting).cores is None
    assert seen(drafting, fp32={"threads": 8}).core_gain == pytest.approx(8 / 6.8)


def test_the_thread_that_feeds_a_gpu_wants_a_core(drafting: SessionMaker) -> None:
    on_gpu: dict[str, Any] = {"fp32": {"threads": 4, "provider": "cuda"}, "draft": CUDA}
    with_attrs(drafting, processor={"others_s": 0.34})  # one of two
    assert seen(drafting, **on_gpu).cores is None
    with_attrs(drafting, processor={"others_s": 0.51})  # 1.5: half a core is left for it
    assert seen(drafting, **on_gpu).core_gain == pytest.approx(2.0)


def test_threads_of_draft_and_target_add_up_where_both_run_at_once(
    drafting: SessionMaker,
) -> None:
    """The target has two threads, the draft one."""
    at_once = Bus(together=Together(share=0.5))
    assert seen(drafting, bus=at_once).cores == "3 threads run on 2 cores"
    assert seen(drafting, bus=at_once, fp32=CUDA).cores is None  # 1 + 1


def test_the_drafts_share_of_bytes(drafting: SessionMaker) -> None:
    session = drafting.session()
    runs = variants_of(session)
    assert byte_ratio(session.info.models, runs[1]) == pytest.approx(20 / 500)
    assert byte_ratio(session.info.models, runs[0]) is None  # nothing drafts
