"""What is said while the models of a recipe are made ready."""

from pathlib import Path

import pytest
from tiny_decoder import Decoder, write_folder

from edgeprof.cli.prepare import prepare
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.recipe import ModelUse, Prompt, Recipe, Variant


def said(folder: Path, use: ModelUse) -> list[str]:
    recipe = Recipe(
        schema="edgeprof.recipe/1",
        name="r",
        question="?",
        targets={"t": use},
        variants=[Variant(target="t")],
        prompts=[Prompt(kind="a", ids=[1])],
    )
    lines: list[str] = []
    folders = prepare(recipe, folder, talk=lines.append)
    assert list(folders) == ["t"]
    return lines


def test_r10_that_engines_are_built_is_said_before(tmp_path: Path) -> None:
    write_folder(Decoder(), tmp_path / "m")
    (line,) = said(tmp_path, ModelUse(model="m", provider="tensorrt"))
    assert line.startswith("t: TensorRT builds its engines") and "many minutes" in line
    assert said(tmp_path, ModelUse(model="m")) == []


@pytest.mark.parametrize("name", ["m", "m/model.onnx"])
def test_what_is_asked_of_a_conversion_that_there_is_none_of_is_said(
    tmp_path: Path, name: str
) -> None:
    write_folder(Decoder(), tmp_path / "m")
    (line,) = said(tmp_path, ModelUse(model=name, requantise=True))
    assert line == f"t: {tmp_path / name} is run as it is; requantise changes nothing"
    (line,) = said(tmp_path, ModelUse(model=name, weights="fp32"))
    assert line == f"t: {tmp_path / name} is run as it is; weights changes nothing"


def test_weights_that_a_conversion_has_need_no_word(
    tmp_path: Path, tiny_folders: dict[str, DecoderFolder]
) -> None:
    folder = str(tiny_folders["t"].path)  # converted as fp32
    assert said(tmp_path, ModelUse(model=folder, weights="fp32")) == []
