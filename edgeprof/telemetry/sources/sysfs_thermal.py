"""Temperatures, what is done against heat, and how often a limit was hit."""

import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.session.records import WindowBasis, WindowKind
from edgeprof.telemetry.nodes import Node
from edgeprof.telemetry.signals import zone_signal
from edgeprof.telemetry.source import Offer
from edgeprof.telemetry.sources.sysfs_polling import absent, poll, untaken

_RATE_HZ = 1
_THERMAL = "/sys/class/thermal"
_HWMON = "/sys/class/hwmon"
_OFF_MILLIDEGREES = -256_000  # what the firmware says for a part that is switched off
_COUNTER = re.compile(r"(oc\d{1,3})_event_cnt")
_ODD = re.compile(r"[^A-Za-z0-9_.-]+")
_MOST_MEMBERS = 64
_LONGEST_NAME = 64


class _Part(NamedTuple):
    """A family of signals, and the files found for it by signal."""

    family: str
    name: str
    member: str
    found: Iterator[tuple[str, str]]
    window_kind: WindowKind = "instantaneous"
    window_basis: WindowBasis | None = "documented"
    convert: Callable[[int], float | None] = float


def open_thermal(files: BoardFiles) -> Offer:
    """A reader each for zones, cooling devices and over-current counters."""
    parts = (
        _Part("temp_c", "temperatures", "thermal zone", _zones(files), "unknown", None, _degrees),
        _Part("cooling_state", "cooling states", "cooling device", _cooling_devices(files)),
        _Part("throttle_events", "throttle counters", "over-current counter", _counters(files)),
    )
    readers, absences = [], []
    for part in parts:
        nodes: dict[str, Node] = {}
        for signal, path in islice(part.found, _MOST_MEMBERS):
            nodes[untaken(signal, nodes)] = Node(files, path)
        if nodes:
            window = part.window_kind, part.window_basis
            readers.append(poll(part.name, nodes, _RATE_HZ, *window, part.convert))
        else:
            absences.append(absent(part.family, f"this machine has no {part.member}"))
    return Offer(readers=readers, absences=absences)


def _zones(files: BoardFiles) -> Iterator[tuple[str, str]]:
    for folder, kind in _kinds(files, "thermal_zone"):
        if (signal := zone_signal(kind)) is not None:
            yield signal, f"{folder}/temp"


def _cooling_devices(files: BoardFiles) -> Iterator[tuple[str, str]]:
    for folder, kind in _kinds(files, "cooling_device"):
        if name := _ODD.sub("_", kind)[:_LONGEST_NAME]:
            yield f"cooling_state.{name}", f"{folder}/cur_state"


def _kinds(files: BoardFiles, prefix: str) -> Iterator[tuple[str, str]]:
    """The folders whose name starts so, and what each is of."""
    for name in files.names(_THERMAL):
        if name.startswith(prefix):
            folder = f"{_THERMAL}/{name}"
            yield folder, files.read_line(f"{folder}/type") or ""


def _counters(files: BoardFiles) -> Iterator[tuple[str, str]]:
    """How often the power input fell below or rose above its limits, since the start."""
    for device in files.names(_HWMON):
        folder = files.where(f"{_HWMON}/{device}")
        for name in [] if folder is None else files.names(folder):
            if counter := _COUNTER.fullmatch(name):
                yield f"throttle_events.{counter[1]}", f"{folder}/{name}"


def _degrees(millidegrees: int) -> float | None:
    return None if millidegrees == _OFF_MILLIDEGREES else millidegrees / 1000
