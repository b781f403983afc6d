"""Runs in which tokens are drawn: what is recorded, what a seed fixes, what is not compared."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.analysis.summary import summarise
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.profiling.recorder import record
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import Recipe, Sampling
from edgeprof.session.records import Session

Folders = dict[str, DecoderFolder]
RULE = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.01)


@pytest.fixture(scope="module")
def drawn(recipe: Recipe) -> Recipe:
    return replace(recipe, sampling=RULE, seed=7, verify_tokens=[], warmup_requests=0)


def answers(session: Session) -> dict[str, list[int]]:
    """Tokens by the name of the leg, which tells variant, repeat and prompt."""
    names = {leg.id: leg.name for leg in session.legs}
    found: dict[str, list[int]] = {}
    for token in session.tokens:
        found.setdefault(names[token.leg_id], []).append(token.token_id)
    return found


@pytest.fixture(scope="module")
def session(drawn: Recipe, folders: Folders, tmp_path_factory: pytest.TempPathFactory) -> Session:
    class Quiet:
        def plan(self, legs: int) -> None: ...

        def leg(self, leg: Any) -> None: ...

    return record(drawn, folders, tmp_path_factory.mktemp("s") / "s.sqlite", progress=Quiet())


def test_the_session_says_how_tokens_were_chosen(session: Session) -> None:
    assert session.info.complete
    assert session.info.recipe["sampling"] == {
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.01,
    }
    assert session.info.recipe["seed"] == 7


def test_r27_sampled_answers_are_not_called_divergent(session: Session) -> None:
    found = answers(session)
    assert found["t r1 p1"] != found["t+d k=2 r1 p1"]  # as two plain ones would be
    assert all(event.kind != "divergence" for event in session.events)
    for comparison in summarise(session).comparisons:
        assert comparison.output.not_comparable == "sampled: not comparable token for token"
        assert comparison.output.identical is None and comparison.output.answers_compared == 0
        assert "output differs" not in {limit.name for limit in comparison.verdict.limits}


def test_repeats_draw_anew_and_variants_start_alike(session: Session) -> None:
    found = answers(session)
    assert found["t r1 p1"] != found["t r2 p1"]
    for place in ("r1 p1", "r1 p2", "r2 p1", "r2 p2"):
        firsts = {found[f"{variant} {place}"][0] for variant in ("t", "t+d k=2", "t+ngram k=3")}
        assert len(firsts) == 1


def test_acceptance_is_counted_as_ever(session: Session) -> None:
    (leg,) = (leg for leg in summarise(session).legs if leg.variant == "t+d k=2")
    assert leg.acceptance is not None and leg.acceptance.conditional_acceptance is not None
    drafted = [r for r in session.rounds if r.drafted]
    assert drafted and all(r.evaluated == min(r.accepted + 1, r.drafted) for r in drafted)


def test_a_seed_fixes_what_is_drawn_whatever_else_is_run(
    session: Session, drawn: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    only = replace(drawn, variants=drawn.variants[:1], repeats=1)
    again = answers(record(only, folders, tmp_path / "a.sqlite", progress=heard))
    first = answers(session)
    assert again == {name: first[name] for name in ("t+d k=2 r1 p1", "t+d k=2 r1 p2")}
    other = replace(only, seed=8)
    assert answers(record(other, folders, tmp_path / "b.sqlite", progress=heard)) != again


def test_r41_a_model_that_drafts_for_itself_is_always_right_when_sampled(
    drawn: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    chosen = replace(drawn, variants=drawn.variants[:1], repeats=1)
    twins = {"t": folders["t"], "d": folders["t"]}
    session = record(chosen, twins, tmp_path / "s.sqlite", progress=heard)
    rounds = [round_ for round_ in session.rounds if round_.drafted]
    assert rounds and all(r.accepted == r.drafted == r.evaluated for r in rounds)


def test_m12_rows_that_pad_the_embedding_are_never_drawn(
    drawn: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    """Tokenizers of 270 tokens over embeddings of 300 rows; at this temperature all are alike."""

    def padded(key: str) -> DecoderFolder:
        path = tmp_path / key
        shutil.copytree(folders[key].path, path)
        file = path / "tokenizer.json"
        content = json.loads(file.read_text())
        vocab = content["model"]["vocab"]
        content["model"]["vocab"] = {token: id for token, id in vocab.items() if id < 270}
        content["model"]["merges"] = content["model"]["merges"][: 270 - 259]
        file.write_text(json.dumps(content))
        return read_decoder_folder(path)

    both = {key: padded(key) for key in folders}
    assert Tokenizer(both["t"]).id_count == 270 and Tokenizer(folders["t"]).id_count == 300
    hot = replace(drawn, sampling=Sampling(temperature=100))
    session = record(hot, both, tmp_path / "s.sqlite", progress=heard)
    tokens = [token.token_id for token in session.tokens]
    # a tenth of the rows pads: none in 288 draws has a probability of 1e-13
    assert len(tokens) == 288 and max(tokens) < 270
