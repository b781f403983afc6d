"""Telling a board from its files: trees are built here, as boards are known to look.

Peaks are worked out by hand: EMC clock x 2 transfers x bus width in bytes.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgeprof.catalog import find_device, identify_board, this_device
from edgeprof.errors import EnvironmentFault
from edgeprof.hardware.identify import Identity, identify

ISO_CAP = "sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
CLK_CAP = "sys/kernel/nvpmodel_clk_cap/emc"
BPMP = "sys/kernel/debug/bpmp/debug/clk/emc"
GIB_IN_KB = 1 << 20

NANO = ("nvidia,p3768-0000+p3767-0005", "nvidia,p3767-0005", "nvidia,tegra234")
NANO_SUPER = ("nvidia,p3768-0000+p3767-0005-super", "nvidia,p3767-0005", "nvidia,tegra234")
NX_16 = ("nvidia,p3768-0000+p3767-0000", "nvidia,p3767-0000", "nvidia,tegra234")
NX_8 = ("nvidia,p3768-0000+p3767-0001", "nvidia,p3767-0001", "nvidia,tegra234")
AGX = ("nvidia,p3737-0000+p3701-0005", "nvidia,p3701-0005", "nvidia,tegra234")
THOR = ("nvidia,p4071-0000+p3834-0008", "nvidia,p3834-0008", "nvidia,tegra264")

NANO_MODES = (("15W", 0), ("7W", 0))
SUPER_MODES = (("15W", 2133000000), ("25W", 3199000000), ("MAXN_SUPER", -1))
NX_16_MODES = (("MAXN", 0), ("10W", 2133000000), ("15W", 3199000000), ("25W", 3199000000))
AGX_MODES = (("MAXN", 0), ("MODE_15W", 2133000000), ("MODE_30W", 3200000000), ("MODE_50W", -1))

Board = Callable[..., Path]


@pytest.fixture
def board(tmp_path: Path) -> Board:
    """Builds a tree; only what is given is there."""

    def build(
        *,
        model: str | None = None,
        compatible: tuple[str, ...] = (),
        memory_gib: float | None = None,
        modes: tuple[tuple[str, int], ...] = (),
        default: int = 0,
        mode: int | None = None,
        files: dict[str, str | int] | None = None,
    ) -> Path:
        tree = tmp_path / "sys/firmware/devicetree/base"
        texts: dict[Path, str] = {}
        if model is not None:
            texts[tree / "model"] = model + "\0"
        if compatible:
            texts[tree / "compatible"] = "\0".join(compatible) + "\0"
        texts[tree / "serial-number"] = "1422919012345\0"
        if memory_gib is not None:
            memory = f"MemTotal: {round(memory_gib * GIB_IN_KB)} kB\nMemFree: 1 kB\n"
            texts[tmp_path / "proc/meminfo"] = memory
        if modes:
            lines = [
                f"< POWER_MODEL ID={number} NAME={name} >\nEMC MAX_FREQ {cap}\n"
                for number, (name, cap) in enumerate(modes)
            ]
            conf = "# conf\n" + "".join(lines) + f"< PM_CONFIG DEFAULT={default} >\n"
            texts[tmp_path / "etc/nvpmodel.conf"] = conf
        if mode is not None:
            status = f"pmode:{mode:04} fmode:fan_mode_quiet\n"
            texts[tmp_path / "var/lib/nvpmodel/status"] = status
        for name, content in (files or {}).items():
            texts[tmp_path / name] = str(content)
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return build


def found(root: Path) -> tuple[str | None, str | None, str]:
    identity = identify_board(root)
    profile, mode = identity.profile, identity.mode
    return (
        None if profile is None else profile.name,
        None if mode is None else mode.name,
        identity.confidence,
    )


def limit(identity: Identity) -> tuple[float | None, str]:
    assert identity.limit is not None
    return identity.peak_bandwidth_bytes_per_s, identity.limit.name


def test_orin_nano_with_its_original_firmware(board: Board) -> None:
    root = board(
        model="NVIDIA Jetson Orin Nano Developer Kit",
        compatible=NANO,
        memory_gib=7.44,
        modes=NANO_MODES,
        mode=1,
        files={ISO_CAP: 0, CLK_CAP: -1},
    )
    assert found(root) == ("orin-nano-8gb", "7W", "high")
    # 2133 MHz x 2 x 16 bytes; caps of 0 and -1 are none
    assert limit(identify_board(root)) == (2133e6 * 2 * 16, "module")
    assert identify_board(root).mode_is_set


def test_orin_nano_super_in_the_mode_it_starts_in(board: Board) -> None:
    root = board(compatible=NANO_SUPER, memory_gib=7.44, modes=SUPER_MODES, default=1)
    assert found(root) == ("orin-nano-8gb-super", "25W", "high")
    identity = identify_board(root)
    assert limit(identity) == (3199e6 * 2 * 16, "module")
    assert not identity.mode_is_set


def test_orin_nx_8gb_with_its_gpu_at_408_mhz(board: Board) -> None:
    modes = (("MAXN", 0), ("10W", 2133000000), ("15W", 3199000000), ("20W", 3199000000))
    gpu = {"sys/class/devfreq/17000000.gpu/max_freq": 408000000}
    root = board(compatible=NX_8, memory_gib=7.44, modes=modes, mode=3, files=dict(gpu))
    assert found(root) == ("orin-nx-8gb", "20W", "high")
    device = this_device(root=root)
    assert device.mode.gpu_mhz == 408
    assert device.profile.peak_bandwidth_bytes_per_s(device.mode) == 3199e6 * 2 * 16
    # 8 SMs x 408 MHz x 2048
    assert device.profile.peak_flop_per_s(device.mode)["fp16"] == 8 * 408e6 * 2048


def test_nano(board: Board) -> None:
    compatible = ("nvidia,p3449-0000-b00+p3448-0000-b00", "nvidia,jetson-nano", "nvidia,tegra210")
    root = board(compatible=compatible, memory_gib=3.87, modes=(("MAXN", 0), ("5W", 0)), mode=0)
    assert found(root) == ("nano", "MAXN/10W", "high")
    assert limit(identify_board(root)) == (1600e6 * 2 * 8, "module")


def test_the_2gb_nano_is_not_the_4gb_one_for_sure(board: Board) -> None:
    compatible = ("nvidia,p3542-0000+p3448-0003", "nvidia,tegra210")
    identity = identify_board(board(compatible=compatible, memory_gib=1.9))
    assert identity.confidence == "low"
    assert "1.90 GiB of memory do not fit nano" in identity.warnings[0]


@pytest.mark.parametrize(
    ("memory_gib", "spec", "name", "confidence"),
    [
        (122.7, None, "agx-thor-t5000", "high"),
        (60.0, None, "thor-t4000", "medium"),
        (60.0, "3834-501-0004-M.0-1-0-jetson-agx-thor-t4000-", "thor-t4000", "high"),
        (None, "3834-501-0008-M.0-1-0-jetson-agx-thor-devkit-", "agx-thor-t5000", "high"),
    ],
)
def test_thor_t5000_and_t4000(
    board: Board, memory_gib: float | None, spec: str | None, name: str, confidence: str
) -> None:
    files = {} if spec is None else {"etc/nv_boot_control.conf": f"TNSPEC {spec}\nTEGRA_OTA x\n"}
    root = board(
        model="NVIDIA Jetson AGX Thor Developer Kit",
        compatible=THOR,
        memory_gib=memory_gib,
        modes=(("MAXN", 0), ("120W", 0)),
        mode=0,
        files=dict(files),
    )
    assert found(root) == (name, "MAXN", confidence)
    assert limit(identify_board(root)) == (4266e6 * 2 * 32, "module")


def test_a_thor_module_of_unknown_number_by_its_memory(board: Board) -> None:
    compatible = ("nvidia,p4071-0000+p3834-0004", "nvidia,tegra264")
    assert found(board(compatible=compatible, memory_gib=60))[::2] == ("thor-t4000", "medium")


def test_raspberry_pi_5(board: Board) -> None:
    root = board(
        model="Raspberry Pi 5 Model B Rev 1.0",
        compatible=("raspberrypi,5-model-b", "brcm,bcm2712"),
        memory_gib=7.8,
    )
    assert found(root) == ("rpi5", "default", "medium")
    assert limit(identify_board(root)) == (2133e6 * 2 * 4, "module")


def test_another_raspberry_pi_and_an_x86_are_no_known_board(board: Board) -> None:
    pi = board(model="Raspberry Pi 4 Model B", compatible=("brcm,bcm2711",), memory_gib=7.8)
    assert found(pi) == (None, None, "none")
    with pytest.raises(EnvironmentFault, match=r"'Raspberry Pi 4 Model B' .* has no profile"):
        this_device(root=pi)


def test_x86(board: Board) -> None:
    root = board(memory_gib=7.4, files={"sys/class/dmi/id/product_name": "Standard PC"})
    assert found(root) == (None, None, "none")
    assert identify_board(root).candidates == ()


def test_a_module_without_a_profile_is_not_taken_for_a_relative(board: Board) -> None:
    # AGX Xavier 8 GB: not the Xavier NX, which has the same SoC and as much memory
    agx = board(compatible=("nvidia,p2822-0000+p2888-0006", "nvidia,tegra194"), memory_gib=7.4)
    assert identify_board(agx).candidates == ()
    tx1 = board(compatible=("nvidia,p2597-0000+p2180-1000", "nvidia,tegra210"), memory_gib=3.9)
    assert identify_board(tx1).candidates == ()


def test_b02_a_model_string_without_nvidia(board: Board) -> None:
    root = board(model="Jetson AGX Orin", memory_gib=61.2)
    assert found(root)[::2] == ("agx-orin-64gb", "medium")
    assert found(board(model="Jetson AGX Orin", memory_gib=30.0))[0] == "agx-orin-32gb"
    unsure = identify_board(board(model="Jetson AGX Orin", files={"proc/meminfo": ""}))
    assert unsure.candidates == ("agx-orin-32gb", "agx-orin-64gb")


@pytest.mark.parametrize("text", ["nvidia,p3768-0000+p3767-0003-super", "p3767_0003_super"])
def test_b04_super_firmware_on_an_older_module(board: Board, text: str) -> None:
    root = board(compatible=(text, "nvidia,p3767-0003", "nvidia,tegra234", "", ""), memory_gib=7.4)
    assert found(root)[::2] == ("orin-nano-8gb-super", "high")


@pytest.mark.parametrize(
    ("mode", "files", "by"),
    [
        (0, {}, "firmware mode"),
        (2, {ISO_CAP: 2133000000}, "present cap"),
        (2, {CLK_CAP: 2133000000}, "present cap"),
        (2, {f"{BPMP}/max_rate": 2133000000}, "present cap"),
        (2, {f"{BPMP}/max_rate": 2133000}, "present cap"),  # in kHz
        (2, {"sys/class/devfreq/bwmgr/max_freq": 2133000000}, "present cap"),
        (
            2,
            {
                f"{BPMP}/max_rate": 3199000000,
                f"{BPMP}/rate": 2133000000,
                f"{BPMP}/mrq_rate_locked": 1,
            },
            "present cap",
        ),
    ],
)
def test_b05_a_super_board_in_a_capped_mode(
    board: Board, mode: int, files: dict[str, str | int], by: str
) -> None:
    root = board(compatible=NANO_SUPER, memory_gib=7.44, modes=SUPER_MODES, mode=mode, files=files)
    # 68.256 GB/s, not 102.4
    assert limit(identify_board(root)) == (2133e6 * 2 * 16, by)
    device = this_device(root=root)
    assert device.profile.peak_bandwidth_bytes_per_s(device.mode) == 2133e6 * 2 * 16
    asked = this_device("maxn_super", root)
    assert asked.mode.emc_mhz == 3199


def test_b06_emc_capped_at_the_rate_of_the_boot(board: Board) -> None:
    root = board(
        compatible=AGX,
        memory_gib=61.2,
        files={f"{BPMP}/max_rate": 3199000000, ISO_CAP: 2133000000},
    )
    identity = identify_board(root)
    # 136.5 of 204.8 GB/s
    assert limit(identity) == (2133e6 * 2 * 32, "present cap")
    assert any("EMC is capped at 2133 MHz" in text for text in identity.warnings)
    with pytest.raises(EnvironmentFault, match="power mode is not known"):
        this_device(root=root)
    assert this_device("MAXN", root).mode.name == "MAXN"


@pytest.mark.parametrize(
    ("suffix", "name", "clock"),
    [("", "orin-nano-4gb", 2133e6), ("-super", "orin-nano-4gb-super", 3199e6)],
)
def test_b07_the_4gb_orin_nano(board: Board, suffix: str, name: str, clock: float) -> None:
    compatible = (f"nvidia,p3768-0000+p3767-0004{suffix}", "nvidia,p3767-0004", "nvidia,tegra234")
    root = board(compatible=compatible, memory_gib=3.5)
    assert found(root)[::2] == (name, "high")
    # a bus of 64 bit: 34.1 and 51.2 GB/s
    assert identify_board(root).peak_bandwidth_bytes_per_s == clock * 2 * 8


def test_b08_an_unreadable_module_eeprom(board: Board) -> None:
    root = board(
        model="Acme carrier",
        compatible=("acme,thing", "nvidia,tegra234"),
        memory_gib=7.44,
        files={"etc/hostname": "tegra-ubuntu", "sys/devices/system/cpu/present": "0-5"},
    )
    identity = identify_board(root)
    assert (identity.profile, identity.confidence) == (None, "low")
    assert identity.candidates == (
        "orin-nano-8gb", "orin-nano-8gb-super", "orin-nx-8gb", "orin-nx-8gb-super",
    )  # fmt: skip
    with pytest.raises(EnvironmentFault, match="not sure enough; name the board with --device"):
        this_device(root=root)


@pytest.mark.parametrize(
    ("case", "line", "l4t", "jetpack"),
    [
        (
            "B09",
            "# R39 (release), REVISION: 9.0, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x",
            "39.9.0",
            None,
        ),
        (
            "B11",
            "# R35 (release), REVISION: 6.0, GCID: 1, BOARD: t186ref, EABI: aarch64",
            "35.6.0",
            "5.1.4",
        ),
        ("B11", "\ufeff#  R36  (release) ,  REVISION :  4.3 ", "36.4.3", "6.2"),
        ("B11", "#R32 (release),REVISION:7.1", "32.7.1", "4.6.1"),
        ("B09", "# R140 (release), REVISION: 12.3", "140.12.3", None),
        ("B11", "no release at all", None, None),
    ],
)
def test_b09_b11_releases_that_are_new_or_oddly_written(
    board: Board, case: str, line: str, l4t: str | None, jetpack: str | None
) -> None:
    identity = identify_board(board(compatible=NANO, files={"etc/nv_tegra_release": line + "\n"}))
    assert (identity.facts.l4t, identity.jetpack) == (l4t, jetpack), case
    assert identity.profile is not None and identity.profile.name == "orin-nano-8gb"


def test_b12_a_box_with_shared_memory_that_is_no_jetson(board: Board) -> None:
    root = board(memory_gib=119.7)
    assert found(root) == (None, None, "none")
    spark = board(memory_gib=119.7, files={"sys/class/dmi/id/product_name": "NVIDIA_DGX_Spark\n"})
    assert found(spark) == ("dgx-spark", "default", "medium")
    assert limit(identify_board(spark)) == (4266e6 * 2 * 32, "module")


def test_b15_the_cap_cannot_be_read(board: Board) -> None:
    root = board(compatible=NANO, memory_gib=7.44, modes=NANO_MODES, mode=0)
    (root / ISO_CAP).mkdir(parents=True)  # unreadable for root too
    identity = identify_board(root)
    assert identity.mode_name == "15W"
    assert identity.facts.mode_id == 0
    assert f"present EMC cap not known: /{ISO_CAP}: Is a directory" in identity.warnings


@contextmanager
def nobody(root: Path) -> Iterator[None]:
    """As a user without rights, where the tests run as root, who may read everything."""
    if os.geteuid() != 0:
        yield
        return
    for folder in (root, *root.parents):
        if folder.stat().st_mode & 0o055 != 0o055:
            folder.chmod(folder.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_b15_without_root(board: Board) -> None:
    root = board(compatible=NANO, modes=NANO_MODES, files={ISO_CAP: 0})
    (root / ISO_CAP).chmod(0)
    profiles = [find_device(name).profile for name in ("orin-nano-8gb", "orin-nano-4gb")]
    with nobody(root):
        identity = identify(root, profiles)
    assert f"present EMC cap not known: /{ISO_CAP}: Permission denied" in identity.warnings


def test_b16_modes_by_name_never_by_id(board: Board) -> None:
    nano = board(compatible=NANO_SUPER, memory_gib=7.4, modes=SUPER_MODES, mode=2)
    assert found(nano)[:2] == ("orin-nano-8gb-super", "MAXN_SUPER")
    compatible = ("nvidia,p3768-0000+p3767-0000-super", "nvidia,tegra234")
    modes = (("MAXN_SUPER", 0), ("10W", 2133000000), ("40W", 0))
    nx = board(compatible=compatible, memory_gib=15.3, modes=modes, mode=0)
    assert found(nx)[:2] == ("orin-nx-16gb-super", "MAXN_SUPER")
    # an id that the board's own conf does not have tells nothing
    odd = identify_board(board(compatible=NANO, modes=NANO_MODES, mode=7))
    assert odd.mode is None and "power mode 7 has no name" in odd.warnings[-1]


def test_b18_a_dev_kit_that_emulates_another_module(board: Board) -> None:
    root = board(
        model="NVIDIA Jetson AGX Orin Developer Kit",
        compatible=AGX,
        memory_gib=61.2,
        modes=NX_16_MODES,
        mode=3,
        files={ISO_CAP: 1600000000},
    )
    identity = identify_board(root)
    assert identity.profile is not None
    assert (identity.profile.name, identity.mode, identity.confidence) == (
        "agx-orin-64gb", None, "low",
    )  # fmt: skip
    assert identity.emulates == ("orin-nx-16gb",)
    assert "emulated" in identity.warnings[0]
    # the bus of the dev kit at the cap that holds: 1600 MHz x 2 x 32 bytes
    assert limit(identity) == (1600e6 * 2 * 32, "present cap")
    with pytest.raises(EnvironmentFault, match="--device"):
        this_device(root=root)


def test_b18_the_device_tree_says_what_is_emulated(board: Board) -> None:
    compatible = ("nvidia,p3737-0000+p3701-0005-as-p3767-0004", "nvidia,tegra234")
    identity = identify_board(board(compatible=compatible, memory_gib=3.5, modes=NANO_MODES))
    assert identity.profile is not None and identity.profile.name == "agx-orin-64gb"
    assert identity.emulates == ("orin-nano-4gb", "orin-nano-4gb-super")
    assert any("GiB of memory do not fit" in warning for warning in identity.warnings)


def test_b20_clocks_that_move_freely_are_told(board: Board) -> None:
    ends = {f"{BPMP}/min_rate": 204000000, f"{BPMP}/max_rate": 2133000000}
    free = identify_board(board(compatible=NANO, files={**ends, f"{BPMP}/rate": 665600000}))
    assert free.notes == (
        "EMC moves freely between 204.0 and 2133 MHz, now 665.6:"
        " run jetson_clocks before measuring, to pin it",
    )
    # idle is no cap
    assert free.peak_bandwidth_bytes_per_s == 2133e6 * 2 * 16
    pinned = board(compatible=NANO, files={f"{BPMP}/min_rate": 2133000000})
    assert identify_board(pinned).notes == ()


def test_modes_that_only_the_super_firmware_has(board: Board) -> None:
    root = board(compatible=NANO, memory_gib=7.44, modes=SUPER_MODES, mode=1)
    identity = identify_board(root)
    assert found(root) == ("orin-nano-8gb-super", "25W", "medium")
    assert "does not say Super, but only orin-nano-8gb-super has mode 25W" in identity.warnings[0]


def test_a_mode_of_ones_own(board: Board) -> None:
    modes = (("12W custom", 1600000000),)
    identity = identify_board(board(compatible=NANO, modes=modes, mode=0))
    assert identity.mode is None and identity.mode_name == "12W"
    # its cap still holds: 1600 MHz x 2 x 16 bytes
    assert limit(identity) == (1600e6 * 2 * 16, "firmware mode")


def test_an_oddly_written_conf(board: Board) -> None:
    conf = (
        '\ufeff#head\r\n<POWER_MODEL  ID = 3   NAME = "25W">\r\n\tEMC\tMAX_FREQ   2133000000\r\n'
        "< POWER_MODEL ID=x NAME=bad >\nEMC MAX_FREQ 1\n< PM_CONFIG DEFAULT = 3 >"
    )
    files: dict[str, str | int] = {"etc/nvpmodel.conf": conf}
    identity = identify_board(board(compatible=NANO_SUPER, files=files))
    assert identity.mode is not None and identity.mode.name == "25W"
    assert limit(identity) == (2133e6 * 2 * 16, "firmware mode")


def test_links_do_not_lead_out_of_the_root(board: Board, tmp_path: Path) -> None:
    root = board(compatible=NANO, memory_gib=7.4)
    (root / "etc/nvpmodel").mkdir(parents=True)
    conf = root / "etc/nvpmodel/nvpmodel_p3767_0003.conf"
    conf.write_text("< POWER_MODEL ID=0 NAME=15W >\n< PM_CONFIG DEFAULT=0 >\n")
    # as on a board: absolute, and so below the root
    (root / "etc/nvpmodel.conf").symlink_to("/etc/nvpmodel/nvpmodel_p3767_0003.conf")
    (root / "etc/nv_tegra_release").symlink_to("../../../../../../../../etc/passwd")
    (root / "proc/device-tree").symlink_to("/sys/firmware/devicetree/base")
    identity = identify_board(root)
    assert identity.mode is not None and identity.mode.name == "15W"
    assert identity.facts.l4t is None and not identity.facts.unread
    assert identity.facts.compatible_file == "/proc/device-tree/compatible"


def test_hostile_files_are_none_with_a_reason(board: Board) -> None:
    root = board(
        model="x" * 5000 + "\x1b[2J\n",
        compatible=NANO,
        files={
            ISO_CAP: "9" * 400,
            CLK_CAP: 7,
            "etc/nv_boot_control.conf": "TNSPEC " + "9" * 300_000,
        },
    )
    (root / "etc/nvpmodel.conf").symlink_to("nvpmodel.conf")
    os.mkfifo(root / "etc/nv_tegra_release")
    (root / "var/lib/nvpmodel").mkdir(parents=True)
    (root / "var/lib/nvpmodel/status").write_bytes(b"\xff\xfepmode:" + b"9" * 99)
    identity = identify_board(root)
    assert identity.profile is not None and identity.profile.name == "orin-nano-8gb"
    assert len(identity.facts.model or "") == 120
    unread = identity.facts.unread
    assert unread[f"/{ISO_CAP}"].startswith("not a number: 999")
    assert unread[f"/{CLK_CAP}"] == "7 is no clock that memory is capped at"
    assert unread["/etc/nvpmodel.conf"] == "too many links"
    assert unread["/etc/nv_tegra_release"] == "not a regular file"
    assert unread["/etc/nv_boot_control.conf"] == "larger than 256 KiB"


def test_lines_that_never_end_are_read_in_no_time(board: Board) -> None:
    for text in ("<" + "a" * 200_000, "< POWER_MODEL " + "a" * 200_000, "pmode:" + " " * 200_000):
        files: dict[str, str | int] = {
            "etc/nvpmodel.conf": text,
            "var/lib/nvpmodel/status": text,
            "etc/nv_tegra_release": "# R1" + " " * 200_000,
            "proc/meminfo": "MemTotal:" + " " * 200_000,
        }
        assert found(board(compatible=NANO, files=files))[0] == "orin-nano-8gb"


def test_the_serial_number_is_never_opened(board: Board) -> None:
    root = board(compatible=NANO)
    serial = root / "sys/firmware/devicetree/base/serial-number"
    before = serial.stat().st_atime_ns
    os.utime(serial, ns=(before - 10**15, before - 10**15))
    old = serial.stat().st_atime_ns
    assert "1422919012345" not in repr(identify_board(root))
    assert serial.stat().st_atime_ns == old
