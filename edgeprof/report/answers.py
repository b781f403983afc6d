"""The generated text of a session, token by token, as HTML: who gave each token shows.

Text from models is hostile: it is escaped, and what would steer the reader's eye is named instead.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from edgeprof.report.printable import as_html
from edgeprof.session.columns import Tokens
from edgeprof.session.records import Leg, Origin, Request, Session

ORIGINS: dict[Origin, str] = {
    "accepted": "drafted, and accepted",
    "corrected": "the target's own, in place of a drafted token that was rejected",
    "bonus": "the target's own, after all drafted tokens were accepted",
    "plain": "decoded without a draft",
}
_MOST_TOKENS = 10_000  # on a page
_LONGEST_TEXT = 100_000  # of an answer whose tokens are not told apart


class Answer(NamedTuple):
    """A request with its leg and the tokens it gave, in order."""

    leg: Leg
    request: Request
    tokens: Tokens


def answers_html(session: Session) -> str:
    """The first measured answer of every variant to every prompt, as many as fit; empty where
    nothing was answered."""
    every = _answers(session)
    if not every:
        return ""
    shown = list(_first_of_each(every))
    items = "".join(
        f'<li><span class="token {origin}">{origin}</span>: {escape(meaning)}</li>'
        for origin, meaning in ORIGINS.items()
    )
    blocks = [_block(answer, is_open=index == 0) for index, answer in enumerate(shown)]
    if left := len(every) - len(shown):
        blocks.append(f"<p>Answers that are not shown, and kept in the session: {left}.</p>")
    items += "<li>·: a token without text of its own</li>"
    return "\n".join([f'<ul class="legend">{items}</ul>', *blocks])


def pieces(answer: Answer) -> list[str] | None:
    """What each token added to the text; None where the session does not tell."""
    text, ends = answer.request.text, answer.request.text_ends
    if text is None or ends is None or len(ends) != len(answer.tokens):
        return None
    return [text[start:end] for start, end in pairwise([0, *ends])]


def _answers(session: Session) -> list[Answer]:
    """All measured ones that gave a token, in the order of their legs."""
    legs = {leg.id: leg for leg in session.legs if not leg.warmup}
    answers = (
        Answer(legs[one.leg_id], one, session.tokens.of_request(one.id))
        for one in session.requests
        if one.leg_id in legs
    )
    return [answer for answer in answers if answer.tokens]


def _first_of_each(answers: Sequence[Answer]) -> Iterator[Answer]:
    """Variant by variant, one to each prompt, those for which the page has room."""
    first: dict[tuple[str, str], Answer] = {}
    for answer in answers:
        first.setdefault((answer.leg.variant, answer.request.prompt_sha256), answer)
    room = _MOST_TOKENS
    variants = list(dict.fromkeys(variant for variant, _ in first))
    for answer in sorted(first.values(), key=lambda one: variants.index(one.leg.variant)):
        if len(answer.tokens) <= room:
            room -= len(answer.tokens)
            yield answer


def _block(answer: Answer, *, is_open: bool) -> str:
    counts = Counter(token.origin for token in answer.tokens)
    told = ", ".join(f"{counts[origin]} {origin}" for origin in ORIGINS if counts[origin])
    heading = f"{answer.leg.variant}, {answer.request.prompt_kind}: {told}"
    return (
        f"<details{' open' if is_open else ''}><summary>{as_html(heading)}</summary>\n"
        f"{_text(answer)}\n</details>"
    )


def _text(answer: Answer) -> str:
    """Token by token where the session tells their texts; else what it does tell, and why not."""
    texts = pieces(answer)
    if texts is not None:
        spans = (
            f'<span class="token {token.origin}">{as_html(text) or "·"}</span>'
            for token, text in zip(answer.tokens, texts, strict=True)
        )
        return f'<p class="answer" dir="auto">{"".join(spans)}</p>'
    if answer.request.text is not None:
        note = "The session does not tell where in the text each token ends."
        text = as_html(answer.request.text[:_LONGEST_TEXT])
        return f'<p class="answer" dir="auto">{text}</p><p class="note">{note}</p>'
    spans = (
        f'<span class="token {token.origin}">{token.token_id}</span>' for token in answer.tokens
    )
    why = (
        "The answer was cut short, and its text was not written down: these are token ids."
        if answer.request.t1_ns is None
        else "The model has no tokenizer, so there is no text: these are token ids."
    )
    return f'<p class="answer">{" ".join(spans)}</p><p class="note">{why}</p>'
