"""Generated text as HTML, token by token; none of it can steer the page."""

from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.report.answers import answers_html
from edgeprof.report.printable import as_html
from edgeprof.session.columns import Tokens
from edgeprof.session.records import Session

ORIGINS = ("plain", "accepted", "corrected", "bonus")


def session_with(maker: Any, text: str | None, ends: list[int] | None, **request: Any) -> Session:
    """One answer of four tokens, one of each origin."""
    maker.decode_leg("fp32+draft k=2", answers={"chat": [7, 8, 9, 10]})
    session: Session = maker.session()
    return replace(
        session,
        requests=[replace(one, text=text, text_ends=ends, **request) for one in session.requests],
        tokens=Tokens.of(
            [replace(one, origin=new) for one, new in zip(session.tokens, ORIGINS, strict=True)]
        ),
    )


def test_every_token_shows_its_origin(maker: Any) -> None:
    page = answers_html(session_with(maker, "One two\nthree!", [3, 7, 13, 14]))
    assert (
        '<p class="answer" dir="auto"><span class="token plain">One</span>'
        '<span class="token accepted"> two</span><span class="token corrected">\nthree</span>'
        '<span class="token bonus">!</span></p>'
    ) in page
    assert "fp32+draft k=2, chat: 1 accepted, 1 corrected, 1 bonus, 1 plain" in page


def test_the_legend_says_in_words_what_each_look_means(maker: Any) -> None:
    legend, _, _ = answers_html(session_with(maker, "abcd", [1, 2, 3, 4])).partition("</ul>")
    for origin in ORIGINS:
        assert f'<span class="token {origin}">{origin}</span>: ' in legend


def test_a_token_without_text_of_its_own_shows_as_a_dot(maker: Any) -> None:
    page = answers_html(session_with(maker, "ab", [1, 1, 1, 2]))
    assert '<span class="token accepted">·</span><span class="token corrected">·</span>' in page


def test_r31_an_older_session_shows_its_text_and_says_what_it_does_not_tell(maker: Any) -> None:
    page = answers_html(session_with(maker, "One two", None))
    assert '<p class="answer" dir="auto">One two</p>' in page
    assert "does not tell where in the text each token ends" in page


@pytest.mark.parametrize(
    ("t1_ns", "why"), [(5, "The model has no tokenizer"), (None, "The answer was cut short")]
)
def test_tokens_without_text_are_ids_and_the_reason(
    maker: Any, t1_ns: int | None, why: str
) -> None:
    page = answers_html(session_with(maker, None, None, t1_ns=t1_ns))
    assert '<span class="token plain">7</span> <span class="token accepted">8</span>' in page
    assert why in page


def test_ends_that_do_not_fit_the_tokens_are_not_believed(maker: Any) -> None:
    page = answers_html(session_with(maker, "One two", [3]))
    assert '<p class="answer" dir="auto">One two</p>' in page


def test_text_from_a_model_is_text(maker: Any) -> None:
    bad = "</p><script>alert(1)</script>\x00\u202eevil\u2066\u200b&lt;"
    page = answers_html(session_with(maker, bad, [1, 2, 3, len(bad)]))
    assert "<script" not in page and "\x00" not in page
    assert not {"\u202e", "\u2066", "\u200b"} & set(page)
    assert "&lt;/p&gt;" not in page  # cut within the tag, each part escaped on its own
    assert '<span class="token plain">&lt;</span><span class="token accepted">/</span>' in page
    assert "{U+202E}evil{U+2066}{U+200B}&amp;lt;" in page


def test_what_joins_letters_stays() -> None:
    family = "\N{MAN}\N{ZERO WIDTH JOINER}\N{WOMAN}"
    assert as_html(f"{family} \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645") == (
        f"{family} \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"
    )


def test_one_answer_of_every_variant_to_every_prompt(made_session: Session) -> None:
    page = answers_html(made_session)
    assert page.count("<details") == 10  # five variants, two prompts
    assert page.count("<details open>") == 1
    assert "kept in the session: 10." in page  # the second repeat; warm-up is neither


def test_a_page_holds_only_so_many_tokens(maker: Any) -> None:
    for variant in ("fp32", "fp32+draft k=2", "int4"):
        maker.decode_leg(variant, answers={"chat": list(range(4000))})
    page = answers_html(maker.session())
    assert page.count("<details") == 2 and "kept in the session: 1." in page


def test_an_answer_too_long_for_a_page_is_counted(maker: Any) -> None:
    maker.decode_leg("fp32", answers={"chat": list(range(10_001))})
    page = answers_html(maker.session())
    assert "<details" not in page and "kept in the session: 1." in page


def test_nothing_answered_is_nothing_shown(maker: Any) -> None:
    maker.held_leg("verify", "fp32", {1: (1, 1)})
    assert answers_html(maker.session()) == ""
