"""How long it takes, and how much memory, to describe the model in a large GGUF: 4.7 GB, 152 000
tokens. Fails beyond 0.3 s or 150 MB.

    python benchmarks/gguf_header.py

The file is sparse: nothing but its header takes room on the disk. Time and peak are those of a
fresh process, imports included.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgeprof.models.readers.gguf_model import describe_gguf

TOKENS = 152_064
MERGES = 151_387
LAYERS, HIDDEN, FFN, KV_WIDTH, HEADS, KV_HEADS = 28, 3584, 18944, 512, 28, 4
MOST_SECONDS = 0.3
MOST_BYTES = 150_000_000


def write_sparse(path: Path) -> None:
    """A file with the metadata, tokenizer and tensor table of Qwen2.5-7B, and holes for weights."""
    import gguf

    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token{number}" for number in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"left{number} right{number}" for number in range(MERGES)])
    length = sum(_add(writer, *tensor) for tensor in _tensors())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(length + 16 * 2**20)  # the header is some 9 MB long


def _tensors() -> Iterator[tuple[str, int, int, str]]:
    """Name, rows, columns and type, nearly as in a Q4_K_M file."""
    yield "token_embd.weight", TOKENS, HIDDEN, "Q4_K"
    yield "output.weight", TOKENS, HIDDEN, "Q6_K"
    for layer in range(LAYERS):
        block, more = f"blk.{layer}.", "Q6_K" if layer % 2 else "Q4_K"
        yield block + "attn_q.weight", HIDDEN, HIDDEN, "Q4_K"
        yield block + "attn_k.weight", KV_WIDTH, HIDDEN, "Q4_K"
        yield block + "attn_v.weight", KV_WIDTH, HIDDEN, more
        yield block + "attn_output.weight", HIDDEN, HIDDEN, "Q4_K"
        yield block + "ffn_gate.weight", FFN, HIDDEN, "Q4_K"
        yield block + "ffn_up.weight", FFN, HIDDEN, "Q4_K"
        yield block + "ffn_down.weight", HIDDEN, FFN, more


def _add(writer: Any, name: str, rows: int, columns: int, storage: str) -> int:
    """Adds a matrix; returns its bytes."""
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType[storage]
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    row_bytes = columns // weights * size
    length = rows * row_bytes
    writer.add_tensor_info(name, (rows, row_bytes), np.dtype(np.uint8), length, kind)
    return length


def describe(path: Path) -> None:
    """The measured child: describes the model, prints seconds and peak bytes."""
    started = time.perf_counter()
    spec = describe_gguf(path)
    seconds = time.perf_counter() - started
    # VmHWM, not ru_maxrss: the latter starts from the parent's peak.
    status = Path("/proc/self/status").read_text()
    peak_bytes = int(status.split("VmHWM:")[1].split()[0]) * 1024
    print(f"{spec.source}: {spec.resident_weight_bytes / 1e9:.2f} GB of weights")
    print(f"described in {seconds:.3f} s, peak memory {peak_bytes / 1e6:.0f} MB")
    if seconds > MOST_SECONDS or peak_bytes > MOST_BYTES:
        raise SystemExit(f"more than {MOST_SECONDS} s or {MOST_BYTES / 1e6:.0f} MB")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.gguf"
        write_sparse(path)
        started = time.perf_counter()
        subprocess.run([sys.executable, __file__, str(path)], check=True)
        print(f"whole process {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    describe(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
