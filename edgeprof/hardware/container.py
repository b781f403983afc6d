"""Whether this is a container, and what `docker run` must give it so that the board can be read.

Judges by files below a root. The options are evaluated by the host's shell.
"""

from collections.abc import Iterator

from msgspec import Struct

from edgeprof.hardware.board_facts import CONF, RELEASE, STATUS
from edgeprof.hardware.board_files import BoardFiles

_MARKS = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}
_SYSTEMD_MARK = "/run/systemd/container"
_CGROUPS = ("/proc/1/cgroup",)
_KINDS = ("docker", "kubepods", "containerd", "lxc", "podman")
_JTOP = "/run/jtop.sock"
_DEBUG = "/sys/kernel/debug"
_GPU_DEVICES = ("nvmap", "nvhost-gpu", "nvidiactl", "nvidia0")


class MissingMount(Struct, frozen=True, kw_only=True):
    """Options of `docker run`, and what they bring."""

    options: str
    brings: str


class Container(Struct, frozen=True, kw_only=True):
    """``kind`` is what made the container. ``missing`` is for the reading of a Jetson board."""

    kind: str
    missing: list[MissingMount]


def read_container(files: BoardFiles, *, tegrastats: bool) -> Container | None:
    """None where nothing says that this is one. ``tegrastats`` tells whether that program is
    there."""
    kind = _kind(files)
    if kind is None:
        return None
    return Container(kind=kind, missing=list(_missing(files, tegrastats)))


def _kind(files: BoardFiles) -> str | None:
    for mark, kind in _MARKS.items():
        if _is_there(files, mark):
            return kind
    said = files.read_line(_SYSTEMD_MARK)
    if said:
        return said if said.isalnum() else "container"
    groups = " ".join(filter(None, map(files.read, _CGROUPS)))
    return next((kind for kind in _KINDS if kind in groups), None)


def _missing(files: BoardFiles, tegrastats: bool) -> Iterator[MissingMount]:
    devices = files.names("/dev")
    if not any(device in devices for device in _GPU_DEVICES):
        # Its devices are open to root and to that group of the host.
        group = '--group-add "$(getent group video | cut -d: -f3)"'
        brings = "the GPU and its libraries"
        yield MissingMount(options=f"--runtime nvidia {group}", brings=brings)
    if not files.names(_DEBUG):
        yield MissingMount(
            options='--user "$(id -u)" -v "/run/edgeprof-$(id -u):/run/edgeprof-$(id -u)"'
            ' -e "EDGEPROF_SENSOR=/run/edgeprof-$(id -u)/sensor.sock"',
            brings="the EMC counters, while `edgeprof sensor` runs on the host",
        )
    if not _is_there(files, _JTOP):
        yield MissingMount(
            options=f'-v {_JTOP}:{_JTOP} --group-add "$(getent group jtop | cut -d: -f3)"',
            brings="jtop, with the same version of jetson-stats inside",
        )
    if not tegrastats:
        program = "/usr/bin/tegrastats"
        yield MissingMount(options=f"-v {program}:{program}:ro", brings="tegrastats")
    if files.read_line(RELEASE) is None:
        yield MissingMount(options=f"-v {RELEASE}:{RELEASE}:ro", brings="the L4T release")
    if files.read(STATUS) is None or files.read(CONF) is None:
        folder = STATUS.rpartition("/")[0]
        yield MissingMount(
            options=f"-v {CONF}:{CONF}:ro -v {folder}:{folder}:ro", brings="the power mode"
        )


def _is_there(files: BoardFiles, path: str) -> bool:
    """Also a socket, or a file that may not be read."""
    folder, _, name = path.rpartition("/")
    return name in files.names(folder or "/")
