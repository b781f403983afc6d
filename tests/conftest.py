"""What several test folders share: a random little GGUF made on the spot, and the two real models,
fetched once into the user's cache through edgeprof's own code."""

import signal
from collections.abc import Callable, Iterator
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's affair; what must be fast has a benchmark.
settings.register_profile("edgeprof", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("edgeprof")

# a session and a probe's profile, made by hand
pytest_plugins = ["made_session", "made_profile"]

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
NORMAL, CONTROL = 1, 3  # token types of the GGUF specification


@pytest.fixture(scope="session", autouse=True)
def signals_as_at_a_terminal() -> None:
    """Tests that run in the background inherit that Ctrl-C and hang-ups are ignored, and would hand
    it on to the commands that they interrupt."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.fixture(scope="session", autouse=True)
def no_profiles_of_this_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What somebody probed here before changes no report."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEPROF_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """SmolLM2-135M-Instruct, Q4_1."""
    from edgeprof.models.fetch import fetch

    return fetch("smollm2-135m").path


@pytest.fixture(scope="session")
def smollm2_draft_gguf() -> Path:
    """The four-layer draft of SmolLM2-135M-Instruct, assembled."""
    from edgeprof.models.fetch import fetch

    return fetch("smollm2-135m-draft").path


@pytest.fixture(scope="session")
def tiny_gguf() -> Callable[..., Path]:
    """Writes a random llama-architecture GGUF; see ``write_tiny_gguf`` for the choices."""
    return write_tiny_gguf


def write_tiny_gguf(
    path: Path,
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    ffn: int = 128,
    vocab: int = 300,
    matrices: str = "F32",
    embedding: str = "Q8_0",
    tied: bool = True,
    context: int = 256,
    seed: int = 0,
) -> Path:
    """``matrices`` and ``embedding`` name storage types (F32, F16, Q4_0, Q4_1, Q8_0); an untied
    output head takes the embedding's. The same arguments give the same bytes."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(vocab)
    _add_tokenizer(writer, vocab)

    rng = np.random.default_rng(seed)

    def matrix(name: str, rows: int, columns: int, storage: str) -> None:
        kind = gguf.GGMLQuantizationType[storage]
        weights = rng.standard_normal((rows, columns), dtype=np.float32) / np.float32(columns**0.5)
        writer.add_tensor(name, gguf.quants.quantize(weights, kind), raw_dtype=kind)

    def norm(name: str) -> None:
        writer.add_tensor(name, rng.uniform(0.5, 1.5, hidden).astype(np.float32))

    kv_width = hidden // heads * kv_heads
    matrix("token_embd.weight", vocab, hidden, embedding)
    for layer in range(layers):
        block = f"blk.{layer}."
        norm(block + "attn_norm.weight")
        matrix(block + "attn_q.weight", hidden, hidden, matrices)
        matrix(block + "attn_k.weight", kv_width, hidden, matrices)
        matrix(block + "attn_v.weight", kv_width, hidden, matrices)
        matrix(block + "attn_output.weight", hidden, hidden, matrices)
        norm(block + "ffn_norm.weight")
        matrix(block + "ffn_gate.weight", ffn, hidden, matrices)
        matrix(block + "ffn_up.weight", ffn, hidden, matrices)
        matrix(block + "ffn_down.weight", hidden, ffn, matrices)
    norm("output_norm.weight")
    if not tied:
        matrix("output.weight", vocab, hidden, embedding)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: Any, vocab: int) -> None:
    """Byte-level BPE: special tokens first, then the 256 bytes, then as many merges as fit."""
    byte_tokens = _byte_alphabet()
    merges = list(islice(_merges(), vocab - len(SPECIAL_TOKENS) - len(byte_tokens)))
    tokens = [*SPECIAL_TOKENS, *byte_tokens, *(left + right for left, right in merges)]
    assert len(tokens) == vocab == len(set(tokens)), "choose a vocabulary of 259 to 20 671"
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL] * len(SPECIAL_TOKENS) + [NORMAL] * (vocab - 3))
    writer.add_token_merges([f"{left} {right}" for left, right in merges])
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_add_bos_token(False)


def _byte_alphabet() -> list[str]:
    """The character that stands for each byte value in GPT-2's vocabulary: itself where it is
    visible, else the next free one from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    return [chr(byte if byte in visible else next(stand_ins)) for byte in range(256)]


def _merges() -> Iterator[tuple[str, str]]:
    """Pairs of letters (with the space, written U+0120), then pairs and a third letter."""
    letters = "\u0120etaoinshrdlcumwfgypbvkjxqz"
    for first, second in product(letters, repeat=2):
        yield first, second
    for first, second, third in product(letters, repeat=3):
        yield first + second, third
