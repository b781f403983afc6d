"""Tells from a board's files which board it is, in which power mode, and what its memory can do.

Live limits beat the label: the peak that holds is the lowest of what the module, the power mode and
the present cap on the memory clock (EMC) allow. What is not sure is said to be so.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from edgeprof.hardware import board_facts as facts_of
from edgeprof.hardware.board_facts import BoardFacts, EmcRange, read_facts
from edgeprof.hardware.board_files import BoardFiles, printable
from edgeprof.hardware.jetpack import jetpack_of
from edgeprof.hardware.matching import (
    Confidence,
    Evidence,
    by_number,
    foreign_modes,
    match_board,
)
from edgeprof.hardware.nvpmodel import ConfMode
from edgeprof.hardware.profile import DeviceProfile, PowerMode
from edgeprof.units import significant

LimitName = Literal["module", "firmware mode", "present cap"]
# Clocks nearer than this are one clock, rounded: 3199 and 3200 MHz.
_SAME_CLOCK = 1.005


class Limit(Struct, frozen=True, kw_only=True):
    """A bound on the memory clock, and where it is from."""

    name: LimitName
    emc_hz: float
    file: str


class Identity(Struct, frozen=True, kw_only=True):
    """Which board the files below a root are of. ``profile`` is None where that is not sure enough
    to name one; ``candidates`` are then those that it may be."""

    profile: DeviceProfile | None
    candidates: tuple[str, ...]
    confidence: Confidence
    emulates: tuple[str, ...]
    mode: PowerMode | None
    mode_name: str | None
    mode_is_set: bool
    limits: tuple[Limit, ...]
    facts: BoardFacts
    evidence: tuple[Evidence, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def limit(self) -> Limit | None:
        """The limit that applies: the lowest, and of equal ones the most lasting."""
        lowest = min((limit.emc_hz for limit in self.limits), default=0.0)
        near = (limit for limit in self.limits if limit.emc_hz <= lowest * _SAME_CLOCK)
        return next(near, None)

    @property
    def peak_bandwidth_bytes_per_s(self) -> float | None:
        """EMC clock x 2 x bus width / 8 at the limit that applies."""
        if self.profile is None or self.limit is None:
            return None
        return self.bandwidth_at(self.limit.emc_hz)

    def bandwidth_at(self, emc_hz: float) -> float | None:
        """What the bus moves at a memory clock."""
        if self.profile is None:
            return None
        return emc_hz * 2 * self.profile.dram.bus_width_bits / 8

    @property
    def doubt(self) -> str:
        """The one line that says what keeps the board from being known."""
        if not self.candidates:
            return "this is no known board: " + _why_unknown(self.facts)
        names = " or ".join(self.candidates)
        return f"this may be {names}, which is not sure enough"

    @property
    def jetpack(self) -> str | None:
        return None if self.facts.l4t is None else jetpack_of(self.facts.l4t)

    @property
    def emc_is_pinned(self) -> bool | None:
        """Whether the memory clock stays where it is; None where its ends are not known."""
        return None if self.facts.emc is None else _is_pinned(self.facts.emc)


def identify(root: Path, profiles: Sequence[DeviceProfile]) -> Identity:
    """Reads files only, runs nothing, and never the serial number."""
    facts = read_facts(BoardFiles(root))
    conf_mode, is_set = _conf_mode(facts)
    mode_name = None if conf_mode is None else printable(conf_mode.name)
    match = match_board(facts, profiles, mode_name)
    profile = match.profiles[0] if len(match.profiles) == 1 else None
    emulates = () if profile is None else tuple(_emulated(facts, profile, profiles))
    mode = None if profile is None or emulates else _profile_mode(profile, mode_name)
    limits = () if profile is None else tuple(_limits(facts, profile, mode, conf_mode))
    confidence: Confidence = "low" if emulates else match.confidence
    return Identity(
        profile=profile,
        candidates=tuple(candidate.name for candidate in match.profiles),
        confidence=confidence,
        emulates=emulates,
        mode=mode,
        mode_name=mode.name if mode is not None and mode_name is None else mode_name,
        mode_is_set=is_set,
        limits=limits,
        facts=facts,
        evidence=(*match.evidence, *_mode_evidence(facts, mode_name, is_set)),
        warnings=(
            *match.warnings,
            *_warnings(facts, profile, mode, conf_mode, emulates, limits),
        ),
        notes=tuple(_notes(facts)),
    )


def present_mode(identity: Identity) -> PowerMode | None:
    """The power mode with the clocks that the limits of now leave it."""
    mode, limit = identity.mode, identity.limit
    if mode is None or limit is None:
        return mode
    gpu_mhz, gpu_max_hz = mode.gpu_mhz, identity.facts.gpu_max_hz
    if gpu_mhz is not None and gpu_max_hz is not None:
        gpu_mhz = min(gpu_mhz, gpu_max_hz / 1e6)
    notes = [mode.notes] if mode.notes else []
    if limit.emc_hz * _SAME_CLOCK < mode.emc_mhz * 1e6:
        notes.append(f"EMC capped at {_mhz(limit.emc_hz)} MHz now ({limit.file})")
    return structs.replace(
        mode,
        emc_mhz=min(mode.emc_mhz, limit.emc_hz / 1e6),
        gpu_mhz=gpu_mhz,
        notes="; ".join(notes) or None,
    )


def _why_unknown(facts: BoardFacts) -> str:
    if not facts.compatible and facts.model is None:
        return "it has no device tree"
    named = facts.model or facts.compatible[0]
    return f"'{named}' ({', '.join(facts.compatible) or 'no compatible entry'}) has no profile"


def _conf_mode(facts: BoardFacts) -> tuple[ConfMode | None, bool]:
    """The mode that is set, and True; else the one that the board starts in, and False."""
    if facts.conf is None:
        return None, False
    if facts.mode_id is not None:
        return facts.conf.by_id(facts.mode_id), True
    if facts.conf.default_id is None:
        return None, False
    return facts.conf.by_id(facts.conf.default_id), False


def _profile_mode(profile: DeviceProfile, name: str | None) -> PowerMode | None:
    if name is not None:
        return profile.find_mode(name)
    only = profile.modes[0]
    return only if only.id is None else None  # a board without nvpmodel


def _emulated(
    facts: BoardFacts, profile: DeviceProfile, profiles: Sequence[DeviceProfile]
) -> list[str]:
    """What the board was flashed to behave like, where that is another module than it is."""
    named = [p for number in facts.emulated_numbers for p in by_number(profiles, number)]
    modes = () if facts.conf is None else facts.conf.modes
    others = named or foreign_modes(modes, profile, profiles)
    return [other.name for other in others if other is not profile]


def _limits(
    facts: BoardFacts, profile: DeviceProfile, mode: PowerMode | None, conf_mode: ConfMode | None
) -> list[Limit]:
    """From the most to the least lasting."""
    data = f"profile {profile.name}"
    limits = [Limit(name="module", emc_hz=profile.dram.emc_max_mhz * 1e6, file=data)]
    if mode is not None:
        limits.append(Limit(name="firmware mode", emc_hz=mode.emc_mhz * 1e6, file=data))
    if conf_mode is not None and conf_mode.emc_cap_hz is not None:
        cap = conf_mode.emc_cap_hz
        limits.append(Limit(name="firmware mode", emc_hz=cap, file=facts_of.CONF))
    caps = [Limit(name="present cap", emc_hz=cap.clock_hz, file=cap.file) for cap in facts.caps]
    return limits + caps


def _mode_evidence(facts: BoardFacts, name: str | None, is_set: bool) -> list[Evidence]:
    if name is None:
        return []
    file = facts_of.STATUS if is_set else facts_of.CONF
    shows = "the power mode that is set" if is_set else "the power mode that the board starts in"
    return [Evidence(file=file, value=name, shows=shows)]


def _warnings(
    facts: BoardFacts,
    profile: DeviceProfile | None,
    mode: PowerMode | None,
    conf_mode: ConfMode | None,
    emulates: Sequence[str],
    limits: Sequence[Limit],
) -> list[str]:
    warnings = []
    if profile is not None and emulates:
        warnings.append(
            f"this is {profile.name} hardware with the power modes of {' or '.join(emulates)}:"
            " emulated, or the wrong nvpmodel conf. No profile holds: only the present caps on"
            " EMC and GPU do"
        )
    elif profile is not None and mode is None:
        warnings.append(_mode_unknown(facts, profile, conf_mode))
    warnings += _cap_warnings(facts, limits)
    return warnings


def _mode_unknown(facts: BoardFacts, profile: DeviceProfile, conf_mode: ConfMode | None) -> str:
    names = ", ".join(mode.name for mode in profile.modes)
    if conf_mode is not None:
        return f"power mode {printable(conf_mode.name)} is not among those of the profile: {names}"
    if facts.mode_id is not None:
        return f"power mode {facts.mode_id} has no name in {facts_of.CONF}, and ids tell nothing"
    return f"power mode not known: neither {facts_of.STATUS} nor {facts_of.CONF} names one"


def _cap_warnings(facts: BoardFacts, limits: Sequence[Limit]) -> list[str]:
    warnings = [
        f"present EMC cap not known: {path}: {facts.unread[path]}"
        for path in facts_of.NVPMODEL_CAPS
        if path in facts.unread
    ]
    lasting = min((o.emc_hz for o in limits if o.name != "present cap"), default=0.0)
    lower = [o for o in limits if o.name == "present cap" and o.emc_hz * _SAME_CLOCK < lasting]
    if lower:
        cap = min(lower, key=lambda limit: limit.emc_hz)
        warnings.append(
            f"EMC is capped at {_mhz(cap.emc_hz)} MHz ({cap.file}), below the {_mhz(lasting)} MHz"
            " of the power mode: check the cap, which nvpmodel or nvphs lifts"
        )
    return warnings


def _notes(facts: BoardFacts) -> list[str]:
    emc = facts.emc
    if emc is None or _is_pinned(emc):
        return []
    now = "" if emc.now_hz is None else f", now {_mhz(emc.now_hz)}"
    return [
        f"EMC moves freely between {_mhz(emc.low_hz)} and {_mhz(emc.high_hz)} MHz{now}:"
        " run jetson_clocks before measuring, to pin it"
    ]


def _is_pinned(emc: EmcRange) -> bool:
    return emc.low_hz * _SAME_CLOCK >= emc.high_hz


def _mhz(clock_hz: float) -> str:
    return significant(clock_hz / 1e6, 4)
