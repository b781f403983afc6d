"""Lends one user read-only descriptors of a fixed list of board files that only root can open.

Stand-alone, standard library only: ``sudo edgeprof sensor`` replaces itself by this file. It never
reads the files it opens and knows nothing of what they say; the borrower reads them, with time
stamps of its own.

What runs as root: opening the files below, making the default folder of the socket, ``listen``.
The socket is bound with the user's rights, so a path with links or a folder of somebody else leads
nowhere the user could not go. Then root is given up for good.

Why lending descriptors shows and permits no more than sending the text would:

- They are open for reading, which cannot be changed afterwards. Opening one anew for writing, by
  /proc/self/fd, is checked against the file's own mode; a file that anybody but root may write, or
  that root does not own, is not lent.
- Each is one regular file, never a folder, so it leads to no other file.
- They go to peers whose user the kernel vouches for (SO_PEERCRED): the user, or root.
- What differs: a descriptor lasts until its borrower ends, also when the sensor has ended before.

What the user learns is how busy the memory is, whoever keeps it busy. That is why the kernel shows
it to root alone by default, and why it is lent to one user and not to all.
"""

import argparse
import ctypes
import json
import os
import resource
import signal
import socket
import stat
import struct
import sys
from array import array
from types import FrameType

SCHEMA = "edgeprof.sensor/1"

_DEBUG = "/sys/kernel/debug"
NODES = (
    f"{_DEBUG}/cactmon/mc_all",
    f"{_DEBUG}/cactmon/sample_period_usec",
    "/sys/kernel/actmon_avg_activity/mc_all",
    f"{_DEBUG}/bpmp/debug/actmon/mc_all_avg_activity",
    f"{_DEBUG}/bpmp/debug/actmon/mc_all_last_prd_activity",
    f"{_DEBUG}/bpmp/debug/clk/emc/rate",
    f"{_DEBUG}/bpmp/debug/clk/emc/max_rate",
    f"{_DEBUG}/bpmp/debug/clk/emc/min_rate",
    f"{_DEBUG}/bpmp/debug/clk/emc/mrq_rate_locked",
    f"{_DEBUG}/bpmp/debug/clk/nafll_gpc0/pto_counter",
    f"{_DEBUG}/bpmp/debug/clk/nafll_gpc1/pto_counter",
    f"{_DEBUG}/bpmp/debug/clk/nafll_gpc2/pto_counter",
    f"{_DEBUG}/clk/override.emc/clk_rate",
    f"{_DEBUG}/clk/emc/clk_rate",
    f"{_DEBUG}/tegra_bwmgr/emc_max_rate",
    f"{_DEBUG}/tegra_bwmgr/emc_min_rate",
)

_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LONGEST_PATH_BYTES = 90  # of the 107 that a socket's address may have; the rest is for bind
_WAITING_PEERS = 128
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38  # prctl(2)
_UCRED = struct.Struct("iII")  # pid, uid, gid


class Refusal(Exception):
    """The sensor cannot or must not serve; the text says why and what to do."""


def socket_path(uid: int) -> str:
    """Where the sensor of that user listens unless told otherwise."""
    return f"/run/edgeprof-{uid}/sensor.sock"


def command_line(python: str, path: str, uid: int, gid: int) -> list[str]:
    """How to start this file as root: isolated and without site-packages, so that nothing but the
    standard library runs as root."""
    options = ["--socket", path, "--uid", str(uid), "--gid", str(gid)]
    return [python, "-I", "-S", "-B", __file__, *options]


def peer_uid(connection: socket.socket) -> int:
    """Who connected, or at the other end: who called listen, as the kernel recorded it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    uid: int = _UCRED.unpack(credentials)[1]
    return uid


def main() -> int:
    options = _options()
    for number in _ENDINGS:
        signal.signal(number, _end)
    try:
        _run(options.socket, options.uid, options.gid)
    except Refusal as refusal:
        _say(f"Error: {refusal}")
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        _say(f"Error: {where}{error.strerror}")
    return 3


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Lend one user the EMC counters of this board.")
    parser.add_argument("--socket", type=os.path.abspath, help="where to listen")
    parser.add_argument("--uid", type=int, required=True, help="whom to serve")
    parser.add_argument("--gid", type=int, required=True, help="the group to run as")
    options = parser.parse_args()
    for number in (options.uid, options.gid):
        if not 0 < number < 2**32 - 1:
            parser.error(f"{number}: not the number of a user or group other than root")
    options.socket = options.socket or socket_path(options.uid)
    if len(os.fsencode(options.socket)) > LONGEST_PATH_BYTES:
        parser.error(f"--socket: longer than {LONGEST_PATH_BYTES} bytes")
    return options


def _run(path: str, uid: int, gid: int) -> None:
    """Serve until a signal ends the process."""
    if os.geteuid() != 0:
        raise Refusal("opening the EMC counters takes root: start it by sudo")
    nodes = _open_nodes()
    if path == socket_path(uid):
        _make_folder(os.path.dirname(path), uid, gid)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.seteuid(uid)
    listener = _bind(path)
    inode = os.lstat(path).st_ino
    os.seteuid(0)
    listener.listen(_WAITING_PEERS)  # so that borrowers are told that root listens
    _give_up_root(uid)
    try:
        _say(f"lending {len(nodes)} read-only nodes to user {uid} at {path}; Ctrl-C ends it")
        _serve(listener, nodes, uid)
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        _remove(path, inode)


def _open_nodes() -> dict[str, int]:
    """The nodes that this board has. Raises Refusal where there is none."""
    nodes: dict[str, int] = {}
    refused = False
    for path in NODES:
        try:
            nodes[path] = _open_node(path)
            _say(f"  {path}")
        except FileNotFoundError:
            pass  # every board has a few of the list
        except (OSError, Refusal) as error:
            refused = True
            _say(f"  not lent: {path}: {getattr(error, 'strerror', None) or error}")
    if nodes:
        return nodes
    if refused:
        raise Refusal("none of the EMC counters of this board may be lent, for the reasons above")
    if not os.path.ismount(_DEBUG):
        raise Refusal(
            f"no EMC counter can be opened: debugfs is not mounted at {_DEBUG};"
            f" sudo mount -t debugfs debugfs {_DEBUG}"
        )
    raise Refusal(
        f"no EMC counter can be opened below {_DEBUG}: this is no Jetson, or its kernel lacks the"
        " module tegra_cactmon_mc_all"
    )


def _open_node(path: str) -> int:
    """Raises Refusal for what would let the borrower do more than read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        why = "not a regular file"
    elif status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        why = "others than root may write it"
    else:
        return descriptor
    os.close(descriptor)
    raise Refusal(why)


def _make_folder(folder: str, uid: int, gid: int) -> None:
    """The user's own folder in /run, where only root can put anything in the way."""
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid not in (0, uid):
            raise Refusal(f"{folder}: not a folder of user {uid}; remove it") from None
    os.chown(folder, uid, gid, follow_symlinks=False)


def _bind(path: str) -> socket.socket:
    """A socket at ``path`` that its owner alone may connect to. Runs with the user's rights.

    It gets its name once it is complete; one that is left over from before is replaced.
    """
    folder = os.stat(os.path.dirname(path)).st_mode
    if folder & stat.S_IWOTH and not folder & stat.S_ISVTX:
        raise Refusal(f"{path}: anybody may replace files in this folder; choose another --socket")
    _refuse_occupied(path)
    os.umask(0o177)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    unfinished = f"{path}.{os.getpid()}"
    try:
        listener.bind(unfinished)
        os.rename(unfinished, path)
    except OSError as error:
        _remove(unfinished)
        raise Refusal(
            f"{path}: {error.strerror}; the socket belongs in a folder that user"
            f" {os.geteuid()} may write, without another one's file in its place"
        ) from error
    return listener


def _refuse_occupied(path: str) -> None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(status.st_mode):
        raise Refusal(f"{path}: exists and is not a socket; choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return  # nobody listens: its sensor was killed
        except OSError as error:
            raise Refusal(f"{path}: in use: {error.strerror}") from error
    raise Refusal(f"{path}: a sensor is listening there; end it or choose another --socket")


def _give_up_root(uid: int) -> None:
    """For good; verified."""
    os.setresuid(uid, uid, uid)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for option, value in ((_PR_SET_NO_NEW_PRIVS, 1), (_PR_SET_DUMPABLE, 0)):
        rest = [ctypes.c_ulong(argument) for argument in (value, 0, 0, 0)]
        if ctypes.CDLL(None).prctl(option, *rest) != 0:
            raise Refusal("prctl(2) fails on this system")
    try:
        os.setuid(0)
    except PermissionError:
        return
    raise Refusal("root rights cannot be given up on this system")


def _serve(listener: socket.socket, nodes: dict[str, int], uid: int) -> None:
    """Answer each peer at once and let go of it: none can hold the sensor up."""
    answer = json.dumps({"schema": SCHEMA, "nodes": list(nodes)}).encode() + b"\n"
    strangers = set()
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.setblocking(False)
            caller = peer_uid(peer)
            if caller in (uid, 0):
                _lend(peer, answer, list(nodes.values()))
            elif caller not in strangers:
                strangers.add(caller)
                _say(f"refused user {caller}")


def _lend(peer: socket.socket, answer: bytes, descriptors: list[int]) -> None:
    lent = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
    try:
        peer.sendmsg([answer], [lent])
    except OSError as error:  # it is gone, or its user holds too many unread answers
        _say(f"an answer was not sent: {error.strerror}")


def _remove(path: str, inode: int | None = None) -> None:
    """Remove the socket, unless another sensor has put its own there meanwhile."""
    try:
        if inode in (None, os.lstat(path).st_ino):
            os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        _say(f"{path}: not removed: {error.strerror}")


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


def _say(line: str) -> None:
    print(f"edgeprof sensor: {line}" if line[0] != " " else line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
