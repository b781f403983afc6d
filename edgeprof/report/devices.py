"""Shows boards and their power modes: as a list, one with its sources, or as one document."""

from collections.abc import Mapping, Sequence
from typing import Any

from edgeprof.hardware.profile import AnnouncedBoard, DeviceProfile, PowerMode
from edgeprof.report.table import fold, key_values, table
from edgeprof.units import show_gib

SCHEMA = "edgeprof.devices/1"


def devices_text(
    boards: Sequence[DeviceProfile | AnnouncedBoard], aliases: Mapping[str, str], width: int
) -> str:
    """One line a board and power mode, the announced boards last; then the short names."""
    headers = ("device", "mode", "GB/s", "SMs", "GPU MHz", "TFLOP/s", "GiB")
    rows: list[tuple[str, ...]] = [
        (
            profile.name,
            mode.name + (" *" if mode.name == profile.default_mode else ""),
            *_figures(profile, mode),
            f"{profile.dram.size_gib:g}",
        )
        for profile in boards
        if isinstance(profile, DeviceProfile)
        for mode in profile.modes
    ]
    announced = [board for board in boards if isinstance(board, AnnouncedBoard)]
    rows += [(board.name, "announced", *["-"] * 5) for board in announced]
    short_names = [f"{short} = {long}" for short, long in aliases.items()]
    lines = [
        table(headers, rows, left=2, width=width),
        "",
        "* default mode. GB/s and TFLOP/s (fp16, dense) are peaks; '-' is not published.",
        f"Short names: {', '.join(short_names)}",
    ]
    return fold("\n".join(lines), width)


def board_text(board: DeviceProfile | AnnouncedBoard, width: int) -> str:
    """All that is known of one board, with its sources."""
    if isinstance(board, AnnouncedBoard):
        return fold(_announced(board), width)
    return _profile(board, width)


def devices_document(boards: Sequence[DeviceProfile | AnnouncedBoard]) -> dict[str, Any]:
    """``edgeprof.devices/1``: SI units in the keys, unknown is null."""
    return {"schema": SCHEMA, "devices": [_document(board) for board in boards]}


def _announced(board: AnnouncedBoard) -> str:
    return key_values(
        ("device", "board", "module", "announced", "not published", "notes", "source"),
        (
            board.name,
            board.title,
            board.soc,
            board.announced,
            ", ".join(board.not_published),
            board.notes or "",
            f"{board.source} ({board.status})",
        ),
    )


def _profile(profile: DeviceProfile, width: int) -> str:
    headers = ("mode", "GB/s", "SMs", "GPU MHz", "TFLOP/s", "W", "CPU cores", "CPU MHz")
    rows = [
        (
            mode.name + (" *" if mode.name == profile.default_mode else ""),
            *_figures(profile, mode),
            _number(mode.power_w),
            _number(mode.cpu_cores),
            _number(mode.cpu_mhz),
        )
        for mode in profile.modes
    ]
    head = key_values(
        ("device", "board", "module", "memory", "sustained", "GPU", "CPU", "notes", "source"),
        (
            profile.name,
            profile.title,
            ", ".join([*profile.part_numbers, profile.soc]),
            f"{profile.dram.size_gib:g} GiB {profile.dram.type}, {profile.dram.bus_width_bits} bit,"
            f" {show_gib(profile.visible_dram_bytes)} visible"
            f" ({profile.dram.visible_source or 'assumed'})",
            _sustained(profile),
            _gpu(profile),
            profile.cpu,
            profile.notes or "",
            f"{profile.source} ({profile.status})",
        ),
    )
    notes = [line for mode in profile.modes if (line := _mode_note(mode))]
    lines = [head, "", table(headers, rows, width=width), "* default mode", *notes]
    return fold("\n".join(lines), width)


def _gpu(profile: DeviceProfile) -> str:
    gpu = profile.gpu
    if gpu is None:
        return "none"
    return (
        f"{gpu.architecture} {gpu.compute_capability}, {gpu.sms} SMs;"
        f" rates: {gpu.rates_source} ({gpu.rates_status})"
    )


def _sustained(profile: DeviceProfile) -> str:
    share = profile.sustained
    if share is None:
        return "not known"
    return (
        f"{share.fraction:g} of peak ({share.low:g} to {share.high:g}): {share.method};"
        f" {share.source} ({share.status})"
    )


def _mode_note(mode: PowerMode) -> str:
    parts = [part for part in (mode.notes, mode.source, mode.status) if part]
    return f"{mode.name}: {'; '.join(parts)}" if parts else ""


def _figures(profile: DeviceProfile, mode: PowerMode) -> tuple[str, str, str, str]:
    peak = profile.peak_flop_per_s(mode).get("fp16")
    return (
        f"{profile.peak_bandwidth_bytes_per_s(mode) / 1e9:.1f}",
        _number(mode.sms),
        _number(mode.gpu_mhz),
        "-" if peak is None else f"{peak / 1e12:.2f}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _document(board: DeviceProfile | AnnouncedBoard) -> dict[str, Any]:
    if isinstance(board, AnnouncedBoard):
        return _announced_document(board)
    return _profile_document(board)


def _announced_document(board: AnnouncedBoard) -> dict[str, Any]:
    return {
        "name": board.name,
        "title": board.title,
        "announced": board.announced,
        "not_published": board.not_published,
        "default_mode": None,
        "dram_bytes": None,
        "visible_dram_bytes": None,
        "sustained": None,
        "source": board.source,
        "status": board.status,
        "notes": board.notes,
        "modes": [],
    }


def _profile_document(profile: DeviceProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "title": profile.title,
        "announced": None,
        "not_published": [],
        "default_mode": profile.default_mode,
        "dram_bytes": profile.dram_bytes,
        "visible_dram_bytes": profile.visible_dram_bytes,
        "sustained": profile.sustained,
        "source": profile.source,
        "status": profile.status,
        "notes": profile.notes,
        "modes": [
            {
                "name": mode.name,
                "peak_bandwidth_bytes_per_s": profile.peak_bandwidth_bytes_per_s(mode),
                "sustained_bandwidth_bytes_per_s": profile.sustained_bandwidth_bytes_per_s(mode),
                "peak_flop_per_s": profile.peak_flop_per_s(mode),
                "sms": mode.sms,
                "gpu_clock_hz": None if mode.gpu_mhz is None else mode.gpu_mhz * 1e6,
                "emc_clock_hz": mode.emc_mhz * 1e6,
                "power_w": mode.power_w,
                "notes": mode.notes,
                "source": mode.source or profile.source,
                "status": mode.status or profile.status,
            }
            for mode in profile.modes
        ],
    }
