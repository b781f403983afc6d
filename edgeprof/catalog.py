"""Finds device profiles, models, formats, cache types and recipes by name or path.

Names are compared without regard to case and separators; a name that is not known is answered with
the nearest ones. Data files are read on demand, and only those needed.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from edgeprof.errors import EdgeprofError, EnvironmentFault, UsageFault
from edgeprof.hardware.board_files import printable
from edgeprof.hardware.engines import EngineClass, EngineFile, EngineTable, FitFile, engine_table
from edgeprof.hardware.machine import cpu_model, usable_cores
from edgeprof.hardware.measured import (
    SCHEMA,
    UNKNOWN_PROCESSOR,
    EmcCalibration,
    Machine,
    MeasuredMachine,
    MeasuredMode,
    MeasuredProfile,
    profiles_folder,
    read_measured,
)
from edgeprof.hardware.profile import (
    AnnouncedBoard,
    DeviceProfile,
    PowerMode,
    load_board,
    load_profile,
)
from edgeprof.models.names import ModelName, ModelTable, resolve_model_name
from edgeprof.models.quantisation import FormatTable, StorageType
from edgeprof.models.shape import build_spec
from edgeprof.models.spec import ModelSpec
from edgeprof.naming import find_name, unknown_name
from edgeprof.tomlfile import convert, load_toml, read_toml

if TYPE_CHECKING:
    from edgeprof.hardware.identify import Identity


def _folder(package: str) -> Path:
    """Where a package lies; imported by name, as some are top-level folders of the project."""
    return Path(import_module(package).__path__[0])


DEVICES_FOLDER = _folder("edgeprof.device_profiles")
MODELS_FOLDER = _folder("edgeprof.models")
HARDWARE_FOLDER = _folder("edgeprof.hardware")
RECIPES_FOLDER = _folder("edgeprof.recipes")
_ALIASES_FILE = "aliases.toml"
_THIS_BOARD = "auto"
_THIS_MACHINE = "here"

# Types that a KV cache is kept in.
KV_TYPES = ("f16", "bf16", "f32", "fp8", "int8", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


class Device(Struct, frozen=True, kw_only=True):
    """A board in one of its modes, and the short name that it was asked for by, if any.

    ``measured`` is what `edgeprof probe` found on it, beside the datasheet.
    """

    profile: DeviceProfile
    mode: PowerMode
    alias: str | None = None
    measured: MeasuredProfile | None = None

    @property
    def peak_bandwidth_bytes_per_s(self) -> float:
        return self.profile.peak_bandwidth_bytes_per_s(self.mode)

    @property
    def sustained_bandwidth_bytes_per_s(self) -> float | None:
        """What real work reaches, by published measurements."""
        return self.profile.sustained_bandwidth_bytes_per_s(self.mode)

    @property
    def rates_flop_per_s(self) -> Mapping[str, float | None]:
        """The ceilings of arithmetic, by data type."""
        return self.profile.peak_flop_per_s(self.mode)


class MeasuredDevice(Struct, frozen=True, kw_only=True):
    """A machine of which no datasheet is known, by what `edgeprof probe` found on it."""

    profile: MeasuredMachine
    mode: MeasuredMode = MeasuredMode()
    alias: None = None

    @property
    def measured(self) -> MeasuredProfile:
        return self.profile.measured

    @property
    def peak_bandwidth_bytes_per_s(self) -> None:
        return None

    @property
    def sustained_bandwidth_bytes_per_s(self) -> float | None:
        """The most that was read."""
        return self.measured.best_bandwidth_bytes_per_s

    @property
    def rates_flop_per_s(self) -> Mapping[str, float | None]:
        """What was reached, by weight format."""
        return dict(self.measured.rates_flop_per_s())


AnyDevice = Device | MeasuredDevice


def device_names() -> list[str]:
    """The boards that are known, those that are only announced among them."""
    files = DEVICES_FOLDER.glob("*.toml")
    return sorted(file.stem for file in files if file.name != _ALIASES_FILE)


@lru_cache(maxsize=1)
def device_aliases() -> dict[str, str]:
    """Short names of boards, each with the BOARD or BOARD@MODE that it stands for."""
    path = DEVICES_FOLDER / _ALIASES_FILE
    return convert(read_toml(path), dict[str, str], path)


def find_board(text: str) -> DeviceProfile | AnnouncedBoard:
    """A board by name, short name or path; that of ``D@M`` too."""
    name, _ = _split_mode(text)
    if is_measured(name):
        return find_device(name).profile
    if find_name(name, [_THIS_BOARD]):
        return _sure_profile(identify_board())
    if _is_path(name):
        return load_board(Path(name))
    alias = find_name(name, device_aliases())
    board = name if alias is None else device_aliases()[alias].partition("@")[0]
    return load_board(DEVICES_FOLDER / f"{_device_name(board)}.toml")


def identify_board(root: Path = Path("/")) -> "Identity":
    """Which of the known boards the files below ``root`` are of."""
    from edgeprof.hardware.identify import identify  # most commands name their board

    boards = [load_board(DEVICES_FOLDER / f"{name}.toml") for name in device_names()]
    return identify(root, [board for board in boards if isinstance(board, DeviceProfile)])


def find_device(text: str, mode: str | None = None) -> Device:
    """A board by name, short name or path of a profile; ``D@M`` is board D in mode M, ``auto`` the
    board that this runs on, as it is now, ``here`` the same with what `edgeprof probe` found."""
    found = find_machine(text, mode)
    if isinstance(found, MeasuredDevice):
        raise UsageFault(
            f"{text}: this machine is no known board and has no power modes; `edgeprof probe"
            " --from` shows what was measured of it"
        )
    return found


def find_machine(text: str, mode: str | None = None) -> AnyDevice:
    """As ``find_device``; ``here``, or the path of a profile that a probe made, may also be of a
    machine that is no known board."""
    name, own_mode = _split_mode(text)
    if own_mode is not None and mode is not None:
        raise UsageFault(f"'{text}' names a mode already; leave out --mode {mode}")
    wanted = mode if own_mode is None else own_mode
    if find_name(name, [_THIS_BOARD]):
        return this_device(wanted)
    if is_measured(name):
        is_path = _is_path(name)
        return measured_device(read_measured(Path(name)) if is_path else this_measured(), wanted)
    if _is_path(name):
        profile = load_profile(Path(name))
        return Device(profile=profile, mode=profile.mode(wanted))
    alias = find_name(name, device_aliases())
    if alias is not None:
        name, _, alias_mode = device_aliases()[alias].partition("@")
        wanted = (alias_mode or None) if wanted is None else wanted
    profile = load_profile(DEVICES_FOLDER / f"{_device_name(name)}.toml")
    return Device(profile=profile, mode=profile.mode(wanted), alias=alias)


def this_device(mode: str | None = None, root: Path = Path("/")) -> Device:
    """The board that this runs on: in the mode and under the caps that it has now, or in a mode
    asked for, without them."""
    from edgeprof.hardware.identify import present_mode

    found = identify_board(root)
    profile = _sure_profile(found)
    if mode is not None:
        return Device(profile=profile, mode=profile.mode(mode), alias=_THIS_BOARD)
    present = present_mode(found)
    if present is None:
        raise EnvironmentFault(
            f"this is {profile.name}, but its power mode is not known: {found.warnings[-1]};"
            f" name it with --device {profile.name}@MODE"
        )
    return Device(profile=profile, mode=present, alias=_THIS_BOARD)


def measured_device(measured: MeasuredProfile, mode: str | None = None) -> AnyDevice:
    """The machine that a probe measured: its board's datasheet with the measurements beside, or
    these alone."""
    if measured.machine.profile is None:
        if mode is not None:
            raise UsageFault(f"a machine that is no known board has no mode '{mode}'")
        return MeasuredDevice(profile=MeasuredMachine(measured=measured))
    profile = load_profile(DEVICES_FOLDER / f"{_device_name(measured.machine.profile)}.toml")
    probed = measured.machine.power_mode
    present = profile.find_mode(probed) if probed is not None and mode is None else None
    return Device(
        profile=profile,
        mode=present or profile.mode(mode),
        alias=_THIS_MACHINE,
        measured=measured,
    )


def this_measured() -> MeasuredProfile:
    """The newest whole profile that a probe made of this machine as it is set now."""
    profiles = list(measured_profiles())
    for profile in profiles:
        if profile.complete and profile.kernels and is_this_machine(profile.machine):
            return profile
    why = (
        "none of them is of this machine, as it is set, and whole" if profiles else "there is none"
    )
    raise EnvironmentFault(
        f"'here' needs a profile in {profiles_folder()}, and {why}: run `edgeprof probe` first"
    )


def measured_profiles() -> Iterator[MeasuredProfile]:
    """What is in the user's folder, the newest first. Files that are damaged are passed over."""
    found = []
    with suppress(PermissionError):  # a folder that is somebody else's holds none of this user's
        for path in profiles_folder().glob("*.toml"):
            with suppress(EdgeprofError):
                found.append(read_measured(path))
    yield from sorted(found, key=lambda one: one.created_utc, reverse=True)


def is_this_machine(machine: Machine) -> bool:
    """Whether it is of the kind of this machine: of a board also in release and power mode."""
    found = identify_board()
    if found.facts.model is None:
        present = ("host", cpu_model() or UNKNOWN_PROCESSOR, usable_cores())
        return (machine.kind, machine.name, machine.cores) == present
    present_board = (printable(found.facts.model), found.facts.l4t, found.mode_name)
    return (machine.name, machine.l4t, machine.power_mode) == present_board


def measured_like(
    device: Mapping[str, Any], environment: Mapping[str, Any]
) -> MeasuredProfile | None:
    """The newest whole profile of a machine as a session describes it, set alike; None where there
    is none."""
    asked = (
        *(device.get(key) for key in ("name", "l4t", "power_mode")),
        environment.get("cores"),
    )
    for profile in measured_profiles():
        one = profile.machine
        alike = (one.name, one.l4t, one.power_mode, one.cores) == asked
        if alike and profile.complete and profile.kernels:
            return profile
    return None


def emc_calibrations(board: str | None, l4t: str | None) -> list[EmcCalibration]:
    """The newest calibration of each counter of exactly that board with exactly that release."""
    if board is None or l4t is None:
        return []
    newest: dict[str, EmcCalibration] = {}
    for profile in measured_profiles():
        for one in profile.emc:
            if (one.board, one.l4t) == (printable(board), l4t):
                newest.setdefault(one.node, one)
    return list(newest.values())


def find_model(text: str) -> tuple[ModelSpec, ModelName]:
    """A model by ``NAME``, ``NAME:FORMAT``, ``NAME-FORMAT``, short name or path. A name that is
    known goes before a file of that name: ``./NAME`` is the file."""
    models, formats = model_table(), format_table()
    found = resolve_model_name(text, models, formats)
    if found.model is None and _is_model_path(text):
        return _read_model(Path(text))
    if found.model is None:
        name = text.rpartition(":")[0] or text
        known = [*models.models, *models.aliases]
        raise UsageFault(unknown_name("model", name, known) + "; a path to a model is taken too")
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


def is_model_name(text: str) -> bool:
    """Whether ``find_model`` takes the text for a name, not for a path."""
    return resolve_model_name(text, model_table(), format_table()).model is not None


def _is_model_path(text: str) -> bool:
    """What exists is a path, and what looks like one."""
    if text.endswith((".gguf", ".onnx", ".json", ".safetensors")) or "/" in text:
        return True
    return os.path.lexists(text)


def _read_model(path: Path) -> tuple[ModelSpec, ModelName]:
    from edgeprof.models.readers.describe import describe_path  # not needed for names

    spec = describe_path(path)
    name = ModelName(asked=str(path), model=spec.name, quantisation=spec.quantisation)
    return spec, name


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


def find_engine(text: str | None = None) -> EngineClass:
    """The class of an engine by name; None, or one that nobody has measured, is the widest."""
    return engines().of_engine(text)


def measured_engine(measured: MeasuredProfile) -> EngineClass | None:
    """The class that decodes on the provider that was probed; None where that is a GPU."""
    return engines().classes["cpu"] if measured.provider == "cpu" else None


def engine_classes() -> tuple[EngineClass, ...]:
    """The classes that engines decoding on a GPU belong to."""
    table = engines()
    return tuple(table.classes[name] for name in ("tuned", "general", "serving"))


@lru_cache(maxsize=1)
def engines() -> EngineTable:
    """All engine classes and kernels."""
    return engine_table(
        load_toml(HARDWARE_FOLDER / "engines.toml", EngineFile),
        load_toml(HARDWARE_FOLDER / "expected.toml", FitFile),
    )


@lru_cache(maxsize=1)
def model_table() -> ModelTable:
    """All models that are known by name."""
    return load_toml(MODELS_FOLDER / "models.toml", ModelTable)


@lru_cache(maxsize=1)
def format_table() -> FormatTable:
    """All storage types and formats."""
    return load_toml(MODELS_FOLDER / "formats.toml", FormatTable)


def _sure_profile(found: "Identity") -> DeviceProfile:
    if found.profile is None or found.confidence == "low":
        raise EnvironmentFault(f"{found.doubt}; name the board with --device")
    return found.profile


def _device_name(name: str) -> str:
    known = device_names()
    found = find_name(name, known)
    if found is None:
        raise UsageFault(unknown_name("device profile", name, [*known, *device_aliases()]))
    return found


def _split_mode(text: str) -> tuple[str, str | None]:
    """``D@M`` in two; the mode behind the last @, which a folder's name may hold too."""
    if "@" not in text or text.endswith(".toml"):
        return text, None
    name, _, mode = text.rpartition("@")
    return name, mode


def is_measured(text: str) -> bool:
    """Whether ``find_device`` takes it for what a probe measured: ``here``, or a profile's path."""
    name, _ = _split_mode(text)
    if find_name(name, [_THIS_MACHINE]):
        return True
    return name.endswith(".toml") and read_toml(Path(name)).get("schema") == SCHEMA


def _is_path(text: str) -> bool:
    """A name never ends in .toml and has no folder in front."""
    return text.endswith(".toml") or "/" in text
