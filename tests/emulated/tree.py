"""The files of one emulated board below a folder, and the means to drive and to break them.

Knows no process and no edgeprof. Links are relative and stay below the folder, so that it serves
both as a root for a reader and as what is mounted over the machine's own ``/sys``. A number is of
fixed width, so that one ``pwrite`` replaces it and no reader ever sees half of it.
"""

import os
import stat
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from emulated.boards import BOARDS, DEBUG, Board, Chip

BPMP_CLOCK = f"{DEBUG}/bpmp/debug/clk/emc"
BPMP_ACTIVITY = f"{DEBUG}/bpmp/debug/actmon"
BWMGR = "/sys/class/devfreq/bwmgr"
_THERMAL = "/sys/devices/virtual/thermal"
_FIRST_MONITOR = 3  # the numbers of hwmon change from start to start
_WIDTH = 20
# What a bpmp node counts is not documented; any figure that follows the activity does.
_BPMP_PERIOD_S = 0.020
_SERIAL_NUMBER = "1420000000000"


def build(root: Path, board: str) -> "Tree":
    """Write the files of that board below ``root``: idle, with clocks at their highest."""
    return Tree(root, BOARDS[board])


class Tree:
    """Drives the files. ``truth`` holds what the signals are, by edgeprof's names and units.

    ``emc_activity`` and ``emc_clock`` are the paths, as on the board, of the nodes that tell them;
    ``rails``, ``zones``, ``cooling`` and ``over_current`` map names to the folder or nodes of each.
    """

    def __init__(self, root: Path, board: Board) -> None:
        self.root = root
        self.board = board
        self.truth: dict[str, float] = {}
        self.emc_activity = activity_nodes(board)
        self.emc_clock = clock_nodes(board)
        self.gpu_load = gpu_load_node(board)
        self.gpu_clock = gpu_clock_node(board)
        self.rails = rail_nodes(board)
        self.zones = zone_folders(board)
        self.cooling = cooling_folders(board)
        self.over_current = over_current_nodes(board)
        self._busy_frac = 0.0
        self._clock_hz = board.emc_hz[1]
        self._ticks = [(1000, 90_000)] * board.cores
        self._milli: dict[str, tuple[int, int]] = {}
        self._removed: dict[str, bytes] = {}
        self._modes: dict[str, int] = {}
        self._write_all()

    # ---- paths

    def path(self, node: str) -> Path:
        """Where a node, named as on the board, lies."""
        return self.root / node.lstrip("/")

    @property
    def bytes_per_emc_clock(self) -> int:
        """2 x bus width / 8, as the facts of the board have it."""
        return self.board.bytes_per_emc_clock

    # ---- driving

    def rest(self) -> None:
        """Mend what was broken and let everything be as it was built: idle, clocks at their
        highest."""
        for node in list(self._removed):
            self.restore(node)
        for node, mode in self._modes.items():
            self.path(node).chmod(mode)
        self._modes.clear()
        self.set_emc(busy_frac=0.0, clock_hz=self.board.emc_hz[1])
        self.set_gpu(busy_frac=0.0, clock_hz=self.board.gpu_hz[1])
        for rail in (rail for chip in self.board.chips for rail in chip.rails):
            if rail.signal is not None:
                self.set_rail(rail.label, mv=rail.mv, ma=rail.ma)
        for zone in self.board.zones:
            if zone.celsius is not None:
                self.set_temperature(zone.type, zone.celsius)
        for device in self.cooling:
            self.set_cooling(device, 0)
        for counter in self.over_current:
            self.set_over_current(counter, 0)
        self.set_memory(used_mib=self.board.memory_mib // 4)
        self.truth["cpu_online"] = float(self.board.cores)

    def set_emc(self, *, busy_frac: float | None = None, clock_hz: int | None = None) -> None:
        """The share of the running memory clock that is busy, and that clock."""
        self._busy_frac = self._busy_frac if busy_frac is None else busy_frac
        self._clock_hz = self._clock_hz if clock_hz is None else clock_hz
        busy_hz = self._busy_frac * self._clock_hz
        if clock_hz is not None:
            for node in self.emc_clock:
                self.put(node, clock_hz)
        for node in self.emc_activity:
            in_bpmp = node.startswith(BPMP_ACTIVITY)
            self.put(node, round(busy_hz * _BPMP_PERIOD_S if in_bpmp else busy_hz / 1e3))
        self.truth["emc_clock_hz"] = float(self._clock_hz)
        if self.board.counts_khz:
            self.truth["emc_busy_frac"] = self._busy_frac
            self.truth["dram_bandwidth_bytes_per_s"] = busy_hz * self.bytes_per_emc_clock

    def set_gpu(self, *, busy_frac: float | None = None, clock_hz: int | None = None) -> None:
        """The share of the time that the GPU is busy, and its clock."""
        if clock_hz is not None:
            for node in (self.gpu_clock, *_gpc_nodes(self.board)):
                self.put(node, clock_hz)
            self.truth["gpu_clock_hz"] = float(clock_hz)
        if busy_frac is not None and self.gpu_load is not None:
            self.put(self.gpu_load, round(1000 * busy_frac))
            self.truth["gpu_busy_frac"] = busy_frac

    def set_rail(self, label: str, *, mv: int | None = None, ma: int | None = None) -> None:
        """Voltage and current of the rail with that label."""
        nodes = self.rails[label]
        old_mv, old_ma = self._milli.get(label, (0, 0))
        mv, ma = old_mv if mv is None else mv, old_ma if ma is None else ma
        self._milli[label] = mv, ma
        self.put(nodes.mv, mv)
        self.put(nodes.ma, ma)
        if nodes.power is not None:
            self.put(nodes.power, mv * ma // nodes.microwatts_per_power)
        for rail in (rail for chip in self.board.chips for rail in chip.rails):
            if rail.label == label and rail.signal is not None:
                self.truth[rail.signal] = mv * ma / 1e6

    def set_temperature(self, zone: str, celsius: float) -> None:
        """The temperature of the zone of that type (``cpu-thermal``)."""
        self.put(f"{self.zones[zone]}/temp", round(celsius * 1000))
        signals = {zone.type: zone.signal for zone in self.board.zones}
        if (signal := signals[zone]) is not None:
            self.truth[signal] = celsius

    def set_cooling(self, device: str, state: int) -> None:
        """How far a cooling device (``pwm-fan``) is up."""
        self.put(f"{self.cooling[device]}/cur_state", state)

    def set_over_current(self, counter: str, events: int) -> None:
        """How often an over-current limit (``oc1``) was passed since the start."""
        self.put(self.over_current[counter], events)

    def set_memory(self, *, used_mib: int, swap_used_mib: int = 0) -> None:
        """Memory in use, as every source counts it: total less free, buffers and cached."""
        self._put_bytes("/proc/meminfo", _meminfo(self.board, used_mib, swap_used_mib))
        self.truth["ram_used_bytes"] = float(used_mib << 20)
        self.truth["ram_total_bytes"] = float(self.board.memory_mib << 20)
        self.truth["swap_used_bytes"] = float(swap_used_mib << 20)

    def add_cpu_ticks(self, *, busy: int, idle: int) -> None:
        """Let so many hundredths of a second pass on every core."""
        self._ticks = [(was_busy + busy, was_idle + idle) for was_busy, was_idle in self._ticks]
        self._put_bytes("/proc/stat", _stat(self._ticks))

    # ---- breaking

    def put(self, node: str, value: int) -> None:
        """Replace a number in one go."""
        self._put_bytes(node, _number(value))

    def remove(self, node: str) -> None:
        """Take a node away. As in sysfs, a descriptor kept on it gives nothing any more."""
        path = self.path(node)
        with path.open("r+b") as file:
            self._removed[node] = file.read()
            path.unlink()
            file.truncate(0)

    def empty(self, node: str) -> None:
        """Let a node read as nothing, as that of a block that is off does."""
        path = self.path(node)
        self._removed[node] = path.read_bytes()
        os.truncate(path, 0)

    def restore(self, node: str) -> None:
        """Bring back what was removed or emptied."""
        path = self.path(node)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(self._removed.pop(node))

    def chmod(self, node: str, mode: int) -> None:
        path = self.path(node)
        self._modes.setdefault(node, stat.S_IMODE(path.stat().st_mode))
        path.chmod(mode)

    def _put_bytes(self, node: str, content: bytes) -> None:
        descriptor = os.open(self.path(node), os.O_WRONLY)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    # ---- making

    def _write_all(self) -> None:
        board = self.board
        self.path(DEBUG).mkdir(parents=True, mode=0o755)
        self._write_identity()
        self._write_cpu()
        self._write_gpu()
        self._write_emc()
        for place, chip in enumerate(board.chips):
            self._write_chip(chip, _monitor(place, chip))
        self._write_thermal()
        self._write_over_current()
        self._write_engines()
        self._text("/proc/meminfo", _meminfo(board, 0, 0).decode())
        self._text("/proc/stat", _stat(self._ticks).decode())
        self.rest()
        self.path(DEBUG).chmod(0o700)  # open to root alone, as on a board

    def _write_identity(self) -> None:
        board, tree = self.board, "/sys/firmware/devicetree/base"
        release, revision = board.l4t
        self._text(f"{tree}/model", board.model + "\0")
        self._text(f"{tree}/compatible", "".join(f"{entry}\0" for entry in board.compatible))
        self._text(f"{tree}/serial-number", _SERIAL_NUMBER + "\0")
        self._link("/proc/device-tree", tree)
        self.path("/sys/devices/virtual/dmi/id").mkdir(parents=True)
        self._text(
            "/etc/nv_tegra_release",
            f"# R{release} (release), REVISION: {revision}, GCID: 1, BOARD: generic,"
            " EABI: aarch64, DATE: Mon Jan  1 00:00:00 UTC 2024\n",
        )
        modes = "".join(
            f"< POWER_MODEL ID={number} NAME={name} >\nEMC MAX_FREQ {cap}\n"
            for number, (name, cap) in enumerate(board.modes)
        )
        self._text("/etc/nvpmodel.conf", f"{modes}< PM_CONFIG DEFAULT={board.mode} >\n")
        self._text("/var/lib/nvpmodel/status", f"pmode:{board.mode:04} fmode:fan_mode_quiet\n")

    def _write_cpu(self) -> None:
        board, cpu = self.board, "/sys/devices/system/cpu"
        lowest, highest = board.cpu_khz
        for core in range(board.cores):
            frequency = f"{cpu}/cpu{core}/cpufreq"
            self._text(f"{cpu}/cpu{core}/online", "1\n")
            self._text(f"{frequency}/scaling_governor", "schedutil\n")
            for prefix in ("scaling", "cpuinfo"):
                self._number(f"{frequency}/{prefix}_min_freq", lowest)
                self._number(f"{frequency}/{prefix}_max_freq", highest)
                self._number(f"{frequency}/{prefix}_cur_freq", lowest)
        for name in ("online", "present", "possible"):
            self._text(f"{cpu}/{name}", f"0-{board.cores - 1}\n")
        self._text(
            "/proc/cpuinfo",
            "".join(
                f"processor\t: {core}\nmodel name\t: ARMv8 Processor rev 1 (v8l)\n\n"
                for core in range(board.cores)
            ),
        )

    def _write_gpu(self) -> None:
        board = self.board
        device, frequency = board.gpu_device, f"{board.gpu_device}/devfreq/{board.gpu}"
        lowest = board.gpu_hz[0]
        self._text(f"{device}/power/control", "auto\n")
        if self.gpu_load is not None:
            self._number(self.gpu_load, 0)
            self._text(f"{device}/railgate_enable", "1\n")
            self._text(f"{device}/tpc_pg_mask", "0\n")
            self._text(f"{device}/enable_3d_scaling", "1\n")
            name = "gv11b" if board.gpu.endswith("gv11b") else "gpu"
            self._text(f"{device}/of_node/name", name + "\0")
            self._link("/sys/devices/gpu.0", device)
            self._link("/sys/devices/platform/gpu.0", device)
        else:
            decoder = f"{device}/devfreq/gpu-nvd-0"  # the video engines' clock, not the GPU's
            self._frequency(decoder, (315_000_000, 1_692_000_000), 1_692_000_000)
            self._link("/sys/class/devfreq/gpu-nvd-0", decoder)
        self._frequency(frequency, board.gpu_hz, lowest)
        self._link(f"{frequency}/device", device)
        self._link(f"/sys/class/devfreq/{board.gpu}", frequency)
        for node in _gpc_nodes(board):
            self._number(node, lowest)

    def _write_emc(self) -> None:
        board = self.board
        lowest, highest = board.emc_hz
        if board.clock_at == "bpmp":
            for name, value in (
                ("min_rate", lowest), ("max_rate", highest), ("mrq_rate_locked", 0),
            ):  # fmt: skip
                self._number(f"{BPMP_CLOCK}/{name}", value)
            self._number("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", 0)
        elif board.clock_at == "bwmgr":
            device = "/sys/devices/platform/bwmgr/devfreq/bwmgr"
            self._frequency(device, board.emc_hz, highest)
            self._link(BWMGR, device)
        else:
            self._number(f"{DEBUG}/tegra_bwmgr/emc_min_rate", lowest)
            self._number(f"{DEBUG}/tegra_bwmgr/emc_max_rate", highest)
        for node in self.emc_clock:
            if not self.path(node).exists():
                self._number(node, highest)
        for node in self.emc_activity:
            self._number(node, 0)
        if "cactmon" in board.activity_at:
            self._number(f"{DEBUG}/cactmon/sample_period_usec", 1000)

    def _write_chip(self, chip: Chip, monitor: str) -> None:
        device = _device(chip)
        self._link(f"/sys/bus/i2c/devices/{chip.address}", device)
        self._text(f"{device}/name", f"{chip.driver}\n")
        self._text(f"{monitor}/name", f"{chip.driver}\n")
        if chip.driver == "ina3221x":
            self._link(f"/sys/bus/i2c/drivers/ina3221x/{chip.address}", device)
        else:
            self._link(f"/sys/class/hwmon/{PurePosixPath(monitor).name}", monitor)
        for channel, rail in enumerate(chip.rails, 1):
            nodes = _rail_nodes(chip, monitor, channel)
            self._number(nodes.mv, rail.mv)
            self._number(nodes.ma, rail.ma)
            if nodes.power is not None:
                self._number(nodes.power, 0)
            if nodes.label is not None:
                self._text(nodes.label, f"{rail.label}\n")
        if chip.driver == "ina3221":
            self._text(f"{monitor}/in7_label", "sum of shunt voltages\n")
            self._number(f"{monitor}/in7_input", 1)

    def _write_thermal(self) -> None:
        for zone in self.board.zones:
            folder = self.zones[zone.type]
            self._text(f"{folder}/type", f"{zone.type}\n")
            self._link(f"/sys/class/thermal/{PurePosixPath(folder).name}", folder)
            if zone.celsius is None:
                self._text(f"{folder}/temp", "")
            else:
                self._number(f"{folder}/temp", 0)
        for device, folder in self.cooling.items():
            self._text(f"{folder}/type", f"{device}\n")
            self._number(f"{folder}/cur_state", 0)
            self._number(f"{folder}/max_state", 3)
            self._link(f"/sys/class/thermal/{PurePosixPath(folder).name}", folder)
        self.path("/sys/class/power_supply").mkdir()

    def _write_over_current(self) -> None:
        for node in self.over_current.values():
            monitor = PurePosixPath(node).parent
            self._number(node, 0)
            self._text(f"{monitor}/name", "soctherm_oc\n")
            link = f"/sys/class/hwmon/{monitor.name}"
            if not self.path(link).is_symlink():
                self._link(link, str(monitor))

    def _write_engines(self) -> None:
        for engine in ("ape", "vic", "nvenc", "nvdec"):
            self._number(f"{DEBUG}/clk/{engine}/clk_rate", 0)
            self._number(f"{DEBUG}/clk/{engine}/clk_enable_count", 0)
        self._text(f"{DEBUG}/nvmap/iovmm/maps", "CLIENT PROCESS PID SIZE\ntotal 0K\n")

    def _frequency(self, folder: str, ends: tuple[int, int], now: int) -> None:
        for name, value in (("min_freq", ends[0]), ("max_freq", ends[1]), ("cur_freq", now)):
            self._number(f"{folder}/{name}", value)
        self._text(f"{folder}/governor", "nvhost_podgov\n")

    def _number(self, node: str, value: int) -> None:
        self._text(node, _number(value).decode())

    def _text(self, node: str, text: str) -> None:
        path = self.path(node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def _link(self, node: str, target: str) -> None:
        path = self.path(node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.path.relpath(self.path(target), path.parent))


def _number(value: int) -> bytes:
    return b"%-*d\n" % (_WIDTH, value)


def activity_nodes(board: Board) -> tuple[str, ...]:
    """What tells how busy the memory is."""
    nodes = {
        "cactmon": (f"{DEBUG}/cactmon/mc_all",),
        "actmon": ("/sys/kernel/actmon_avg_activity/mc_all",),
        "bpmp": tuple(f"{BPMP_ACTIVITY}/mc_all_{name}_activity" for name in ("avg", "last_prd")),
    }
    return tuple(node for place in board.activity_at for node in nodes[place])


def clock_nodes(board: Board) -> tuple[str, ...]:
    """What tells the memory clock."""
    nodes = {
        "bpmp": (f"{BPMP_CLOCK}/rate",),
        "bwmgr": (f"{BWMGR}/cur_freq",),
        "clk": (f"{DEBUG}/clk/override.emc/clk_rate", f"{DEBUG}/clk/emc/clk_rate"),
    }
    return nodes[board.clock_at]


def gpu_load_node(board: Board) -> str | None:
    return f"{board.gpu_device}/load" if board.gpu_load else None


def gpu_clock_node(board: Board) -> str:
    return f"{board.gpu_device}/devfreq/{board.gpu}/cur_freq"


class RailNodes(NamedTuple):
    """What a power monitor shows of one rail. One of the drivers tells power too, in milliwatts,
    another one in microwatts."""

    mv: str
    ma: str
    label: str | None
    power: str | None = None
    microwatts_per_power: int = 1


def rail_nodes(board: Board) -> dict[str, RailNodes]:
    """By the label of the rail."""
    return {
        rail.label: _rail_nodes(chip, _monitor(place, chip), channel)
        for place, chip in enumerate(board.chips)
        for channel, rail in enumerate(chip.rails, 1)
    }


def _rail_nodes(chip: Chip, monitor: str, channel: int) -> RailNodes:
    if chip.driver == "ina3221x":
        number = channel - 1
        return RailNodes(
            mv=f"{monitor}/in_voltage{number}_input",
            ma=f"{monitor}/in_current{number}_input",
            label=f"{monitor}/rail_name_{number}",
            power=f"{monitor}/in_power{number}_input",
            microwatts_per_power=1000,
        )
    has_power = chip.driver == "ina238"
    return RailNodes(
        mv=f"{monitor}/in{channel}_input",
        ma=f"{monitor}/curr{channel}_input",
        label=None if has_power else f"{monitor}/in{channel}_label",
        power=f"{monitor}/power{channel}_input" if has_power else None,
    )


def zone_folders(board: Board) -> dict[str, str]:
    return {zone.type: f"{_THERMAL}/thermal_zone{n}" for n, zone in enumerate(board.zones)}


def cooling_folders(board: Board) -> dict[str, str]:
    return {device: f"{_THERMAL}/cooling_device{n}" for n, device in enumerate(board.cooling)}


def over_current_nodes(board: Board) -> dict[str, str]:
    number = _FIRST_MONITOR + len(board.chips)
    folder = f"/sys/devices/platform/soctherm-oc-event/hwmon/hwmon{number}"
    counters = range(1, board.over_current + 1)
    return {f"oc{counter}": f"{folder}/oc{counter}_event_cnt" for counter in counters}


def _device(chip: Chip) -> str:
    return f"/sys/devices/platform/bus@0/i2c-{chip.address.partition('-')[0]}/{chip.address}"


def _monitor(place: int, chip: Chip) -> str:
    number = _FIRST_MONITOR + place
    kind = f"iio:device{place}" if chip.driver == "ina3221x" else f"hwmon/hwmon{number}"
    return f"{_device(chip)}/{kind}"


def _gpc_nodes(board: Board) -> tuple[str, ...]:
    if board.soc != "tegra234":
        return ()
    clocks = f"{DEBUG}/bpmp/debug/clk"
    return tuple(f"{clocks}/nafll_gpc{number}/pto_counter" for number in range(2))


def _meminfo(board: Board, used_mib: int, swap_used_mib: int) -> bytes:
    total, buffers, cached = board.memory_mib, 40, board.memory_mib // 10
    swap = total // 2
    rows = {
        "MemTotal": total,
        "MemFree": total - used_mib - buffers - cached,
        "MemAvailable": total - used_mib,
        "Buffers": buffers,
        "Cached": cached,
        "SwapCached": 0,
        "Active": 0,
        "Inactive": 0,
        "SwapTotal": swap,
        "SwapFree": swap - swap_used_mib,
        "Shmem": 0,
        "Slab": 0,
        "SReclaimable": 0,
        "NvMapMemFree": 0,
        "NvMapMemUsed": 0,
    }
    return b"".join(
        b"%-16s%12d kB\n" % (f"{name}:".encode(), mib << 10) for name, mib in rows.items()
    )


def _stat(ticks: list[tuple[int, int]]) -> bytes:
    """User and idle time a core, in hundredths of a second, each of fixed width."""

    def row(name: str, busy: int, idle: int) -> bytes:
        return b"%s %12d 0 0 %12d 0 0 0 0 0 0\n" % (name.encode(), busy, idle)

    everything = row("cpu ", sum(busy for busy, _ in ticks), sum(idle for _, idle in ticks))
    cores = b"".join(row(f"cpu{core}", *pair) for core, pair in enumerate(ticks))
    return everything + cores + b"intr 0\nctxt 0\nbtime 1700000000\nprocesses 1\nprocs_running 1\n"
