"""On what a session was measured: the machine and the software. No host name, no serial number."""

import importlib.metadata
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgeprof.catalog import identify_board
from edgeprof.hardware.board_files import printable
from edgeprof.hardware.machine import cpu_model, last_level_cache_bytes, usable_cores

if TYPE_CHECKING:
    from edgeprof.hardware.identify import Identity

_PACKAGES = ("numpy", "onnx", "psutil", "tokenizers")
_RUNTIMES = ("onnxruntime", "onnxruntime-gpu")


def describe_device(root: Path = Path("/")) -> dict[str, Any]:
    """What the machine is, as its files below ``root`` tell; of a board also what it is set to."""
    found = identify_board(root)
    machine = {"architecture": platform.machine()}
    model = found.facts.model
    if model is None:
        return {"name": cpu_model(root), "kind": "host", **machine}
    return {
        "name": printable(model),
        "kind": "board",
        **machine,
        "profile": found.profile.name if found.profile is not None else None,
        "profile_confidence": found.confidence,
        "l4t": found.facts.l4t,
        "jetpack": found.jetpack,
        "power_mode": found.mode_name,
        "clocks": _clocks(found),
        **_memory_bus(found),
    }


def _memory_bus(found: "Identity") -> dict[str, Any]:
    """By what the shares of peak and sustained bandwidth are worked out, from the profile."""
    profile = found.profile
    if profile is None or found.confidence == "low":
        return {"bytes_per_emc_clock": None, "sustained_share": None}
    sustained = profile.sustained
    return {
        "bytes_per_emc_clock": 2 * profile.dram.bus_width_bits / 8,
        "sustained_share": None if sustained is None else sustained.fraction,
    }


def _clocks(found: "Identity") -> str | None:
    """Whether the memory clock may move; jetson_clocks pins it."""
    emc = found.facts.emc
    if emc is None:
        return None
    low, high = (f"{clock_hz / 1e6:.0f}" for clock_hz in (emc.low_hz, emc.high_hz))
    return f"EMC pinned at {high} MHz" if found.emc_is_pinned else f"EMC free, {low} to {high} MHz"


def describe_environment(root: Path = Path("/")) -> dict[str, Any]:
    """Machine and software at the start; versions by their metadata, nothing is imported for it."""
    import psutil

    memory = psutil.virtual_memory()
    packages = {name: _version(name) for name in _PACKAGES}
    runtime = next((name for name in _RUNTIMES if _version(name)), None)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_model(root),
        "cores": usable_cores(),
        "memory_bytes": memory.total,
        "available_memory_bytes": memory.available,
        "last_level_cache_bytes": last_level_cache_bytes(root),
        "onnxruntime": _version(runtime) if runtime else None,
        "onnxruntime_package": runtime,
        **packages,
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
