"""Text to tokens and back, by the tokenizer.json of a decoder folder."""

from collections.abc import Sequence
from pathlib import Path

from edgeprof.errors import EnvironmentFault, FileFault
from edgeprof.models.decoder_folder import DecoderFolder


class Tokenizer:
    """A folder's own tokenizer. Special tokens in the text are taken as such, none are added."""

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

    def encode(self, text: str) -> list[int]:
        return list(self._library.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text without special tokens. Bytes that are no UTF-8, such as a character that was
        cut off, become U+FFFD; ids that the tokenizer does not know are named."""
        size = self._library.get_vocab_size(with_added_tokens=True)
        parts: list[str] = []
        known: list[int] = []
        for token in tokens:
            if token < size:
                known.append(token)
                continue
            parts += [self._library.decode(known), f"<unk:{token}>"]
            known = []
        return "".join([*parts, self._library.decode(known)])


def _tokenizer_path(folder: DecoderFolder) -> Path:
    if folder.tokenizer_path is None:
        raise FileFault(f"{folder.path}: no tokenizer.json in it, so its text cannot be read")
    return folder.tokenizer_path
