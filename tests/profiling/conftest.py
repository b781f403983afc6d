"""A recipe over two random little models, converted once: a run takes a second or two."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_decoder import Decoder, write_folder

from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.recipe import Recipe, read_recipe
from edgeprof.session.records import Leg

RECIPE = """
schema = "edgeprof.recipe/1"
name = "tiny"
question = "Does it pay?"
new_tokens = 24
repeats = 2
context_tokens = 250
held_context_tokens = 32
held_repeats = 3
verify_tokens = [1, 2, 4]
measure_ceiling = false
stop_at_end_token = false

[targets.t]
model = "target"
threads = 1

[drafters.d]
kind = "model"
model = "draft"

[drafters.ngram]
kind = "ngram"

[[variants]]
target = "t"
drafter = "d"
draft_tokens = 2

[[variants]]
target = "t"

[[variants]]
target = "t"
drafter = "ngram"
draft_tokens = 3

[[prompts]]
kind = "chat"
text = "hello there"

[[prompts]]
kind = "code"
text = "one two one two one"
"""


class Heard:
    """A Progress that remembers."""

    def __init__(self) -> None:
        self.planned: int | None = None
        self.ended: list[Leg] = []

    def plan(self, legs: int) -> None:
        self.planned = legs

    def leg(self, leg: Leg) -> None:
        if leg.status != "running":
            self.ended.append(leg)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture(scope="session")
def recipe_text() -> str:
    return RECIPE


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    path = tmp_path_factory.mktemp("recipe") / "tiny.toml"
    path.write_text(RECIPE)
    return read_recipe(path)


@pytest.fixture(scope="session")
def folders(
    tmp_path_factory: pytest.TempPathFactory, tiny_gguf: Callable[..., Path]
) -> dict[str, DecoderFolder]:
    """``t``, a target of four layers, and ``d``, a draft of one, over one vocabulary."""
    from edgeprof.convert.folder import convert

    work = tmp_path_factory.mktemp("tiny")
    return {
        key: convert(tiny_gguf(work / f"{name}.gguf", layers=layers), work / name, weights="fp32")
        for key, name, layers in (("t", "target", 4), ("d", "draft", 1))
    }


@pytest.fixture
def optimum(folders: dict[str, DecoderFolder], tmp_path: Path) -> DecoderFolder:
    """A decoder of standard operators in optimum's layout, with the tokenizer of the others; its
    head is padded from 300 columns to 304."""
    folder = write_folder(Decoder(vocab=300, columns=304, context=256), tmp_path / "optimum")
    shutil.copy(folders["t"].path / "tokenizer.json", folder.path)
    return read_decoder_folder(folder.path)
