"""Every copy of jetson-stats on a machine, and the one that its service runs. Reads files alone.

Several copies are the rule: the board's, one of a virtual environment, one of pipx or uv. A client
reaches a service of its own release (major.minor) only.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from edgeprof.hardware.board_files import BoardFiles, printable

UNIT = "/etc/systemd/system/jtop.service"
_UNITS = (UNIT, "/usr/lib/systemd/system/jtop.service", "/lib/systemd/system/jtop.service")
_METADATA = re.compile(r"jetson_stats-(\d{1,4}(?:\.\w{1,12})*)(?:-py\d\.\d+)?\.(?:dist|egg)-info")
_PYTHON = re.compile(r"python\d(?:\.\d+)?")
_PREFIXES = ("/usr/local", "/usr")
_HOME_PREFIXES = (
    ".local",
    ".local/share/pipx/venvs/jetson-stats",
    ".local/pipx/venvs/jetson-stats",
    ".local/share/uv/tools/jetson-stats",
)
_ROOT_PREFIXES = ("/opt/pipx/venvs/jetson-stats", "/root/.local")
_LIBRARIES = ("site-packages", "dist-packages")
_EXEC = re.compile(r"^ExecStart\s*=\s*[-@:+!]*(.{1,500})$", re.MULTILINE)


class JtopCopy(Struct, frozen=True, kw_only=True):
    """An installed jetson-stats: the folder that holds it, and the script beside it, if any."""

    version: str
    folder: str
    script: str | None = None


class JtopService(Struct, frozen=True, kw_only=True):
    """What systemd starts; ``version`` is that of the copy it belongs to, where one does."""

    unit: str
    command: str | None
    version: str | None


class Installs(Struct, frozen=True, kw_only=True):
    """All of it."""

    copies: list[JtopCopy]
    service: JtopService | None


def find_installs(files: BoardFiles, home: str | None, prefixes: Sequence[str] = ()) -> Installs:
    """``prefixes`` are further environments to look into, that of edgeprof for one."""
    homes = [] if home is None else [f"{home}/{prefix}" for prefix in _HOME_PREFIXES]
    everywhere = dict.fromkeys((*prefixes, *_PREFIXES, *homes, *_ROOT_PREFIXES))
    copies = list(_copies(files, everywhere))
    return Installs(copies=copies, service=_service(files, copies))


def same_release(one: str, other: str) -> bool:
    """Whether client and service of these versions speak to each other."""
    return one.split(".")[:2] == other.split(".")[:2]


def _copies(files: BoardFiles, prefixes: Iterable[str]) -> Iterator[JtopCopy]:
    seen = set()
    for prefix in prefixes:
        for folder in _library_folders(files, prefix):
            place = files.where(folder)
            if place in seen:
                continue
            seen.add(place)
            for name in files.names(folder):
                if match := _METADATA.fullmatch(name):
                    script = f"{prefix}/bin/jtop"
                    there = "jtop" in files.names(f"{prefix}/bin")
                    yield JtopCopy(
                        version=match[1], folder=folder, script=script if there else None
                    )


def _library_folders(files: BoardFiles, prefix: str) -> Iterator[str]:
    for name in files.names(f"{prefix}/lib"):
        if _PYTHON.fullmatch(name):
            yield from (f"{prefix}/lib/{name}/{library}" for library in _LIBRARIES)


def _service(files: BoardFiles, copies: list[JtopCopy]) -> JtopService | None:
    for unit in _UNITS:
        text = files.read(unit)
        if text is None:
            continue
        found = _EXEC.search(text)
        command = printable(found[1]) if found else None
        return JtopService(unit=unit, command=command, version=_version(files, command, copies))
    return None


def _version(files: BoardFiles, command: str | None, copies: list[JtopCopy]) -> str | None:
    """Of the copy whose script or whose Python the command starts."""
    program = _program(command)
    if program is None:
        return None
    by_script = {copy.script: copy.version for copy in copies if copy.script}
    if program in by_script:
        return by_script[program]
    prefix = str(PurePosixPath(program).parent.parent)
    return next((copy.version for copy in copies if _below(copy.folder, prefix)), None)


def _program(command: str | None) -> str | None:
    try:
        words = shlex.split(command or "")
    except ValueError:
        return None
    return words[0] if words else None


def _below(folder: str, prefix: str) -> bool:
    return folder.startswith(f"{prefix}/lib/")
