"""The generated text of a session, token by token, as HTML: who gave each token shows.

Text from models is hostile: it is escaped, and what would steer the reader's eye is named instead.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from typing import NamedTuple

from edgeprof.report.printable import printable
from edgeprof.session.records import Leg, Request, Session, Token

ORIGINS = {
    "accepted": "drafted, and accepted",
    "corrected": "the target's own, in place of a drafted token that was rejected",
    "bonus": "the target's own, after all drafted tokens were accepted",
    "plain": "decoded without a draft",
}
_MOST_TOKENS = 10_000  # on a page
_LONGEST_TEXT = 100_000  # of an answer whose tokens are not told apart
# Characters that turn the direction of writing, or that nobody sees.
_STEERING = re.compile("[\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


class Answer(NamedTuple):
    """A request with its leg and the tokens it gave, in order."""

    leg: Leg
    request: Request
    tokens: list[Token]


def answers_html(session: Session) -> str:
    """The first measured answer of every variant to every prompt, as many as fit; empty where
    nothing was answered."""
    every = _answers(session)
    shown = list(_first_of_each(every))
    if not shown:
        return ""
    items = "".join(
        f'<li><span class="token {origin}">{origin}</span> {escape(meaning)}</li>'
        for origin, meaning in ORIGINS.items()
    )
    blocks = [_block(answer, is_open=index == 0) for index, answer in enumerate(shown)]
    if left := len(every) - len(shown):
        blocks.append(f"<p>{left} more answers are in the session.</p>")
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
    tokens: dict[int, list[Token]] = defaultdict(list)
    for token in session.tokens:
        tokens[token.request_id].append(token)
    return [
        Answer(legs[one.leg_id], one, sorted(tokens[one.id], key=lambda token: token.position))
        for one in session.requests
        if one.leg_id in legs and one.id in tokens
    ]


def _first_of_each(answers: Sequence[Answer]) -> Iterator[Answer]:
    """Variant by variant, one to each prompt, until the page is full."""
    first: dict[tuple[str, str], Answer] = {}
    for answer in answers:
        first.setdefault((answer.leg.variant, answer.request.prompt_sha256), answer)
    room = _MOST_TOKENS
    variants = list(dict.fromkeys(variant for variant, _ in first))
    for answer in sorted(first.values(), key=lambda one: variants.index(one.leg.variant)):
        room -= len(answer.tokens)
        if room < 0:
            return
        yield answer


def _block(answer: Answer, *, is_open: bool) -> str:
    counts = Counter(token.origin for token in answer.tokens)
    told = ", ".join(f"{counts[origin]} {origin}" for origin in ORIGINS if counts[origin])
    heading = f"{answer.leg.variant}, {answer.request.prompt_kind}: {told}"
    return (
        f"<details{' open' if is_open else ''}><summary>{safe(heading)}</summary>\n"
        f"{_text(answer)}\n</details>"
    )


def _text(answer: Answer) -> str:
    """Token by token where the session tells their texts; else what it does tell, and why not."""
    texts = pieces(answer)
    if texts is not None:
        spans = (
            f'<span class="token {token.origin}">{safe(text) or "·"}</span>'
            for token, text in zip(answer.tokens, texts, strict=True)
        )
        return f'<p class="answer" dir="auto">{"".join(spans)}</p>'
    if answer.request.text is not None:
        note = "The session does not tell where in the text each token ends."
        text = safe(answer.request.text[:_LONGEST_TEXT])
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


def safe(text: str) -> str:
    """Text as HTML: nothing in it is a tag, and what steers the eye shows as its code point."""
    named = _STEERING.sub(lambda found: f"[U+{ord(found[0]):04X}]", printable(text))
    return escape(named)
