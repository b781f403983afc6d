"""Energy of a scripted decode on an emulated board whose power levels are set: real nodes, the real
sampler, the real store.

5 V and 400, 1200 and 1800 mA: 2 W idle, 6 W plain, 9 W with the draft. A plain token takes 0.1 s,
with the draft 0.05 s: 0.6 and 0.45 J.
"""

import selectors
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from emulated.tree import Tree, build
from msgspec.structs import replace

from edgeprof.analysis.summary import Summary, summarise
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.board import board_figures
from edgeprof.profiling.messages import SampleJob
from edgeprof.profiling.recorder import record
from edgeprof.profiling.sampler_link import SamplerLink
from edgeprof.quantity import Quantity
from edgeprof.recipe import Recipe
from edgeprof.session.records import Leg, Session
from edgeprof.session.store import SessionWriter, read_session

S = 1_000_000_000
IDLE_MA, PLAIN_MA, DRAFT_MA = 400, 1200, 1800


def play(tree: Tree, maker: Any, shape: Callable[..., Any]) -> list[tuple[int, int]]:
    """From now on: idle for 2 s, a plain answer, one with the draft; gives the currents by time."""
    currents = [(maker.now, IDLE_MA)]
    maker.leg("idle", "idle")
    maker.now += 2 * S
    maker.end_leg()
    answer = {"chat": list(range(25))}
    currents.append((maker.now, PLAIN_MA))
    maker.decode_leg("fp32", rounds=[shape(0, 0, 0, 1, 0.0, 25, 0.0)] * 24, answers=answer,
                     slower=4.0)  # fmt: skip
    currents.append((maker.now, DRAFT_MA))
    both = shape(2, 2, 1, 2, 5.0, 15, 0.0)  # 25 x 4 ms for two tokens
    answer = {"chat": list(range(49))}
    maker.decode_leg("fp32+draft k=2", rounds=[both] * 24, answers=answer, slower=4.0)
    currents.append((maker.now, IDLE_MA))
    return currents


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    from made_session import SessionMaker, Shape

    folder = tmp_path_factory.mktemp("board")
    tree = build(folder / "tree", "orin-nano")
    maker = SessionMaker()
    path = folder / "s.sqlite"
    writer = SessionWriter(path, maker.info)
    with SamplerLink(SampleJob(board=board_figures(tree.root)), writer.add) as link:
        selector = selectors.DefaultSelector()
        link.attach(selector)
        while not link.settled:
            link.receive(0.1)
        maker.now = time.monotonic_ns() + S // 2
        currents = play(tree, maker, Shape)
        driver = threading.Thread(target=_drive, args=(tree, currents))
        driver.start()
        while driver.is_alive():
            for _ in selector.select(0.1):
                link.receive()
            link.look(time.monotonic_ns())
    for records in (maker.legs, maker.requests, maker.rounds, maker.passes, maker.tokens):
        for one in records:
            writer.add(one)
    writer.close()
    session: Session = read_session(path)
    return summarise(session)


def _drive(tree: Tree, currents: list[tuple[int, int]]) -> None:
    for since_ns, ma in currents:
        time.sleep(max(since_ns - time.monotonic_ns(), 0) / 1e9)
        tree.set_rail("VDD_IN", ma=ma)
    time.sleep(0.5)


def value(quantity: Quantity | None) -> float:
    assert quantity is not None and quantity.value is not None
    return quantity.value


def test_power_is_what_was_set(summary: Summary) -> None:
    power = {leg.variant: value(leg.power_w) for leg in summary.legs}
    assert power == {
        "fp32": pytest.approx(6, rel=0.02), "fp32+draft k=2": pytest.approx(9, rel=0.02),
    }  # fmt: skip
    assert summary.idle is not None
    assert value(summary.idle.power_w) == pytest.approx(2, rel=0.05)


def test_joules_a_token_are_what_was_set(summary: Summary) -> None:
    plain, draft = summary.legs
    assert plain.energy is not None and draft.energy is not None
    assert value(plain.energy_per_token_j) == pytest.approx(0.6, rel=0.02)
    assert value(draft.energy_per_token_j) == pytest.approx(0.45, rel=0.02)
    # of the two tokens a round one was drafted and accepted
    assert value(draft.energy.per_accepted_token_j) == pytest.approx(0.9, rel=0.02)
    assert value(plain.energy.above_idle_per_token_j) == pytest.approx(0.4, rel=0.05)
    assert value(draft.energy.above_idle_per_token_j) == pytest.approx(0.35, rel=0.05)
    (comparison,) = summary.comparisons
    assert value(comparison.energy_ratio) == pytest.approx(0.75, rel=0.02)


def test_the_rail_is_named_and_simulated_is_said(summary: Summary) -> None:
    energy = summary.legs[0].energy
    assert energy is not None and energy.scope is not None
    assert energy.scope.startswith("total rail") and "sysfs" in energy.scope
    assert summary.session.samples["simulated"] > 0


def test_a_run_watches_idleness_where_its_recipe_asks_for_it(
    recipe: Recipe, folders: dict[str, DecoderFolder], tmp_path: Path
) -> None:
    class Quiet:
        planned = 0

        def plan(self, legs: int) -> None:
            self.planned = legs

        def leg(self, leg: Leg) -> None: ...

    quiet = Quiet()
    short = replace(recipe, idle_s=0.3, repeats=1, warmup_requests=0, verify_tokens=[])
    session = record(short, folders, tmp_path / "s.sqlite", progress=quiet)
    (idle,) = [leg for leg in session.legs if leg.kind == "idle"]
    assert idle.t1_ns is not None and (idle.t1_ns - idle.t0_ns) / 1e9 == pytest.approx(0.3, abs=0.1)
    assert not [p for p in session.passes if p.leg_id == idle.id]
    assert quiet.planned == len(session.legs)
    assert summarise(session).idle is not None
