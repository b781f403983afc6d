"""Answers on stderr while they come, in whole characters; or nothing at all."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from edgeprof.cli.output import talk
from edgeprof.report.printable import printable

if TYPE_CHECKING:
    from edgeprof.models.decoder_folder import DecoderFolder
    from edgeprof.profiling.tokenizer import TextStream, Tokenizer
    from edgeprof.session.records import Leg, Token


class Silence:
    """A progress that shows nothing."""

    def plan(self, legs: int) -> None: ...

    def leg(self, leg: "Leg") -> None: ...

    def finish(self) -> None: ...


class Streaming(Silence):
    """Shows each answer under the name of its leg; what warms up is not shown.

    A model without a tokenizer has no text: its tokens are shown as numbers.
    """

    def __init__(self, folders: "Mapping[str, DecoderFolder]") -> None:
        self._folders = folders
        self._tokenizers: dict[str, Tokenizer | None] = {}
        self._target: str | None = None  # of the leg in hand, where its answers are shown
        self._request: int | None = None
        self._text: TextStream | None = None

    def leg(self, leg: "Leg") -> None:
        self.finish()
        self._target = None
        if leg.status == "running" and leg.kind == "decode" and not leg.warmup:
            target = leg.attrs.get("target")
            self._target = target if target in self._folders else None
            if "test" not in leg.attrs:
                talk(f"--- {leg.name}")

    def token(self, token: "Token") -> None:
        """Show what can be shown now that this token has come."""
        if self._target is None:
            return
        if token.request_id != self._request:
            self.finish()
            self._request = token.request_id
            self._text = self._new_text(self._target)
        piece = f" {token.token_id}" if self._text is None else self._text.add(token.token_id)
        _show(piece)

    def finish(self) -> None:
        """End the answer in hand, if there is one."""
        if self._request is not None:
            _show((self._text.finish() if self._text is not None else "") + "\n")
        self._request, self._text = None, None

    def _new_text(self, target: str) -> "TextStream | None":
        from edgeprof.profiling.tokenizer import TextStream, Tokenizer

        if target not in self._tokenizers:
            folder = self._folders[target]
            known = folder.tokenizer_path is not None
            self._tokenizers[target] = Tokenizer(folder) if known else None
        tokenizer = self._tokenizers[target]
        return None if tokenizer is None else TextStream(tokenizer.decode)


def _show(piece: str) -> None:
    """Text of a model is text from outside: it does not steer the terminal."""
    if piece:
        click.echo(printable(piece), err=True, nl=False)
