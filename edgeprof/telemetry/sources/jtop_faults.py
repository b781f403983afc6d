"""Why there is no jtop source, in words, and the step that mends it. Knows no readings."""

import grp
import os
import shlex
import subprocess
import sys
from pathlib import Path

from msgspec import Struct, structs

from edgeprof.hardware.board_files import printable
from edgeprof.telemetry.emc import SENSOR
from edgeprof.telemetry.sources.jtop_copies import Installs, JtopCopy, same_release

SOCKET = Path("/run/jtop.sock")
UNIT = Path("/etc/systemd/system/jtop.service")
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))

_SYSTEM_PYTHON = "/usr/bin/python3"
# Looks for the package without importing it.
_PROBE = "import importlib.util, sys; sys.exit(importlib.util.find_spec('jtop') is None)"
_PROBE_TIMEOUT_S = 4.0
_READS_THOR = [7, 2]
# Older ones have no such option: there pip installs the service, if root calls it.
_INSTALLS_SERVICE = [7, 0]
_RESTART_SERVICE = "sudo systemctl restart jtop.service"
_SYSTEM_LIBRARIES = Path("/usr/lib")  # where a distribution marks its Python as its own (PEP 668)


class Remedy(Struct, frozen=True, kw_only=True):
    """Why the source is lost, what mends it, and when trying again by oneself makes sense.

    ``commands`` are what the fix says to type, in its order, as far as it is that.
    ``only_if_met``: what never was there will hardly come by itself.
    """

    reason: str
    fix: str | None = None
    commands: tuple[str, ...] = ()
    restart_after_s: float | None = None
    only_if_met: bool = False


class ClientError(Struct, frozen=True, kw_only=True, tag_field="kind", tag="error"):
    """The client's last word: one of its kinds of error, and what the exception said."""

    error: str
    message: str
    python: str
    service_version: str | None = None
    client_version: str | None = None


_REMEDIES = {
    "no-service": Remedy(
        # A socket file stays behind a service that was killed; systemd starts it after 10 s.
        reason=f"no service answers at {SOCKET}",
        fix=_RESTART_SERVICE,
        restart_after_s=10.0,
        only_if_met=True,
    ),
    "authentication": Remedy(
        reason="the service refused the key of the client: two jetson-stats are installed",
        fix=f"remove one of them, then {_RESTART_SERVICE}",
    ),
    "no-data": Remedy(
        reason="the service was reached but gave no reading in time",
        fix=f"a longer interval, or {_RESTART_SERVICE}",
        restart_after_s=2.0,
    ),
    "lost": Remedy(reason="the service went away", fix=_RESTART_SERVICE, restart_after_s=10.0),
    "silent": Remedy(
        reason="the service stopped sending", fix=_RESTART_SERVICE, restart_after_s=10.0
    ),
}


HANGS = Remedy(
    reason="the jtop service does not answer (its worker hangs)",
    fix=_RESTART_SERVICE,
    restart_after_s=1.0,
)


def interpreters_with_jetson_stats() -> list[str]:
    """This interpreter and the system's, as far as jetson-stats is installed for them."""
    candidates = dict.fromkeys(python for python in (sys.executable, _SYSTEM_PYTHON) if python)
    return [python for python in candidates if _has_jetson_stats(python)]


def not_installed() -> Remedy:
    return Remedy(
        reason=f"jetson-stats is installed neither for {sys.executable} nor for {_SYSTEM_PYTHON}",
        fix='pip install "edgeprof[jetson]"',
    )


def unreachable() -> Remedy | None:
    """What can be said about the service's socket without a client."""
    if not SOCKET.exists():
        reason = f"the jtop service does not run: there is no {SOCKET}"
        return structs.replace(_start_service(reason), restart_after_s=10.0, only_if_met=True)
    return None if os.access(SOCKET, os.R_OK | os.W_OK) else _no_permission()


def installation_fault(
    installs: Installs, *, socket_is_there: bool, in_container: bool, pip: str
) -> Remedy | None:
    """What the installed files alone tell: a client without a service, or one that no service
    speaks to. None where they fit, or where jetson-stats, which is not needed, is not there."""
    copies, service = installs.copies, installs.service
    if not socket_is_there and copies and service is None:
        if in_container:
            return Remedy(
                reason=f"the client is here, and there is no {SOCKET} of the host's service",
                fix=f"start the container with -v {SOCKET}:{SOCKET}",
            )
        return _by_typing(
            f"the client of jetson-stats {copies[0].version} is here, its service is not: "
            "it was installed without sudo, or its service never was",
            _install_service(copies[0]),
        )
    if service is None or service.version is None or not copies:
        return None
    if any(same_release(copy.version, service.version) for copy in copies):
        return None
    return _by_typing(
        f"the service is jetson-stats {service.version}, the client {copies[0].version}: "
        "they speak only to their own release",
        f'{pip} install "jetson-stats~={_series(service.version)}"',
    )


def _by_typing(reason: str, *commands: str) -> Remedy:
    """What is mended by these commands, one after the other."""
    return Remedy(reason=reason, fix=", then ".join(commands), commands=commands)


def _system_pip() -> str:
    """How root installs a package for the system. From Ubuntu 24.04 on pip refuses that unless it
    is told that it is meant, as the README of jetson-stats has it."""
    marked = any(_SYSTEM_LIBRARIES.glob("python3*/EXTERNALLY-MANAGED"))
    return f"sudo pip3 install{' --break-system-packages' if marked else ''}"


def _install_service(copy: JtopCopy) -> str:
    """Root finds what lies in the system's folders alone."""
    if _release(copy.version) < _INSTALLS_SERVICE:
        return f'{_system_pip()} "jetson-stats~={_series(copy.version)}"'
    script = copy.script or "jtop"
    in_system = script in ("/usr/local/bin/jtop", "/usr/bin/jtop", "jtop")
    return f"sudo {'jtop' if in_system else shlex.quote(script)} --install-service"


def after_end(cause: str) -> Remedy:
    """For a client that ended without a last word."""
    return Remedy(
        reason=f"the client {printable(cause)}",
        fix=_RESTART_SERVICE,
        restart_after_s=10.0,
        only_if_met=True,
    )


def remedy(error: ClientError) -> Remedy:
    """For the last word of a client."""
    python = printable(error.python)
    if error.error == "no-permission":
        return _no_permission()
    if error.error == "version":
        return _other_version(error)
    if error.error == "python":
        return Remedy(
            reason=f"the service runs another Python, whose messages {python} cannot read",
            fix=f"run the service by this one: sudo {python} -m jtop --install-service",
        )
    known = _REMEDIES.get(error.error)
    said = printable(error.message)
    if known is not None:
        return structs.replace(known, reason=f"{known.reason} ({said})")
    return Remedy(reason=f"the client of {python} failed ({said})", fix=_RESTART_SERVICE)


def not_shown(signal: str, version: str | None) -> Remedy:
    """For a signal that the service, which is of the client's release, has no value for."""
    fix = f"{_RESTART_SERVICE}: it looks for what there is only when it starts"
    if signal.startswith("gpu_") and version is not None and _release(version) < _READS_THOR:
        fix = "newer jetson-stats (7.2) reads Thor's GPU through NVML and devfreq: upgrade it"
    shown = printable(version) if version else "of unknown version"
    return Remedy(reason=f"jetson-stats {shown} shows none on this board", fix=fix)


def nothing_yet(connected: bool) -> Remedy:
    """For a recording that ends before the service has told anything."""
    what = "told nothing" if connected else "not answered"
    return Remedy(reason=f"the jtop service had {what} yet when the recording ended")


def emc_not_believed(reason: str, *, sensor_helps: bool) -> Remedy:
    """Released versions of jetson-stats lack a factor of 100 in it and cut off what is left."""
    return Remedy(
        reason=f"the EMC percentage of jetson-stats is not used: {reason}",
        fix=SENSOR if sensor_helps else None,
    )


def _start_service(reason: str) -> Remedy:
    if any(mark.exists() for mark in CONTAINER_MARKS):
        return Remedy(reason=reason, fix=f"start the container with -v {SOCKET}:{SOCKET}")
    if UNIT.exists():
        return _by_typing(reason, _RESTART_SERVICE)
    return _by_typing(reason, f"{_system_pip()} -U jetson-stats", "sudo jtop --install-service")


def _no_permission() -> Remedy:
    try:
        group_id = SOCKET.stat().st_gid
        group = grp.getgrgid(group_id).gr_name
    except (OSError, KeyError):
        group_id, group = None, "jtop"
    if group_id == 0:
        # To be in root's group is not what anybody should be told.
        return _by_typing(
            f"{SOCKET} is open to root only: the service was installed without its group",
            "sudo groupadd -f jtop",
            _RESTART_SERVICE,
        )
    return Remedy(
        reason=f"{SOCKET} is open to group {group} only, and this process is not in it",
        fix=f'sudo usermod -aG {group} "$USER", then log in again or run `newgrp {group}`; '
        f"in a container --group-add {group if group_id is None else group_id}",
        commands=(f'sudo usermod -aG {group} "$USER"', f"newgrp {group}"),
    )


def _other_version(error: ClientError) -> Remedy:
    """Client and service must be of one major.minor release: the older one is to be upgraded."""
    service, client = error.service_version or "?", error.client_version or "?"
    python = printable(error.python)
    if _release(service) < _release(client):
        fix = (
            f'upgrade the service: {_system_pip()} -U "jetson-stats~={_series(client)}", then '
            f"{_RESTART_SERVICE}"
        )
    else:
        fix = f'upgrade the client: {python} -m pip install "jetson-stats~={_series(service)}"'
    return Remedy(
        reason=f"the service is jetson-stats {printable(service)}, the client of {python} is "
        f"{printable(client)}: they speak only to their own release",
        fix=fix,
    )


def _release(version: str) -> list[int]:
    return [int(part) if part.isdecimal() else 0 for part in version.split(".")[:2]]


def _series(version: str) -> str:
    return ".".join(str(number) for number in (*_release(version), 0))


def _has_jetson_stats(python: str) -> bool:
    try:
        done = subprocess.run(
            [python, "-I", "-c", _PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=_PROBE_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
