"""The figures of a board that its readings are turned into others by. Opens no file itself."""

from pathlib import Path
from typing import TYPE_CHECKING

from edgeprof.catalog import emc_calibrations, find_device, identify_board
from edgeprof.telemetry.source import BoardFigures, Calibration

if TYPE_CHECKING:
    from edgeprof.hardware.identify import Identity
    from edgeprof.hardware.profile import DeviceProfile


def board_figures(root: Path, device: str | None = None) -> BoardFigures:
    """Of the board that is named, else of the one that the files below ``root`` are of.

    Raises UsageFault for a name that is not known. A board that is not sure has no figures.
    """
    where = str(root.absolute())
    identity = identify_board(root)
    named = None if device is None else find_device(device).profile
    profile = _sure_profile(identity) if named is None else named
    calibrations = _calibrations(identity)
    if profile is None:
        return BoardFigures(root=where, emc_calibrations=calibrations)
    return BoardFigures(
        root=where,
        profile=profile.name,
        bytes_per_emc_clock=2 * profile.dram.bus_width_bits / 8,
        emc_max_hz=profile.dram.emc_max_mhz * 1e6,
        emc_counter_established=profile.dram.emc_counter_established,
        emc_calibrations=calibrations,
        module_rails=() if profile.power is None else tuple(profile.power.module_rails),
    )


def _sure_profile(found: "Identity") -> "DeviceProfile | None":
    return None if found.confidence == "low" else found.profile


def _calibrations(found: "Identity") -> tuple[Calibration, ...]:
    """What `edgeprof probe` found out about the counters of this very board and release."""
    return tuple(
        Calibration(
            node=one.node,
            window_kind=one.window_kind,
            window_s=one.window_s,
            bytes_per_s_per_unit=one.bytes_per_s_per_unit.value,
            emc_clock_hz=one.emc_clock_hz,
        )
        for one in emc_calibrations(found.facts.model, found.facts.l4t)
    )
