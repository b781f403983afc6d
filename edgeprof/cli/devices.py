"""``edgeprof devices``: the boards and power modes that are known, and which one this is."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from edgeprof.catalog import device_aliases, device_names, find_board, identify_board
from edgeprof.errors import EnvironmentFault, UsageFault
from edgeprof.hardware.profile import AnnouncedBoard, DeviceProfile, PowerMode
from edgeprof.report.identity import identity_document, identity_text
from edgeprof.report.table import fold, key_values, table, terminal_width
from edgeprof.units import show_gib

SCHEMA = "edgeprof.devices/1"


@click.command()
@click.argument("name", required=False)
@click.option("--detect", is_flag=True, help="Say which board this is, and how that is known.")
@click.option("--root", type=click.Path(path_type=Path, exists=True, file_okay=False),
              metavar="DIR", help="With --detect: read the board's files below DIR.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(name: str | None, detect: bool, root: Path | None, as_json: bool) -> None:
    """List the boards and power modes that edgeprof knows, or show one with its sources.

    NAME is a board, a short name or the path of a profile of your own. With --detect it exits with
    3, the output still complete, when this is no known board.
    """
    if detect:
        if name is not None:
            raise UsageFault(f"--detect finds the board itself; leave out '{name}'")
        _detect(Path("/") if root is None else root, as_json)
        return
    if root is not None:
        raise UsageFault("--root needs --detect")
    boards = [find_board(board) for board in (device_names() if name is None else [name])]
    if as_json:
        _print_json({"schema": SCHEMA, "devices": [_document(board) for board in boards]})
    elif name is None:
        click.echo(_list(boards, terminal_width()))
    else:
        click.echo(_one(boards[0], terminal_width()))


def _detect(root: Path, as_json: bool) -> None:
    identity = identify_board(root)
    if as_json:
        _print_json(identity_document(identity))
    else:
        click.echo(identity_text(identity, terminal_width()))
    if not identity.candidates:
        raise EnvironmentFault(
            f"{identity.doubt}; name one of `edgeprof devices` with --device,"
            " or the path of a profile of your own"
        )


def _print_json(content: dict[str, Any]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))


def _list(boards: Sequence[DeviceProfile | AnnouncedBoard], width: int) -> str:
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
    aliases = [f"{short} = {long}" for short, long in device_aliases().items()]
    lines = [
        table(headers, rows, left=2, width=width),
        "",
        "* default mode. GB/s and TFLOP/s (fp16, dense) are peaks; '-' is not published.",
        f"Short names: {', '.join(aliases)}",
    ]
    return fold("\n".join(lines), width)


def _one(board: DeviceProfile | AnnouncedBoard, width: int) -> str:
    if isinstance(board, AnnouncedBoard):
        return fold(_announced(board), width)
    return _profile(board, width)


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
