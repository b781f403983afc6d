"""Describes the model at a path, whatever kind of file or folder it is; reads no weights."""

from pathlib import Path

from edgeprof.errors import EnvironmentFault, FileFault, UsageFault
from edgeprof.models.readers.gguf import MAGIC
from edgeprof.models.spec import ModelSpec

KINDS = (
    "a GGUF file, an ONNX decoder, a Hugging Face folder or config.json, or a folder for "
    "onnxruntime-genai"
)


def describe_path(path: Path) -> ModelSpec:
    """The model that the file or folder holds; UsageFault where there is nothing."""
    try:
        if not path.exists():
            raise UsageFault(f"{path}: no such file or folder")
    except (OSError, ValueError) as error:  # too long, or what no file system takes
        reason = (isinstance(error, OSError) and error.strerror) or error
        raise UsageFault(f"{str(path)[:80]!r} cannot be read: {reason}") from error
    try:
        spec = _describe_folder(path) if path.is_dir() else _describe_file(path)
    except OSError as error:
        raise EnvironmentFault(f"{path} cannot be read: {error.strerror}") from error
    if not spec.streamed_weight_bytes:
        raise FileFault(f"{path}: it holds no weights that decoding would read")
    return spec


def _describe_folder(path: Path) -> ModelSpec:
    from edgeprof.models.readers.hf import describe_hf
    from edgeprof.models.readers.onnx_model import describe_genai_folder, describe_onnx

    if (path / "genai_config.json").is_file():
        return describe_genai_folder(path)
    if (path / "config.json").is_file() or any(path.glob("*.safetensors")):
        return describe_hf(path)
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in (".gguf", ".onnx"))
    # Of a split file the first part stands for all.
    models = [file for file in files if "-of-" not in file.stem or "-00001-of-" in file.stem]
    if len(models) != 1:
        found = ", ".join(file.name for file in models[:6]) or "none"
        raise FileFault(f"{path}: {KINDS} is needed; models in this folder: {found}")
    return _describe_file(models[0]) if models[0].suffix != ".onnx" else describe_onnx(models[0])


def _describe_file(path: Path) -> ModelSpec:
    from edgeprof.models.readers.gguf_model import describe_gguf
    from edgeprof.models.readers.hf import describe_hf
    from edgeprof.models.readers.onnx_model import describe_onnx

    if not path.is_file():
        raise UsageFault(f"{path} is not a file that holds a model")
    suffix = path.suffix.lower()
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if start == MAGIC or suffix == ".gguf":
        return describe_gguf(path)
    if suffix == ".onnx":
        return describe_onnx(path)
    if suffix == ".safetensors" or path.name.endswith(".safetensors.index.json"):
        return describe_hf(path.parent)
    if path.name == "genai_config.json":
        return _describe_folder(path.parent)
    if suffix == ".json":
        return describe_hf(path)
    raise FileFault(f"{path}: {KINDS} is needed; this file is none of them")
