"""Writes small random GGUF decoders of every architecture that edgeprof converts, in any storage.

The gguf package quantises to the simple formats only; matrices in the others are made of random
blocks whose factors give the weights the spread of a real matrix.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SPECIAL_TOKENS = ("<unk>", "<s>", "<|im_end|>")
NORMAL, CONTROL = 1, 3  # token types of the GGUF specification

# Storage -> (weights and bytes of a block, where its float16 factors lie, how many units the
# weights are spread over, and how large the second factor is, so that they centre on zero). Of
# Q4_K: 6-bit scales and minima average 31.5, and 4-bit values 7.5.
RANDOM_BLOCKS: Mapping[str, tuple[int, int, tuple[int, ...], float, float]] = {
    "Q4_K": (256, 144, (0, 2), 257.0, 7.5),
    "Q5_K": (256, 176, (0, 2), 523.0, 15.5),
    "Q6_K": (256, 210, (208,), 1367.0, 1.0),
    "Q2_K": (256, 84, (80, 82), 17.0, 1.5),
    "Q3_K": (256, 110, (108,), 43.0, 1.0),
    "IQ4_XS": (256, 136, (0,), 1300.0, 1.0),
    "IQ4_NL": (32, 18, (0,), 72.0, 1.0),
}


def random_blocks(
    storage: str, rows: int, columns: int, rng: np.random.Generator
) -> NDArray[np.uint8]:
    """[rows, bytes] of blocks with any bits, and factors for weights of variance 1 / columns."""
    weights, size, places, spread, ratio = RANDOM_BLOCKS[storage]
    assert columns % weights == 0, f"{storage} rows hold multiples of {weights} weights"
    blocks = rng.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    for place, factor in zip(places, (1.0, ratio), strict=False):
        sizes = rng.uniform(0.5, 1.5, blocks.shape[:2]) * factor / (spread * columns**0.5)
        halves = sizes.astype("<f2")[..., None].view(np.uint8)
        blocks[..., place : place + 2] = halves
    return blocks.reshape(rows, -1)


def write_decoder_gguf(
    path: Path,
    architecture: str,
    *,
    storages: Mapping[str, str] | None = None,
    storage: str = "F32",
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int | None = None,
    ffn: int = 128,
    vocab: int = 300,
    tied: bool = True,
    biases: bool = False,
    rope_base: float = 10_000.0,
    rope_factors: bool = False,
    context: int = 128,
    vocabulary: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Path:
    """``storages`` names the types of single matrices ("attn_v", or "blk.1.attn_v" for one layer),
    ``storage`` that of all others. ``head_dim`` is hidden / heads unless given. ``vocabulary`` is
    one of those in data/tokenizers_llama_cpp.json, instead of ``vocab`` tokens."""
    import gguf

    rng = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(ffn)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    if head_dim is not None:
        writer.add_key_length(head_dim)
        writer.add_value_length(head_dim)
    writer.add_rope_freq_base(rope_base)
    writer.add_layer_norm_rms_eps(1e-6)
    if vocabulary is None:
        _add_tokenizer(writer, vocab)
    else:
        _add_vocabulary(writer, vocabulary)
        vocab = len(vocabulary["tokens"])
    width = head_dim or hidden // heads

    def matrix(name: str, rows: int, columns: int) -> None:
        short, kinds = name.removesuffix(".weight"), storages or {}
        kind = kinds.get(short, kinds.get(short.rpartition(".")[2], storage))
        _add_matrix(writer, name, rows, columns, kind, rng)

    def vector(name: str, size: int, low: float, high: float) -> None:
        writer.add_tensor(name, rng.uniform(low, high, size).astype(np.float32))

    matrix("token_embd.weight", vocab, hidden)
    if rope_factors:
        vector("rope_freqs.weight", width // 2, 1.0, 8.0)
    for layer in range(layers):
        block = f"blk.{layer}."
        vector(block + "attn_norm.weight", hidden, 0.5, 1.5)
        for part, count in (("q", heads), ("k", kv_heads), ("v", kv_heads)):
            matrix(f"{block}attn_{part}.weight", count * width, hidden)
            if biases:
                vector(f"{block}attn_{part}.bias", count * width, -1.0, 1.0)
            if architecture == "qwen3" and part != "v":
                vector(f"{block}attn_{part}_norm.weight", width, 0.5, 1.5)
        matrix(block + "attn_output.weight", hidden, heads * width)
        vector(block + "ffn_norm.weight", hidden, 0.5, 1.5)
        matrix(block + "ffn_gate.weight", ffn, hidden)
        matrix(block + "ffn_up.weight", ffn, hidden)
        matrix(block + "ffn_down.weight", hidden, ffn)
    vector("output_norm.weight", hidden, 0.5, 1.5)
    if not tied:
        matrix("output.weight", vocab, hidden)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_matrix(
    writer: Any, name: str, rows: int, columns: int, storage: str, rng: np.random.Generator
) -> None:
    import gguf

    kind = gguf.GGMLQuantizationType[storage]
    if storage in RANDOM_BLOCKS:
        data: Any = random_blocks(storage, rows, columns, rng)
    else:
        weights = rng.standard_normal((rows, columns)) / columns**0.5
        data = gguf.quants.quantize(weights.astype(np.float32), kind)
    writer.add_tensor(name, data, raw_dtype=kind)


def _add_tokenizer(writer: Any, vocab: int) -> None:
    """Byte-level BPE: special tokens, the 256 bytes, one merge of two, and fillers."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    stand_ins = iter(range(0x100, 0x200))
    alphabet = [chr(byte if byte in visible else next(stand_ins)) for byte in range(256)]
    fillers = [f"<|filler {i}|>" for i in range(vocab - len(SPECIAL_TOKENS) - len(alphabet) - 1)]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*SPECIAL_TOKENS, *alphabet, "ab", *fillers])
    writer.add_token_types([CONTROL] * len(SPECIAL_TOKENS) + [NORMAL] * (vocab - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)


def write_vocabulary_gguf(path: Path, vocabulary: Mapping[str, Any]) -> Path:
    """A file with a tokenizer and nothing else."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    _add_vocabulary(writer, vocabulary)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: Any, vocabulary: Mapping[str, Any]) -> None:
    position = {token_id: index for index, token_id in enumerate(vocabulary["ids"])}
    writer.add_tokenizer_model(vocabulary["model"])
    writer.add_tokenizer_pre(vocabulary["pre"])
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_types(vocabulary["types"])
    writer.add_bos_token_id(position[vocabulary["bos"]])
    writer.add_eos_token_id(position[vocabulary["eos"]])
    if "scores" in vocabulary:
        writer.add_token_scores(vocabulary["scores"])
    else:
        writer.add_token_merges(vocabulary["merges"])
