"""Borrows from `edgeprof sensor` what only root can open. Knows nothing of what the files say.

Nothing that comes over the socket is believed: who listens is asked of the kernel, names are those
of the sensor's own list or dropped, and every descriptor must be a regular file open for reading.
"""

import fcntl
import os
import socket
import stat
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from edgeprof.telemetry.sensor import NODES, SCHEMA, peer_uid, socket_path

SOCKET_VARIABLE = "EDGEPROF_SENSOR"

_TIMEOUT_S = 1.0
_LARGEST_ANSWER_BYTES = 1 << 16
_MOST_DESCRIPTORS = 64


class Loan(NamedTuple):
    """Open descriptors by the path of the node on the board; ``refusal`` says why there is none."""

    nodes: Mapping[str, int]
    refusal: str | None = None


class _Answer(msgspec.Struct):
    schema: str
    nodes: list[str]


class _Fault(Exception):
    pass


def sensor_socket() -> str:
    """Where this user's sensor is looked for: $EDGEPROF_SENSOR, else its usual place."""
    return os.environ.get(SOCKET_VARIABLE) or socket_path(os.getuid())


def borrow_nodes() -> Mapping[str, int]:
    """What the sensor lends; nothing where there is no sensor."""
    return ask_sensor().nodes


def ask_sensor() -> Loan:
    """What the sensor lends, or why it lends nothing. Takes a second or two at the most.

    The descriptors are the caller's to close. A read must say where it begins (``os.pread``), for
    all borrowers share one file offset.
    """
    path = sensor_socket()
    try:
        answer, descriptors = _ask(path)
    except FileNotFoundError:
        return Loan({}, f"no sensor is running at {path}")
    except ConnectionRefusedError:
        return Loan({}, f"the sensor at {path} has ended without removing its socket")
    except (OSError, _Fault) as error:
        return Loan({}, f"the sensor at {path}: {getattr(error, 'strerror', None) or error}")
    try:
        names = _names(answer, len(descriptors))
    except _Fault as fault:
        _close(descriptors)
        return Loan({}, f"the sensor at {path}: {fault}")
    nodes = _accepted(names, descriptors)
    return Loan(nodes, None if nodes else f"the sensor at {path}: lends no node that is known")


def _ask(path: str) -> tuple[bytes, list[int]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(_TIMEOUT_S)
        connection.connect(path)
        if (owner := peer_uid(connection)) not in (0, os.getuid()):
            raise _Fault(f"belongs to user {owner}, and is not asked")
        answer, descriptors, flags, _ = socket.recv_fds(
            connection, _LARGEST_ANSWER_BYTES, _MOST_DESCRIPTORS
        )
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        _close(descriptors)
        raise _Fault("its answer is too long")
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return answer, descriptors


def _names(answer: bytes, count: int) -> Sequence[str]:
    if not answer:
        raise _Fault(f"does not serve user {os.getuid()}")
    try:
        message = msgspec.json.decode(answer, type=_Answer)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _Fault("its answer is damaged") from error
    if message.schema != SCHEMA:
        raise _Fault("is that of another version of edgeprof; start it again")
    if len(message.nodes) != count:
        raise _Fault("its answer is damaged")
    return message.nodes


def _accepted(names: Sequence[str], descriptors: Sequence[int]) -> Mapping[str, int]:
    nodes: dict[str, int] = {}
    for name, descriptor in zip(names, descriptors, strict=True):
        if name in NODES and name not in nodes and _readable_file(descriptor):
            nodes[name] = descriptor
        else:
            os.close(descriptor)
    return nodes


def _readable_file(descriptor: int) -> bool:
    mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
    return stat.S_ISREG(os.fstat(descriptor).st_mode) and mode == os.O_RDONLY


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
