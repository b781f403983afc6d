"""Text to tokens and back, by the tokenizer.json of a decoder folder."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.models.decoder_folder import DecoderFolder

_REPLACEMENT = "\ufffd"
_LONGEST_TAIL = 3  # bytes of a character without its last; each may be a token and read as U+FFFD
_LONGEST_WINDOW = 256  # tokens; more without a whole character is no text
_NO_CHARACTER = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A folder's own tokenizer. Special tokens in the text are taken as such."""

    def __init__(self, folder: DecoderFolder) -> None:
        try:
            from tokenizers import Tokenizer as Library
        except ImportError as error:
            raise EnvironmentFault(
                f"this needs tokenizers ({error}): pip install 'edgeprof[cpu]', or on a Jetson "
                "pip install tokenizers"
            ) from error
        path = _tokenizer_path(folder)
        try:
            self._library = Library.from_file(str(path))
        except Exception as error:  # the library raises Exception itself
            raise FileFault(f"{path}: not a tokenizer: {error}") from error

    @property
    def id_count(self) -> int:
        """Ids from here on stand for no token: they pad the model's embedding."""
        return 1 + max(self._library.get_vocab(with_added_tokens=True).values(), default=-1)

    def token_id(self, token: str) -> int | None:
        """The id of a token that is spelt so."""
        found: int | None = self._library.token_to_id(token)
        return found

    def encode(self, text: str, *, begin: bool = False) -> list[int]:
        """The tokens of ``text``; with ``begin`` those around it that the tokenizer itself adds to
        a text, such as one that marks its beginning. What is no character, such as a byte of the
        command line that is no UTF-8, becomes U+FFFD."""
        whole = _NO_CHARACTER.sub(_REPLACEMENT, text)
        return list(self._library.encode(whole, add_special_tokens=begin).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text without special tokens. Bytes that are no UTF-8, such as a character that was
        cut off, become U+FFFD; ids that the tokenizer does not know are named."""
        parts: list[str] = []
        known: list[int] = []
        for token in tokens:
            if self._library.id_to_token(token) is not None:
                known.append(token)
                continue
            parts += [self._library.decode(known), f"<unk:{token}>"]
            known = []
        return "".join([*parts, self._library.decode(known)])


class TextStream:
    """Text as its tokens come, in whole characters: a part of one is held back until the rest is
    there. All pieces together are the text of all tokens."""

    def __init__(self, to_text: Callable[[list[int]], str]) -> None:
        self._to_text = to_text
        self._window: list[int] = []
        self._context = 0  # so many tokens of the window were shown before the others came
        self._shown = 0  # characters of the window's text

    def add(self, token: int) -> str:
        """What can be shown now that this token has come: its text, more, or nothing."""
        self._window.append(token)
        text = self._to_text(self._window)
        if len(self._window) > _LONGEST_WINDOW:
            ready = self._show(text)
            self._start_over([])
            return ready
        ready = self._show(text[: len(text) - _unfinished(text)])
        if self._shown == len(text):
            self._start_over(self._window[self._context :])
        return ready

    def finish(self) -> str:
        """What was held back; a character whose end never came is shown as U+FFFD."""
        return self._show(self._to_text(self._window))

    def _show(self, text: str) -> str:
        ready = text[self._shown :]
        self._shown = max(self._shown, len(text))
        return ready

    def _start_over(self, context: list[int]) -> None:
        """Forget all but the last tokens shown: how a token reads may depend on those before."""
        self._window = context
        self._context = len(context)
        self._shown = len(self._to_text(context))


def _unfinished(text: str) -> int:
    """How many of the last characters may become one once more tokens come."""
    end = text[-_LONGEST_TAIL:]
    return len(end) - len(end.rstrip(_REPLACEMENT))


def _tokenizer_path(folder: DecoderFolder) -> Path:
    if folder.tokenizer_path is None:
        raise FileFault(f"{folder.path}: no tokenizer.json in it, so its text cannot be read")
    return folder.tokenizer_path
