"""Can this draft draft for that target? Their vocabularies decide, not their sizes.

Embeddings are often padded to different sizes over one tokenizer, so the tokens are compared.
"""

from collections.abc import Iterator

from msgspec import Struct

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.spec import ModelSpec
from edgeprof.models.vocabulary import Vocabulary, read_vocabulary


class TokenDifference(Struct, frozen=True, kw_only=True):
    """The first token that two vocabularies do not share; None is absent."""

    id: int
    target: str | None
    draft: str | None


class Holder(Struct, frozen=True, kw_only=True):
    """A model and the vocabulary that came with it, if any."""

    spec: ModelSpec
    vocabulary: Vocabulary | None


class Pairing(Struct, frozen=True, kw_only=True):
    """Whether a draft may serve a target: it may where there are no ``reasons`` against it."""

    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    difference: TokenDifference | None

    @property
    def compatible(self) -> bool:
        return not self.reasons


def judge_pair(target: Holder, draft: Holder, context_tokens: int = 0) -> Pairing:
    """Vocabularies, context and roll-back of a pair that is to hold ``context_tokens``."""
    difference = None
    if target.vocabulary is not None and draft.vocabulary is not None:
        difference = first_difference(target.vocabulary, draft.vocabulary)
    foreign = tuple(_vocabulary_reasons(target, draft, difference))
    return Pairing(
        reasons=(
            *foreign,
            *_context_reasons(target, draft, context_tokens),
            *_rewind_reasons(target, draft),
        ),
        notes=(*(() if foreign else _padding_notes(target, draft)), *_notes(target, draft)),
        difference=difference,
    )


def first_difference(target: Vocabulary, draft: Vocabulary) -> TokenDifference | None:
    """The lowest id that stands for different tokens, or for one in one vocabulary only."""
    ours, theirs = target.tokens, draft.tokens
    if ours == theirs:
        return None
    first = min(id for id in ours.keys() | theirs.keys() if ours.get(id) != theirs.get(id))
    return TokenDifference(id=first, target=ours.get(first), draft=theirs.get(first))


def check_pair(target_name: str, target: DecoderFolder, name: str, draft: DecoderFolder) -> None:
    """Raises FileFault, naming the first token that differs, for a draft that does not fit."""
    if target.tokenizer_path is None or draft.tokenizer_path is None:
        if target.vocab_size != draft.vocab_size:
            raise FileFault(
                f"draft '{name}' has a vocabulary of {draft.vocab_size} tokens, target "
                f"'{target_name}' one of {target.vocab_size}, and without both tokenizers they "
                "cannot be compared"
            )
        return
    ours, theirs = (
        Vocabulary(path=path, tokens=read_vocabulary(path))
        for path in (target.tokenizer_path, draft.tokenizer_path)
    )
    difference = first_difference(ours, theirs)
    if difference is not None:
        raise FileFault(
            f"draft '{name}' has another vocabulary than target '{target_name}': "
            f"{_told(difference, ours, theirs)}; a draft must share its target's tokenizer"
        )


def _told(difference: TokenDifference, target: Vocabulary, draft: Vocabulary) -> str:
    return (
        f"token {difference.id} is {_shown(difference.draft)} in {draft.path} and "
        f"{_shown(difference.target)} in {target.path}"
    )


def _shown(token: str | None) -> str:
    return "absent" if token is None else repr(token)


def _vocabulary_reasons(
    target: Holder, draft: Holder, difference: TokenDifference | None
) -> Iterator[str]:
    if target.vocabulary is not None and draft.vocabulary is not None:
        if difference is not None:
            told = _told(difference, target.vocabulary, draft.vocabulary)
            yield f"the vocabularies differ: {told}"
        return
    ours, theirs = target.spec, draft.spec
    if ours.tokenizer is not None and theirs.tokenizer is not None:
        if ours.tokenizer != theirs.tokenizer:
            yield f"the target's tokenizer is {ours.tokenizer}'s, the draft's {theirs.tokenizer}'s"
    elif ours.vocab != theirs.vocab:
        yield (
            f"vocabularies of {ours.vocab or 'unknown'} and {theirs.vocab or 'unknown'} tokens, "
            "and without both tokenizers they cannot be compared"
        )


def _context_reasons(target: Holder, draft: Holder, context_tokens: int) -> Iterator[str]:
    for name, spec in (("target", target.spec), ("draft", draft.spec)):
        if spec.context_tokens is not None and context_tokens > spec.context_tokens:
            yield (
                f"the {name} holds {spec.context_tokens} tokens of context, "
                f"{context_tokens} are asked for"
            )


def _rewind_reasons(target: Holder, draft: Holder) -> Iterator[str]:
    for name, spec in (("target", target.spec), ("draft", draft.spec)):
        if not spec.rewinds:
            yield (
                f"the {name} keeps a running state in some layers: rejected tokens cannot be "
                "rolled back by length"
            )


def _padding_notes(target: Holder, draft: Holder) -> Iterator[str]:
    ours, theirs = target.spec.vocab, draft.spec.vocab
    if ours and theirs and ours != theirs:
        yield f"embeddings of {ours} and {theirs} rows: padding is no hindrance"


def _notes(target: Holder, draft: Holder) -> Iterator[str]:
    ours, theirs = target.spec, draft.spec
    if target.vocabulary is None or draft.vocabulary is None:
        how = "by family" if ours.tokenizer and theirs.tokenizer else "by their sizes"
        yield f"vocabularies compared {how} only: give the files of both to compare tokens"
    else:
        for role, id in target.vocabulary.specials.items():
            other = draft.vocabulary.specials.get(role)
            if other is not None and other != id:
                yield f"the target's {role} token is {id}, the draft's {other}"
    if (
        ours.context_tokens
        and theirs.context_tokens
        and theirs.context_tokens < ours.context_tokens
    ):
        yield (
            f"the draft stops helping at {theirs.context_tokens} tokens of context; the target "
            f"holds {ours.context_tokens}"
        )
    for spec in (ours, theirs):
        windows = {kind.window_tokens for kind in spec.attention.kinds} - {None}
        if windows:
            yield (
                f"{spec.name} has sliding windows: its cache rolls back only where the engine "
                "keeps more than the window"
            )
