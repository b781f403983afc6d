"""How busy the GPU is, in time, and its clock, whatever the generation calls it."""

import re
from collections.abc import Mapping

from edgeprof.session.records import WindowBasis
from edgeprof.telemetry.nodes import Node, Nodes
from edgeprof.telemetry.source import Absence, Channel, Offer, Reader, Reading
from edgeprof.telemetry.sources.sysfs_polling import absent

_RATE_HZ = 20
_BUSY, _CLOCK = "gpu_busy_frac", "gpu_clock_hz"
_DEVFREQ = "/sys/class/devfreq"
# 17000000.gpu, 17000000.ga10b, 17000000.gv11b, 17000000.gp10b: driven by nvgpu, which tells a load.
_NVGPU = re.compile(r"(?:.*\.)?(?:gpu|g[a-z]\d\d[a-z])")
# Thor's: a clock for each GPC, no load. Its gpu-nvd-N is the clock of another part.
_GPC = re.compile(r"gpu-gpc-\d+")
_OTHER_LOADS = (
    "/sys/devices/gpu.0/load",
    "/sys/devices/platform/gpu.0/load",
    "/sys/devices/platform/bus@0/17000000.gpu/load",
)
_GPC_COUNTERS = [
    f"/sys/kernel/debug/bpmp/debug/clk/nafll_gpc{number}/pto_counter" for number in range(8)
]
_LOAD_OF_ALL_TIME = 1000
_WINDOW = "busy in time, not in bandwidth; over which time the driver averages is not documented"
_MISSING = "not there at the start: the GPU may have been switched off"
_NO_GPU = "this machine has no GPU whose files edgeprof knows"


def open_gpu(nodes: Nodes) -> Offer:
    """Load and clock in one read, so that both are of one time."""
    devices = nodes.files.names(_DEVFREQ)
    with_load = [name for name in devices if _NVGPU.fullmatch(name)]
    with_clock = [*with_load, *(name for name in devices if _GPC.fullmatch(name))]
    loads = [f"{_DEVFREQ}/{name}/device/load" for name in with_load]
    load = nodes.first([*loads, *_OTHER_LOADS])
    note = _WINDOW
    refused = not nodes.refused.isdisjoint(loads)
    if load is None and loads and not refused:
        load, note = Node(nodes.files, loads[0]), f"{_WINDOW}; {_MISSING}"
    clocks = nodes.every([f"{_DEVFREQ}/{name}/cur_freq" for name in with_clock])
    clocks += nodes.every(_GPC_COUNTERS)

    channels = []
    if load is not None:
        channels.append(Channel(name=_BUSY, node=load.path, note=note))
    if clocks:
        channels.append(_clock_channel(clocks[0].path))

    def read() -> Mapping[str, Reading]:
        return {_BUSY: _busy(load), _CLOCK: _highest(clocks)}

    readers = [Reader(source="sysfs", name="GPU", channels=channels, rate_hz=_RATE_HZ, read=read)]
    return Offer(
        readers=readers if channels else (),
        absences=_absences(load, clocks, bool(with_clock), refused),
    )


def _clock_channel(path: str) -> Channel:
    """What devfreq tells is the clock at that time by its documentation."""
    basis: WindowBasis = "documented" if path.startswith(_DEVFREQ) else "assumed"
    return Channel(name=_CLOCK, node=path, window_kind="instantaneous", window_basis=basis)


def _busy(load: Node | None) -> Reading:
    permille = None if load is None else load.number()
    if permille is None:
        return Reading(None, reason=None if load is None else load.reason)
    return Reading(permille / _LOAD_OF_ALL_TIME, str(permille))


def _highest(clocks: list[Node]) -> Reading:
    """The clock of the fastest GPC. A GPU that is switched off shows 0, which is no clock."""
    found = max((hz for clock in clocks if (hz := clock.number()) is not None), default=None)
    if found is None:
        return Reading(None, reason=next((clock.reason for clock in clocks), None))
    if found <= 0:
        return Reading(None, str(found), reason="the GPU is switched off")
    return Reading(found, str(found))


def _absences(load: Node | None, clocks: list[Node], has_gpu: bool, refused: bool) -> list[Absence]:
    absences = []
    if load is None:
        reason = "the GPU driver of this board tells no load in a file" if has_gpu else _NO_GPU
        if refused:
            reason = "this user may not read the load of the GPU"
        absences.append(absent(_BUSY, reason))
    if not clocks:
        absences.append(absent(_CLOCK, _NO_GPU))
    return absences
