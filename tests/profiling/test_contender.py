"""Contention on random little models, through the real children: a target, streams, a draft."""

import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from edgeprof.analysis.contention import Contended
from edgeprof.analysis.summary import summarise
from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.hardware.machine import last_level_cache_bytes
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling import contention_plan
from edgeprof.profiling.contention_plan import (
    Regime,
    adjusted,
    contention_recipe,
    contention_seconds,
    order_of_legs,
    plan_contention,
)
from edgeprof.profiling.recorder import record, record_contention
from edgeprof.recipe import Contention, ModelUse, Recipe, Sustained
from edgeprof.session.records import Leg, Session
from edgeprof.session.store import read_session

Folders = Mapping[str, DecoderFolder]
ALL_CORES = sorted(os.sched_getaffinity(0))


class Quiet:
    """A Progress that remembers the plan."""

    planned = 0

    def plan(self, legs: int) -> None:
        self.planned = legs

    def leg(self, leg: Leg) -> None: ...


@pytest.fixture(scope="module")
def contend(recipe: Recipe) -> Recipe:
    """All antagonists at two doses, once, in short legs."""
    contention = Contention(doses=[0.5, 1.0], leg_s=0.2, repeats=1)
    return contention_recipe(replace(recipe, contention=contention, seed=5))


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contend") / "tiny.sqlite"


@pytest.fixture(scope="module")
def session(contend: Recipe, folders: Folders, output: Path) -> Session:
    longer = replace(contend, sustained=Sustained(duration="3s"))
    return record_contention(longer, folders, output, progress=Quiet())


@pytest.fixture(scope="module")
def found(session: Session) -> Contended:
    return summarise(session).contention.targets[0]


def passes_of(session: Session, leg: Leg) -> dict[int, list[Any]]:
    streams: dict[int, list[Any]] = {}
    for pass_ in session.passes:
        if pass_.leg_id == leg.id:
            streams.setdefault(pass_.stream, []).append(pass_)
    return streams


def test_every_regime_is_run_and_kept(session: Session, contend: Recipe, output: Path) -> None:
    assert session.info.complete and session.info.kind == "contend"
    assert read_session(output) == session
    names = [regime.name for _, regime in order_of_legs(contend)]
    # What others disturbed is run once more, so on a busy machine some come twice.
    assert set(names) == {leg.name for leg in session.legs[:-1]}
    assert len(names) <= len(session.legs) - 1 <= 2 * len(names)
    assert session.legs[-1].name == "t sustained 3s"
    assert {leg.kind for leg in session.legs} == {"contend", "idle", "sustained"}
    assert sum(leg.warmup for leg in session.legs) == 5
    assert [file.name for file in output.parent.iterdir()] == [output.name]


def test_joint_legs_hold_the_passes_of_both(session: Session) -> None:
    for leg in session.legs:
        streams = passes_of(session, leg)
        joint = leg.attrs.get("runs") == "both"
        if leg.kind == "idle":
            assert not streams
        elif joint:
            assert set(streams) == {0, 1}, leg.name
            assert {p.phase for p in streams[0]} == {"decode"}
            kind = "draft" if leg.attrs["antagonist"] == "d" else "antagonist"
            assert {p.phase for p in streams[1]} == {kind}
            # The antagonist is on its way before the target's first pass and not done before its
            # last: nothing of the target's time is spoilt by a start.
            assert streams[1][0].t1_ns <= streams[0][0].t0_ns
            assert streams[1][-1].t1_ns >= streams[0][-1].t0_ns - 50_000_000
            ended_ns = min(streams[0][-1].t1_ns, streams[1][-1].t1_ns)
            both_s = (ended_ns - streams[0][0].t0_ns) / 1e9
            assert leg.attrs["overlap_s"] == pytest.approx(both_s)
        elif leg.kind == "contend":
            assert set(streams) == ({0} if leg.attrs.get("antagonist") is None else {1})


def test_legs_alone_are_set_up_as_the_joint_ones(session: Session) -> None:
    """One process decodes in all legs, so that provider, threads and cores are the same."""
    target = [p for p in session.passes if p.stream == 0]
    assert {(p.model, p.provider, p.tokens, p.context_tokens) for p in target} == {
        ("t", "cpu", 1, 32)
    }
    assert session.info.models["t"].threads == 1
    joint = [leg for leg in session.legs if leg.attrs.get("runs") == "both"]
    assert {tuple(leg.attrs["target_cores"]) for leg in joint} == {tuple(ALL_CORES)}
    assert {tuple(leg.attrs["antagonist_cores"]) for leg in joint} == {tuple(ALL_CORES)}


def test_half_a_dose_is_about_half_the_rate(session: Session) -> None:
    """The pace is that of the warm-up; a busy machine may keep it from being reached."""
    for name in ("read", "copy", "spin", "d"):
        warm, half = (
            next(
                leg for leg in session.legs
                if leg.attrs.get("antagonist") == name and leg.warmup == first
                and (first or leg.attrs["dose"] == 0.5)
            )
            for first in (True, False)
        )  # fmt: skip
        rates = []
        for leg in (warm, half):
            own = passes_of(session, leg)[1]
            rates.append(len(own) / (own[-1].t1_ns - own[0].t0_ns))
        assert rates[1] < 0.75 * rates[0], name


def test_both_share_cores_here_and_only_streams_the_bus(found: Contended) -> None:
    needs = {curve.antagonist: curve.competes_for for curve in found.curves}
    assert needs == {
        "read": ["bus", "cores"], "copy": ["bus", "cores"], "spin": ["cores"],
        "d": ["bus", "cores"],
    }  # fmt: skip


def test_a_model_in_the_cache_gets_no_bytes_and_rates_all_the_same(
    session: Session, found: Contended
) -> None:
    assert session.info.environment["last_level_cache_bytes"] is None or found.pass_bytes is None
    for regime in found.regimes:
        assert regime.target_retained is not None and regime.antagonist_retained is not None
        assert regime.target_retained.value is not None and regime.target_retained.value > 0
        if found.pass_bytes is None:
            assert regime.kappa is None and regime.total_bandwidth_bytes_per_s is None


def test_streams_tell_the_bytes_that_they_ask_for(found: Contended) -> None:
    sizes = {curve.antagonist: curve.pass_bytes for curve in found.curves}
    assert sizes["read"] is not None and sizes["copy"] is not None
    assert sizes["read"].value == 16 * 2**20
    assert sizes["copy"].value == 2 * 16 * 2**20  # read and written
    assert sizes["spin"] is None


def test_the_seed_of_the_order_is_kept(found: Contended, contend: Recipe) -> None:
    assert found.seed == 5
    assert list(order_of_legs(contend)) == list(order_of_legs(contend))
    assert list(order_of_legs(contend)) != list(order_of_legs(replace(contend, seed=6)))


def test_a_sustained_leg_lasts_as_long_as_asked(session: Session) -> None:
    (found,) = summarise(session).contention.sustained
    assert found.duration_s == pytest.approx(3, abs=0.5)
    assert found.first_tokens_per_s is not None and found.steady_tokens_per_s is not None


def test_idle_is_watched_in_between(session: Session) -> None:
    idle = summarise(session).idle
    assert idle is not None and 0.2 <= idle.duration_s < 0.8
    assert idle.power_w is None  # there is no rail here


def test_cores_are_kept_to(contend: Recipe, folders: Folders, tmp_path: Path) -> None:
    core = ALL_CORES[-1]
    contention = Contention(
        target="t", antagonists=["spin"], doses=[1.0], leg_s=0.2, repeats=1,
        target_cores=[core], antagonist_cores=[core],
    )  # fmt: skip
    pinned = replace(contend, contention=contention, drafters={})
    use = replace(contend.targets["t"], threads=2)
    session = record_contention(
        replace(pinned, targets={"t": use}), folders, tmp_path / "s.sqlite", progress=Quiet()
    )
    assert session.info.models["t"].threads == 1  # one core, one thread
    joint = next(leg for leg in session.legs if leg.attrs.get("runs") == "both")
    assert joint.attrs["target_cores"] == joint.attrs["antagonist_cores"] == [core]
    # Both want the whole of one core, and about half of it is what each of them gets.
    assert joint.attrs["core_share"] < 0.85


def children(module: str) -> list[psutil.Process]:
    """Those below this process that run a module."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it may end meanwhile
            if module in " ".join(process.cmdline()):
                found.append(process)
    return found


def signal_antagonist(number: int, path: Path) -> threading.Thread:
    """To the first antagonist that is there, once the session has joint passes."""

    def run() -> None:
        until_s = time.monotonic() + 30
        while time.monotonic() < until_s:
            for process in children("edgeprof.profiling.antagonist"):
                time.sleep(2.0)
                process.send_signal(number)
                return
            time.sleep(0.05)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_an_antagonist_that_is_killed_costs_the_rest_and_not_the_data(
    contend: Recipe, folders: Folders, tmp_path: Path
) -> None:
    contention = replace(contend.contention or Contention(), antagonists=["read"], repeats=100)
    path = tmp_path / "s.sqlite"
    killer = signal_antagonist(signal.SIGKILL, path)
    session = record_contention(
        replace(contend, contention=contention, drafters={}), folders, path, progress=Quiet()
    )
    killer.join()
    assert not session.info.complete
    assert session.info.ended_reason is not None
    assert session.info.ended_reason.startswith("antagonist read was killed")
    assert session.passes and session.legs[-1].status in ("failed", "complete")
    assert children("edgeprof.profiling") == []


@pytest.mark.parametrize(
    ("contention", "says"),
    [
        ({"target": "T"}, "'T'"),
        ({"antagonists": ["raed"]}, "did you mean 'read'"),
        ({"antagonists": ["ngram"]}, "'ngram'"),  # looks up, and streams nothing
    ],
)
def test_names_that_are_not_there(recipe: Recipe, contention: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageFault, match=says):
        contention_recipe(replace(recipe, contention=Contention(**contention)))


def test_a_drafter_may_not_be_named_like_a_stream(recipe: Recipe) -> None:
    drafters = {"read": recipe.drafters["d"]}
    with pytest.raises(UsageFault, match="'read'"):
        contention_recipe(replace(recipe, drafters=drafters))


def test_a_recipe_of_contention_alone_has_nothing_to_run(
    recipe: Recipe, folders: Folders, tmp_path: Path
) -> None:
    alone = replace(recipe, prompts=[], contention=Contention())
    with pytest.raises(UsageFault, match="neither prompts nor tests"):
        record(alone, folders, tmp_path / "s.sqlite", progress=Quiet())
    assert list(tmp_path.iterdir()) == []


def test_only_what_is_run_is_loaded(recipe: Recipe) -> None:
    two = {**recipe.targets, "u": ModelUse(model="elsewhere")}
    cut = contention_recipe(
        replace(recipe, targets=two, contention=Contention(target="t", antagonists=["read"]))
    )
    assert set(cut.targets) == {"t"} and cut.drafters == {}
    assert [variant.name for variant in cut.variants] == ["t"]
    assert cut.contention == Contention(target="t", antagonists=["read"])


def test_a_recipe_without_contention_has_all_antagonists(recipe: Recipe) -> None:
    cut = contention_recipe(recipe)
    assert cut.contention is not None
    assert cut.contention.antagonists == ["read", "copy", "spin", "d"]
    assert cut.contention.doses == [0.25, 0.5, 0.75, 1.0]


def test_legs_come_as_often_as_asked_and_take_the_time_that_is_said(recipe: Recipe) -> None:
    contention = Contention(antagonists=["read", "spin"], doses=[0.5, 1.0], repeats=2, leg_s=2.0)
    cut = contention_recipe(replace(recipe, contention=contention))
    legs = list(order_of_legs(cut))
    assert legs[:3] == [(0, Regime("t")), (0, Regime(None, "read", 1.0)),
                        (0, Regime(None, "spin", 1.0))]  # fmt: skip
    expected = [
        Regime(None), Regime("t"), Regime("t"), Regime(None, "read", 1.0),
        Regime(None, "spin", 1.0), Regime("t", "read", 0.5), Regime("t", "read", 1.0),
        Regime("t", "spin", 0.5), Regime("t", "spin", 1.0),
    ]  # fmt: skip
    for repeat in (1, 2):
        own = [regime for number, regime in legs if number == repeat]
        assert sorted(own, key=str) == sorted(expected, key=str)
    assert contention_seconds(cut) == (3 + 18) * 2.0


def test_options_change_the_recipe(recipe: Recipe) -> None:
    changed = adjusted(
        recipe, duration="15m", seed=9, threads=3, doses=[0.1], antagonists=None, leg_s=1.5
    )
    assert changed.sustained is not None and changed.sustained.duration_s == 900
    assert changed.seed == 9 and changed.targets["t"].threads == 3
    assert changed.contention == Contention(doses=[0.1], leg_s=1.5)


@pytest.mark.parametrize("field", ["target_cores", "antagonist_cores"])
def test_a_core_that_is_not_there(recipe: Recipe, folders: Folders, field: str) -> None:
    there = replace(Contention(), **{field: [4000]})
    cut = contention_recipe(replace(recipe, contention=there))
    with pytest.raises(UsageFault, match=f"{field} names core 4000"):
        plan_contention(cut, folders)


def test_streams_that_do_not_fit_into_memory(
    recipe: Recipe, folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contention_plan, "_LARGEST_BUFFER", 1 << 50)
    monkeypatch.setattr(contention_plan, "_SMALLEST_BUFFER", 1 << 44)
    with pytest.raises(EnvironmentFault, match="GiB of memory are needed to stream over"):
        plan_contention(contention_recipe(recipe), folders)


def test_what_streams_over_is_no_part_of_the_cache(recipe: Recipe, folders: Folders) -> None:
    job = plan_contention(contention_recipe(recipe), folders)
    cache_bytes = last_level_cache_bytes()
    assert job.buffer_bytes >= 64 * 2**20
    assert job.buffer_bytes % (16 * 2**20) == 0
    assert cache_bytes is None or job.buffer_bytes >= min(4 * cache_bytes - 2**24, 2**30 - 2**24)


def test_a_context_that_does_not_fit(recipe: Recipe, folders: Folders) -> None:
    deep = contention_recipe(replace(recipe, held_context_tokens=250))
    with pytest.raises(UsageFault, match="held_context_tokens"):
        plan_contention(deep, folders)
