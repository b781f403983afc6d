"""Can this draft draft for that target? Their vocabularies decide, not their sizes.

Embeddings are often padded to different sizes over one tokenizer, so the tokenizers are compared.
"""

from pathlib import Path

import msgspec
from msgspec import Struct, field

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder

_LARGEST_TOKENIZER_BYTES = 1 << 27


class _AddedToken(Struct):
    id: int
    content: str


class _Vocabulary(Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerFile(Struct):
    model: _Vocabulary
    added_tokens: list[_AddedToken] = field(default_factory=list)


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
    tokens, own = read_vocabulary(target.tokenizer_path), read_vocabulary(draft.tokenizer_path)
    if tokens == own:
        return
    first = min(id for id in tokens.keys() | own.keys() if tokens.get(id) != own.get(id))
    raise FileFault(
        f"draft '{name}' has another vocabulary than target '{target_name}': token {first} is "
        f"{_shown(own, first)} in {draft.tokenizer_path} and {_shown(tokens, first)} in "
        f"{target.tokenizer_path}; a draft must share its target's tokenizer"
    )


def read_vocabulary(path: Path) -> dict[int, str]:
    """The tokens of a tokenizer.json by id, the added ones included."""
    try:
        if path.stat().st_size > _LARGEST_TOKENIZER_BYTES:
            raise FileFault(f"{path}: larger than 128 MiB, which no tokenizer is")
        content = msgspec.json.decode(path.read_bytes(), type=_TokenizerFile)
    except OSError as error:
        raise FileFault(f"{path}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileFault(f"{path}: not a tokenizer: {error}") from error
    vocab = content.model.vocab
    if isinstance(vocab, dict):
        tokens = {id: token for token, id in vocab.items()}
    else:
        tokens = {id: token for id, (token, _) in enumerate(vocab)}
    return tokens | {added.id: added.content for added in content.added_tokens}


def _shown(tokens: dict[int, str], id: int) -> str:
    return repr(tokens[id]) if id in tokens else "absent"
