"""The two JSON files that onnxruntime-genai reads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_gguf import write_decoder_gguf

from edgeprof.convert.configuration import read_chat_template
from edgeprof.convert.folder import convert
from edgeprof.models.readers.gguf import read_header


@pytest.mark.parametrize(
    ("template", "read"),
    [("{{ messages }}", "{{ messages }}"), (7, None), ("\udcff", None), (None, None)],
)
def test_the_chat_template_is_read_where_it_is_text(
    template: object, read: str | None, tiny_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    header = read_header(tiny_gguf(tmp_path / "tiny.gguf"))
    metadata = {**header.metadata, "tokenizer.chat_template": template}
    assert read_chat_template(msgspec.structs.replace(header, metadata=metadata)) == read


def test_the_end_of_a_text_is_the_one_that_the_file_names_first(tmp_path: Path) -> None:
    """Token 2, <|im_end|>, though other tokens end an answer too."""
    folder = convert(write_decoder_gguf(tmp_path / "m.gguf", "qwen2"), tmp_path / "out")
    config = json.loads((folder.path / "tokenizer_config.json").read_text())
    assert (config["tokenizer_class"], config["eos_token"]) == ("GPT2Tokenizer", "<|im_end|>")
    assert "chat_template" not in config
    genai = json.loads((folder.path / "genai_config.json").read_text())["model"]
    assert (genai["type"], genai["pad_token_id"]) == ("qwen2", 2)


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


def test_sentencepiece_has_a_tokenizer_class_of_its_own(tmp_path: Path) -> None:
    data = Path(__file__).parents[1] / "data" / "tokenizers_llama_cpp.json"
    vocabulary = json.loads(data.read_text())["vocabularies"]["llama-spm"]
    gguf = write_decoder_gguf(tmp_path / "m.gguf", "llama", vocabulary=vocabulary)
    folder = convert(gguf, tmp_path / "out")
    config = json.loads((folder.path / "tokenizer_config.json").read_text())
    assert config["tokenizer_class"] == "LlamaTokenizer"
    assert (config["add_bos_token"], config["bos_token"], config["eos_token"]) == (
        True,
        "<s>",
        "</s>",
    )
