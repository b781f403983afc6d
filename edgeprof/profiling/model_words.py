"""What a model's own files say of its text: special tokens, end tokens and the chat template.

Reads the JSON files that stand beside a decoder's tokenizer.json. Knows no tokenizer library.
"""

from pathlib import Path
from typing import Any

from msgspec import Struct

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.models.readers.json_file import read_json_object
from edgeprof.profiling.tokenizer import Tokenizer

_TOKENIZER_CONFIG = "tokenizer_config.json"
_GENERATION_CONFIG = "generation_config.json"
_TEMPLATE_FILE = "chat_template.jinja"
_MOST_CONFIG_BYTES = 1 << 25  # it may list every added token
_MOST_TEMPLATE_BYTES = 1 << 20
_COMPARED = ("bos_token", "eos_token", "add_bos_token")


class ChatTemplate(Struct, frozen=True, kw_only=True):
    """A Jinja template that makes one text of the turns of a chat; ``path`` is where it is from."""

    path: str
    source: str


class ModelWords(Struct, frozen=True, kw_only=True):
    """What the files of a folder say; None where they are silent."""

    bos_token: str | None = None
    eos_token: str | None = None
    add_bos_token: bool | None = None
    end_token_ids: frozenset[int] = frozenset()
    chat_template: ChatTemplate | None = None


def read_model_words(folder: Path) -> ModelWords:
    """Raises FileFault or EnvironmentFault for a file that is there and cannot be read."""
    config = _read(folder / _TOKENIZER_CONFIG)
    adds_bos = config.get("add_bos_token")
    return ModelWords(
        bos_token=_token(config.get("bos_token")),
        eos_token=_token(config.get("eos_token")),
        add_bos_token=adds_bos if isinstance(adds_bos, bool) else None,
        end_token_ids=_ids(_read(folder / _GENERATION_CONFIG).get("eos_token_id")),
        chat_template=_template(folder, config),
    )


def end_token_ids(folder: DecoderFolder, tokenizer: Tokenizer | None) -> frozenset[int]:
    """Every token that ends an answer: the union of what the model's files name as such, for a chat
    model's end of turn may stand in the tokenizer's alone."""
    words = read_model_words(folder.path)
    ends = folder.end_token_ids | words.end_token_ids
    if tokenizer is not None and words.eos_token is not None:
        spelt = tokenizer.token_id(words.eos_token)
        ends |= frozenset() if spelt is None else {spelt}
    return ends


def different_words(target: DecoderFolder, draft: DecoderFolder) -> dict[str, tuple[Any, Any]]:
    """The special settings in which a draft's files differ from its target's, by name. The draft is
    fed the target's tokens, so they change nothing but hint at another training."""
    ours, theirs = read_model_words(target.path), read_model_words(draft.path)
    pairs = {name: (getattr(ours, name), getattr(theirs, name)) for name in _COMPARED}
    return {name: pair for name, pair in pairs.items() if None not in pair and len(set(pair)) > 1}


def _read(path: Path) -> dict[str, Any]:
    return read_json_object(path, _MOST_CONFIG_BYTES) if path.is_file() else {}


def _token(value: Any) -> str | None:
    """A token is a text, or an object that holds it as ``content``."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) and content else None


def _ids(value: Any) -> frozenset[int]:
    listed = value if isinstance(value, list) else [value]
    return frozenset(id for id in listed if type(id) is int and id >= 0)


def _template(folder: Path, config: dict[str, Any]) -> ChatTemplate | None:
    """A file of its own comes before the configuration of the tokenizer."""
    path = folder / _TEMPLATE_FILE
    if path.is_file():
        return ChatTemplate(path=str(path), source=_read_template(path))
    path = folder / _TOKENIZER_CONFIG
    source = _default_template(config.get("chat_template"))
    if source is None:
        return None
    if len(source) > _MOST_TEMPLATE_BYTES:
        raise FileFault(f"{path}: a chat template of more than 1 MiB, which none is")
    return ChatTemplate(path=str(path), source=source)


def _default_template(value: Any) -> str | None:
    """One template, or a list of named ones of which one is called default."""
    if isinstance(value, list):
        named = {one.get("name"): one.get("template") for one in value if isinstance(one, dict)}
        value = named.get("default")
    return value if isinstance(value, str) and value else None


def _read_template(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_TEMPLATE_BYTES:
            raise FileFault(f"{path}: larger than 1 MiB, which no chat template is")
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFault(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise EnvironmentFault(f"{path}: cannot be read: {error.strerror}") from error
