"""How long it takes, and how much memory, to describe a large GGUF: 4.7 GB, 152 000 tokens.

    python benchmarks/gguf_header.py

The file is sparse: nothing but its header takes room on the disk. Time and peak are those of a
fresh process, imports included.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from edgeprof.models.readers.gguf import read_header

FILE_BYTES = 4_700_000_000
TOKENS = 152_064
MERGES = 151_387
LAYERS = 28


def write_sparse(path: Path) -> None:
    """A file with the tokenizer and the tensor table of a 7B model, and holes for weights."""
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_block_count(LAYERS)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"token{number}" for number in range(TOKENS)])
    writer.add_token_types([1] * TOKENS)
    writer.add_token_merges([f"left{number} right{number}" for number in range(MERGES)])
    kind = gguf.GGMLQuantizationType.Q4_K
    row_bytes = 3584 // 256 * 144
    names = [f"blk.{layer}.part{part}.weight" for layer in range(LAYERS) for part in range(12)]
    rows = FILE_BYTES // len(names) // row_bytes
    for name in names:
        writer.add_tensor_info(name, (rows, row_bytes), np.dtype(np.uint8), rows * row_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("r+b") as file:
        file.truncate(FILE_BYTES + 64 * 2**20)


def describe(path: Path) -> None:
    """The measured child: reads the header, prints seconds and peak bytes."""
    started = time.perf_counter()
    header = read_header(path)
    seconds = time.perf_counter() - started
    # VmHWM, not ru_maxrss: the latter starts from the parent's peak.
    status = Path("/proc/self/status").read_text()
    peak_bytes = int(status.split("VmHWM:")[1].split()[0]) * 1024
    weight_bytes = sum(tensor.byte_length for tensor in header.tensors)
    print(f"{len(header.tensors)} tensors, {weight_bytes / 1e9:.2f} GB of weights")
    print(f"read_header {seconds:.3f} s, peak memory {peak_bytes / 1e6:.0f} MB")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.gguf"
        write_sparse(path)
        started = time.perf_counter()
        subprocess.run([sys.executable, __file__, str(path)], check=True)
        print(f"whole process {time.perf_counter() - started:.3f} s")


if __name__ == "__main__":
    describe(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
