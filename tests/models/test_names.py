"""What model names mean."""

import pytest

from edgeprof.catalog import format_table, model_table
from edgeprof.models.names import resolve_model_name


@pytest.mark.parametrize(
    ("text", "full", "short"),
    [
        ("7b-q4", "llama2-7b:q4_k_m", True),
        ("7b-q8", "llama2-7b:q8_0", True),
        ("llama2-7b:q4_0", "llama2-7b:q4_0", False),
        ("Llama2_7B:Q4_0", "llama2-7b:q4_0", False),
        ("llama2-7b-q4_0", "llama2-7b:q4_0", False),
        ("qwen2.5-7b", "qwen2.5-7b:q4_k_m", True),
        ("qwen2.5-0.5b-q8_0", "qwen2.5-0.5b:q8_0", False),
        ("llama3.1-8b-mlc-q4f16", "llama3.1-8b:mlc-q4f16_1", True),
        ("llama3.1-8b:matmulnbits int4 block32 sym fp16-scales",
         "llama3.1-8b:matmulnbits-int4-block32-sym-fp16-scales", False),
        ("gemma3-1b:AWQ/GPTQ int4 g128 asym", "gemma3-1b:awq", True),
    ],
)  # fmt: skip
def test_names(text: str, full: str, short: bool) -> None:
    name = resolve_model_name(text, model_table(), format_table())
    assert name.full == full
    assert name.is_short is short


def test_what_is_not_known_is_none() -> None:
    tables = model_table(), format_table()
    assert resolve_model_name("nothing", *tables).model is None
    assert resolve_model_name("nothing:q4_0", *tables).model is None
    assert resolve_model_name("llama2-7b:nothing", *tables).quantisation is None
