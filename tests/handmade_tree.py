"""The few files of a board that a test is about, written by hand below a root folder."""

import os
from collections.abc import Mapping
from pathlib import Path

from edgeprof.telemetry.source import Absence, Channel, Offer, Reading


def put(root: Path, nodes: Mapping[str, str]) -> Path:
    """Write each node as the kernel does, with an end of line. Gives the root back."""
    for path, text in nodes.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n" if text else "")
    return root


def link(root: Path, path: str, target: str) -> None:
    """``path`` leads to ``target``, both on the board, as the links of /sys/class do."""
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.symlink_to(os.path.relpath(target, Path(path).parent))


def readings(offer: Offer) -> dict[str, Reading]:
    """One reading of everything."""
    return {name: value for reader in offer.readers for name, value in reader.read().items()}


def values(offer: Offer) -> dict[str, float | None]:
    """What is announced, by its present value; what has no value is left out."""
    now = readings(offer)
    return {name: now[name].value for name in channels(offer) if now[name].value is not None}


def channels(offer: Offer) -> dict[str, Channel]:
    return {channel.name: channel for reader in offer.readers for channel in reader.channels}


def absences(offer: Offer) -> dict[str, Absence]:
    return {absence.signal: absence for absence in offer.absences}
