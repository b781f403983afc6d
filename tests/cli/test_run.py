"""``edgeprof run`` as its users meet it: a process, its streams, its exit code, and signals."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from made_gguf import write_decoder_gguf
from started import Start, finish, starting

from edgeprof.hardware.machine import usable_cores
from edgeprof.report.printable import printable
from edgeprof.session.records import Session
from edgeprof.session.store import read_session

RECIPE = """
schema = "edgeprof.recipe/1"
name = "tiny"
question = "Does it pay?"
new_tokens = {new_tokens}
repeats = {repeats}
context_tokens = 250
measure_ceiling = false
stop_at_end_token = false

[targets.t]
model = "{target}"
weights = "fp32"
threads = 1

[drafters.d]
kind = "model"
model = "{draft}"

[[variants]]
target = "t"

[[variants]]
target = "t"
drafter = "d"
draft_tokens = 2

[[prompts]]
kind = "chat"
text = "hello there"
"""
Edit = Callable[..., Path]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Callable[..., Path]) -> Path:
    """Two small models of one vocabulary, one of another, and a cache of their own."""
    folder = tmp_path_factory.mktemp("run")
    tiny_gguf(folder / "target.gguf", layers=4)
    tiny_gguf(folder / "draft.gguf", layers=1)
    tiny_gguf(folder / "other.gguf", layers=1, vocab=290)
    return folder


@pytest.fixture
def recipe(work: Path) -> Edit:
    """Writes the recipe beside the models, with these values."""

    def write(**values: Any) -> Path:
        defaults = {"new_tokens": 8, "repeats": 1, "target": "target.gguf", "draft": "draft.gguf"}
        path = work / "tiny.toml"
        path.write_text(RECIPE.format(**{**defaults, **values}))
        return path

    return write


@pytest.fixture
def start(work: Path, tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path, {"EDGEPROF_CACHE": str(work / "cache")}) as run:
        yield run


def test_a_run_leaves_one_session_and_one_document(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, out, err = finish(start("run", recipe(), "-o", "new/s.sqlite", "--json"))
    assert code == 0, err
    document = json.loads(out)
    assert document["schema"] == "edgeprof.summary/1"
    assert "session: new/s.sqlite" in err and "repeat 1: " in err
    session = read_session(tmp_path / "new" / "s.sqlite")
    assert session.info.complete
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["s.sqlite"]


def test_what_is_converted_is_said_before_and_done_once(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    finish(start("run", recipe(), "-o", "first.sqlite"))
    code, out, err = finish(start("run", recipe(), "--quiet"))
    assert code == 0 and "converting" not in err
    assert out.startswith("tiny on ")
    (output,) = tmp_path.glob("tiny-*Z.sqlite")
    assert err == f"session: {output.name}\n"


def test_several_draft_lengths_find_the_best(start: Start, recipe: Edit, tmp_path: Path) -> None:
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite", "-k", "1-3", "--quiet"))
    assert code == 0, err
    assert "Draft lengths: measured" in out
    assert re.search(r"t\+d: (best at|no length pays, the best is) K = [123]; ", out)
    code, out, err = finish(start("report", "s.sqlite", "--json"))
    (sweep,) = json.loads(out)["draft_lengths"]
    assert [one["draft_tokens"] for one in sweep["lengths"]] == [1, 2, 3]
    assert sweep["best_draft_tokens"] in (1, 2, 3)
    code, out, err = finish(start("run", recipe(), "-k", "1,65"))
    assert code == 2 and "65 is not in the range 0<=x<=64" in err


def test_options_change_the_recipe_and_are_in_the_session(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    options = ["-k", "3", "-n", "5", "-r", "2", "--threads", "1", "--prompt", "one two"]
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", *options))
    assert code == 0, err
    session = read_session(tmp_path / "s.sqlite")
    assert {leg.variant for leg in session.legs if leg.kind == "decode"} == {"t", "t+d k=3"}
    assert max(leg.repeat for leg in session.legs) == 2
    assert {request.new_tokens for request in session.requests} == {5}
    assert session.info.models["t"].threads == 1  # the draft keeps its own
    assert session.info.models["d"].threads == min(2, usable_cores())
    assert session.info.recipe["prompts"] == [{"kind": "given", "text": "one two"}]


def test_how_to_draft_is_an_option(start: Start, recipe: Edit, tmp_path: Path) -> None:
    options = ["-k", "6", "--adaptive", "--draft-context", "40", "--draft-confidence", "0.1"]
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite", "--json", *options))
    assert code == 0, err
    assert "changes nothing" not in err
    assert [leg["name"] for leg in json.loads(out)["legs"]] == ["t", "t+d k=0-6"]
    session = read_session(tmp_path / "s.sqlite")
    drafter = session.info.recipe["drafters"]["d"]
    assert (drafter["context_tokens"], drafter["least_confidence"]) == (40, 0.1)
    assert session.info.models["d"].capacity_tokens == 40
    plain = ["--variant", "t", "--adaptive", "--force", "--prefill-tokens", "3"]
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", *plain))
    assert code == 0 and "no variant drafts; what --adaptive says changes nothing" in err
    passes = [p for p in read_session(tmp_path / "s.sqlite").passes if p.phase == "prefill"]
    assert max(p.tokens for p in passes) == 3


def test_r30_draft_length_0_leaves_the_drafts_out_and_says_so(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", "-k", "0"))
    assert code == 0 and "plain decoding only" in err
    assert list(read_session(tmp_path / "s.sqlite").info.models) == ["t"]


def test_sampling_options_are_in_the_session_and_the_report(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    options = ["--temperature", "0.9", "--top-k", "50", "--top-p", "0.9", "--min-p", "0.02"]
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite", "--seed", "11", *options))
    assert code == 0, err
    assert "answers sampled: not comparable token for token" in " ".join(out.split())
    stored = read_session(tmp_path / "s.sqlite").info.recipe
    assert stored["sampling"] == {"temperature": 0.9, "top_k": 50, "top_p": 0.9, "min_p": 0.02}
    assert stored["seed"] == 11
    code, out, err = finish(start("report", "s.sqlite", "-o", "report"))
    assert code == 0, err
    document = (tmp_path / "report" / "report.md").read_text()
    assert "temperature 0.9, top-k 50, top-p 0.9, min-p 0.02" in document
    assert "Answers are sampled: not comparable token for token." in document


def test_cuts_without_a_temperature_are_said_to_change_nothing(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", "--top-k", "5"))
    assert code == 0 and "temperature 0: greedy" in err


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("-k", "-1", "no number from 0 on"),
        ("-k", "1000", "0<=x<=64"),
        ("--draft-context", "0", "1<=x<=1000000"),
        ("--draft-confidence", "nan", "0<=x<=1"),
        ("--prefill-tokens", "0", "1<=x<=1000000"),
        ("-n", "1000001", "0<=x<=1000000"),
        ("-n", "-1", "no number from 0 on"),
        ("-p", "2000000", "0<=x<=1000000"),
        ("-d", "8-2", "a range without an end"),
        ("-r", "0", "1<=x<=1000"),
        ("--threads", "0", "1<=x<=1024"),
        ("--temperature", "-0.5", "0<=x<=100"),
        ("--temperature", "1e9", "0<=x<=100"),
        ("--temperature", "nan", "0<=x<=100"),
        ("--top-k", "-1", "0<=x<=1000000"),
        ("--top-p", "0", "0<x<=1"),
        ("--top-p", "nan", "0<x<=1"),
        ("--min-p", "1", "0<=x<1"),
        ("--seed", "-1", "0<=x<=4294967295"),
    ],
)
def test_r30_numbers_out_of_range_are_answered_with_the_range(
    start: Start, recipe: Edit, option: str, value: str, allowed: str
) -> None:
    code, _, err = finish(start("run", recipe(), option, value))
    assert code == 2 and allowed in err


def test_a_source_that_does_not_exist_is_answered_with_those_that_do(
    start: Start, recipe: Edit
) -> None:
    code, out, err = finish(start("run", recipe(), "--source", "sysfss"))
    assert code == 2 and out == ""
    assert "'sysfs', 'tegrastats', 'jtop', 'host'" in err


def refused(outcome: tuple[int, str, str], code: int, says: str, tmp_path: Path) -> None:
    """One line on stderr, nothing on stdout, nothing left behind."""
    assert outcome[0] == code, outcome
    assert outcome[1] == ""
    errors = [line for line in outcome[2].splitlines() if not line.startswith(("conv", "wrote"))]
    assert len(errors) == 1 and errors[0].startswith("Error: ") and says in errors[0], outcome[2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"target": "smollm2-135"}, "did you mean 'smollm2-135m'"),
        ({"target": "nowhere.gguf"}, "nowhere.gguf"),
        ({"draft": "models/gone"}, "models/gone"),
    ],
)
def test_a_missing_model_is_a_matter_of_usage(
    start: Start, recipe: Edit, tmp_path: Path, values: dict[str, Any], says: str
) -> None:
    refused(finish(start("run", recipe(**values))), 2, says, tmp_path)


def test_missing_head_rows_are_told_before_anything_is_converted(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    path = recipe(draft='draft.gguf"\nhead_rows = "gone.npy')
    code, _, err = finish(start("run", path))
    assert code == 2 and len(err.splitlines()) == 1 and "gone.npy: no such file" in err
    assert list(tmp_path.iterdir()) == []


def test_a_missing_recipe_is_answered_with_the_nearest(start: Start, tmp_path: Path) -> None:
    refused(finish(start("run", "smollm2-135")), 2, "did you mean 'smollm2-135m'?", tmp_path)
    refused(finish(start("run", "./none.toml")), 2, "none.toml", tmp_path)


@pytest.mark.parametrize("damage", ["truncated", "web page", "wrong magic"])
def test_a_corrupt_gguf_is_told(
    start: Start, recipe: Edit, work: Path, tmp_path: Path, damage: str
) -> None:
    whole = (work / "target.gguf").read_bytes()
    content = {
        "truncated": whole[: len(whole) // 2],
        "web page": b"<!DOCTYPE html><html><body>Not found</body></html>",
        "wrong magic": b"FUGG" + whole[4:],
    }[damage]
    (work / "bad.gguf").write_bytes(content)
    refused(finish(start("run", recipe(target="bad.gguf"))), 1, "bad.gguf", tmp_path)


def test_a_draft_with_another_vocabulary_is_told(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    # 290 tokens instead of 300: the merges that fit end at id 289
    outcome = finish(start("run", recipe(draft="other.gguf")))
    refused(outcome, 1, "token 290 is absent", tmp_path)


def test_p08_an_output_that_cannot_be_written_is_told_before(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    outcome = finish(start("run", recipe(), "-o", "/proc/s.sqlite"))
    refused(outcome, 3, "/proc/s.sqlite: cannot be written", tmp_path)


def test_p09_an_existing_output_is_kept(start: Start, recipe: Edit, tmp_path: Path) -> None:
    (tmp_path / "s.sqlite").write_bytes(b"mine")
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite"))
    assert code == 2 and out == "" and "exists already" in err and len(err.splitlines()) == 1
    assert (tmp_path / "s.sqlite").read_bytes() == b"mine"


# Prompts, chats, streams


def requests(path: Path) -> list[tuple[int, str | None]]:
    """(tokens of the prompt, what was answered) of every measured request of the target alone."""
    session = read_session(path)
    legs = {leg.id for leg in session.legs if leg.variant == "t" and not leg.warmup}
    return [(r.prompt_tokens, r.text) for r in session.requests if r.leg_id in legs]


def test_prompts_come_from_texts_files_and_ids(start: Start, recipe: Edit, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("7777777\n")  # digits are tokens of their own
    options = ["--prompt", "777", "--prompt-file", "my.txt", "--prompt-ids", "0"]
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", *options))
    assert code == 0, err
    assert [tokens for tokens, _ in requests(tmp_path / "s.sqlite")] == [3, 7, 1]
    stored = read_session(tmp_path / "s.sqlite").info.recipe["prompts"]
    assert stored == [
        {"kind": "given", "text": "777"},
        {"kind": "given", "text": "7777777"},
        {"kind": "given", "ids": [0]},
    ]


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (None, 2, "my.txt: no such file"),
        (b"\x7fELF\x02\x01\x01\x00\xff", 1, "my.txt: not a text file in UTF-8 (byte 8)"),
        (b"7" * 300, 2, "has 300 tokens and leaves no room in a context of 250"),
        (bytes(2 << 20), 1, "my.txt: larger than 1 MiB"),
    ],
)
def test_a_prompt_file_that_will_not_do_is_told(
    start: Start, recipe: Edit, tmp_path: Path, content: bytes | None, code: int, says: str
) -> None:
    work = tmp_path / "w"
    work.mkdir()
    path = work / "my.txt"
    if content is not None:
        path.write_bytes(content)
    outcome = finish(start("run", recipe(), "-o", work / "s.sqlite", "--prompt-file", path))
    path.unlink(missing_ok=True)
    refused((outcome[0], outcome[1], outcome[2]), code, says, work)


@pytest.mark.parametrize(
    ("option", "value", "code", "says"),
    [
        ("--prompt-ids", "1,x", 2, "'x'; write whole numbers from 0 on"),
        ("--prompt-ids", "300", 2, "from 0 to 299"),
        ("--prompt", b"\xff", 2, "not text in UTF-8"),
        ("-p", "0", 2, "no test is left"),
        ("-p", "512", 2, "pp512 needs a context of 512 tokens and t has 255"),
    ],
)
def test_what_cannot_be_asked_is_told(
    start: Start, recipe: Edit, tmp_path: Path, option: str, value: Any, code: int, says: str
) -> None:
    given = os.fsdecode(value) if isinstance(value, bytes) else value
    refused(finish(start("run", recipe(), option, given)), code, says, tmp_path)


def test_weights_that_no_container_holds_are_rounded_on_request_and_the_error_is_shown(
    start: Start, work: Path, recipe: Edit, tmp_path: Path
) -> None:
    storages = {"ffn_down": "IQ4_NL"}
    write_decoder_gguf(work / "iq4.gguf", "llama", storages=storages, storage="Q8_0", context=256)
    path = recipe(target="iq4.gguf")
    text = path.read_text().replace('weights = "fp32"', "").replace('drafter = "d"', "")
    text = text.replace("draft_tokens = 2", "").replace('[[variants]]\ntarget = "t"\n\n\n', "")
    path.write_text(text)
    refused(finish(start("run", path)), 1, "(in a recipe: ", tmp_path)
    path.write_text(text.replace("threads = 1", "threads = 1\nrequantise = true"))
    for _ in range(2):  # converted now, then found in the cache
        code, out, err = finish(start("run", path, "-o", "s.sqlite", "--force", "--json"))
        assert code == 0, err
        document = json.loads(out)
        rounded = document["models"]["t"]["requantised"]
        assert rounded["storages"] == ["IQ4_NL"] and rounded["weights"] == 2 * 64 * 128
        assert 0 < rounded["relative_rms_error"] < 0.01
        told = f"to 8 bits: relative error {rounded['relative_rms_error']:.2%}"
        assert any(told in warning for warning in document["warnings"])
    assert json.loads(out)["session"]["recipe"]["targets"]["t"]["requantise"] is True


def test_r24_an_empty_prompt_begins_with_the_first_token(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", "--prompt", ""))
    assert code == 0, err
    assert [tokens for tokens, _ in requests(tmp_path / "s.sqlite")] == [1]


def test_r31_answers_stream_to_stderr_and_are_in_the_session(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite", "--stream", "--json"))
    assert code == 0, err
    assert json.loads(out)["schema"] == "edgeprof.summary/1"
    ((_, text),) = requests(tmp_path / "s.sqlite")
    assert text is not None
    assert f"--- t r1 p1\n{printable(text)}\n" in err and "warm-up" not in err


def test_r40_an_answer_of_no_tokens_is_a_valid_run(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite", "-n", "0", "--json"))
    assert code == 0, err
    assert {leg["tokens_per_s"] for leg in json.loads(out)["legs"]} == {None}


def test_a_chat_without_a_template_is_told(start: Start, recipe: Edit, tmp_path: Path) -> None:
    finish(start("run", recipe(), "-o", "s.sqlite"))
    (tmp_path / "s.sqlite").unlink()
    refused(finish(start("run", recipe(), "--chat")), 1, "no chat template in it", tmp_path)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{{ ''.__class__.__mro__ }}", "cannot be run: "),
        ("{{ range(10 ** 12) | list }}", "cannot be run: Range too big"),
    ],
)
def test_a_hostile_template_of_a_model_is_told_in_one_line(
    start: Start, work: Path, recipe: Edit, tmp_path: Path, template: str, says: str
) -> None:
    convert = ("convert", work / "target.gguf", "-o", work / "m", "--weights", "fp32", "--force")
    code, _, err = finish(start(*convert))
    assert code == 0, err
    (work / "m" / "chat_template.jinja").write_text(template)
    outcome = finish(start("run", recipe(target="m"), "--chat"))
    refused(outcome, 1, f"chat_template.jinja: the chat template {says}", tmp_path)


# Synthetic tests


def test_synthetic_tests_bear_the_names_of_llama_bench(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    options = ["-p", "8-16*2", "-n", "4", "-d", "0,32", "-r", "2", "--seed", "5", "--json"]
    code, out, err = finish(start("run", recipe(), "-o", "s.sqlite", *options))
    assert code == 0, err
    names = ["pp8", "pp16", "tg4", "pp8@d32", "pp16@d32", "tg4@d32"]
    legs = json.loads(out)["legs"]
    assert [(leg["name"], leg["kind"], leg["variant"]) for leg in legs] == [
        (name, "test", "t") for name in names
    ]
    assert all(len(leg["tokens_per_s_by_repeat"]) == 2 for leg in legs)
    assert all(leg["memory"]["peak_used_bytes"]["value"] > 0 for leg in legs)
    session = read_session(tmp_path / "s.sqlite")
    assert list(session.info.models) == ["t"]  # no draft is loaded
    measured = [leg.name for leg in session.legs if leg.kind == "decode" and not leg.warmup]
    assert sorted(measured) == sorted(names * 2)
    code, out, err = finish(start("report", "s.sqlite"))
    assert code == 0 and "\ntg4@d32 " in out


def test_several_lengths_are_tests_and_one_is_that_of_answers(
    start: Start, recipe: Edit, tmp_path: Path
) -> None:
    code, _, err = finish(start("run", recipe(), "-o", "s.sqlite", "-n", "4,6"))
    assert code == 0, err
    names = [leg.name for leg in read_session(tmp_path / "s.sqlite").legs]
    assert {"tg4", "tg6"} < set(names)


def test_tests_can_stand_in_a_recipe(start: Start, recipe: Edit, tmp_path: Path) -> None:
    path = recipe()
    path.write_text(path.read_text() + "\n[[tests]]\nnew_tokens = 4\ndepth_tokens = 16\n")
    code, out, err = finish(start("run", path, "-o", "s.sqlite"))
    assert code == 0, err
    assert "\ntg4@d16  t " in out and "\nt+d k=2 " in out


@pytest.fixture
def running(start: Start, recipe: Edit, tmp_path: Path) -> "subprocess.Popen[str]":
    """A run that would take minutes, past its warm-up."""
    path = recipe(new_tokens=200, repeats=1000)
    process = start("run", path, "-o", "s.sqlite")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("warm-up: "):
            return process
    raise AssertionError("the run ended early")


def decoder_of(process: "subprocess.Popen[str]") -> psutil.Process:
    children = psutil.Process(process.pid).children()
    return next(child for child in children if "edgeprof.profiling.decoder" in child.cmdline())


def check_nothing_is_missing(session: Session, killed_ns: int) -> None:
    """Every pass is there but those of the last half second, those of the warm-up included."""
    assert not session.info.complete
    assert [entry.id for entry in session.passes] == list(range(1, len(session.passes) + 1))
    assert killed_ns - max(entry.t1_ns for entry in session.passes) < 0.5e9
    warm = {leg.id for leg in session.legs if leg.warmup}
    assert len(warm) == 2 and warm <= {entry.leg_id for entry in session.passes}


def test_kill_of_the_parent_leaves_a_readable_session_and_no_children(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    children = psutil.Process(running.pid).children()
    assert len(children) == 2
    time.sleep(0.7)
    killed_ns = time.monotonic_ns()
    running.kill()
    running.communicate()
    check_nothing_is_missing(read_session(tmp_path / "s.sqlite"), killed_ns)
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []


def test_kill_of_the_decoder_ends_the_run_with_a_partial_result(
    running: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    time.sleep(0.7)
    killed_ns = time.monotonic_ns()
    decoder_of(running).kill()
    code, out, err = finish(running)
    assert code == 4 and "Error: the run ended early: the decoder was killed by SIGKILL" in err
    assert "Traceback" not in err and "the decoder was killed by SIGKILL" in out
    session = read_session(tmp_path / "s.sqlite")
    check_nothing_is_missing(session, killed_ns)
    assert not (tmp_path / "s.sqlite-wal").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_leg_and_keeps_the_file(
    running: "subprocess.Popen[str]", tmp_path: Path, number: int
) -> None:
    # a terminal sends Ctrl-C to the whole group, timeout(1) sends SIGTERM to the process
    asked_ns = time.monotonic_ns()
    (os.killpg if number == signal.SIGINT else os.kill)(running.pid, number)
    code, _, err = finish(running)
    assert code == 130 and "what was measured is kept" in err and "Traceback" not in err
    session = read_session(tmp_path / "s.sqlite")
    assert not session.info.complete and session.info.ended_reason == "interrupted"
    assert session.legs[-1].status in ("interrupted", "complete")
    assert {event.kind for event in session.events} <= {"absent", "load", "neighbours"}
    last = session.passes[-1]
    assert asked_ns - last.t1_ns < 0.2e9
    assert [file.name for file in tmp_path.iterdir()] == ["s.sqlite"]
