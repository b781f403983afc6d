"""Prompts from texts, files and ids, as one target gets them."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.errors import FileFault, UsageFault
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.profiling.prompts import (
    encode_prompts,
    ids_prompt,
    prompt_digest,
    read_prompt,
    text_prompt,
    with_prompt_files_read,
)
from edgeprof.recipe import Prompt, Recipe, override

Folders = dict[str, DecoderFolder]


def asking(recipe: Recipe, *prompts: Prompt, **changes: Any) -> Recipe:
    return override(recipe, prompts=list(prompts), **changes)


def changed_words(folder: DecoderFolder, path: Path, **words: Any) -> DecoderFolder:
    """A copy of the folder whose tokenizer_config.json has these values; None leaves one out."""
    shutil.copytree(folder.path, path)
    file = path / "tokenizer_config.json"
    content = {**json.loads(file.read_text()), **words}
    file.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return read_decoder_folder(path)


# Files


def test_a_file_is_a_prompt_without_the_end_of_its_last_line(tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"\xef\xbb\xbfone\n\ntwo \xe2\x82\xac\r\n")
    assert read_prompt(path) == "one\n\ntwo \N{EURO SIGN}"


def test_files_are_looked_for_beside_the_recipe_and_their_texts_kept(
    recipe: Recipe, tmp_path: Path
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "one.txt").write_text("one\n")
    asked = asking(recipe, Prompt(kind="a", file="texts/one.txt"), Prompt(kind="b", ids=[0]))
    read = with_prompt_files_read(asked, tmp_path)
    assert read.prompts == [Prompt(kind="a", text="one"), Prompt(kind="b", ids=[0])]


@pytest.mark.parametrize(
    ("content", "fault", "says"),
    [
        (b"GGUF\x03\x00\xff\xfe", FileFault, "not a text file in UTF-8"),
        (b"one\x00two", FileFault, "not a text file: it holds a zero byte"),
        (b"\xff", FileFault, r"not a text file in UTF-8 \(byte 0\)"),
    ],
)
def test_a_binary_file_is_no_prompt(
    tmp_path: Path, content: bytes, fault: type[Exception], says: str
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(fault, match=rf"model\.gguf: {says}"):
        read_prompt(path)


def test_a_file_of_100_mb_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "big.txt"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(FileFault, match=r"big\.txt: larger than 1 MiB"):
        read_prompt(path)


def test_what_is_no_file_is_a_matter_of_usage(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "none.txt", tmp_path, tmp_path / "pipe", tmp_path / ("x" * 300)):
        with pytest.raises(UsageFault, match=r"no such file|cannot be read"):
            read_prompt(path)


# Options


@pytest.mark.parametrize(
    ("text", "ids"), [("0", [0]), ("1,15,0", [1, 15, 0]), (" 7 8, 9 ,", [7, 8, 9])]
)
def test_r26_ids_are_taken_as_they_are(text: str, ids: list[int]) -> None:
    assert ids_prompt(text) == Prompt(kind="given", ids=ids)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "holds none"),
        (" , ", "holds none"),
        ("1,two", "'two'"),
        ("-1", "'-1'"),
        ("1.5", "'1.5'"),
        ("12345678901", "'12345678901'"),
        ("\u0663", "'\u0663'"),  # a digit of another script
    ],
)
def test_what_is_no_id_is_told(text: str, says: str) -> None:
    with pytest.raises(UsageFault, match=f"{says}; write whole numbers from 0 on"):
        ids_prompt(text)


def test_an_option_that_is_no_text_is_told() -> None:
    assert text_prompt("") == Prompt(kind="given", text="")
    with pytest.raises(UsageFault, match="not text in UTF-8"):
        text_prompt("\udcff")  # a byte of the command line that is no UTF-8
    with pytest.raises(UsageFault, match="more than 1 MiB"):
        text_prompt("x" * ((1 << 20) + 1))


# Tokens


def test_r26_token_0_is_a_prompt(recipe: Recipe, folders: Folders) -> None:
    assert encode_prompts(asking(recipe, Prompt(kind="a", ids=[0])), folders["t"]) == [[0]]


def test_ids_need_no_tokenizer(recipe: Recipe, folders: Folders) -> None:
    bare = replace(folders["t"], tokenizer_path=None)
    asked = asking(recipe, Prompt(kind="a", ids=[299, 0]))
    assert encode_prompts(asked, bare) == [[299, 0]]
    with pytest.raises(FileFault, match=r"no tokenizer\.json"):
        encode_prompts(recipe, bare)


def test_an_id_outside_the_vocabulary_is_told_with_the_range(
    recipe: Recipe, folders: Folders
) -> None:
    asked = asking(recipe, Prompt(kind="a", text="x"), Prompt(kind="b", ids=[1, 300]))
    with pytest.raises(UsageFault, match=r"prompt 2 \(b\) has token 300, .* from 0 to 299"):
        encode_prompts(asked, folders["t"])


def test_r24_an_empty_prompt_begins_with_the_token_that_begins_texts(
    recipe: Recipe, folders: Folders
) -> None:
    # <|im_start|>, the second of the vocabulary
    assert encode_prompts(asking(recipe, Prompt(kind="a", text="")), folders["t"]) == [[1]]


def test_r24_an_empty_prompt_is_refused_where_no_token_begins_texts(
    recipe: Recipe, folders: Folders, tmp_path: Path
) -> None:
    bare = changed_words(folders["t"], tmp_path / "t", bos_token=None)
    asked = asking(recipe, Prompt(kind="a", text="x"), Prompt(kind="b", text=""))
    with pytest.raises(UsageFault, match=r"prompt 2 \(b\) has no tokens") as caught:
        encode_prompts(asked, bare)
    assert caught.value.exit_code == 2


def test_r25_a_prompt_has_as_many_tokens_as_it_was_given(recipe: Recipe, folders: Folders) -> None:
    asked = asking(recipe, *(Prompt(kind="a", ids=[5] * count) for count in (1, 2, 249)))
    assert [len(tokens) for tokens in encode_prompts(asked, folders["t"])] == [1, 2, 249]


def test_a_prompt_beyond_the_context_is_a_matter_of_usage(recipe: Recipe, folders: Folders) -> None:
    asked = asking(recipe, Prompt(kind="a", ids=[5] * 250))
    with pytest.raises(UsageFault, match="has 250 tokens and leaves no room in a context of 250"):
        encode_prompts(asked, folders["t"])


def test_a_prompt_is_known_by_what_was_asked(recipe: Recipe) -> None:
    def digest(prompt: Prompt, **changes: Any) -> str:
        return prompt_digest(asking(recipe, prompt, **changes), 0)

    hello = Prompt(kind="a", text="hello")
    assert digest(hello) == hashlib.sha256(b"hello").hexdigest()
    assert digest(hello, template="Q: {prompt}") == hashlib.sha256(b"Q: hello").hexdigest()
    assert digest(Prompt(kind="a", ids=[1, 0])) == hashlib.sha256(b"1,0").hexdigest()
    chats = [digest(hello, chat=True), digest(hello, chat=True, system="Be brief.")]
    assert len({digest(hello), *chats}) == 3


# Chats


def test_a_chat_is_what_the_template_of_the_model_makes_of_it(
    recipe: Recipe, folders: Folders, tmp_path: Path
) -> None:
    template = (
        "{%- for message in messages %}"
        "{{ '<|im_start|>' + message['role'] + ':' + message['content'] + '<|im_end|>' }}"
        "{%- endfor %}{%- if add_generation_prompt %}<|im_start|>{%- endif %}"
    )
    model = changed_words(folders["t"], tmp_path / "t", chat_template=template)
    asked = asking(
        recipe, Prompt(kind="a", text="hi"), Prompt(kind="b", ids=[7]), chat=True, system="no"
    )
    wrapped = replace(
        asked, chat=False, system=None,
        template="<|im_start|>system:no<|im_end|><|im_start|>user:{prompt}<|im_end|><|im_start|>",
    )  # fmt: skip
    encoded = encode_prompts(asked, model)
    assert encoded == encode_prompts(wrapped, model)
    assert encoded[0][0] == encoded[0][-1] == 1 and encoded[1] == [7]


def test_a_model_without_a_template_holds_no_chat(recipe: Recipe, folders: Folders) -> None:
    with pytest.raises(FileFault, match="no chat template in it"):
        encode_prompts(replace(recipe, chat=True), folders["t"])
