"""Coverage-guided fuzzing of everything that reads a file from outside, for as long as you like.

    pip install atheris
    python benchmarks/fuzz_readers.py KIND [libFuzzer options, such as -max_total_time=600]

KIND is gguf, onnx, safetensors, config, profile or recipe. Only edgeprof's own errors may come out,
in bounded time and memory; anything else stops the run and leaves the input that did it.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["edgeprof"]):
    from edgeprof.catalog import DEVICES_FOLDER, RECIPES_FOLDER
    from edgeprof.errors import EdgeprofError
    from edgeprof.hardware.profile import load_board
    from edgeprof.models.readers.describe import describe_path
    from edgeprof.models.readers.safetensors import read_safetensors_header
    from edgeprof.recipe import read_recipe

# kind -> (name of the file, what reads it)
READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "gguf": ("model.gguf", describe_path),
    "onnx": ("model.onnx", describe_path),
    "safetensors": ("model.safetensors", read_safetensors_header),
    "config": ("config.json", describe_path),
    "profile": ("board.toml", load_board),
    "recipe": ("recipe.toml", read_recipe),
}
LONGEST_INPUT = 1 << 16
CONFIG = b"""{"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 99,
"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32}}"""


def seeds(kind: str) -> list[bytes]:
    """Whole or beginning files to start from; none where the format is found from nothing."""
    if kind == "gguf":
        layers = RECIPES_FOLDER / "smollm2-135m-draft-layers.gguf"
        return [layers.read_bytes()[:LONGEST_INPUT]]
    if kind == "profile":
        return [path.read_bytes() for path in sorted(DEVICES_FOLDER.glob("*.toml"))]
    if kind == "recipe":
        return [path.read_bytes() for path in sorted(RECIPES_FOLDER.glob("*.toml"))]
    return [CONFIG] if kind == "config" else []


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in READERS:
        raise SystemExit(__doc__)
    kind = sys.argv.pop(1)
    name, read = READERS[kind]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        for index, content in enumerate(seeds(kind)):
            (corpus / str(index)).write_bytes(content)
        path = Path(folder, name)

        def one_input(data: bytes) -> None:
            path.write_bytes(data)
            try:
                read(path)
            except EdgeprofError as error:
                if "\n" in str(error):
                    raise AssertionError("an error of several lines") from error

        atheris.Setup([*sys.argv, f"-max_len={LONGEST_INPUT}", str(corpus)], one_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
