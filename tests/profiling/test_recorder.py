"""Whole runs on a random little model, through the real children."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from msgspec.structs import replace

from edgeprof.analysis.summary import summarise
from edgeprof.convert.folder import convert
from edgeprof.errors import EdgeprofError, FileFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.profiling.divergence import first_divergence
from edgeprof.profiling.recorder import record
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import ModelDrafter, Recipe
from edgeprof.session.records import Session
from edgeprof.session.store import read_session

Folders = dict[str, DecoderFolder]


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "tiny.sqlite"


@pytest.fixture(scope="module")
def session(recipe: Recipe, folders: Folders, output: Path) -> Session:
    class Quiet:
        def plan(self, legs: int) -> None: ...

        def leg(self, leg: Any) -> None: ...

    return record(recipe, folders, output, progress=Quiet())


def answers(session: Session) -> dict[tuple[int, int], list[int]]:
    """Tokens by (leg, request), in the order of their positions."""
    found: dict[tuple[int, int], list[int]] = {}
    for token in session.tokens:
        answer = found.setdefault((token.leg_id, token.request_id), [])
        assert token.position == len(answer)
        answer.append(token.token_id)
    return found


def test_the_file_holds_what_was_returned(session: Session, output: Path) -> None:
    assert read_session(output) == session
    assert [file.name for file in output.parent.iterdir()] == [output.name]


def test_a_run_that_got_to_its_end_is_complete(session: Session) -> None:
    assert session.info.complete and session.info.ended_reason is None
    assert {leg.status for leg in session.legs} == {"complete"}
    assert session.info.recipe["name"] == "tiny"


def test_legs_come_in_the_planned_order(session: Session) -> None:
    assert [leg.name for leg in session.legs] == [
        "t agreement",
        "t held verify",
        "d held draft",
        "t+d k=2 warm-up",
        "t warm-up",
        "t+ngram k=3 warm-up",
        "t r1 p1",
        "t+d k=2 r1 p1",
        "t+ngram k=3 r1 p1",
        "t+d k=2 r1 p2",
        "t+ngram k=3 r1 p2",
        "t r1 p2",
        "t+ngram k=3 r2 p1",
        "t r2 p1",
        "t+d k=2 r2 p1",
        "t r2 p2",
        "t+d k=2 r2 p2",
        "t+ngram k=3 r2 p2",
    ]
    assert [leg.warmup for leg in session.legs] == [False] * 3 + [True] * 3 + [False] * 12


def test_legs_tell_what_they_are(session: Session) -> None:
    legs = {leg.name: leg for leg in session.legs}
    assert legs["t+d k=2 r2 p1"].attrs == {
        "target": "t",
        "drafter": "d",
        "drafter_kind": "model",
        "draft_tokens": 2,
    }
    assert legs["t r1 p1"].attrs == {
        "target": "t",
        "drafter": None,
        "drafter_kind": None,
        "draft_tokens": None,
    }
    assert legs["t held verify"].attrs == {"held": "verify"}
    assert legs["d held draft"].variant == "d"


def test_held_legs_hold_every_size_as_often_as_asked(session: Session) -> None:
    legs = {leg.id: leg for leg in session.legs if leg.kind == "held"}
    held = [(legs[p.leg_id].variant, p.tokens) for p in session.passes if p.leg_id in legs]
    # three repeats of 1, 2 and 4 tokens on the target, of 1 on the draft
    assert sorted(held) == [("d", 1)] * 3 + sorted([("t", 1), ("t", 2), ("t", 4)] * 3)


def test_ids_count_up_without_a_gap(session: Session) -> None:
    tables = (session.legs, session.requests, session.passes, session.tokens, session.signals)
    for table in tables:
        assert [row.id for row in table] == list(range(1, len(table) + 1))


def test_every_pass_lies_in_its_leg_and_round(session: Session) -> None:
    legs = {leg.id: leg for leg in session.legs}
    rounds = {round_.id: round_ for round_ in session.rounds}
    for entry in session.passes:
        leg = legs[entry.leg_id]
        assert leg.t1_ns is not None
        assert leg.t0_ns <= entry.t0_ns <= entry.t1_ns <= leg.t1_ns
        if entry.round_id is not None:
            assert rounds[entry.round_id].t0_ns <= entry.t0_ns
            assert entry.t1_ns <= rounds[entry.round_id].t1_ns


def test_tokens_rounds_and_requests_add_up(session: Session) -> None:
    assert all(len(answer) == 24 for answer in answers(session).values())
    for request in session.requests:
        rounds = [r for r in session.rounds if r.request_id == request.id]
        assert request.new_tokens == 24 == 1 + sum(round_.emitted for round_ in rounds)
        assert request.stop_reason == "new_tokens"


def test_the_text_is_that_of_the_tokens(session: Session, folders: Folders) -> None:
    decode = Tokenizer(folders["t"]).decode
    for request in session.requests:
        assert request.text == decode(answers(session)[request.leg_id, request.id])


def test_the_model_is_described_and_was_probed(session: Session, folders: Folders) -> None:
    model = session.info.models["t"]
    manifest = folders["t"].manifest
    assert manifest is not None
    assert (model.role, model.threads, model.weights) == ("target", 1, "fp32")
    assert model.sha256 == manifest.source_sha256
    assert model.providers_in_session == ["CPUExecutionProvider"]
    assert model.agreement is not None and model.agreement.after_rollback == 0
    assert session.info.models["d"].role == "draft"


def test_the_host_was_sampled_meanwhile(session: Session) -> None:
    names = {signal.name for signal in session.signals}
    assert {"cpu_busy_frac", "ram_used_bytes", "swap_used_bytes"} <= names
    used = {s.id for s in session.signals if s.name == "ram_used_bytes"}
    assert all(s.value for s in session.samples if s.signal_id in used)
    assert any(s.signal_id in used for s in session.samples)


def test_a_source_that_is_chosen_is_the_only_one(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    short = replace(recipe, variants=[recipe.variants[1]], drafters={}, verify_tokens=[])
    output = tmp_path / "s.sqlite"
    session = record(short, folders, output, progress=heard, sources=["host"])
    assert {signal.source for signal in session.signals} == {"host"}
    assert {signal.name for signal in session.signals} >= {"cpu_busy_frac", "ram_used_bytes"}


def check_divergences(session: Session) -> None:
    """There is an event exactly where an answer is not the plain one."""
    found = answers(session)
    expected = set()
    legs = {leg.name: leg for leg in session.legs if leg.kind == "decode" and not leg.warmup}
    requests = {request.leg_id: request for request in session.requests}
    for name, leg in legs.items():
        _, turn = name.rsplit(" r", 1)  # "1 p2"
        plain = legs[f"t r{turn}"]
        reference, own = (found[o.id, requests[o.id].id] for o in (plain, leg))
        if (divergence := first_divergence(reference, own)) is not None:
            index = int(turn.split(" p")[1]) - 1
            expected.add((leg.id, index, divergence.position, divergence.token))
    events = [event for event in session.events if event.kind == "divergence"]
    keys = ("request_index", "position", "token")
    assert {(e.leg_id, *(e.detail[key] for key in keys)) for e in events} == expected
    assert all(event.detail["logit_gap"] is not None for event in events)


def test_r27_answers_that_differ_from_plain_ones_are_noted(
    session: Session, recipe: Recipe, tiny_gguf: Callable[..., Path], tmp_path: Path, heard: Any
) -> None:
    check_divergences(session)
    assert {event.kind for event in session.events} <= {
        "absent"
    }  # with the padded attention passes of every size agree

    from edgeprof.convert.folder import convert

    rough = tiny_gguf(tmp_path / "rough.gguf", layers=6, matrices="Q4_0")
    folder = convert(rough, tmp_path / "rough", attention_pad=0)
    longer = replace(
        recipe,
        new_tokens=150,
        drafters={"d": ModelDrafter(model="x"), "ngram": recipe.drafters["ngram"]},
    )
    again = record(longer, {"t": folder, "d": folder}, tmp_path / "rough.sqlite", progress=heard)
    check_divergences(again)


def test_r41_a_model_that_drafts_for_itself_is_always_right(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    chosen = replace(recipe, variants=recipe.variants[:1], verify_tokens=[], repeats=1)
    twins = {"t": folders["t"], "d": folders["t"]}
    session = record(chosen, twins, tmp_path / "s.sqlite", progress=heard)
    rounds = [round_ for round_ in session.rounds if round_.drafted]
    assert rounds and all(r.accepted == r.drafted == r.evaluated for r in rounds)
    assert heard.planned == len(heard.ended) == 1 + 1 + 2  # check, warm-up, two prompts


def test_r17_a_short_draft_context_ends_drafting_not_the_answer(
    recipe: Recipe, folders: Folders, tmp_path: Path, tiny_gguf: Callable[..., Path], heard: Any
) -> None:
    from edgeprof.convert.folder import convert

    gguf = tiny_gguf(tmp_path / "short.gguf", layers=1, context=32)
    short = convert(gguf, tmp_path / "short", weights="fp32")
    chosen = replace(recipe, variants=recipe.variants[:1], verify_tokens=[], repeats=1)
    chosen = replace(chosen, new_tokens=60)
    both = {"t": folders["t"], "d": short}
    session = record(chosen, both, tmp_path / "s.sqlite", progress=heard)
    assert {request.new_tokens for request in session.requests} == {60}
    notes = [event for event in session.events if event.kind == "draft_context"]
    assert len(notes) == 1 and notes[0].detail["draft"] == "d"
    assert session.rounds[-1].drafted == 0


def test_r21_r40_any_end_token_stops_and_an_answer_may_end_at_once(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    shutil.copytree(folders["t"].path, tmp_path / "t")
    config = tmp_path / "t" / "genai_config.json"
    content = json.loads(config.read_text())
    content["model"]["eos_token_id"] = list(range(300))  # whatever comes first is an end token
    config.write_text(json.dumps(content))
    both = {**folders, "t": read_decoder_folder(tmp_path / "t")}
    chosen = replace(recipe, stop_at_end_token=True, verify_tokens=[])
    session = record(chosen, both, tmp_path / "s.sqlite", progress=heard)
    assert {(r.stop_reason, r.new_tokens) for r in session.requests} == {("end_token", 1)}
    assert session.info.complete and session.rounds == []
    assert [leg.tokens_per_s for leg in summarise(session).legs] == [None] * 3


def test_a_graph_that_cannot_be_loaded_is_told_and_nothing_is_left(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    shutil.copytree(folders["t"].path, tmp_path / "t")
    (tmp_path / "t" / "model.onnx").write_bytes(b"not a graph")
    both = {**folders, "t": replace(folders["t"], path=tmp_path / "t")}
    with pytest.raises(FileFault, match=r"model\.onnx"):
        record(recipe, both, tmp_path / "out" / "s.sqlite", progress=heard)
    assert list((tmp_path / "out").iterdir()) == []


def test_p09_an_existing_session_stands(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(b"mine")
    with pytest.raises(UsageFault):
        record(recipe, folders, path, progress=heard)
    assert path.read_bytes() == b"mine" and heard.planned is None


def signal_child(module: str, number: int, heard: Any, after_s: float) -> threading.Thread:
    """Sends a signal to this process's child some time after the warm-up has ended."""

    def run() -> None:
        while sum(leg.warmup for leg in heard.ended) < 3:
            time.sleep(0.01)
        time.sleep(after_s)
        for child in psutil.Process().children():
            if module in child.cmdline():
                child.send_signal(number)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_a_sampler_that_dies_is_replaced_and_the_run_goes_on(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    killer = signal_child("edgeprof.profiling.sampling", signal.SIGKILL, heard, 0.0)
    longer = replace(recipe, repeats=4)
    session = record(longer, folders, tmp_path / "s.sqlite", progress=heard)
    killer.join()
    assert session.info.complete
    deaths = [event for event in session.events if event.kind == "death"]
    assert len(deaths) == 1 and deaths[0].severity == "warning"
    assert deaths[0].detail["process"] == "sampler" and "SIGKILL" in deaths[0].detail["cause"]


def test_a_sampler_that_hangs_does_not_hold_the_run_up(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    stopper = signal_child("edgeprof.profiling.sampling", signal.SIGSTOP, heard, 0.0)
    session = record(recipe, folders, tmp_path / "s.sqlite", progress=heard)
    stopper.join()
    assert session.info.complete
    assert not [child for child in psutil.Process().children() if child.status() == "stopped"]


def test_decoding_goes_on_at_its_pace_while_a_sampler_hangs_and_is_replaced(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    stopper = signal_child("edgeprof.profiling.sampling", signal.SIGSTOP, heard, 0.0)
    longer = replace(recipe, repeats=12, verify_tokens=[])
    session = record(longer, folders, tmp_path / "s.sqlite", progress=heard)
    stopper.join()
    (gap,) = [event for event in session.events if event.kind == "gap"]
    since_ns, until_ns = gap.detail["since_ns"], gap.detail["until_ns"]
    assert session.info.complete and gap.detail["process"] == "sampler"
    assert any(sample.t0_ns >= until_ns for sample in session.samples)
    assert not any(since_ns < sample.t0_ns < until_ns for sample in session.samples)
    passes = [entry for entry in session.passes if entry.phase in ("decode", "verify")]
    inside = [p.t1_ns - p.t0_ns for p in passes if since_ns < p.t0_ns < until_ns]
    outside = [p.t1_ns - p.t0_ns for p in passes if p.t1_ns < since_ns or p.t0_ns > until_ns]
    assert len(inside) > 100  # the run did not wait
    assert np.median(inside) < 2 * np.median(outside)


def test_r07_a_killed_decoder_costs_the_run_and_not_the_data(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    endless = replace(recipe, prompts=recipe.prompts * 500, new_tokens=200)
    killer = signal_child("edgeprof.profiling.decoder", signal.SIGKILL, heard, 1.0)
    session = record(endless, folders, tmp_path / "s.sqlite", progress=heard)
    killer.join()
    assert not session.info.complete
    assert session.info.ended_reason is not None
    assert "out-of-memory killer" in session.info.ended_reason
    death = next(event for event in session.events if event.kind == "death")
    assert death.severity == "error" and death.detail["process"] == "decoder"
    # The kill falls into a leg, or into the pause between two.
    cut = [leg.id for leg in session.legs if leg.status != "complete"]
    assert cut == [leg.id for leg in session.legs[-1:] if leg.status == "died"]
    assert death.leg_id == (cut[0] if cut else None)
    check_nothing_is_missing(session, death.t_ns)


def check_nothing_is_missing(session: Session, killed_ns: int) -> None:
    """Every pass is there but those of the last half second, those of the warm-up included."""
    assert [entry.id for entry in session.passes] == list(range(1, len(session.passes) + 1))
    assert killed_ns - max(entry.t1_ns for entry in session.passes) < 0.5e9
    warm = {leg.id for leg in session.legs if leg.warmup}
    assert len(warm) == 3 and warm <= {entry.leg_id for entry in session.passes}


def test_a_decoder_that_dies_before_it_measured_leaves_nothing(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text("import os, signal; os.kill(os.getpid(), 9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(EdgeprofError, match="killed by SIGKILL") as caught:
        record(recipe, folders, tmp_path / "out" / "s.sqlite", progress=heard)
    assert caught.value.exit_code == 1
    assert list((tmp_path / "out").iterdir()) == []


def test_logits_that_are_no_numbers_are_told(
    recipe: Recipe, tmp_path: Path, tiny_gguf: Callable[..., Path], heard: Any
) -> None:
    gguf = tiny_gguf(tmp_path / "damaged.gguf", layers=1)
    content = gguf.read_bytes()
    # The weights of the last norm are the last 64 float32 of the file. These are numbers, so that
    # the converter takes them, but what they scale becomes infinite, of either sign.
    gguf.write_bytes(content[:-256] + np.full(64, 3e38, "<f4").tobytes())
    damaged = convert(gguf, tmp_path / "damaged", weights="fp32")
    plain = replace(recipe, variants=[recipe.variants[1]], drafters={})
    output = tmp_path / "s.sqlite"
    with pytest.raises(FileFault, match="damaged: t gives logits that are no numbers"):
        record(plain, {"t": damaged}, output, progress=heard)
    assert not output.exists()


def test_more_threads_than_cores_are_noted(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    eager = replace(
        recipe,
        targets={"t": replace(recipe.targets["t"], threads=1024)},
        variants=[recipe.variants[1]],
        drafters={},
        verify_tokens=[],
    )
    session = record(eager, {"t": folders["t"]}, tmp_path / "s.sqlite", progress=heard)
    used = session.info.models["t"].threads
    assert f"threads: model t, asked 1024, used {used}" in summarise(session).warnings
