"""Makes a tokenizer of the ``tokenizers`` library from the fields of a GGUF file.

Covers byte-level BPE, which GGUF calls ``gpt2``, with the ways of splitting text into words that
are named below; the patterns are those the models' authors published with their tokenizers.
"""

from collections.abc import Sequence
from typing import NoReturn

from msgspec import Struct
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    pre_tokenizers,
    processors,
)

from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, GgufStrings

# Token types of the GGUF specification.
_CONTROL, _USER_DEFINED = 3, 4
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class _Splitting(Struct, frozen=True, kw_only=True):
    """How one kind of tokenizer cuts text before merging, and what else goes by its name.

    Without a ``pattern`` the one of GPT-2 cuts. ``whole_words``: a word that is a token stays one
    whatever the merges say.
    """

    pattern: str | None = None
    single_digits: bool = False
    whole_words: bool = False
    adds_bos: bool = False


_SPLITTINGS = {
    "gpt-2": _Splitting(),
    "smollm": _Splitting(single_digits=True),
    "llama-bpe": _Splitting(pattern=_WORDS % 3, whole_words=True, adds_bos=True),
    "qwen2": _Splitting(pattern=_WORDS % 1),
}


class SpecialTokens(Struct, frozen=True, kw_only=True):
    """Ids of the tokens that begin a text (put there where ``adds_bos``) and that end an answer."""

    bos: int | None
    adds_bos: bool
    ends: tuple[int, ...]


def read_tokenizer(header: GgufHeader) -> Tokenizer:
    """The file's tokenizer. Text that spells a special token becomes that token.

    Raises FileFault for other kinds of tokenizers and for fields that contradict each other.
    """
    splitting = _splitting(header)
    tokens = _strings(header, "tokenizer.ggml.tokens")
    tokenizer = Tokenizer(_merging(header, tokens, splitting))
    tokenizer.pre_tokenizer = _pre_tokenizer(splitting)
    tokenizer.decoder = decoders.ByteLevel()
    _add_special_tokens(tokenizer, tokens, _types(header, len(tokens)))
    specials = read_special_tokens(header, len(tokens))
    if specials.adds_bos and specials.bos is not None:
        _prepend(tokenizer, header, tokens[specials.bos], specials.bos)
    return tokenizer


def read_special_tokens(header: GgufHeader, vocab_size: int) -> SpecialTokens:
    """Which tokens begin a text and end an answer."""
    keys = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    ends = {_token_id(header, key, vocab_size) for key in keys if key in header.metadata}
    if not ends:
        _refuse(header, f"it names no token that ends an answer ({keys[0]})")
    bos_key = "tokenizer.ggml.bos_token_id"
    bos = _token_id(header, bos_key, vocab_size) if bos_key in header.metadata else None
    default = _splitting(header).adds_bos
    adds_bos = header.metadata.get("tokenizer.ggml.add_bos_token", default) is True
    if adds_bos and bos is None:
        _refuse(header, f"a text is to begin with a token that is not named ({bos_key})")
    return SpecialTokens(bos=bos, adds_bos=adds_bos, ends=tuple(sorted(ends)))


def _splitting(header: GgufHeader) -> _Splitting:
    model = header.metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        _refuse(
            header,
            f"tokenizer.ggml.model is {model!r}; edgeprof converts byte-level BPE ('gpt2')",
        )
    name = header.metadata.get("tokenizer.ggml.pre")
    splitting = _SPLITTINGS.get(name) if isinstance(name, str) else None
    if splitting is None:
        _refuse(
            header,
            f"tokenizer.ggml.pre is {name!r}; edgeprof knows {', '.join(sorted(_SPLITTINGS))}",
        )
    return splitting


def _merging(header: GgufHeader, tokens: Sequence[str], splitting: _Splitting) -> models.BPE:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        _refuse(header, "tokenizer.ggml.tokens lists a token twice")
    merges = [_pair(header, merge) for merge in _strings(header, "tokenizer.ggml.merges")]
    try:
        return models.BPE(vocabulary, merges, ignore_merges=splitting.whole_words)
    except Exception as error:  # the library has no exception of its own
        _refuse(header, f"tokenizer.ggml.merges do not fit the tokens: {error}")


def _pre_tokenizer(splitting: _Splitting) -> pre_tokenizers.PreTokenizer:
    by_gpt2 = splitting.pattern is None
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=by_gpt2)
    if splitting.pattern is not None:
        words = pre_tokenizers.Split(Regex(splitting.pattern), behavior="isolated")
        return pre_tokenizers.Sequence([words, to_bytes])
    if splitting.single_digits:
        digits = pre_tokenizers.Digits(individual_digits=True)
        return pre_tokenizers.Sequence([digits, to_bytes])
    return to_bytes


def _add_special_tokens(tokenizer: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    for kind in (_CONTROL, _USER_DEFINED):
        added = [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, its_kind in zip(tokens, types, strict=True)
            if its_kind == kind and token
        ]
        if kind == _CONTROL:
            tokenizer.add_special_tokens(added)
        else:
            tokenizer.add_tokens(added)


def _prepend(tokenizer: Tokenizer, header: GgufHeader, token: str, token_id: int) -> None:
    try:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=[token, "$A"], special_tokens=[(token, token_id)]
        )
    except ValueError as error:  # a token may read like the library's own template language
        _refuse(header, f"token {token!r} cannot begin a text: {error}")


def _strings(header: GgufHeader, key: str) -> list[str]:
    value = header.metadata.get(key)
    if not isinstance(value, GgufStrings):
        _refuse(header, f"{key} is missing or no list of strings")
    texts = list(value)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        _refuse(header, f"{key} holds bytes that are not UTF-8")
    return texts


def _pair(header: GgufHeader, merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not (left and space and right) or " " in right:
        _refuse(header, f"tokenizer.ggml.merges: {merge!r} is not two pieces and a space")
    return left, right


def _types(header: GgufHeader, count: int) -> Sequence[int]:
    value = header.metadata.get("tokenizer.ggml.token_type")
    if not isinstance(value, tuple) or len(value) != count:
        _refuse(header, f"tokenizer.ggml.token_type does not give {count} tokens their types")
    return [kind if isinstance(kind, int) else 0 for kind in value]


def _token_id(header: GgufHeader, key: str, vocab_size: int) -> int:
    value = header.metadata[key]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < vocab_size:
        _refuse(header, f"{key} is {value!r}, no token of the {vocab_size}")
    return value


def _refuse(header: GgufHeader, fault: str) -> NoReturn:
    raise FileFault(f"{header.path}: {fault}")
