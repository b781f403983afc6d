"""What the files beside a tokenizer say."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.errors import FileFault
from edgeprof.models.decoder_folder import DecoderFolder
from edgeprof.profiling.model_words import different_words, end_token_ids, read_model_words
from edgeprof.profiling.tokenizer import Tokenizer

Folders = dict[str, DecoderFolder]


def written(folder: Path, **files: Any) -> Path:
    """JSON files by their names without an ending."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_a_folder_without_files_says_nothing(tmp_path: Path) -> None:
    words = read_model_words(tmp_path)
    assert (words.bos_token, words.eos_token, words.add_bos_token) == (None, None, None)
    assert words.end_token_ids == frozenset() and words.chat_template is None


def test_a_token_is_a_text_or_an_object(tmp_path: Path) -> None:
    config = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"}
    words = read_model_words(written(tmp_path, tokenizer_config={**config, "add_bos_token": True}))
    assert (words.bos_token, words.eos_token, words.add_bos_token) == ("<s>", "</s>", True)


def test_m33_half_a_surrogate_pair_is_told_and_a_whole_one_is_a_character(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text('{"bos_token": "\\ud83d\\ude00", "eos_token": "\\\\ud800"}')
    assert read_model_words(tmp_path).bos_token == "\N{GRINNING FACE}"
    for half in ("\\ud83d", "\\ude00 \\ud83d", "\\uDC00"):
        path.write_text(f'{{"chat_template": ["{half}"]}}')
        with pytest.raises(FileFault, match=r"tokenizer_config\.json: holds half a surrogate pair"):
            read_model_words(tmp_path)


def test_r21_r22_end_tokens_are_the_union_of_all_files(folders: Folders, tmp_path: Path) -> None:
    written(
        tmp_path / "m",
        generation_config={"eos_token_id": [77, 78]},
        tokenizer_config={"eos_token": "<|endoftext|>"},
    )
    # the configuration of the decoder names <|im_end|>, 2; <|endoftext|> is 0
    folder = replace(folders["t"], path=tmp_path / "m", end_token_ids=frozenset({2}))
    assert end_token_ids(folder, Tokenizer(folders["t"])) == {0, 2, 77, 78}
    assert end_token_ids(folder, None) == {2, 77, 78}


@pytest.mark.parametrize("value", [None, "2", [None, "x", -1, True], 1.5, {}])
def test_values_out_of_place_are_no_end_tokens(tmp_path: Path, value: Any) -> None:
    folder = written(tmp_path, generation_config={"eos_token_id": value})
    assert read_model_words(folder).end_token_ids == frozenset()


def test_a_file_of_its_own_comes_before_the_configuration(tmp_path: Path) -> None:
    written(tmp_path, tokenizer_config={"chat_template": "one"})
    template = read_model_words(tmp_path).chat_template
    assert template is not None and template.source == "one"
    assert template.path.endswith("tokenizer_config.json")
    (tmp_path / "chat_template.jinja").write_text("two")
    template = read_model_words(tmp_path).chat_template
    assert template is not None and template.source == "two"
    assert template.path.endswith("chat_template.jinja")


def test_of_several_templates_the_default_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    template = read_model_words(written(tmp_path, tokenizer_config={"chat_template": named}))
    assert template.chat_template is not None and template.chat_template.source == "b"
    for value in ([named[0]], [], [7], 7, "", None):
        words = read_model_words(written(tmp_path, tokenizer_config={"chat_template": value}))
        assert words.chat_template is None


def test_a_template_beyond_reason_is_refused(tmp_path: Path) -> None:
    written(tmp_path, tokenizer_config={"chat_template": "x" * ((1 << 20) + 1)})
    with pytest.raises(FileFault, match="more than 1 MiB"):
        read_model_words(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(FileFault, match=r"chat_template\.jinja: not a text file"):
        read_model_words(tmp_path)


def test_r13_special_tokens_that_differ_are_named_by_their_field(
    folders: Folders, tmp_path: Path
) -> None:
    target = replace(
        folders["t"],
        path=written(tmp_path / "t", tokenizer_config={"add_bos_token": True, "eos_token": "a"}),
    )
    draft = replace(
        folders["d"],
        path=written(tmp_path / "d", tokenizer_config={"add_bos_token": False, "eos_token": "a"}),
    )
    assert different_words(target, draft) == {"add_bos_token": (True, False)}
    silent = replace(folders["d"], path=written(tmp_path / "s"))
    assert different_words(target, silent) == {}
