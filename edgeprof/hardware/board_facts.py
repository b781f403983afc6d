"""What the files of a board say of it, before anybody concludes anything from them.

Never opened: the serial number that lies next to the model in the device tree.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

from edgeprof.hardware.board_files import BoardFiles, printable
from edgeprof.hardware.nvpmodel import NvpmodelConf, cap_hz, parse_conf, parse_status

DEVICE_TREES = ("/proc/device-tree", "/sys/firmware/devicetree/base")
DMI_PRODUCT = "/sys/class/dmi/id/product_name"
CONF, STATUS = "/etc/nvpmodel.conf", "/var/lib/nvpmodel/status"
MEMINFO, RELEASE = "/proc/meminfo", "/etc/nv_tegra_release"
BOOT_CONTROL = "/etc/nv_boot_control.conf"
CORES = "/sys/devices/system/cpu/present"
# Caps that nvpmodel sets are open to all; the clock framework's own ends need root on most boards.
NVPMODEL_CAPS = ("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", "/sys/kernel/nvpmodel_clk_cap/emc")
_CLOCK = "/sys/kernel/debug/bpmp/debug/clk/emc"
_DEVFREQ = "/sys/class/devfreq/bwmgr"
_CLOCKS = (  # highest, lowest, present
    (f"{_CLOCK}/max_rate", f"{_CLOCK}/min_rate", f"{_CLOCK}/rate"),
    (f"{_DEVFREQ}/max_freq", f"{_DEVFREQ}/min_freq", f"{_DEVFREQ}/cur_freq"),
    (
        "/sys/kernel/debug/tegra_bwmgr/emc_max_rate",
        "/sys/kernel/debug/tegra_bwmgr/emc_min_rate",
        "/sys/kernel/debug/clk/emc/clk_rate",
    ),
)
_LOCKED = f"{_CLOCK}/mrq_rate_locked"
_GPUS = (
    "17000000.gpu", "17000000.ga10b", "17000000.gv11b", "17000000.gp10b", "57000000.gpu",
    "gpu-gpc-0",
)  # fmt: skip

_NUMBER = re.compile(r"p(\d{4})[-_](\d{4})")
_SPEC_NUMBER = re.compile(r"(\d{4})-\d{3}-(\d{4})")
_SOC = re.compile(r"nvidia,(tegra\d+)|brcm,(bcm\d+)")
_L4T = re.compile(r"#?\s*R\s*(\d{1,4})\b[^#\n]{0,40}?REVISION\s*:\s*(\d{1,4}(?:\.\d{1,4})*)")
_MEMORY = re.compile(r"^MemTotal:\s*(\d{1,12})\s*kB", re.MULTILINE)
_LAST_CORE = re.compile(r"(?:0-)?(\d{1,4})")
_SPEC = re.compile(r"^TNSPEC\s+(\S{1,200})", re.MULTILINE)
_LONGEST_LINE = 500
_MOST_ENTRIES = 64
_EMC_HZ = (100e6, 20e9)  # within these every board's memory is capped


class EmcCap(Struct, frozen=True, kw_only=True):
    """A cap on the memory clock that holds now, and the file that says so."""

    clock_hz: float
    file: str


class EmcRange(Struct, frozen=True, kw_only=True):
    """The ends between which the memory clock moves, and where it is."""

    low_hz: float
    high_hz: float
    now_hz: float | None
    file: str


class BoardFacts(Struct, frozen=True, kw_only=True):
    """One field for each thing that a file says; None where it says nothing."""

    model: str | None
    model_file: str | None
    compatible: tuple[str, ...]
    compatible_file: str | None
    soc: str | None
    memory_bytes: int | None
    cores: int | None
    l4t: str | None
    boot_spec: str | None
    conf: NvpmodelConf | None
    conf_name: str | None
    mode_id: int | None
    caps: tuple[EmcCap, ...]
    emc: EmcRange | None
    gpu_max_hz: int | None
    unread: dict[str, str]

    @property
    def part_numbers(self) -> list[str]:
        """The numbers of module and carrier as they stand, without what is only emulated."""
        return list(dict.fromkeys(_numbers(entry.partition("-as-")[0] for entry in self._named)))

    @property
    def emulated_numbers(self) -> list[str]:
        """The numbers behind an ``-as-``: what the board was flashed to behave like."""
        return list(dict.fromkeys(_numbers(entry.partition("-as-")[2] for entry in self._named)))

    @property
    def module_is_named(self) -> bool:
        """Whether a module's number stands behind that of its carrier: p3768-0000+p3767-0005."""
        return any("+p" in entry for entry in self.compatible)

    @property
    def says_super(self) -> bool:
        """Whether the device tree or the boot loader was flashed as Super."""
        words = [*self.compatible, self.boot_spec or "", self.conf_name or "", self.model or ""]
        return any(re.search(r"(?:^|[-_ ])super(?:$|[-_. ])", word.lower()) for word in words)

    @property
    def _named(self) -> list[str]:
        spec = _SPEC_NUMBER.match(self.boot_spec or "")
        return [*self.compatible, f"p{spec[1]}-{spec[2]}"] if spec else list(self.compatible)


def read_facts(files: BoardFiles) -> BoardFacts:
    """Everything that helps to tell which board this is, in which mode and under which caps."""
    model, model_file = _device_tree(files, "model")
    if model is None:
        model, model_file = files.read(DMI_PRODUCT), DMI_PRODUCT
    compatible, compatible_file = _device_tree(files, "compatible")
    entries = tuple(printable(entry) for entry in (compatible or "").split("\0")[:_MOST_ENTRIES])
    socs = [found for entry in entries if (found := _SOC.search(entry))]
    conf, status = files.read(CONF), files.read(STATUS)
    emc = _emc_range(files)
    return BoardFacts(
        model=printable(model.split("\0")[0]) or None if model else None,
        model_file=model_file if model else None,
        compatible=tuple(filter(None, entries)),
        compatible_file=compatible_file,
        soc=(socs[-1][1] or socs[-1][2]) if socs else None,
        memory_bytes=_memory_bytes(files),
        cores=_cores(files),
        l4t=_l4t(files.read_line(RELEASE)),
        boot_spec=printable(spec[1])
        if (spec := _SPEC.search(_text(files, BOOT_CONTROL)))
        else None,
        conf=None if conf is None else parse_conf(conf),
        conf_name=files.link_name(CONF),
        mode_id=None if status is None else parse_status(status),
        caps=tuple(_caps(files, emc)),
        emc=emc,
        gpu_max_hz=_gpu_max_hz(files),
        unread=dict(files.unread),
    )


def _device_tree(files: BoardFiles, name: str) -> tuple[str | None, str | None]:
    for tree in DEVICE_TREES:
        text = files.read(f"{tree}/{name}")
        if text is not None:
            return text, f"{tree}/{name}"
    return None, None


def _text(files: BoardFiles, path: str) -> str:
    return files.read(path) or ""


def _memory_bytes(files: BoardFiles) -> int | None:
    found = _MEMORY.search(_text(files, MEMINFO))
    return int(found[1]) << 10 if found and int(found[1]) else None


def _cores(files: BoardFiles) -> int | None:
    found = _LAST_CORE.fullmatch(files.read_line(CORES) or "")
    return int(found[1]) + 1 if found else None


def _l4t(line: str | None) -> str | None:
    found = _L4T.match((line or "")[:_LONGEST_LINE].strip("\ufeff "))
    return f"{found[1]}.{found[2]}" if found else None


def _caps(files: BoardFiles, emc: EmcRange | None) -> list[EmcCap]:
    caps = []
    for path in NVPMODEL_CAPS:
        value = files.read_count(path)
        cap = None if value is None else cap_hz(value)
        clock = None if cap is None else _as_hz(cap)
        if clock is not None:
            caps.append(EmcCap(clock_hz=clock, file=path))
        elif cap is not None:
            files.unread[path] = f"{cap} is no clock that memory is capped at"
    if emc is not None:
        caps.append(EmcCap(clock_hz=emc.high_hz, file=emc.file))
        if emc.now_hz and files.read_count(_LOCKED):
            caps.append(EmcCap(clock_hz=emc.now_hz, file=_LOCKED))
    return caps


def _emc_range(files: BoardFiles) -> EmcRange | None:
    for highest, lowest, present in _CLOCKS:
        high = files.read_count(highest)
        high_hz = None if high is None else _as_hz(high)
        if high is not None and high_hz is not None:
            scale = high_hz / high
            low, now = files.read_count(lowest), files.read_count(present)
            return EmcRange(
                low_hz=max(low or 0, 0) * scale,
                high_hz=high_hz,
                now_hz=now * scale if now is not None and now > 0 else None,
                file=highest,
            )
    return None


def _gpu_max_hz(files: BoardFiles) -> int | None:
    clocks = (files.read_count(f"/sys/class/devfreq/{name}/max_freq") for name in _GPUS)
    return next((clock for clock in clocks if clock is not None and clock > 0), None)


def _as_hz(clock: int) -> float | None:
    """A memory clock in Hz, which may have been written in kHz; None for what is neither."""
    return next((c for c in (clock * 1.0, clock * 1e3) if _EMC_HZ[0] <= c <= _EMC_HZ[1]), None)


def _numbers(texts: Iterable[str]) -> list[str]:
    return [f"p{first}-{second}" for text in texts for first, second in _NUMBER.findall(text)]
