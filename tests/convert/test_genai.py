"""onnxruntime-genai loads the folder too, and decodes what a plain loop decodes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_gguf import write_decoder_gguf
from tokenizers import Tokenizer

from edgeprof.convert.folder import convert
from edgeprof.models.decoder_folder import DecoderFolder

og = pytest.importorskip("onnxruntime_genai", reason="onnxruntime-genai is not installed")

TEXTS = json.loads((Path(__file__).parents[1] / "data" / "tokenizers_llama_cpp.json").read_text())
K_QUANTS = {"storage": "Q4_K", "storages": {"attn_v": "Q6_K", "ffn_down": "Q5_K"}}
WIDE = {"hidden": 256, "ffn": 512}
PROMPT = "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n"


def decoded_by_genai(folder: DecoderFolder, prompt: list[int], max_length: int) -> list[int]:
    model = og.Model(str(folder.path))
    parameters = og.GeneratorParams(model)
    parameters.set_search_options(max_length=max_length)
    generator = og.Generator(model, parameters)
    generator.append_tokens(prompt)
    while not generator.is_done():
        generator.generate_next_token()
    return [int(token) for token in generator.get_sequence(0)][len(prompt) :]


def decoded_plainly(decoder: Any, prompt: list[int], count: int) -> list[int]:
    tokens = [int(decoder.extend(prompt)[-1].argmax())]
    while len(tokens) < count:
        tokens.append(int(decoder.extend(tokens[-1:])[-1].argmax()))
    return tokens


@pytest.mark.parametrize("weights", ["as-is", "fp32"])
def test_the_real_model_answers_alike(
    weights: Any, smollm2_folder: Callable[[Any], DecoderFolder], plain_decoder: Any
) -> None:
    folder = smollm2_folder(weights)
    prompt = Tokenizer.from_file(str(folder.tokenizer_path)).encode(PROMPT).ids
    answer = decoded_by_genai(folder, prompt, len(prompt) + 24)
    assert len(answer) > 4
    assert answer == decoded_plainly(plain_decoder(folder.onnx_path), prompt, len(answer))


def test_genai_uses_the_whole_context_without_running_over(
    tiny_gguf: Callable[..., Path], plain_decoder: Any, tmp_path: Path
) -> None:
    """A context of 48 tokens, filled to the last: the dummy row still has its slot."""
    folder = convert(tiny_gguf(tmp_path / "m.gguf", matrices="Q4_1", context=48), tmp_path / "out")
    settings = json.loads((folder.path / "genai_config.json").read_text())
    assert settings["search"]["past_present_share_buffer"] is True
    assert settings["search"]["max_length"] == settings["model"]["context_length"] == 48
    prompt = [5, 80, 299, 17]
    answer = decoded_by_genai(folder, prompt, 48)
    plain = decoded_plainly(plain_decoder(folder.onnx_path), prompt, 44)
    ended = plain.index(2) + 1 if 2 in plain else len(plain)
    assert answer in (plain[:ended], plain[: ended - 1])


@pytest.mark.parametrize("storages", [{"storage": "Q4_1"}, {**K_QUANTS, **WIDE}], ids=["Q4_1", "K"])
@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_every_architecture_is_decoded_alike(
    architecture: str, storages: dict[str, Any], plain_decoder: Any, tmp_path: Path
) -> None:
    gguf = write_decoder_gguf(
        tmp_path / "m.gguf",
        architecture,
        biases=architecture == "qwen2",
        head_dim=64 if architecture == "qwen3" else None,
        **storages,
    )
    folder = convert(gguf, tmp_path / "out")
    settings = json.loads((folder.path / "genai_config.json").read_text())
    assert settings["model"]["type"] == architecture
    prompt = [5, 80, 299, 17]
    answer = decoded_by_genai(folder, prompt, 28)
    plain = decoded_plainly(plain_decoder(folder.onnx_path), prompt, 24)
    ended = plain.index(2) + 1 if 2 in plain else len(plain)
    assert answer in (plain[:ended], plain[: ended - 1])
    assert len(answer) > 2


@pytest.mark.parametrize("name", TEXTS["vocabularies"])
def test_the_tokenizers_of_all_families_are_read_alike(name: str, tmp_path: Path) -> None:
    """genai cuts text with code of its own; beyond ASCII it parts from the others on a few rare
    characters (fractions, Roman numerals, the space that does not break)."""
    vocabulary = TEXTS["vocabularies"][name]
    gguf = write_decoder_gguf(tmp_path / "m.gguf", "llama", vocabulary=vocabulary)
    folder = convert(gguf, tmp_path / "out")
    ours = Tokenizer.from_file(str(folder.tokenizer_path))
    theirs = og.Tokenizer(og.Model(str(folder.path)))
    texts = [text for text in TEXTS["strings"] if text.isascii() and "\0" not in text]
    assert len(texts) > 80
    for text in texts:
        expected = ours.encode(text, add_special_tokens=False).ids
        assert [int(token) for token in theirs.encode(text)] == expected, text
