"""``edgeprof devices``: the boards and power modes that profiles exist for."""

from collections.abc import Sequence
from typing import Any

import click
import msgspec

from edgeprof.catalog import DEVICES_FOLDER, device_aliases, device_names, find_device
from edgeprof.hardware.profile import DeviceProfile, PowerMode, load_profile
from edgeprof.report.table import fold, key_values, table, terminal_width
from edgeprof.units import show_gib

SCHEMA = "edgeprof.devices/1"


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(name: str | None, as_json: bool) -> None:
    """List the boards and power modes that edgeprof knows, or show one with its sources."""
    if name is None:
        profiles = [load_profile(DEVICES_FOLDER / f"{board}.toml") for board in device_names()]
    else:
        profiles = [find_device(name).profile]
    if as_json:
        content = {"schema": SCHEMA, "devices": [_document(profile) for profile in profiles]}
        click.echo(msgspec.json.format(msgspec.json.encode(content), indent=2))
    elif name is None:
        click.echo(_list(profiles, terminal_width()))
    else:
        click.echo(_one(profiles[0], terminal_width()))


def _list(profiles: Sequence[DeviceProfile], width: int) -> str:
    headers = ("device", "mode", "GB/s", "SMs", "GPU MHz", "TFLOP/s", "GiB")
    rows = [
        (
            profile.name,
            mode.name + (" *" if mode.name == profile.default_mode else ""),
            *_figures(profile, mode),
            f"{profile.dram.size_gib:g}",
        )
        for profile in profiles
        for mode in profile.modes
    ]
    aliases = [f"{short} = {long}" for short, long in device_aliases().items()]
    lines = [
        table(headers, rows, left=2, width=width),
        "",
        "* default mode. GB/s and TFLOP/s (fp16, dense) are peaks; '-' is not published.",
        f"Short names: {', '.join(aliases)}",
    ]
    return fold("\n".join(lines), width)


def _one(profile: DeviceProfile, width: int) -> str:
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
            f"{profile.gpu.architecture} {profile.gpu.compute_capability}, {profile.gpu.sms} SMs;"
            f" rates: {profile.gpu.rates_source} ({profile.gpu.rates_status})",
            profile.cpu,
            profile.notes or "",
            f"{profile.source} ({profile.status})",
        ),
    )
    notes = [line for mode in profile.modes if (line := _mode_note(mode))]
    lines = [head, "", table(headers, rows, width=width), "* default mode", *notes]
    return fold("\n".join(lines), width)


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


def _document(profile: DeviceProfile) -> dict[str, Any]:
    return {
        "name": profile.name,
        "title": profile.title,
        "default_mode": profile.default_mode,
        "dram_bytes": profile.dram_bytes,
        "visible_dram_bytes": profile.visible_dram_bytes,
        "sustained": profile.sustained,
        "source": profile.source,
        "status": profile.status,
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
