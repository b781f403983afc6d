"""``edgeprof sensor``: becomes the sensor, a file of the standard library alone."""

import os
import pwd
import shlex
import sys

import click

from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.telemetry import sensor


@click.command()
@click.option(
    "--socket",
    "socket_path",
    metavar="PATH",
    help="Where to listen.  [default: /run/edgeprof-UID/sensor.sock]",
)
@click.option(
    "--user",
    metavar="UID",
    help="Whom to serve, by number or name.  [default: who called sudo]",
)
def command(socket_path: str | None, user: str | None) -> None:
    """Let one user read the board's EMC counters, which only root can open.

    Run it by sudo and leave it running; edgeprof finds it. It opens a fixed list of files for
    reading, gives root up, and lends them to that user alone. Ctrl-C ends it.
    """
    uid, gid = _whom(user)
    path = os.path.abspath(socket_path) if socket_path else sensor.socket_path(uid)
    if len(os.fsencode(path)) > sensor.LONGEST_PATH_BYTES:
        raise UsageFault(f"--socket: longer than {sensor.LONGEST_PATH_BYTES} bytes: {path}")
    arguments = sensor.command_line(sys.executable, path, uid, gid)
    if os.geteuid() != 0:
        raise EnvironmentFault(
            "only root can open the EMC counters; let this user read them with:"
            f" sudo {shlex.join(arguments)}"
        )
    os.execv(sys.executable, arguments)


def _whom(user: str | None) -> tuple[int, int]:
    """User and group, by number."""
    calling = os.environ.get("SUDO_UID") if os.geteuid() == 0 else str(os.getuid())
    name = calling if user is None else user
    if not name:
        raise UsageFault("say by --user whom to serve: a user's number or name")
    uid, gid = _account(name)
    if uid == 0:
        raise UsageFault(f"--user {name}: root needs no sensor; name the user who runs edgeprof")
    return uid, gid or uid


def _account(name: str) -> tuple[int, int]:
    """Of a name, or of a number, which need not have an account."""
    number = int(name) if name.isascii() and name.isdecimal() and len(name) <= 10 else None
    try:
        entry = pwd.getpwnam(name) if number is None else pwd.getpwuid(number)
    except (KeyError, OverflowError):
        if number is None or number >= 2**32 - 1:
            raise UsageFault(f"--user: there is no user {name!r}") from None
        return number, number
    return entry.pw_uid, entry.pw_gid
