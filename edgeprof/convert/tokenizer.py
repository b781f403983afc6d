"""Makes a tokenizer of the ``tokenizers`` library from the fields of a GGUF file.

Covers byte-level BPE, which GGUF calls ``gpt2``, with the ways of splitting text into words that
are named below, and the scored pieces of SentencePiece, which GGUF calls ``llama``. The patterns
are those the models' authors published with their tokenizers.
"""

from collections.abc import Iterator, Sequence
from typing import NoReturn

from msgspec import Struct
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

from edgeprof.errors import FileFault
from edgeprof.models.readers.gguf import GgufHeader, GgufStrings

# Token types of the GGUF specification.
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
# Tokens that end an answer in whatever model has them. Files name only one or two of theirs.
_END_NAMES = {
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"),
    *(
        "</s>",
        "<end_of_turn>",
        "<end_of_utterance>",
        "<EOT>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    ),
}
# SentencePiece makes pieces of at most 16 characters unless told otherwise; how a piece can come
# about is tried out at each of its characters.
_MAX_PIECE_CHARACTERS = 256
_WORD_START = "\u2581"  # how SentencePiece writes a space
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s"
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


_LLAMA3 = _Splitting(pattern=_WORDS % "{1,3}", whole_words=True, adds_bos=True)
_QWEN2 = _Splitting(pattern=_WORDS % "")
_SPLITTINGS = {
    "gpt-2": _Splitting(),
    "smollm": _Splitting(single_digits=True),
    "llama-bpe": _LLAMA3,
    "llama-v3": _LLAMA3,
    "llama3": _LLAMA3,
    "falcon3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "megrez": _QWEN2,
}


class SpecialTokens(Struct, frozen=True, kw_only=True):
    """Ids of the tokens that begin a text (put there where ``adds_bos``) and that end an answer;
    ``eos`` is the one of ``ends`` that the file puts first."""

    bos: int | None
    adds_bos: bool
    eos: int
    ends: tuple[int, ...]


def read_tokenizer(header: GgufHeader) -> Tokenizer:
    """The file's tokenizer. Text that spells a special token becomes that token.

    Raises FileFault for other kinds of tokenizers and for fields that contradict each other.
    """
    tokens = _strings(header, "tokenizer.ggml.tokens")
    types = _types(header, len(tokens))
    model = header.metadata.get("tokenizer.ggml.model")
    if model == "gpt2":
        tokenizer = _byte_level(header, tokens)
    elif model == "llama":
        tokenizer = _scored_pieces(header, tokens, types)
    else:
        _refuse(
            header,
            f"tokenizer.ggml.model is {model!r}; edgeprof converts byte-level BPE ('gpt2') and "
            "SentencePiece BPE ('llama')",
        )
    _add_special_tokens(tokenizer, tokens, types)
    specials = read_special_tokens(header, len(tokens))
    if specials.adds_bos and specials.bos is not None:
        _prepend(tokenizer, header, tokens[specials.bos], specials.bos)
    return tokenizer


def read_special_tokens(header: GgufHeader, vocab_size: int) -> SpecialTokens:
    """Which tokens begin a text and end an answer: those the file names, and those whose name
    says so in every model."""
    keys = [f"tokenizer.ggml.{role}_token_id" for role in ("eos", "eot", "eom")]
    named = [_token_id(header, key, vocab_size) for key in keys if key in header.metadata]
    if not named:
        _refuse(header, f"it names no token that ends an answer ({keys[0]})")
    tokens = _strings(header, "tokenizer.ggml.tokens")
    types = _types(header, len(tokens))
    known = {
        index
        for index, (token, its_type) in enumerate(zip(tokens, types, strict=True))
        if its_type in (_CONTROL, _USER_DEFINED) and token in _END_NAMES
    }
    bos_key = "tokenizer.ggml.bos_token_id"
    bos = _token_id(header, bos_key, vocab_size) if bos_key in header.metadata else None
    adds_bos = header.metadata.get("tokenizer.ggml.add_bos_token", _adds_bos(header)) is True
    if adds_bos and bos is None:
        _refuse(header, f"a text is to begin with a token that is not named ({bos_key})")
    return SpecialTokens(
        bos=bos, adds_bos=adds_bos, eos=named[0], ends=tuple(sorted({*named, *known}))
    )


def _adds_bos(header: GgufHeader) -> bool:
    """Whether texts begin with a special token in tokenizers of this kind."""
    if header.metadata.get("tokenizer.ggml.model") == "llama":
        return True
    return _splitting(header).adds_bos


def _byte_level(header: GgufHeader, tokens: Sequence[str]) -> Tokenizer:
    splitting = _splitting(header)
    merges = [_pair(header, merge) for merge in _strings(header, "tokenizer.ggml.merges")]
    vocabulary = _vocabulary(header, tokens)
    try:
        model = models.BPE(vocabulary, merges, ignore_merges=splitting.whole_words)
    except Exception as error:  # the library has no exception of its own
        _refuse(header, f"tokenizer.ggml.merges do not fit the tokens: {error}")
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _pre_tokenizer(splitting)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _scored_pieces(header: GgufHeader, tokens: Sequence[str], types: Sequence[int]) -> Tokenizer:
    """Neighbouring pieces that make a known one are joined, the highest score first; characters
    that are no piece become their bytes."""
    vocabulary = _vocabulary(header, tokens)
    scores = _scores(header, len(tokens))
    for value in range(256):
        name = f"<0x{value:02X}>"
        if name not in vocabulary or types[vocabulary[name]] != _BYTE:
            _refuse(header, f"tokenizer.ggml.tokens lack the byte token {name}")
    joins = sorted(
        (-scores[index], vocabulary[left], vocabulary[right])
        for index in _pieces(header, tokens, types)
        for left, right in _halves(tokens[index])
        if left in vocabulary and right in vocabulary
    )
    merges = [(tokens[left], tokens[right]) for _, left, right in joins]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True))
    starts = header.metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    spaces = normalizers.Replace(" ", _WORD_START)
    prefix = [normalizers.Prepend(_WORD_START)] if starts else []
    tokenizer.normalizer = normalizers.Sequence([*prefix, spaces])
    steps = [decoders.Replace(_WORD_START, " "), decoders.ByteFallback(), decoders.Fuse()]
    strip = [decoders.Strip(" ", 1, 0)] if starts else []
    tokenizer.decoder = decoders.Sequence([*steps, *strip])
    return tokenizer


def _pieces(header: GgufHeader, tokens: Sequence[str], types: Sequence[int]) -> Iterator[int]:
    """Tokens that come about by joining; the others are matched as they stand, or are bytes."""
    for index, (token, its_type) in enumerate(zip(tokens, types, strict=True)):
        if its_type in (_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE):
            continue
        if len(token) > _MAX_PIECE_CHARACTERS:
            _refuse(header, f"token {index} is {len(token)} characters long, which is no piece")
        yield index


def _halves(piece: str) -> Iterator[tuple[str, str]]:
    for cut in range(1, len(piece)):
        yield piece[:cut], piece[cut:]


def _splitting(header: GgufHeader) -> _Splitting:
    name = header.metadata.get("tokenizer.ggml.pre")
    splitting = _SPLITTINGS.get(name) if isinstance(name, str) else None
    if splitting is None:
        _refuse(
            header,
            f"tokenizer.ggml.pre is {name!r}; edgeprof knows {', '.join(sorted(_SPLITTINGS))}",
        )
    return splitting


def _vocabulary(header: GgufHeader, tokens: Sequence[str]) -> dict[str, int]:
    vocabulary = {token: index for index, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        _refuse(header, "tokenizer.ggml.tokens lists a token twice")
    return vocabulary


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
    """Tokens that are matched in the text as they stand; the user's own are kept in answers."""

    def added(*kinds: int) -> list[AddedToken]:
        special = _USER_DEFINED not in kinds
        return [
            AddedToken(token, special=special, normalized=False)
            for token, its_type in zip(tokens, types, strict=True)
            if its_type in kinds and token
        ]

    tokenizer.add_special_tokens(added(_CONTROL, _UNKNOWN))
    tokenizer.add_tokens(added(_USER_DEFINED))


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


def _scores(header: GgufHeader, count: int) -> Sequence[float]:
    value = header.metadata.get("tokenizer.ggml.scores")
    if not isinstance(value, tuple) or len(value) != count:
        _refuse(header, f"tokenizer.ggml.scores does not give {count} tokens their scores")
    scores = [score for score in value if isinstance(score, float) and score == score]
    if len(scores) != count:
        _refuse(header, "tokenizer.ggml.scores holds something else than numbers")
    return scores


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
