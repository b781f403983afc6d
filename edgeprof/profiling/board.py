"""The figures of a board that its readings are turned into others by. Opens no file itself."""

from pathlib import Path
from typing import TYPE_CHECKING

from edgeprof.catalog import find_device, identify_board
from edgeprof.telemetry.source import BoardFigures

if TYPE_CHECKING:
    from edgeprof.hardware.profile import DeviceProfile


def board_figures(root: Path, device: str | None = None) -> BoardFigures:
    """Of the board that is named, else of the one that the files below ``root`` are of.

    Raises UsageFault for a name that is not known. A board that is not sure has no figures.
    """
    where = str(root.absolute())
    profile = _sure_profile(root) if device is None else find_device(device).profile
    if profile is None:
        return BoardFigures(root=where)
    return BoardFigures(
        root=where,
        profile=profile.name,
        bytes_per_emc_clock=2 * profile.dram.bus_width_bits / 8,
        emc_max_hz=profile.dram.emc_max_mhz * 1e6,
        emc_counter_established=profile.dram.emc_counter_established,
        module_rails=() if profile.power is None else tuple(profile.power.module_rails),
    )


def _sure_profile(root: Path) -> "DeviceProfile | None":
    found = identify_board(root)
    return None if found.confidence == "low" else found.profile
