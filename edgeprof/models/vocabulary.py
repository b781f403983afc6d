"""The tokens that a model knows, by id, read from a tokenizer.json or the header of a GGUF."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from edgeprof.models.decoder_folder import TOKENIZER_NAME
from edgeprof.models.readers.json_file import read_json_as

_LARGEST_TOKENIZER_BYTES = 1 << 27
_UNUSED = 5  # token type of GGUF: padding
_SPECIAL_IDS = ("bos", "eos", "eot")


class Vocabulary(Struct, frozen=True, kw_only=True):
    """Tokens by id; padding rows of the embedding are none. ``specials`` maps roles such as "eos"
    to ids, where the file gives them."""

    path: Path
    tokens: Mapping[int, str]
    specials: Mapping[str, int] = {}


class _AddedToken(Struct):
    id: int
    content: str


class _Model(Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerFile(Struct):
    model: _Model
    added_tokens: list[_AddedToken] = field(default_factory=list)


def find_vocabulary(path: Path) -> Vocabulary | None:
    """The vocabulary of the model at a path: its own, or that of the tokenizer beside it. None
    where there is none."""
    folder = path if path.is_dir() else path.parent
    if path.is_file() and path.suffix.lower() == ".gguf":
        return gguf_vocabulary(path)
    tokenizer = folder / TOKENIZER_NAME
    if tokenizer.is_file():
        return Vocabulary(path=tokenizer, tokens=read_vocabulary(tokenizer))
    ggufs = sorted(folder.glob("*.gguf")) if path.is_dir() else []
    return gguf_vocabulary(ggufs[0]) if ggufs else None


def read_vocabulary(path: Path) -> dict[int, str]:
    """The tokens of a tokenizer.json by id, the added ones included."""
    content = read_json_as(
        path, _TokenizerFile, what="tokenizer", most_bytes=_LARGEST_TOKENIZER_BYTES
    )
    vocab = content.model.vocab
    if isinstance(vocab, dict):
        tokens = {id: token for token, id in vocab.items()}
    else:
        tokens = {id: token for id, (token, _) in enumerate(vocab)}
    return tokens | {added.id: added.content for added in content.added_tokens}


def gguf_vocabulary(path: Path) -> Vocabulary | None:
    """The tokens in a GGUF's header, those of type "unused" left out; they pad the embedding."""
    from edgeprof.models.readers.gguf import GgufStrings
    from edgeprof.models.readers.gguf_model import read_parts

    header = read_parts(path)[0]
    strings = header.metadata.get("tokenizer.ggml.tokens")
    if not isinstance(strings, GgufStrings):
        return None
    types = header.metadata.get("tokenizer.ggml.token_type")
    kinds = types if isinstance(types, tuple) and len(types) == len(strings) else None
    tokens = {
        id: token for id, token in enumerate(strings) if kinds is None or kinds[id] != _UNUSED
    }
    ids = {name: header.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in _SPECIAL_IDS}
    return Vocabulary(
        path=path,
        tokens=tokens,
        specials={name: id for name, id in ids.items() if type(id) is int},
    )
