"""What onnxruntime-genai wants to know of a decoder: the contents of its two JSON files."""

from typing import Any

from tokenizers import Tokenizer

from edgeprof.convert.tokenizer import SpecialTokens
from edgeprof.convert.weights import DecoderShape
from edgeprof.models.readers.gguf import GgufHeader


def genai_config(shape: DecoderShape, specials: SpecialTokens, onnx_name: str) -> dict[str, Any]:
    """``genai_config.json``.

    Past and present share one buffer of max_length positions. The engine stops when a sequence
    reaches max_length, one token before a pass would fill the buffer: the slot that is left is the
    one the dummy row of attention needs.
    """
    return {
        "model": {
            "type": shape.architecture,
            "bos_token_id": specials.bos,
            "eos_token_id": list(specials.ends),
            "pad_token_id": specials.eos,
            "vocab_size": shape.vocab_size,
            "context_length": shape.context_tokens,
            "decoder": {
                "filename": onnx_name,
                "head_size": shape.head_dim,
                "hidden_size": shape.hidden,
                "num_attention_heads": shape.heads,
                "num_hidden_layers": shape.layers,
                "num_key_value_heads": shape.kv_heads,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
        },
        "search": {
            "do_sample": False,
            "max_length": shape.context_tokens,
            "min_length": 0,
            "num_beams": 1,
            "num_return_sequences": 1,
            "past_present_share_buffer": True,
        },
    }


def tokenizer_config(
    tokenizer: Tokenizer, specials: SpecialTokens, chat_template: str | None = None
) -> dict[str, Any]:
    """``tokenizer_config.json``: which class reads ``tokenizer.json``, the special tokens, and the
    chat template where the model came with one."""
    bos = None if specials.bos is None else tokenizer.id_to_token(specials.bos)
    is_byte_level = tokenizer.pre_tokenizer is not None
    return {
        "tokenizer_class": "GPT2Tokenizer" if is_byte_level else "LlamaTokenizer",
        "add_bos_token": specials.adds_bos,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": bos,
        "eos_token": tokenizer.id_to_token(specials.eos),
        **({} if chat_template is None else {"chat_template": chat_template}),
    }


def read_chat_template(header: GgufHeader) -> str | None:
    """The template that wraps what a user says, as the file holds it; None where it is no text."""
    template = header.metadata.get("tokenizer.chat_template")
    if not isinstance(template, str):
        return None
    try:
        template.encode()
    except UnicodeEncodeError:  # bytes that are not UTF-8
        return None
    return template
