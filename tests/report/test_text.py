"""The report on a terminal, from the session made by hand."""

from typing import Any

import msgspec
import pytest

from edgeprof.analysis.comparison import NOT_COMPARABLE, Output
from edgeprof.analysis.summary import Summary, summarise
from edgeprof.report.headline import contrast, headlines
from edgeprof.report.markdown import markdown
from edgeprof.report.text import session_text
from edgeprof.session.records import Event, Session

WIDE = 1000


@pytest.fixture(scope="module")
def summary(made_session: Session) -> Summary:
    return summarise(made_session)


def row(text: str, start: str) -> list[str]:
    """The cells of the first line that begins so; cells are two blanks apart."""
    line = next(line for line in text.splitlines() if line.startswith(start))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_headlines_say_what_pays_and_what_does_not(summary: Summary) -> None:
    fp32, int4 = headlines(summary)
    # 160 ms against 104 with the lookup, against 120 with the draft
    assert fp32.answer == (
        "speculation pays: 1.54x [1.54, 1.54] with ngram k=3, 1.33x [1.33, 1.33] with draft k=2"
    )
    assert int4.answer == "speculation does not pay: at best 0.77x [0.77, 0.77] with draft k=2"
    assert "2.00 tokens for the time of 2.60 plain ones" in int4.reason


def test_headlines_say_whether_the_output_is_the_references(summary: Summary) -> None:
    fp32, int4 = headlines(summary)
    # two drafters, two prompts, two repeats
    assert fp32.output == (
        "the output equals its reference, plain decoding, token for token, in all 8 answers"
    )
    assert int4.output == (
        "the output differs from its reference, plain decoding, with draft k=2 in 2 of 4 answers, "
        "first at position 5"
    )
    assert fp32.output in session_text(summary, WIDE)
    opening = markdown(summary).split("## ", 1)[0]
    assert "** The output equals its reference, plain decoding, token for token" in opening


def with_outputs(summary: Summary, **outputs: Output) -> str:
    """What the headline of fp32 says of its output, with these in place of what was compared."""
    comparisons = [
        msgspec.structs.replace(one, output=outputs[one.drafter])
        for one in summary.comparisons
        if one.target == "fp32"
    ]
    (headline,) = headlines(msgspec.structs.replace(summary, comparisons=comparisons))
    return headline.output


def test_outputs_of_several_kinds_are_told_apart(summary: Summary) -> None:
    equal = summary.comparisons[0].output
    assert equal.identical
    none = msgspec.structs.replace(equal, identical=None, answers_compared=0, answers_identical=0)
    differing = msgspec.structs.replace(
        equal, identical=False, answers_identical=3, first_divergence=2
    )
    assert with_outputs(summary, draft=differing, ngram=equal) == (
        "the output differs from its reference, plain decoding, with draft k=2 in 1 of 4 answers, "
        "first at position 2; it is the reference's, token for token, with ngram k=3 in all 4 "
        "answers"
    )
    assert with_outputs(summary, draft=none, ngram=equal) == (
        "the output equals its reference, plain decoding, token for token, with ngram k=3 in all 4 "
        "answers; it was not compared with draft k=2, as no prompt was answered both ways"
    )
    assert with_outputs(summary, draft=none, ngram=none) == (
        "the output was not compared, as no prompt was answered both ways"
    )
    sampled = msgspec.structs.replace(none, not_comparable=NOT_COMPARABLE)
    assert with_outputs(summary, draft=sampled, ngram=sampled) == (
        "the output is sampled: not comparable token for token"
    )


def test_contrast_puts_v_of_both_targets_side_by_side(summary: Summary) -> None:
    sentence = contrast(summary)
    assert sentence is not None
    assert "checking 3 tokens in one pass costs 1.00 of one token with fp32 and 1.80 with int4" in (
        sentence
    )


def test_headline_comes_before_the_tables(summary: Summary) -> None:
    lines = session_text(summary, WIDE).splitlines()
    assert lines[0] == "tiny on Paper board, 2026-01-02T03:04:05Z, edgeprof 0.1.0"
    assert lines[2].startswith("fp32: speculation pays")


def test_variants(summary: Summary) -> None:
    text = session_text(summary, WIDE)
    # repeats of 66.7 and 53.3: mean 60, sd 13.33 / sqrt(2) = 9.4
    assert row(text, "fp32+draft k=2") == [
        "fp32+draft k=2", "60.0 ± 9.4", "2", "1.33x [1.33, 1.33]", "1.54x", "4 of 4 equal",
    ]  # fmt: skip
    assert row(text, "int4+draft k=2")[-1] == "2 of 4 equal"
    assert row(text, "fp32  ") == ["fp32", "45.0 ± 7.1", "2", "-", "-", "reference"]


def test_sampled_answers_are_not_compared_and_the_table_says_why(made_session: Session) -> None:
    recipe = {**made_session.info.recipe, "sampling": {"temperature": 0.8}}
    info = msgspec.structs.replace(made_session.info, recipe=recipe)
    text = session_text(summarise(msgspec.structs.replace(made_session, info=info)), WIDE)
    assert "repeats; answers sampled: not comparable token for token\n" in text
    assert row(text, "int4+draft k=2")[-1] == "not compared"
    assert "differ from" not in text  # the made session notes a divergence there


def test_verify_cost_and_ceilings(summary: Summary) -> None:
    text = session_text(summary, WIDE)
    after = text[text.index("v(n): the time") :]
    assert row(after, "int4  ") == ["int4", "1.00", "1.80", "-", "draft 0.30"]
    assert row(text, "fp32 MatMul") == ["fp32 MatMul", "2", "30.0 GB/s", "200 GFLOP/s"]


def test_limits_and_warnings(summary: Summary) -> None:
    text = session_text(summary, WIDE)
    assert "int4+draft k=2 (does not pay)\n  compute-bound verification: " in text
    assert "Warnings\n- int4: the same token gets logits up to 0.012 apart" in text


def test_p14_one_repeat_shows_no_spread(maker: Any) -> None:
    maker.decode_leg("fp32")
    maker.decode_leg("fp32+draft k=2")
    text = session_text(summarise(maker.session()), WIDE)
    assert row(text, "fp32  ")[1:3] == ["50.0", "1"]
    assert "±" not in text
    assert "n=1" in text


def test_r40_no_tokens_is_not_available(maker: Any) -> None:
    maker.decode_leg("fp32", answers={"chat": []}, rounds=[])
    text = session_text(summarise(maker.session()), WIDE)
    assert row(text, "fp32  ")[1] == "n/a"


def test_incomplete_session_says_so_first(made_session: Session) -> None:
    info = msgspec.structs.replace(made_session.info, complete=False, ended_reason="killed")
    text = session_text(summarise(msgspec.structs.replace(made_session, info=info)), WIDE)
    assert text.startswith("Incomplete session: killed.")


def test_reason_not_recorded(made_session: Session) -> None:
    info = msgspec.structs.replace(made_session.info, complete=False, ended_reason=None)
    text = session_text(summarise(msgspec.structs.replace(made_session, info=info)), WIDE)
    assert text.startswith("Incomplete session: reason not recorded.")


def test_sentences_fold_and_tables_fit_a_terminal_of_80(summary: Summary) -> None:
    text = session_text(summary, 80)
    too_long = [line for line in text.splitlines() if len(line) > 80]
    assert too_long == []


@pytest.mark.parametrize("decoded", [True, False])  # a run may end before it decodes anything
def test_nothing_compared(maker: Any, decoded: bool) -> None:
    maker.held_leg("verify", "fp32", {1: (10, 10), 3: (12, 12)})
    if decoded:
        maker.decode_leg("fp32")
    text = session_text(summarise(maker.session()), WIDE)
    assert "No variant with a drafter was compared with plain decoding." in text
    assert contrast(summarise(maker.session())) is None


def test_mixed_outcomes_of_one_target(maker: Any, shape: Any) -> None:
    maker.decode_leg("fp32")
    maker.decode_leg("fp32+ngram k=3")
    # 8 rounds of 30 ms that give one token each: 240 ms against 160, 0.67x
    maker.decode_leg("fp32+draft k=2", rounds=[shape(2, 1, 0, 1, 5.0, 20.0, 0.0)] * 8)
    (fp32,) = headlines(summarise(maker.session()))
    assert fp32.answer.startswith("speculation pays: 1.54x")
    assert "; not with 0.67x" in fp32.answer


def test_samples_that_no_board_gave_are_stamped(maker: Any) -> None:
    maker.decode_leg("fp32")
    maker.signal("ram_used_bytes", "B", [(maker.now, 1e9)], quality="replayed")
    text = session_text(summarise(maker.session()), WIDE)
    assert text.startswith("Replayed samples: not read from a board in this session.")


def test_no_contrast_where_verification_costs_the_same(maker: Any, shape: Any) -> None:
    slow = [shape(2, 1, 0, 1, 5.0, 20.0, 0.0)] * 8  # 240 ms against the 80 of plain int4
    for target, rounds in (("fp32", None), ("int4", slow)):
        maker.decode_leg(target)
        maker.decode_leg(f"{target}+draft k=2", rounds=rounds)
        maker.held_leg("verify", target, {1: (10, 10), 3: (10, 10)})
    summary = summarise(maker.session())
    assert [headline.answer.split(":")[0] for headline in headlines(summary)] == [
        "speculation pays", "speculation does not pay",
    ]  # fmt: skip
    assert contrast(summary) is None


def test_names_of_a_session_do_not_steer_the_terminal(maker: Any) -> None:
    maker.decode_leg("fp32\x1b[2J", rounds=[])
    assert "fp32\ufffd[2J" in session_text(summarise(maker.session()), WIDE)


def test_synthetic_tests_are_listed_as_llama_bench_does(maker: Any) -> None:
    # 512 tokens in 500 and 400 ms: 1024 and 1280, mean 1152, deviation 256 / sqrt(2)
    for repeat, ms in ((1, 500.0), (2, 400.0)):
        attrs = {"test": "pp512", "depth_tokens": 0}
        leg_id = maker.leg("decode", "fp32", repeat=repeat, attrs=attrs)
        maker.run_pass(leg_id, "prefill", "fp32", ms, tokens=512, context_tokens=0)
        maker.end_leg()
        maker.legs[-1] = msgspec.structs.replace(maker.legs[-1], name="pp512")
    summary = summarise(maker.session())
    text = session_text(summary, WIDE)
    assert row(text, "pp512") == ["pp512", "fp32", "1152.0 ± 181.0", "2"]
    assert "Decoding:" not in text and "was compared with plain decoding" not in text
    document = markdown(summary)
    assert "## Synthetic tests" in document and "was compared" not in document


def test_memory_and_loads_are_in_the_document(maker: Any) -> None:
    maker.decode_leg("fp32")
    memory = {
        "available_before_bytes": 3 << 30,
        "used_before_bytes": 1 << 30,
        "process_growth_bytes": 1 << 29,
        "process_peak_bytes": 1 << 31,
        "swap_growth_bytes": 0,
        "major_faults": 7,
    }
    attrs = {**maker.legs[-1].attrs, "memory": memory}
    maker.legs[-1] = msgspec.structs.replace(maker.legs[-1], attrs=attrs)
    detail = {"model": "fp32", "load_s": 2.5, "cached_share": 0.0}
    maker.events.append(Event(leg_id=None, t_ns=1, kind="load", severity="info", detail=detail))
    document = markdown(summarise(maker.session()))
    cells = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in document.splitlines()
        if line.startswith("| fp32 ") or "load time" in line
    ]
    assert ["fp32", "3.00", "1.50", "0.00", "2.00", "7"] in cells
    assert ["load time", "fp32 2.50 s (cold)"] in cells
