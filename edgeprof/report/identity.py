"""Shows which board this is: as text for a person and as one document for a program."""

from typing import Any

from edgeprof.hardware.identify import Identity, Limit
from edgeprof.report.table import fold, key_values, table
from edgeprof.units import show, show_gib

SCHEMA = "edgeprof.identity/1"


def identity_document(identity: Identity) -> dict[str, Any]:
    """SI units in the keys, unknown is null."""
    profile, mode, facts, limit = identity.profile, identity.mode, identity.facts, identity.limit
    return {
        "schema": SCHEMA,
        "device": None if profile is None else profile.name,
        "candidates": identity.candidates,
        "confidence": identity.confidence,
        "emulates": identity.emulates,
        "mode": None if mode is None else mode.name,
        "board_mode_name": identity.mode_name,
        "board_mode_id": facts.mode_id,
        "peak_bandwidth_bytes_per_s": identity.peak_bandwidth_bytes_per_s,
        "limited_by": None if limit is None else limit.name,
        "limits": [_limit_document(identity, one) for one in identity.limits],
        "model": facts.model,
        "compatible": facts.compatible,
        "soc": facts.soc,
        "memory_bytes": facts.memory_bytes,
        "cores": facts.cores,
        "gpu_max_clock_hz": facts.gpu_max_hz,
        "emc_clock_hz": None
        if facts.emc is None
        else {"low": facts.emc.low_hz, "high": facts.emc.high_hz, "now": facts.emc.now_hz},
        "l4t": facts.l4t,
        "jetpack": identity.jetpack,
        "evidence": identity.evidence,
        "warnings": identity.warnings,
        "notes": identity.notes,
        "unread": [{"file": file, "reason": reason} for file, reason in facts.unread.items()],
    }


def identity_text(identity: Identity, width: int) -> str:
    """The answer, how sure it is, and the files that it rests on."""
    facts = identity.facts
    sections = [
        key_values(
            ("device", "mode", "peak", "confidence", "memory", "software"),
            (
                _device(identity),
                _mode(identity),
                _peak(identity),
                identity.confidence,
                "" if facts.memory_bytes is None else f"{show_gib(facts.memory_bytes)} visible",
                ""
                if facts.l4t is None
                else f"L4T R{facts.l4t}, JetPack {identity.jetpack or 'unknown'}",
            ),
        )
    ]
    if identity.evidence:
        rows = [(one.file, one.value, one.shows) for one in identity.evidence]
        sections.append(table(("file", "says", "which is"), rows, left=3, width=width))
    if identity.limits:
        limits = [
            (one.name, one.file, f"{one.emc_hz / 1e6:g}", _gb(identity.bandwidth_at(one.emc_hz)))
            for one in identity.limits
        ]
        headers = ("limit", "from", "EMC MHz", "GB/s")
        sections.append(table(headers, limits, left=2, width=width))
    lines = [f"Warning: {warning}" for warning in identity.warnings]
    if identity.confidence == "low":
        lines.append(f"Not sure: {identity.doubt}. Name the board with --device.")
    lines += identity.notes
    lines += [f"Not read: {file}: {reason}" for file, reason in facts.unread.items()]
    sections += ["\n".join(lines)] if lines else []
    return fold("\n\n".join(sections), width)


def _device(identity: Identity) -> str:
    if identity.profile is not None:
        return f"{identity.profile.name} ({identity.profile.title})"
    return " or ".join(identity.candidates) or "no known board"


def _mode(identity: Identity) -> str:
    if identity.mode_name is None:
        return "not known"
    origin = "" if identity.mode_is_set else " (the default; nothing says that another is set)"
    return identity.mode_name + origin


def _peak(identity: Identity) -> str:
    limit, profile = identity.limit, identity.profile
    if limit is None or profile is None:
        return ""
    return (
        f"{show(identity.peak_bandwidth_bytes_per_s, 'B/s', 4)}, limited by the {limit.name}"
        f" (EMC {limit.emc_hz / 1e6:g} MHz x 2 x {profile.dram.bus_width_bits} bit; {limit.file})"
    )


def _gb(bandwidth: float | None) -> str:
    return "-" if bandwidth is None else f"{bandwidth / 1e9:.1f}"


def _limit_document(identity: Identity, limit: Limit) -> dict[str, Any]:
    return {
        "name": limit.name,
        "file": limit.file,
        "emc_clock_hz": limit.emc_hz,
        "peak_bandwidth_bytes_per_s": identity.bandwidth_at(limit.emc_hz),
        "applies": limit is identity.limit,
    }
