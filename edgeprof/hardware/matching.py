"""Finds the profiles that what a board's files say can be true of: by module number first, then by
memory, cores and model text, which only ever narrow the choice."""

import re
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec import Struct

from edgeprof.hardware import board_facts as facts_of
from edgeprof.hardware.board_facts import BoardFacts
from edgeprof.hardware.nvpmodel import ConfMode
from edgeprof.hardware.profile import DeviceProfile
from edgeprof.units import show_gib

Confidence = Literal["high", "medium", "low", "none"]

# Of the memory on a module, what Linux sees: at least this (7.3 GiB of 8, 3.5 of 4, 122.7 of 128).
_LEAST_VISIBLE = 0.75
_MODEL_NOISE = re.compile(
    r"\b(?:nvidia|engineering|reference|developer|dev|kit|module|(?:rev|version)\b.*)|\(.*"
)


class Evidence(Struct, frozen=True, kw_only=True):
    """A file, what it holds, and what follows from it."""

    file: str
    value: str
    shows: str


class Match(Struct, frozen=True, kw_only=True):
    """The profiles that are left (none: no known board; several: it is one of them)."""

    profiles: tuple[DeviceProfile, ...]
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    warnings: tuple[str, ...]


def match_board(
    facts: BoardFacts, profiles: Sequence[DeviceProfile], mode: str | None = None
) -> Match:
    """``mode`` is the name of the power mode that the board is in."""
    pool, confidence, evidence = _candidates(facts, profiles)
    if not pool:
        return Match(profiles=(), confidence="none", evidence=(), warnings=())
    warnings: list[str] = []
    if facts.memory_bytes is not None:
        shown = show_gib(facts.memory_bytes)
        shows = "memory that Linux sees"
        evidence.append(Evidence(file=facts_of.MEMINFO, value=shown, shows=shows))
        if not any(_fits_memory(profile, facts) for profile in pool):
            warnings.append(f"{shown} of memory do not fit {_names(pool)}: the module is another")
            confidence = "low"
        pool = _narrow(pool, lambda profile: _fits_memory(profile, facts))
    pool, doubt = _by_firmware(facts, pool, mode)
    if doubt is not None:
        warnings.append(doubt)
        confidence = "medium" if confidence == "high" else confidence
    if confidence != "high":
        pool = _narrow(pool, lambda profile: facts.cores == _cores(profile))
    pool = _narrow(pool, lambda profile: _names_model(profile, facts.model))
    return Match(
        profiles=tuple(pool),
        confidence="low" if len(pool) > 1 else confidence,
        evidence=tuple(evidence),
        warnings=tuple(warnings),
    )


def by_number(profiles: Sequence[DeviceProfile], number: str) -> list[DeviceProfile]:
    """The profiles of a module number: the original and the Super share theirs."""
    return [profile for profile in profiles if number in profile.part_numbers]


def foreign_modes(
    modes: Sequence[ConfMode], own: DeviceProfile, profiles: Sequence[DeviceProfile]
) -> list[DeviceProfile]:
    """The other modules of the SoC that a conf is made for: it names modes that this module lacks
    and that they all have. (Of a module without a published number not all modes are known.)"""
    if not own.part_numbers or all(own.find_mode(mode.name) for mode in modes):
        return []
    return [
        profile
        for profile in profiles
        if profile.soc == own.soc
        and not set(profile.part_numbers) & set(own.part_numbers)
        and all(profile.find_mode(mode.name) for mode in modes)
    ]


_Found = tuple[list[DeviceProfile], Confidence, list[Evidence]]


def _candidates(facts: BoardFacts, profiles: Sequence[DeviceProfile]) -> _Found:
    """By what the board was flashed as, by module number, by the family of modules, and at last by
    what a custom carrier leaves: the SoC or a name."""
    spec = facts.boot_spec or ""
    flashed = [p for p in profiles if p.boot_spec is not None and p.boot_spec in spec]
    if flashed:
        return flashed, "high", [_evidence(facts_of.BOOT_CONTROL, spec, "the board flashed")]
    for number in facts.part_numbers:
        pool = by_number(profiles, number)
        if pool:
            return _of_number(facts, pool, profiles, number)
    for number in facts.part_numbers:
        family = number.partition("-")[0] + "-"
        pool = [p for p in profiles if any(n.startswith(family) for n in p.part_numbers)]
        if pool:
            pool += _unnumbered(pool, profiles)
            shown = _evidence(_number_file(facts), number, "the family of modules")
            return [p for p in pool if _fits_memory(p, facts)], "medium", [shown]
    if facts.module_is_named:
        return [], "none", []
    return _by_soc_or_name(facts, profiles)


def _of_number(
    facts: BoardFacts, pool: list[DeviceProfile], profiles: Sequence[DeviceProfile], number: str
) -> _Found:
    """The modules of a number; where memory rules them out, one whose number is not published."""
    shown = _evidence(_number_file(facts), number, "the module")
    if not any(_fits_memory(profile, facts) for profile in pool):
        others = [p for p in _unnumbered(pool, profiles) if _fits_memory(p, facts)]
        if others:
            return others, "medium", [shown]
    return pool, "high", [shown]


def _unnumbered(
    pool: list[DeviceProfile], profiles: Sequence[DeviceProfile]
) -> list[DeviceProfile]:
    return [p for p in profiles if p.soc == pool[0].soc and not p.part_numbers]


def _by_soc_or_name(facts: BoardFacts, profiles: Sequence[DeviceProfile]) -> _Found:
    named = [profile for profile in profiles if _names_model(profile, facts.model)]
    if facts.soc is None or facts.compatible_file is None:
        if facts.model_file is None:
            return [], "none", []
        return named, "medium", [_evidence(facts.model_file, facts.model or "", "its name")]
    pool = [p for p in profiles if p.soc.lower() == facts.soc and _fits_memory(p, facts)]
    evidence = [_evidence(facts.compatible_file, facts.soc, "the SoC")]
    named = [profile for profile in named if profile in pool]
    if named and facts.model_file is not None:
        evidence.append(_evidence(facts.model_file, facts.model or "", "its name"))
        return named, "medium", evidence
    return pool, "low", evidence


def _by_firmware(
    facts: BoardFacts, pool: list[DeviceProfile], mode: str | None
) -> tuple[list[DeviceProfile], str | None]:
    """Original or Super, which share a part number; a power mode that only one has outweighs the
    device tree."""
    if not facts.says_super and not facts.part_numbers:
        return pool, None
    chosen = [profile for profile in pool if profile.super_firmware == facts.says_super]
    others = [profile for profile in pool if profile not in chosen]
    if not chosen or not others:
        return pool, None
    if mode is not None and not _any_has(chosen, mode) and _any_has(others, mode):
        says = "says" if facts.says_super else "does not say"
        return others, f"the device tree {says} Super, but only {_names(others)} has mode {mode}"
    return chosen, None


def _any_has(profiles: Sequence[DeviceProfile], mode: str) -> bool:
    return any(profile.find_mode(mode) for profile in profiles)


def _fits_memory(profile: DeviceProfile, facts: BoardFacts) -> bool:
    if facts.memory_bytes is None:
        return True
    return _LEAST_VISIBLE <= facts.memory_bytes / profile.dram_bytes <= 1


def _cores(profile: DeviceProfile) -> int:
    return max(mode.cpu_cores or 0 for mode in profile.modes)


def _names_model(profile: DeviceProfile, model: str | None) -> bool:
    """Whether the model text of a board is one of the profile's, revisions and the like apart."""
    wanted = _model_key(model or "")
    return bool(wanted) and wanted in map(_model_key, profile.device_tree_models)


def _model_key(text: str) -> str:
    words = text.lower().replace("_", " ").replace("-", " ")
    return " ".join(_MODEL_NOISE.sub(" ", words).split())


def _narrow(
    pool: list[DeviceProfile], keep: Callable[[DeviceProfile], bool]
) -> list[DeviceProfile]:
    """Those that also fit a weaker sign; all of them where none does."""
    return [profile for profile in pool if keep(profile)] or pool


def _number_file(facts: BoardFacts) -> str:
    return facts.compatible_file or facts_of.BOOT_CONTROL


def _evidence(file: str, value: str, shows: str) -> Evidence:
    return Evidence(file=file, value=value, shows=shows)


def _names(profiles: Sequence[DeviceProfile]) -> str:
    return " or ".join(profile.name for profile in profiles)
