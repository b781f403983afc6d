"""What a converted folder says of its text beside the tokenizer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from edgeprof.convert.configuration import read_chat_template, tokenizer_config
from edgeprof.convert.folder import convert
from edgeprof.convert.tokenizer import read_special_tokens, read_tokenizer
from edgeprof.models.readers.gguf import GgufHeader, read_header


@pytest.fixture
def header(tiny_gguf: Callable[..., Path], tmp_path: Path) -> GgufHeader:
    return read_header(tiny_gguf(tmp_path / "tiny.gguf", layers=1))


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("{{ messages }} \N{EURO SIGN}", "{{ messages }} \N{EURO SIGN}"),
        ("\udcff", None),  # a byte that is no UTF-8
        (7, None),
        (None, None),
    ],
)
def test_the_chat_template_of_a_gguf_is_kept_where_it_is_text(
    header: GgufHeader, value: Any, read: str | None
) -> None:
    metadata = {**header.metadata, "tokenizer.chat_template": value}
    template = read_chat_template(replace(header, metadata=metadata))
    assert template == read
    words = tokenizer_config(read_tokenizer(header), read_special_tokens(header, 300), template)
    assert words.get("chat_template") == read


def test_a_converted_folder_holds_the_template(
    tiny_gguf: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = pytest.importorskip("gguf")
    add_tokenizer_model = gguf.GGUFWriter.add_tokenizer_model

    def with_template(writer: Any, model: str) -> None:
        add_tokenizer_model(writer, model)
        writer.add_chat_template("<|im_start|>{{ messages[0].content }}")

    monkeypatch.setattr(gguf.GGUFWriter, "add_tokenizer_model", with_template)
    folder = convert(tiny_gguf(tmp_path / "t.gguf", layers=1), tmp_path / "t")
    words = json.loads((folder.path / "tokenizer_config.json").read_text())
    assert words["chat_template"] == "<|im_start|>{{ messages[0].content }}"
    assert words["eos_token"] == "<|im_end|>"
