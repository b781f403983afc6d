"""A whole run in which the draft length follows what pays."""

from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.recorder import record
from edgeprof.recipe import Recipe, Variant
from edgeprof.session.records import Session

Folders = dict[str, DecoderFolder]
ADAPTIVE = ("t+d k=0-3", "t+ngram k=0-3")


@pytest.fixture(scope="module")
def session(recipe: Recipe, folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Session:
    class Quiet:
        def plan(self, legs: int) -> None: ...

        def leg(self, leg: Any) -> None: ...

    variants = [Variant(target="t")]
    variants += [
        Variant(target="t", drafter=drafter, draft_tokens=3, adaptive=True)
        for drafter in ("d", "ngram")
    ]
    adaptive = replace(recipe, variants=variants, repeats=1)
    return record(adaptive, folders, tmp_path_factory.mktemp("run") / "s.sqlite", progress=Quiet())


def test_the_length_changes_from_round_to_round_and_the_text_does_not(session: Session) -> None:
    legs = {leg.id: leg for leg in session.legs if leg.kind == "decode" and not leg.warmup}
    answers: dict[str, dict[str, list[int]]] = {}
    for token in session.tokens:
        if token.leg_id in legs:
            leg = legs[token.leg_id]
            turn = leg.name.rsplit(" ", 1)[1]
            answers.setdefault(turn, {}).setdefault(leg.variant, []).append(token.token_id)
    assert sorted(answers) == ["p1", "p2"]
    for by_variant in answers.values():
        assert by_variant == dict.fromkeys(("t", *ADAPTIVE), by_variant["t"])
        assert len(by_variant["t"]) == 24
    assert not [event for event in session.events if event.kind == "divergence"]


def test_an_adaptive_leg_names_no_length_and_its_rounds_do(session: Session) -> None:
    for variant in ADAPTIVE:
        legs = {leg.id: leg for leg in session.legs if leg.variant == variant}
        assert {leg.attrs["draft_tokens"] for leg in legs.values()} == {None}
        drafted = [round_.drafted for round_ in session.rounds if round_.leg_id in legs]
        assert drafted and all(0 <= count <= 3 for count in drafted)
