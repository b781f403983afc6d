"""Finds device profiles, models, formats, cache types and recipes by name or path.

Names are compared without regard to case and separators; a name that is not known is answered with
the nearest ones. Data files are read on demand, and only those needed.
"""

from functools import lru_cache
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from edgeprof.errors import UsageFault
from edgeprof.hardware.profile import DeviceProfile, PowerMode, load_profile
from edgeprof.models.names import ModelName, ModelTable, resolve_model_name
from edgeprof.models.quantisation import FormatTable, StorageType
from edgeprof.models.spec import ModelSpec, build_spec
from edgeprof.naming import find_name, unknown_name
from edgeprof.tomlfile import convert, load_toml, read_toml


def _folder(package: str) -> Path:
    """Where a package lies; imported by name, as some are top-level folders of the project."""
    return Path(import_module(package).__path__[0])


DEVICES_FOLDER = _folder("edgeprof.device_profiles")
MODELS_FOLDER = _folder("edgeprof.models")
RECIPES_FOLDER = _folder("edgeprof.recipes")
_ALIASES_FILE = "aliases.toml"

# Types that a KV cache is kept in.
KV_TYPES = ("f16", "bf16", "f32", "fp8", "int8", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


class Device(Struct, frozen=True, kw_only=True):
    """A board in one of its modes, and the short name that it was asked for by, if any."""

    profile: DeviceProfile
    mode: PowerMode
    alias: str | None = None


def device_names() -> list[str]:
    """The boards that have a profile."""
    files = DEVICES_FOLDER.glob("*.toml")
    return sorted(file.stem for file in files if file.name != _ALIASES_FILE)


@lru_cache(maxsize=1)
def device_aliases() -> dict[str, str]:
    """Short names of boards, each with the BOARD or BOARD@MODE that it stands for."""
    path = DEVICES_FOLDER / _ALIASES_FILE
    return convert(read_toml(path), dict[str, str], path)


def find_device(text: str, mode: str | None = None) -> Device:
    """A board by name, short name or path of a profile; ``D@M`` is board D in mode M."""
    name, _, own_mode = text.partition("@") if not _is_path(text) else (text, "", "")
    if own_mode and mode:
        raise UsageFault(f"'{text}' names a mode already; leave out --mode {mode}")
    wanted = mode or own_mode or None
    if _is_path(name):
        profile = load_profile(Path(name))
        return Device(profile=profile, mode=profile.mode(wanted))
    alias = find_name(name, device_aliases())
    if alias is not None:
        name, _, alias_mode = device_aliases()[alias].partition("@")
        wanted = wanted or alias_mode or None
    profile = load_profile(DEVICES_FOLDER / f"{_device_name(name)}.toml")
    return Device(profile=profile, mode=profile.mode(wanted), alias=alias)


def find_model(text: str) -> tuple[ModelSpec, ModelName]:
    """A model in a format by ``NAME``, ``NAME:FORMAT``, ``NAME-FORMAT`` or short name."""
    models, formats = model_table(), format_table()
    found = resolve_model_name(text, models, formats)
    if found.model is None:
        name = text.rpartition(":")[0] or text
        known = [*models.models, *models.aliases]
        raise UsageFault(unknown_name("model", name, known) + _models_by_name_only(text))
    if found.quantisation is None:
        known = [*formats.formats, *formats.aliases]
        raise UsageFault(unknown_name("format", text.rpartition(":")[2], known))
    spec = build_spec(
        found.model,
        models.models[found.model],
        found.quantisation,
        formats.formats[found.quantisation],
        formats,
    )
    return spec, found


def find_kv_type(text: str) -> StorageType:
    """The element type of a KV cache by name."""
    name = find_name(text, KV_TYPES)
    if name is None:
        raise UsageFault(unknown_name("KV cache type", text, KV_TYPES))
    return format_table().storage[name]


def find_recipe(text: str) -> Path:
    """The file of a recipe by name or path."""
    if _is_path(text):
        return Path(text)
    names = sorted(file.stem for file in RECIPES_FOLDER.glob("*.toml"))
    name = find_name(text, names)
    if name is None:
        raise UsageFault(unknown_name("recipe", text, names))
    return RECIPES_FOLDER / f"{name}.toml"


@lru_cache(maxsize=1)
def model_table() -> ModelTable:
    """All models that are known by name."""
    return load_toml(MODELS_FOLDER / "models.toml", ModelTable)


@lru_cache(maxsize=1)
def format_table() -> FormatTable:
    """All storage types and formats."""
    return load_toml(MODELS_FOLDER / "formats.toml", FormatTable)


def _device_name(name: str) -> str:
    known = device_names()
    found = find_name(name, known)
    if found is None:
        raise UsageFault(unknown_name("device profile", name, [*known, *device_aliases()]))
    return found


def _is_path(text: str) -> bool:
    """A name never ends in .toml; a folder in front makes a path too (MAXN/10W is behind an @)."""
    return text.endswith(".toml") or "/" in text.partition("@")[0]


def _models_by_name_only(text: str) -> str:
    looks_like_file = "/" in text or text.endswith((".gguf", ".onnx", ".json"))
    return " (models are known by name here, not read from files)" if looks_like_file else ""
