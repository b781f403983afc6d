"""Power rails by their name on the board, as its sensor chips (INA3221, INA238) measure them.

Knows nothing of which rails overlap: they are added up only where a board's profile says how.
"""

import posixpath
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import prod

from msgspec import Struct

from edgeprof.hardware.board_files import BoardFiles
from edgeprof.telemetry.nodes import Node
from edgeprof.telemetry.signals import MODULE_SUM, rail_signal
from edgeprof.telemetry.source import Absence, BoardFigures, Channel, Offer, Reader, Reading
from edgeprof.telemetry.sources.sysfs_polling import absent, untaken

_RATE_HZ = 10
_TOTAL = "power_w.total"
_I2C = "/sys/bus/i2c/devices"
_HWMON = "/sys/class/hwmon"
_OLD_DRIVER = "/sys/bus/i2c/drivers/ina3221x"  # JetPack 4 and before
_CHANNELS = 3  # of an INA3221; in4 to in7 are its shunt voltages and their sum
_LONGEST_UPDATE_MS = 60_000
_MOST_RAILS = 64
_FIND_EVERY_NS = 1_000_000_000


class _Rail(Struct, frozen=True, kw_only=True):
    """Watts are the product of the nodes' numbers, over ``per_watt``. ``chip`` is the folder of the
    chip, whose own name changes whenever it is registered anew."""

    name: str
    chip: str
    paths: tuple[str, ...]
    per_watt: int
    window_s: float | None = None

    @property
    def identity(self) -> tuple[str, str, int]:
        """What stays of a rail when its chip is registered anew: where that sits, and the label."""
        return posixpath.dirname(self.chip), self.name, len(self.paths)


class _Rails:
    """Reads rails by their signals. One whose chip went away is looked for again, at most once a
    second, and taken for the same only where one alone has its place and label."""

    def __init__(
        self, files: BoardFiles, rails: Mapping[str, _Rail], clock: Callable[[], int]
    ) -> None:
        self._files = files
        self._rails = rails
        self._clock = clock
        self._nodes = {signal: _nodes(files, rail) for signal, rail in rails.items()}
        self._gone: set[str] = set()
        self._find_ns = 0

    def read(self) -> dict[str, Reading]:
        if self._gone and self._clock() >= self._find_ns:
            self._find_ns = self._clock() + _FIND_EVERY_NS
            self._find()
        return {signal: self._watts(signal) for signal in self._rails}

    def _watts(self, signal: str) -> Reading:
        nodes = self._nodes[signal]
        if signal in self._gone:  # another rail may have its path by now
            return Reading(None, reason=_why(nodes))
        numbers = [node.number() for node in nodes]
        known = [number for number in numbers if number is not None]
        if len(known) == len(numbers):
            return Reading(prod(known) / self._rails[signal].per_watt, " x ".join(map(str, known)))
        if any(node.gone for node in nodes):
            self._gone.add(signal)
        return Reading(None, reason=_why(nodes))

    def _find(self) -> None:
        found = _unique(_all_rails(self._files))
        own = _unique(self._rails.values())
        for signal in list(self._gone):
            identity = self._rails[signal].identity
            if identity in own and (rail := found.get(identity)) is not None:
                self._nodes[signal] = _nodes(self._files, rail)
                self._gone.remove(signal)


def open_power(
    files: BoardFiles, board: BoardFigures, clock: Callable[[], int] = time.monotonic_ns
) -> Offer:
    """One reader for all rails, so that a sum is of one time."""
    rails = _by_signal(files)
    if not rails:
        return Offer(absences=[absent("power_w", "there is no power sensor that edgeprof knows")])
    measured = _Rails(files, rails, clock)
    summed = [rail_signal(name) or name for name in board.module_rails]
    has_sum = bool(summed) and all(signal in rails for signal in summed)

    def read() -> Mapping[str, Reading]:
        readings = measured.read()
        if has_sum:
            readings[MODULE_SUM] = _sum([readings[signal] for signal in summed])
        return readings

    channels = [_channel(signal, rail) for signal, rail in rails.items()]
    if has_sum:
        channels.append(Channel(name=MODULE_SUM, note=f"sum of {', '.join(board.module_rails)}"))
    reader = Reader(
        source="sysfs", name="power rails", channels=channels, rate_hz=_RATE_HZ, read=read
    )
    return Offer(
        readers=[reader], absences=list(_absences(rails, has_sum=has_sum, declared=bool(summed)))
    )


def _by_signal(files: BoardFiles) -> dict[str, _Rail]:
    """What the board calls VDD_IN or VIN is its total. Where it has two, the first is."""
    rails: dict[str, _Rail] = {}
    for rail in _all_rails(files):
        signal = rail_signal(rail.name)
        if signal == _TOTAL and signal in rails:
            signal = f"power_w.{rail.name}"
        if signal is not None:
            rails[untaken(signal, rails)] = rail
    return rails


def _all_rails(files: BoardFiles) -> list[_Rail]:
    return [*_hwmon_rails(files), *_old_driver_rails(files)][:_MOST_RAILS]


def _unique(rails: Collection[_Rail]) -> dict[tuple[str, str, int], _Rail]:
    """Those that can be told apart from all others."""
    times = Counter(rail.identity for rail in rails)
    return {rail.identity: rail for rail in rails if times[rail.identity] == 1}


def _nodes(files: BoardFiles, rail: _Rail) -> list[Node]:
    return [Node(files, path) for path in rail.paths]


def _why(nodes: Sequence[Node]) -> str | None:
    return next((node.reason for node in nodes if node.reason is not None), None)


def _hwmon_rails(files: BoardFiles) -> Iterator[_Rail]:
    for chip in _chips(files):
        kind = files.read_line(f"{chip}/name")
        if kind == "ina3221":
            update_ms = files.read_count(f"{chip}/update_interval")
            for channel in range(1, _CHANNELS + 1):
                yield _Rail(
                    name=files.read_line(f"{chip}/in{channel}_label") or "",
                    chip=chip,
                    paths=(f"{chip}/in{channel}_input", f"{chip}/curr{channel}_input"),
                    per_watt=1_000_000,  # mV x mA
                    window_s=_seconds(update_ms),
                )
        elif kind == "ina238":  # the carrier's input on Thor, which has no label
            microwatts = f"{chip}/power1_input"
            yield _Rail(name="VIN", chip=chip, paths=(microwatts,), per_watt=1_000_000)


def _old_driver_rails(files: BoardFiles) -> Iterator[_Rail]:
    for chip in files.names(_OLD_DRIVER):
        for device in files.names(f"{_OLD_DRIVER}/{chip}"):
            if device.startswith("iio:device"):
                folder = f"{_OLD_DRIVER}/{chip}/{device}"
                for channel in range(_CHANNELS):
                    yield _Rail(
                        name=files.read_line(f"{folder}/rail_name_{channel}") or "",
                        chip=folder,
                        paths=(f"{folder}/in_power{channel}_input",),
                        per_watt=1000,  # mW
                    )


def _chips(files: BoardFiles) -> list[str]:
    """The folders of all hwmon devices, each once, by a path that no other device can take over
    when they are numbered anew."""
    folders = [
        f"{_I2C}/{device}/hwmon/{name}"
        for device in files.names(_I2C)
        for name in files.names(f"{_I2C}/{device}/hwmon")
    ]
    folders += [f"{_HWMON}/{name}" for name in files.names(_HWMON)]
    return list(dict.fromkeys(filter(None, map(files.where, folders))))


def _seconds(update_ms: int | None) -> float | None:
    """The time in which an INA3221 measures all its channels as often as it averages."""
    if update_ms is None or not 0 < update_ms <= _LONGEST_UPDATE_MS:
        return None
    return update_ms / 1000


def _channel(signal: str, rail: _Rail) -> Channel:
    if rail.window_s is None:
        return Channel(name=signal, node=rail.paths[0])
    return Channel(
        name=signal,
        node=rail.paths[0],
        window_s=rail.window_s,
        window_kind="boxcar",
        window_basis="documented",
    )


def _sum(watts: Sequence[Reading]) -> Reading:
    known = [reading.value for reading in watts if reading.value is not None]
    if len(known) == len(watts):
        return Reading(sum(known))
    return Reading(None, reason=next((one.reason for one in watts if one.value is None), None))


def _absences(rails: Mapping[str, _Rail], *, has_sum: bool, declared: bool) -> Iterator[Absence]:
    if _TOTAL not in rails:
        yield absent(_TOTAL, f"no rail of this board is its total: it measures {_names(rails)}")
    if declared and not has_sum:
        yield absent(MODULE_SUM, f"not all rails of the sum are there, only {_names(rails)}")


def _names(rails: Mapping[str, _Rail]) -> str:
    return ", ".join(rail.name for rail in rails.values())
