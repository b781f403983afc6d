"""Whole runs on a random little model, through the real children."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from msgspec.structs import replace

from edgeprof.analysis.summary import summarise
from edgeprof.convert.folder import convert
from edgeprof.errors import EdgeprofError, EnvironmentFault, FileFault, UsageFault
from edgeprof.hardware.memory_state import MemoryState
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.profiling import recorder
from edgeprof.profiling.divergence import first_divergence
from edgeprof.profiling.recorder import record
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import ModelDrafter, Prompt, Recipe, SyntheticTest
from edgeprof.session.records import Session
from edgeprof.session.store import read_session

Folders = dict[str, DecoderFolder]
WATCHED = ("memory", "processor")  # what every leg tells at its end


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
        "d agreement",
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
    assert [leg.warmup for leg in session.legs] == [False] * 4 + [True] * 3 + [False] * 12


def test_legs_tell_what_they_are(session: Session) -> None:
    legs = {leg.name: leg for leg in session.legs}

    def told(name: str) -> dict[str, Any]:
        return {key: value for key, value in legs[name].attrs.items() if key not in WATCHED}

    assert told("t+d k=2 r2 p1") == {
        "target": "t",
        "drafter": "d",
        "drafter_kind": "model",
        "draft_tokens": 2,
    }
    assert told("t r1 p1") == {
        "target": "t",
        "drafter": None,
        "drafter_kind": None,
        "draft_tokens": None,
    }
    assert told("t held verify") == {"held": "verify"}
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


def test_every_token_has_its_part_of_the_text(session: Session) -> None:
    for request in session.requests:
        assert request.text is not None and request.text_ends is not None
        assert len(request.text_ends) == request.new_tokens
        assert request.text_ends == sorted(request.text_ends)
        assert request.text_ends[-1] == len(request.text)


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
    draft = session.info.models["d"]
    assert draft.role == "draft"
    assert draft.agreement is not None and draft.agreement.one_token_passes_agree


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
    # with the padded attention passes of every size agree
    assert {event.kind for event in session.events} <= {"absent", "load", "neighbours"}

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
    assert heard.planned == len(heard.ended) == 2 + 1 + 2  # two checks, warm-up, two prompts
    (told,) = (text for text in summarise(session).warnings if "same model" in text)
    drafted = sum(r.drafted for r in rounds if r.request_id > 1)  # the first request warms up
    assert told == (
        "t+d k=2: draft and target are the same model, which cannot be faster; as a check of "
        f"itself it accepted {drafted} of {drafted} drafted tokens"
    )


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


def test_r17_a_draft_s_context_may_be_limited(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    """The prompt has 11 tokens or more and 60 are to come, so that drafting ends before the answer;
    text and prefill by passes of 4 are the same as without."""
    chosen = replace(recipe, variants=recipe.variants[:2], verify_tokens=[], repeats=1)
    chosen = replace(chosen, new_tokens=60, prompts=recipe.prompts[:1], prefill_tokens=4)
    limited = replace(chosen, drafters={"d": ModelDrafter(model="draft", context_tokens=32)})
    session = record(limited, folders, tmp_path / "s.sqlite", progress=heard)
    assert session.info.models["d"].capacity_tokens == 32
    assert session.info.models["t"].capacity_tokens == 250
    (note,) = (event for event in session.events if event.kind == "draft_context")
    assert note.detail["draft_context_tokens"] == 32
    drafted = [round_.drafted for round_ in session.rounds if round_.drafted]
    assert drafted and session.rounds[-1].drafted == 0
    draft_passes = [p for p in session.passes if p.model == "d" and p.phase == "draft"]
    assert max(p.context_tokens + p.tokens for p in draft_passes) <= 32
    prefills = [p for p in session.passes if p.phase == "prefill"]
    assert {p.model for p in prefills} == {"t", "d"}
    assert len(prefills) > len(session.requests) and max(p.tokens for p in prefills) == 4
    texts = {request.text for request in session.requests}
    assert len(texts) == 1 and not [e for e in session.events if e.kind == "divergence"]


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
            with suppress(psutil.NoSuchProcess):  # one that has just ended, of another kind
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


def test_every_leg_tells_what_it_did_to_memory(session: Session) -> None:
    summary = summarise(session)
    for leg in session.legs:
        memory = leg.attrs["memory"]
        assert 0 <= memory["process_growth_bytes"] < memory["process_peak_bytes"]
        assert memory["available_before_bytes"] > 0 and memory["swap_growth_bytes"] >= 0
    for figures in summary.legs:
        assert figures.memory is not None
        assert figures.memory.available_before_bytes is not None
        assert figures.memory.peak_used_bytes is not None
        assert figures.memory.swap_growth_bytes is not None


def test_loading_says_whether_the_file_was_in_memory(session: Session) -> None:
    loads = {load.model: load for load in summarise(session).loads}
    assert list(loads) == ["t", "d"]
    for key, load in loads.items():  # the test has just written the files
        assert load.load_s == session.info.models[key].load_s
        assert load.cached_share == 1.0 and load.start == "warm"


def test_synthetic_tests_are_legs_that_bear_their_names(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    tests = [SyntheticTest(prompt_tokens=16), SyntheticTest(new_tokens=4, depth_tokens=32)]
    chosen = replace(
        recipe, prompts=[], tests=tests, variants=[recipe.variants[1]], drafters={},
        verify_tokens=[],
    )  # fmt: skip
    bare = {"t": replace(folders["t"], tokenizer_path=None)}
    session = record(chosen, bare, tmp_path / "s.sqlite", progress=heard)
    names = [leg.name for leg in session.legs]
    assert names == ["t agreement", *["pp16", "tg4@d32"] * 2, "tg4@d32", "pp16"]
    assert heard.planned == len(names) and session.requests == []
    assert [leg.warmup for leg in session.legs] == [False, True, True, False, False, False, False]
    passes = {leg.id: [p for p in session.passes if p.leg_id == leg.id] for leg in session.legs}
    shapes = [[(p.phase, p.tokens, p.context_tokens) for p in own] for own in passes.values()]
    fed = [("prefill", 32, 0), *(("decode", 1, 32 + n) for n in range(4))]
    assert shapes[1:3] == [[("prefill", 16, 0)], fed]
    figures = {leg.name: leg for leg in summarise(session).legs}
    assert set(figures) == {"pp16", "tg4@d32"}
    measured = passes[session.legs[-2].id][1:]  # of the last tg4@d32, without the filling
    rate = 4 / ((measured[-1].t1_ns - measured[0].t0_ns) / 1e9)
    assert figures["tg4@d32"].tokens_per_s_by_repeat[1] == pytest.approx(rate, rel=1e-9)
    assert (figures["pp16"].kind, figures["pp16"].variant) == ("test", "t")


def test_ids_are_answered_without_a_tokenizer_and_have_no_text(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    chosen = replace(
        recipe, prompts=[Prompt(kind="a", ids=[0])], variants=[recipe.variants[1]], drafters={},
        verify_tokens=[], repeats=1,
    )  # fmt: skip
    bare = tmp_path / "t"
    shutil.copytree(folders["t"].path, bare)
    (bare / "tokenizer.json").unlink()
    session = record(
        chosen, {"t": read_decoder_folder(bare)}, tmp_path / "s.sqlite", progress=heard
    )
    assert session.info.complete
    assert {(r.prompt_tokens, r.new_tokens, r.text) for r in session.requests} == {(1, 24, None)}


def test_r40_no_new_tokens_is_a_run_without_a_rate(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    chosen = replace(recipe, new_tokens=0, verify_tokens=[], repeats=1)
    session = record(chosen, folders, tmp_path / "s.sqlite", progress=heard)
    assert session.info.complete and not session.tokens
    assert {(r.stop_reason, r.new_tokens, r.text) for r in session.requests} == {
        ("new_tokens", 0, "")
    }
    assert [leg.tokens_per_s for leg in summarise(session).legs] == [None] * 3


def padded(folder: DecoderFolder, path: Path, tokens: int) -> DecoderFolder:
    """The folder with a tokenizer that knows only the first tokens: the rows above are padding."""
    shutil.copytree(folder.path, path)
    file = path / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    content["model"]["vocab"] = {token: id for token, id in vocab.items() if id < tokens}
    content["model"]["merges"] = content["model"]["merges"][: tokens - 259]
    file.write_text(json.dumps(content))
    return read_decoder_folder(path)


def test_r11_padding_is_never_chosen_and_its_size_may_differ(
    recipe: Recipe, folders: Folders, tmp_path: Path, tiny_gguf: Callable[..., Path], heard: Any
) -> None:
    """Tokenizers of 262 tokens over embeddings of 300 and 290 rows."""
    small = convert(tiny_gguf(tmp_path / "d.gguf", layers=1, vocab=290), tmp_path / "d290")
    both = {
        "t": padded(folders["t"], tmp_path / "t", 262),
        "d": padded(small, tmp_path / "d", 262),
    }
    chosen = replace(recipe, variants=recipe.variants[:2], verify_tokens=[], new_tokens=100)
    session = record(chosen, both, tmp_path / "s.sqlite", progress=heard)
    assert session.info.complete
    # 13 % of the rows pad the target: of 1000 greedy tokens some would be among them
    tokens = [token.token_id for token in session.tokens]
    assert len(tokens) == 1000 and max(tokens) < 262
    check_divergences(session)


def test_r12_another_tokenizer_of_the_same_size_is_refused_with_the_first_token(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    shutil.copytree(folders["d"].path, tmp_path / "d")
    file = tmp_path / "d" / "tokenizer.json"
    content = json.loads(file.read_text())
    vocab = content["model"]["vocab"]
    (seventeenth,) = (token for token, id in vocab.items() if id == 17)
    vocab["\u2581the"] = vocab.pop(seventeenth)
    file.write_text(json.dumps(content))
    other = {**folders, "d": read_decoder_folder(tmp_path / "d")}
    with pytest.raises(FileFault, match=f"token 17 is '\u2581the' in .* and '{seventeenth}' in"):
        record(recipe, other, tmp_path / "s.sqlite", progress=heard)
    assert heard.planned is None and not (tmp_path / "s.sqlite").exists()


def test_r13_special_tokens_that_differ_are_noted_by_their_field(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    shutil.copytree(folders["d"].path, tmp_path / "d")
    file = tmp_path / "d" / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "add_bos_token": True}))
    other = {**folders, "d": read_decoder_folder(tmp_path / "d")}
    chosen = replace(recipe, variants=recipe.variants[:1], verify_tokens=[], repeats=1)
    session = record(chosen, other, tmp_path / "s.sqlite", progress=heard)
    assert session.info.complete
    told = (
        "special_tokens: draft d, target t, field add_bos_token, target_has False, draft_has True"
    )
    assert told in summarise(session).warnings


def test_r22_the_end_of_a_turn_may_stand_in_the_tokenizer_alone(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    plain = replace(recipe, variants=[recipe.variants[1]], drafters={}, verify_tokens=[])
    free = record(plain, {"t": folders["t"]}, tmp_path / "free.sqlite", progress=heard)
    third = {a[2] for a in answers(free).values()}  # what each answer has in third place
    shutil.copytree(folders["t"].path, tmp_path / "t")
    file = tmp_path / "t" / "tokenizer.json"
    content = json.loads(file.read_text())
    spelt = {id: token for token, id in content["model"]["vocab"].items()}
    file = tmp_path / "t" / "tokenizer_config.json"
    ends = sorted(third)[0]
    file.write_text(json.dumps({"eos_token": spelt[ends]}))
    stopping = replace(plain, stop_at_end_token=True)
    both = {"t": read_decoder_folder(tmp_path / "t")}
    session = record(stopping, both, tmp_path / "s.sqlite", progress=heard)
    for request, asked in zip(session.requests, free.requests, strict=True):
        tokens = answers(session)[request.leg_id, request.id]
        before = answers(free)[asked.leg_id, asked.id]
        stops = [end for end in (ends, 2) if end in before]  # 2 is the decoder's own end token
        cut = min((before.index(end) + 1 for end in stops), default=len(before))
        assert tokens == before[:cut]
        assert request.stop_reason == ("end_token" if stops else "new_tokens")
    assert "end_token" in {request.stop_reason for request in session.requests}


def test_r31_tokens_are_told_as_they_come(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any
) -> None:
    told: list[int] = []
    session = record(
        recipe, folders, tmp_path / "s.sqlite", progress=heard,
        on_token=lambda token: told.append(token.id),
    )  # fmt: skip
    assert told == [token.id for token in session.tokens]


def test_r42_memory_in_pieces_is_told_with_the_death_that_it_caused(
    recipe: Recipe, folders: Folders, tmp_path: Path, heard: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "onnxruntime.py").write_text(
        "import os, sys\n"
        "print('NvMapMemAllocInternalTagged: 1075072515 error 12', file=sys.stderr, flush=True)\n"
        "os._exit(1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    state = MemoryState(available_bytes=2 << 30, largest_block_bytes=1 << 20, largest_blocks=3)
    monkeypatch.setattr(recorder, "read_memory_state", lambda: state)
    told = r"error 12; 2\.00 GiB are available, the largest free blocks are 3 of 1 MiB; .* a reboot"
    with pytest.raises(EnvironmentFault, match=told):
        record(recipe, folders, tmp_path / "out" / "s.sqlite", progress=heard)
