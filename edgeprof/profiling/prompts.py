"""The prompts of a recipe as the model gets them: read from files, put into a template, as tokens.

Knows nothing of how they are answered.
"""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.chat import render_chats
from edgeprof.profiling.model_words import ModelWords, read_model_words
from edgeprof.profiling.tokenizer import Tokenizer
from edgeprof.recipe import Prompt, Recipe

_MOST_BYTES = 1 << 20
_ID = re.compile(r"[0-9]{1,9}")


def with_prompt_files_read(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe with texts in place of files, whose paths start from ``folder``: a session is to
    hold what was asked."""
    prompts = [
        prompt
        if prompt.file is None
        else Prompt(kind=prompt.kind, text=read_prompt(folder / Path(prompt.file).expanduser()))
        for prompt in recipe.prompts
    ]
    return replace(recipe, prompts=prompts)


def read_prompt(path: Path) -> str:
    """The text of a file, without the end of its last line.

    Raises UsageFault where it cannot be read, FileFault where it is no text or too much of it.
    """
    try:
        if not path.is_file():  # opening a pipe would wait for its writer
            raise UsageFault(f"{path}: no such file; a prompt is read from a text file")
        if path.stat().st_size > _MOST_BYTES:
            raise FileFault(f"{path}: larger than 1 MiB, which is more than a prompt can hold")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise FileFault(f"{path}: not a text file in UTF-8 (byte {error.start})") from error
    except OSError as error:
        raise UsageFault(f"{path}: cannot be read: {error.strerror}") from error
    if "\0" in text:
        raise FileFault(f"{path}: not a text file: it holds a zero byte")
    return text.removesuffix("\n").removesuffix("\r")


def text_prompt(text: str) -> Prompt:
    """A prompt that was given as an option. Raises UsageFault for what is no text, or too much."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise UsageFault("a prompt is not text in UTF-8; give its token ids instead") from error
    if size > _MOST_BYTES:
        raise UsageFault("a prompt of more than 1 MiB; that is more than a prompt can hold")
    return Prompt(kind="given", text=text)


def ids_prompt(text: str) -> Prompt:
    """A prompt of token ids, ``1,15,0`` or with blanks between. Raises UsageFault for others."""
    parts = text.replace(",", " ").split()
    wrong = next((part for part in parts if not _ID.fullmatch(part)), None)
    if wrong is not None or not parts:
        raise UsageFault(
            f"a prompt of token ids holds {'none' if wrong is None else repr(wrong)}; write whole "
            "numbers from 0 on, such as 1,15,0"
        )
    return Prompt(kind="given", ids=[int(part) for part in parts])


def prompt_digest(recipe: Recipe, index: int) -> str:
    """The SHA-256 by which a prompt is known, whatever model answers it: of its text in the
    template of the recipe, of the turns of a chat, or of its ids."""
    prompt = recipe.prompts[index]
    if prompt.ids is not None:
        content = ",".join(map(str, prompt.ids))
    elif recipe.chat:
        content = "\0".join([recipe.system or "", _text(prompt)])
    else:
        content = _templated(recipe, prompt)
    return hashlib.sha256(content.encode()).hexdigest()


def encode_prompts(recipe: Recipe, folder: DecoderFolder) -> list[list[int]]:
    """The tokens of every prompt for one target.

    Raises UsageFault for a prompt that is empty or leaves no room for an answer, FileFault where
    the tokenizer and the model do not belong together or the model has no chat template.
    """
    texts = _texts(recipe, folder)
    tokenizer = Tokenizer(folder) if texts else None
    encoded = []
    for index, prompt in enumerate(recipe.prompts):
        where = f"prompt {index + 1} ({prompt.kind})"
        if prompt.ids is not None:
            _check_ids(where, prompt.ids, folder.vocab_size)
            tokens = prompt.ids
        else:
            assert tokenizer is not None
            begin = not recipe.chat and recipe.template == "{prompt}"
            tokens = tokenizer.encode(texts[index], begin=begin)
            tokens = tokens or _first_token(where, folder, tokenizer)
            _check_tokenizer(tokens, folder)
        _check_room(where, tokens, recipe, folder)
        encoded.append(list(tokens))
    return encoded


def _texts(recipe: Recipe, folder: DecoderFolder) -> dict[int, str]:
    """What is given to the tokenizer, by the prompt's place in the recipe."""
    texts = {i: p for i, p in enumerate(recipe.prompts) if p.ids is None}
    if not recipe.chat:
        return {index: _templated(recipe, prompt) for index, prompt in texts.items()}
    words = read_model_words(folder.path)
    if words.chat_template is None:
        raise FileFault(
            f"{folder.path}: no chat template in it (chat_template.jinja, or chat_template in "
            "tokenizer_config.json); leave out chat, and give a template in the recipe"
        )
    shown = [_text(prompt) for prompt in texts.values()]
    rendered = render_chats(words.chat_template, words, shown, recipe.system)
    return dict(zip(texts, rendered, strict=True))


def _templated(recipe: Recipe, prompt: Prompt) -> str:
    return recipe.template.replace("{prompt}", _text(prompt))


def _text(prompt: Prompt) -> str:
    assert prompt.text is not None, "files are read before"
    return prompt.text


def _first_token(where: str, folder: DecoderFolder, tokenizer: Tokenizer) -> list[int]:
    """What an empty text begins with: the token that begins every text, where there is one."""
    words: ModelWords = read_model_words(folder.path)
    begin = None if words.bos_token is None else tokenizer.token_id(words.bos_token)
    if begin is None:
        raise UsageFault(
            f"{where} has no tokens, and the model has none that begins a text; write a text, or a "
            "template that adds one"
        )
    return [begin]


def _check_ids(where: str, ids: Sequence[int], vocab_size: int) -> None:
    wrong = next((id for id in ids if id >= vocab_size), None)
    if wrong is not None:
        raise UsageFault(
            f"{where} has token {wrong}, but the model has a vocabulary of {vocab_size}; ids go "
            f"from 0 to {vocab_size - 1}"
        )


def _check_tokenizer(tokens: Sequence[int], folder: DecoderFolder) -> None:
    if max(tokens) >= folder.vocab_size:
        raise FileFault(
            f"{folder.tokenizer_path}: gives token {max(tokens)}, but the model has a "
            f"vocabulary of {folder.vocab_size}"
        )


def _check_room(where: str, tokens: Sequence[int], recipe: Recipe, folder: DecoderFolder) -> None:
    pad = folder.manifest.attention_pad if folder.manifest else 0
    capacity = min(recipe.context_tokens, folder.context_tokens - pad)
    if len(tokens) >= capacity:
        raise UsageFault(
            f"{where} has {len(tokens)} tokens and leaves no room in a context of {capacity}; "
            "shorten it or raise context_tokens"
        )
