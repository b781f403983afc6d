"""Shows whether a draft may serve a target, and what the pair costs."""

from typing import Any

from msgspec import Struct, structs

from edgeprof.analysis.memory import Fit
from edgeprof.models.pairing import Holder, Pairing
from edgeprof.models.quantisation import StorageType
from edgeprof.models.spec import ModelSpec
from edgeprof.report.paper_document import fit_document
from edgeprof.report.table import fold, table
from edgeprof.units import show, show_gib, significant

SCHEMA = "edgeprof.pair/1"


class PairAnswer(Struct, frozen=True, kw_only=True):
    """A judged pair at a depth, and its place in a board's memory where one was named."""

    target: Holder
    draft: Holder
    pairing: Pairing
    kv: StorageType
    context_tokens: int
    device: str | None = None
    fit: Fit | None = None

    @property
    def fits(self) -> bool:
        return self.fit is None or self.fit.fits

    @property
    def yes(self) -> bool:
        return self.pairing.compatible and self.fits

    @property
    def draft_cost_ratio(self) -> float:
        """Bytes of a draft step over those of a target step: c where memory is the wall."""
        ours, theirs = (
            spec.streamed_weight_bytes + spec.kv_read_bytes(self.context_tokens, self.kv)
            for spec in (self.target.spec, self.draft.spec)
        )
        return theirs / ours


def document(answer: PairAnswer) -> dict[str, Any]:
    """``edgeprof.pair/1``."""
    difference = answer.pairing.difference
    return {
        "schema": SCHEMA,
        "compatible": answer.yes,
        "reasons": _reasons(answer),
        "notes": list(answer.pairing.notes),
        "first_difference": None if difference is None else structs.asdict(difference),
        "target": _model_document(answer.target),
        "draft": _model_document(answer.draft),
        "context_tokens": answer.context_tokens,
        "draft_cost_ratio": answer.draft_cost_ratio,
        "device": answer.device,
        "fit": None if answer.fit is None else fit_document(answer.fit),
    }


def text(answer: PairAnswer, width: int) -> str:
    """Yes or no first, then why, then the figures."""
    ours, theirs = answer.target.spec, answer.draft.spec
    verdict = "may" if answer.yes else "may NOT"
    lines = [f"{'Yes' if answer.yes else 'No'}: {theirs.title} {verdict} draft for {ours.title}."]
    lines += [f"- {reason}" for reason in _reasons(answer)]
    lines += [f"note: {note}" for note in answer.pairing.notes]
    headers = ("", "target", "draft")
    rows = [
        ("stored as", ours.quantisation_title, theirs.quantisation_title),
        ("weights", show(ours.resident_weight_bytes, "B"), show(theirs.resident_weight_bytes, "B")),
        ("read a token", *(show(spec.streamed_weight_bytes, "B") for spec in (ours, theirs))),
        ("cache a token", *(show(s.kv_bytes_per_token(answer.kv), "B") for s in (ours, theirs))),
        ("embedding rows", _count(ours.vocab), _count(theirs.vocab)),
        ("tokens", _tokens(answer.target), _tokens(answer.draft)),
        ("context", _count(ours.context_tokens), _count(theirs.context_tokens)),
        ("cache rolls back", *("yes" if spec.rewinds else "no" for spec in (ours, theirs))),
    ]
    lines += ["", table(headers, rows, width=width), ""]
    lines.append(
        f"A draft step reads {significant(answer.draft_cost_ratio)} of a target step's bytes at "
        f"{answer.context_tokens} tokens of context; overheads of a small model come on top."
    )
    if answer.draft_cost_ratio >= 1:
        lines.append("Such a draft cannot make the target faster.")
    if answer.fit is not None:
        word = "fits" if answer.fit.fits else "does not fit"
        lines.append(
            f"On {answer.device} the pair {word}: {show_gib(answer.fit.total_bytes)} against "
            f"{show_gib(answer.fit.dram_bytes)} visible."
        )
    return fold("\n".join(lines), width)


def _reasons(answer: PairAnswer) -> list[str]:
    reasons = list(answer.pairing.reasons)
    if not answer.fits and answer.fit is not None:
        reasons.append(
            f"the pair needs {show_gib(answer.fit.total_bytes)}, {answer.device} has "
            f"{show_gib(answer.fit.dram_bytes)}"
        )
    return reasons


def _model_document(holder: Holder) -> dict[str, Any]:
    spec: ModelSpec = holder.spec
    return {
        "name": spec.name,
        "quantisation": spec.quantisation,
        "parameters": spec.parameters,
        "resident_weight_bytes": spec.resident_weight_bytes,
        "streamed_weight_bytes": spec.streamed_weight_bytes,
        "vocab_size": spec.vocab,
        "tokenizer_tokens": None if holder.vocabulary is None else len(holder.vocabulary.tokens),
        "tokenizer": spec.tokenizer,
        "context_tokens": spec.context_tokens,
        "can_roll_back": spec.rewinds,
    }


def _count(value: int | None) -> str:
    return "not known" if value is None else str(value)


def _tokens(holder: Holder) -> str:
    return _count(None if holder.vocabulary is None else len(holder.vocabulary.tokens))
