"""Gets the models of a recipe ready: fetched where only named, converted where a GGUF."""

from pathlib import Path

from edgeprof.convert.folder import cached_conversion
from edgeprof.convert.head_rows import read_head_rows
from edgeprof.errors import UsageFault
from edgeprof.models.cache import cache_dir
from edgeprof.models.decoder_folder import DecoderFolder, read_decoder_folder
from edgeprof.models.fetch import Talk, fetch
from edgeprof.models.sources import is_source, known_models, refuse_unknown
from edgeprof.recipe import ModelUse, Recipe, model_uses


def prepare(recipe: Recipe, folder: Path, *, talk: Talk) -> dict[str, DecoderFolder]:
    """A decoder folder for every target and model drafter, by its name in the recipe.

    Paths in the recipe are taken from ``folder``, the recipe's own. What has to be fetched or
    converted is said to ``talk`` before. All models and head rows are looked for before the
    first is fetched.
    """
    uses = model_uses(recipe)
    for key, use in uses.items():
        _tell_as_it_is(key, use, _locate(use, folder), talk)
        if use.head_rows:
            read_head_rows(folder / use.head_rows)
    for key, use in uses.items():
        if use.provider == "tensorrt":
            talk(
                f"{key}: TensorRT builds its engines when the model is first loaded, which can "
                "take many minutes; they are kept for the next time"
            )
    return {key: _decoder(use, folder, talk) for key, use in uses.items()}


def _locate(use: ModelUse, folder: Path) -> str:
    """A name or source for ``fetch``, or the path of a file or folder that is there."""
    if is_source(use.model) or use.model.lower() in known_models():
        return use.model
    path = folder / Path(use.model).expanduser()
    if not path.exists():
        looks_like_a_path = "/" in use.model or path.suffix == ".gguf"
        if not looks_like_a_path:
            refuse_unknown(use.model)
        raise UsageFault(f"{path}: no such model; the recipe names it as {use.model!r}")
    return str(path)


def _is_onnx(found: str) -> bool:
    return Path(found).is_dir() or found.endswith(".onnx")


def _tell_as_it_is(key: str, use: ModelUse, found: str, talk: Talk) -> None:
    """An ONNX decoder is not converted, so that what is asked of its conversion changes nothing."""
    if not _is_onnx(found):
        return
    asked = [name for name in ("requantise", "head_rows") if getattr(use, name)]
    if use.weights != "as-is" and not _has_form(found, use.weights):
        asked.insert(0, "weights")
    if asked:
        talk(f"{key}: {found} is run as it is; {', '.join(asked)} changes nothing")


def _has_form(found: str, weights: str) -> bool:
    """Whether the folder is a conversion to that form."""
    manifest = read_decoder_folder(Path(found)).manifest
    return manifest is not None and manifest.weights == weights


def _decoder(use: ModelUse, folder: Path, talk: Talk) -> DecoderFolder:
    found = _locate(use, folder)
    if _is_onnx(found):
        return read_decoder_folder(Path(found))
    model = fetch(found, talk=talk)
    return cached_conversion(
        model.path,
        model.sha256,
        cache=cache_dir() / "decoders",
        weights=use.weights,
        requantise=use.requantise,
        head_rows=folder / use.head_rows if use.head_rows else None,
        talk=talk,
    )
