"""Phases held for their bytes: which, in which order, and with a real sampler of known readings."""

import subprocess
import sys
from pathlib import Path

import pytest
from emulated.played import play
from emulated.tree import Tree, build
from emulated.truth import Counter, Script, Truth, Work
from msgspec.structs import replace

from edgeprof.analysis.summary import summarise
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling import recorder
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.recorder import record
from edgeprof.profiling.schedule import HeldPhase, held_order, held_phases, leg_count
from edgeprof.recipe import Recipe, Variant
from edgeprof.session.records import Leg, Session
from edgeprof.session.store import read_session
from edgeprof.telemetry.source import BoardFigures


class Quiet:
    def plan(self, legs: int) -> None:
        self.planned = legs

    def leg(self, leg: Leg) -> None: ...


def test_every_kind_of_pass_is_held_and_idleness(recipe: Recipe) -> None:
    assert held_phases(recipe) == [
        HeldPhase("idle", "idle", 0),
        HeldPhase("decode", "t"),
        HeldPhase("verify", "t", 3),
        HeldPhase("verify", "t", 4),
        HeldPhase("draft", "d"),
    ]


def test_of_many_sizes_the_ends_and_the_middle_are_held(recipe: Recipe) -> None:
    swept = [Variant(target="t", drafter="ngram", draft_tokens=k) for k in range(1, 10)]
    held = held_phases(replace(recipe, variants=swept))
    assert [phase.tokens for phase in held if phase.phase == "verify"] == [2, 6, 10]


def test_the_order_is_shuffled_by_the_seed(recipe: Recipe) -> None:
    order = list(held_order(recipe))
    assert order == list(held_order(recipe)) != list(held_order(replace(recipe, seed=1)))
    phases = [phase for _, phase in order[: 4 * 5]]
    for repeat in range(4):
        own = phases[5 * repeat : 5 * repeat + 5]
        assert sorted(own) == sorted(held_phases(recipe)) and own != held_phases(recipe)
    blocks = [(repeat, phase.draft_passes) for repeat, phase in order[4 * 5 :]]
    # for the pair that drafts two tokens: 0, 2 and 6 draft passes a verify pass, twice
    assert sorted(blocks) == [(1, 0), (1, 2), (1, 6), (2, 0), (2, 2), (2, 6)]
    assert all(phase.drafter == "d" and phase.tokens == 3 for _, phase in order[4 * 5 :])


def test_held_legs_count_where_they_are_run(recipe: Recipe) -> None:
    assert leg_count(recipe, held_for_bytes=True) == leg_count(recipe) + 4 * 5 + 6
    none = replace(recipe, held_legs=0)
    assert leg_count(none, held_for_bytes=True) == leg_count(none)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return build(tmp_path / "board", "orin-nano")


@pytest.fixture
def on_board(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs take this machine for the emulated board."""
    figures = board_figures(tree.root)
    monkeypatch.setattr(recorder, "board_figures", lambda _: figures)


def held_legs(session: Session) -> list[Leg]:
    return [leg for leg in session.legs if leg.attrs.get("held") in ("bytes", "duty")]


@pytest.mark.usefixtures("on_board")
def test_a_run_holds_phases_where_bandwidth_is_read(
    tree: Tree, recipe: Recipe, folders: dict[str, DecoderFolder], tmp_path: Path
) -> None:
    """The board's reading never moves, and is refused; what a program beside takes is told."""
    tree.set_emc(busy_frac=0.5)
    short = replace(recipe, held_legs=1, held_leg_s=0.8, repeats=1, warmup_requests=0)
    quiet = Quiet()
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        session = record(short, folders, tmp_path / "s.sqlite", progress=quiet)
        spinning.kill()
    legs = held_legs(session)
    assert [leg.name for leg in legs] == [f"{phase.name} 1" for _, phase in held_order(short)]
    assert quiet.planned == len(session.legs)
    for leg in legs:
        assert leg.t1_ns is not None and 0.8 <= (leg.t1_ns - leg.t0_ns) / 1e9 < 2
        passes = [p for p in session.passes if p.leg_id == leg.id]
        assert all(p.context_tokens == 32 for p in passes) and leg.attrs["seed"] == 0
        assert {p.phase for p in passes} == phases_of(leg)
    attribution = summarise(session).attribution
    assert attribution is not None and attribution.refused is not None
    assert "is stuck: the same reading" in attribution.refused
    idle = next(leg for leg in legs if leg.attrs["phase"] == "idle")
    assert idle.attrs["processor"]["others_s"] > 0.4
    told = [event for event in session.events if event.leg_id == idle.id]
    assert [event.kind for event in told] == ["neighbours"]
    assert "other programs took" in told[0].detail["reason"]


def phases_of(leg: Leg) -> set[str]:
    if leg.attrs["phase"] == "idle":
        return set()
    return {leg.attrs["phase"]} | ({"draft"} if leg.attrs.get("draft_passes") else set())


def test_no_phase_is_held_without_a_counter(
    recipe: Recipe,
    folders: dict[str, DecoderFolder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figures = BoardFigures(root=str(tmp_path), bytes_per_emc_clock=32.0)
    monkeypatch.setattr(recorder, "board_figures", lambda _: figures)
    short = replace(recipe, repeats=1, warmup_requests=0)
    session = record(short, folders, tmp_path / "s.sqlite", progress=Quiet())
    assert session.info.complete and held_legs(session) == []


def test_known_bytes_through_the_real_sampler(tree: Tree, tmp_path: Path) -> None:
    """Legs of 1.5 s against a tau of 0.2 s that nobody tells; real time, so the bounds are wide."""
    truth = Truth(
        passes={
            "decode": Work(2e9, 0.05), "verify": Work(2.1e9, 0.06), "draft": Work(0.2e9, 0.01),
        },
        idle_bytes_per_s=1e9,
        interference=0.0,
        counter=Counter(kind="exponential", window_s=0.2, noise=0.01, offset_s=0.0),
    )  # fmt: skip
    path = tmp_path / "s.sqlite"
    play(
        tree,
        lambda start_s: Script(
            truth, seed=1, start_s=start_s, leg_s=1.5, repeats=1, duty=False, answers=1,
            answer_s=2.0,
        ),
        path,
    )  # fmt: skip
    session = read_session(path)
    assert {s.quality for s in session.samples} == {"simulated"}
    attribution = summarise(session).attribution
    assert attribution is not None and attribution.refused is None
    for phase in attribution.phases:
        found = phase.bytes_per_pass.value
        assert found == pytest.approx(truth.passes[phase.phase].bytes, rel=0.1), phase.phase
    assert len(attribution.closure) == 1
