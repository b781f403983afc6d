"""The memory controller's (EMC) activity counter and clock, on every generation from Nano to Thor.

Two of the counters count busy clocks a millisecond. The scale of the others is not established:
nothing but the raw number is told, unless they were calibrated on this board.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, structs

from edgeprof.hardware.board_facts import DEVICE_TREES
from edgeprof.hardware.board_files import BoardFiles
from edgeprof.session.records import WindowBasis, WindowKind
from edgeprof.telemetry.emc import (
    NAME_THE_BOARD,
    NO_BUS_WIDTH,
    SENSOR,
    from_activity,
    from_traffic,
)
from edgeprof.telemetry.nodes import Node, Nodes
from edgeprof.telemetry.source import (
    Absence,
    BoardFigures,
    Calibration,
    Channel,
    Offer,
    Reader,
    Reading,
)
from edgeprof.telemetry.sources.sysfs_polling import absent

_RATE_HZ = 20
_BUSY, _CLOCK, _BANDWIDTH = "emc_busy_frac", "emc_clock_hz", "dram_bandwidth_bytes_per_s"
# The firmware writes 0 or 1 where it does not know the clock; no memory runs below 1 MHz.
_SLOWEST_HZ = 1_000_000
_DEBUG = "/sys/kernel/debug"
_CACTMON, _BPMP = f"{_DEBUG}/cactmon", f"{_DEBUG}/bpmp/debug"
_CLOCKS = (
    f"{_BPMP}/clk/emc/rate",
    "/sys/class/devfreq/bwmgr/cur_freq",
    f"{_DEBUG}/clk/override.emc/clk_rate",
    f"{_DEBUG}/clk/emc/clk_rate",
)
_CALIBRATE = "edgeprof probe"
_TEGRA = re.compile(r"nvidia,tegra\d")
_ORIN = "nvidia,tegra234"


class _Counter(Struct, frozen=True, kw_only=True):
    """A counter of activity, in kHz or in a unit that is not known, and the average it shows.

    ``calibration`` says what was found out about it on this very board.
    """

    path: str
    in_khz: bool = True
    calibration: Calibration | None = None
    window_s: float | None = None
    window_kind: WindowKind
    window_basis: WindowBasis | None = None
    note: str


_COUNTERS = (
    _Counter(
        path=f"{_CACTMON}/mc_all",
        window_kind="exponential",
        window_basis="assumed",
        note="running average over a number of samples that the firmware sets and nobody tells",
    ),
    _Counter(
        path="/sys/kernel/actmon_avg_activity/mc_all",
        window_s=0.896,
        window_kind="exponential",
        window_basis="assumed",
        note="running average over 128 samples of 7 ms by the driver's default, which a device "
        "tree may override",
    ),
    _Counter(
        path=f"{_BPMP}/actmon/mc_all_last_prd_activity",
        in_khz=False,
        window_s=0.020,
        window_kind="boxcar",
        window_basis="assumed",
        note="raw number of undocumented scale; that it is of the last 20 ms was found on one "
        "board",
    ),
    _Counter(
        path=f"{_BPMP}/actmon/mc_all_avg_activity",
        in_khz=False,
        window_kind="unknown",
        note="raw number of undocumented scale, averaged over an unknown time",
    ),
)


def open_emc(nodes: Nodes, board: BoardFigures) -> Offer:
    """One reader for counter and clock, so that both are of one time."""
    counters = {counter.path: counter for counter in _counters(board)}
    activity, clock = nodes.first(counters), open_clock(nodes)
    counter = None if activity is None else _with_period(counters[activity.path], nodes)
    channels = list(_channels(board, counter, clock))
    readers = []
    if channels:

        def read() -> Mapping[str, Reading]:
            return _read(activity, clock, board.bytes_per_emc_clock, counter)

        name = "EMC clock" if counter is None else "EMC activity"
        readers = [
            Reader(source="sysfs", name=name, channels=channels, rate_hz=_RATE_HZ, read=read)
        ]
    return Offer(readers=readers, absences=list(_absences(nodes, board, counter, clock)))


def open_counters(nodes: Nodes) -> dict[str, Node]:
    """All counters of activity that can be read, by their path."""
    found = ((counter.path, nodes.first([counter.path])) for counter in _COUNTERS)
    return {path: node for path, node in found if node is not None}


def has_counter(nodes: Nodes) -> bool:
    """Whether this is a board that counts activity, be it for root alone."""
    if not _socs(nodes.files):
        return False
    return bool(open_counters(nodes)) or not nodes.refused.isdisjoint(c.path for c in _COUNTERS)


def open_clock(nodes: Nodes) -> Node | None:
    """What tells the memory clock."""
    return nodes.first(_CLOCKS)


def _counters(board: BoardFigures) -> list[_Counter]:
    """With what was calibrated on this board; of an unknown scale the calibrated ones first."""
    calibrations = {one.node: one for one in board.emc_calibrations}
    counters = [_calibrated(counter, calibrations.get(counter.path)) for counter in _COUNTERS]
    return sorted(counters, key=lambda counter: not (counter.in_khz or counter.calibration))


def _calibrated(counter: _Counter, found: Calibration | None) -> _Counter:
    if found is None:
        return counter
    note = "window found by a step of known load"
    if not counter.in_khz:
        note = "scale and window found by a step of known load on this board"
    return structs.replace(
        counter,
        calibration=found,
        window_s=found.window_s,
        window_kind=found.window_kind,
        window_basis=None if found.window_kind == "unknown" else "measured",
        note=note,
    )


def _read(
    activity: Node | None,
    clock: Node | None,
    bytes_per_clock: float | None,
    counter: _Counter | None,
) -> Mapping[str, Reading]:
    count = None if activity is None else activity.number()
    clock_hz = None if clock is None else clock.number()
    known_hz = clock_hz if clock_hz is not None and clock_hz > _SLOWEST_HZ else None
    no_clock = None if clock is None else clock.reason or "the firmware does not tell the clock"
    raw = None if count is None else str(count)
    no_activity = None if activity is None else activity.reason
    if counter is not None and not counter.in_khz and counter.calibration is not None:
        readings = from_traffic(
            None if count is None else count * counter.calibration.bytes_per_s_per_unit,
            known_hz,
            bytes_per_clock,
            calibrated_hz=counter.calibration.emc_clock_hz,
            raw=raw,
            no_activity=no_activity,
            no_clock=no_clock,
        )
    else:
        readings = from_activity(
            count if counter is not None and counter.in_khz else None,
            known_hz,
            bytes_per_clock,
            raw=raw,
            no_activity=no_activity,
            no_clock=no_clock,
        )
    clock_raw = None if clock_hz is None else str(clock_hz)
    return {**readings, _CLOCK: readings[_CLOCK]._replace(raw=clock_raw)}


def _channels(
    board: BoardFigures, counter: _Counter | None, clock: Node | None
) -> Iterator[Channel]:
    if clock is not None:
        yield Channel(
            name=_CLOCK, node=clock.path, window_kind="instantaneous", window_basis="assumed"
        )
    if counter is None:
        return
    has_width, scaled = board.bytes_per_emc_clock is not None, _is_scaled(counter)
    if clock is not None and (counter.in_khz or has_width or not scaled):
        yield _averaged(_BUSY, counter)
    if has_width or scaled:
        yield _averaged(_BANDWIDTH, counter)


def _is_scaled(counter: _Counter) -> bool:
    """Whether its own scale turns it into bytes, without the width of the bus."""
    return not counter.in_khz and counter.calibration is not None


def _averaged(name: str, counter: _Counter) -> Channel:
    return Channel(
        name=name,
        node=counter.path,
        window_s=counter.window_s,
        window_kind=counter.window_kind,
        window_basis=counter.window_basis,
        note=counter.note,
        calibrated=_is_scaled(counter),
    )


def _with_period(counter: _Counter, nodes: Nodes) -> _Counter:
    if not counter.path.startswith(_CACTMON) or counter.calibration is not None:
        return counter
    node = nodes.first([f"{_CACTMON}/sample_period_usec"])
    period_us = None if node is None else node.number()
    told = "of unknown period" if period_us is None else f"taken every {period_us / 1000:g} ms"
    return structs.replace(counter, note=f"{counter.note}; samples are {told}")


def _absences(
    nodes: Nodes, board: BoardFigures, counter: _Counter | None, clock: Node | None
) -> Iterator[Absence]:
    if counter is None:
        reason, fix = _why_none(nodes, "activity counter", [c.path for c in _COUNTERS])
        yield absent(_BUSY, reason, fix)
        yield absent(_BANDWIDTH, reason, fix)
    elif not counter.in_khz and counter.calibration is None:
        reason = (
            f"the scale of {counter.path} is not established: it must be calibrated on this board "
            "against a known number of bytes a second"
        )
        yield absent(_BUSY, reason, _CALIBRATE)
        yield absent(_BANDWIDTH, reason, _CALIBRATE)
    elif board.bytes_per_emc_clock is None:
        signal = _BUSY if _is_scaled(counter) else _BANDWIDTH
        yield absent(signal, NO_BUS_WIDTH, NAME_THE_BOARD)
    if clock is None:
        reason, fix = _why_none(nodes, "clock", _CLOCKS)
        yield absent(_CLOCK, reason, fix)
        if counter is not None and counter.in_khz:
            yield absent(_BUSY, f"busy is a share of the running clock, and {reason}", fix)


def _why_none(nodes: Nodes, what: str, paths: Sequence[str]) -> tuple[str, str | None]:
    """Why there is no such node, and what mends it: not permitted, not mounted, not loaded."""
    socs = _socs(nodes.files)
    refused = not nodes.refused.isdisjoint(paths)
    if not socs:
        return f"this machine has no EMC {what} that edgeprof knows", None
    if refused and not nodes.lender_gave:
        return f"only root can open the EMC {what} of this board", SENSOR
    if not refused and not nodes.files.names(_DEBUG):
        mount = "sudo mount -t debugfs debugfs /sys/kernel/debug"
        return f"there is no EMC {what}: debugfs is not mounted", mount
    if what == "activity counter" and _ORIN in socs:
        return (
            f"there is no EMC {what}: the kernel module tegra_cactmon_mc_all is not loaded",
            "sudo modprobe tegra_cactmon_mc_all",
        )
    return f"there is no EMC {what} among the files of this board", None


def _socs(files: BoardFiles) -> str:
    """What tells that this is a Tegra, and which; empty on other machines."""
    compatible = next(filter(None, (files.read(f"{tree}/compatible") for tree in DEVICE_TREES)), "")
    if _TEGRA.search(compatible):
        return compatible
    # A container shows no device tree.
    family = files.read_line("/sys/devices/soc0/family") or ""
    return family if family == "Tegra" else ""
